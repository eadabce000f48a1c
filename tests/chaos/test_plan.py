"""The seed decides everything, and everything that is planned can be carried out."""

import inspect
from collections import Counter
from pathlib import Path

import pytest

from refunds.points import parse
from tests.chaos import doers, faults
from tests.chaos.plan import ERRANDS, FAULTS, POINTS, REFUNDS_OF, Plan
from tests.chaos.truth import CHECKS, group_sum

DOCS = Path(__file__).parents[2] / "docs" / "chaos.md"


def test_the_same_seed_gives_the_same_plan_and_another_another() -> None:
    one, same, other = Plan(7, 500, 100), Plan(7, 500, 100), Plan(8, 500, 100)

    assert list(one.errands()) == list(same.errands())
    assert one.troubles() == same.troubles()
    assert list(one.errands()) != list(other.errands())
    assert one.troubles() != other.troubles()
    first, again = (next(plan.errands()).stream() for plan in (one, same))
    assert [first.random() for _ in range(5)] == [again.random() for _ in range(5)]


@pytest.mark.parametrize("refunds", [1, 2, 3, 40, 1_001])
def test_exactly_so_many_refunds_are_asked_for_and_the_faults_lie_among_them(refunds: int) -> None:
    plan = Plan(3, refunds, 50)

    assert sum(errand.refunds for errand in plan.errands()) == refunds
    places = [fault.at for fault in plan.troubles()]
    assert len(places) == 50
    assert places == sorted(places)
    assert all(0 <= place < refunds for place in places)


def test_a_long_plan_has_everything_in_it_and_all_of_it_can_be_carried_out() -> None:
    plan = Plan(1, 3_000, 2_000)

    assert {errand.kind for errand in plan.errands()} == set(ERRANDS) == set(doers.DOERS)
    assert set(REFUNDS_OF) <= set(ERRANDS)
    kinds = Counter(fault.kind for fault in plan.troubles())
    assert set(kinds) == set(FAULTS)
    for fault in plan.troubles():
        inspect.signature(getattr(faults.Faults, fault.kind)).bind(None, fault, **fault.details)


def test_the_docs_name_every_fault_and_every_check() -> None:
    page = DOCS.read_text()

    assert [name for name in (*FAULTS, *CHECKS, group_sum.__name__) if f"`{name}`" not in page] == []


def test_every_crash_point_of_a_plan_can_be_armed() -> None:
    rules = [fault.details["rule"] for fault in Plan(1, 3_000, 3_000).troubles() if fault.kind == "crash_at"]

    assert {rule.split("=")[0] for rule in rules} == set(POINTS)
    assert all(len(parse(rule)) == 1 for rule in rules)
