"""People, facts as recorded, and the bounds of a reading."""

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from refunds.classification import Intent, Proposal, Reading
from refunds.facts import Facts, ReadingFacts
from refunds.people import PERSONS_ONLY, Actor, PrincipalKind, Role


def test_a_manager_may_do_what_a_reviewer_may_and_nothing_else_is_implied() -> None:
    for held in Role:
        actor = Actor(principal_id="pr_1", handle="ada", name="Ada", kind=PrincipalKind.PERSON, roles=frozenset({held}))
        implied = {held, Role.REVIEWER} if held is Role.MANAGER else {held}
        assert {wanted for wanted in Role if actor.has(wanted)} == implied
    assert not Actor(principal_id="pr_1", handle="ada", name="Ada", kind=PrincipalKind.PERSON).has(*Role)


def test_judging_is_for_persons() -> None:
    assert {Role.REVIEWER, Role.MANAGER, Role.FRAUD, Role.SETTLER} == PERSONS_ONLY


def test_facts_are_recorded_as_plain_json(facts: Callable[..., Facts]) -> None:
    plain = facts(reading=ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 90, ("a",))).plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["at"] == plain["request"]["requested_at"] == "2026-09-10T12:00:00.000000Z"
    assert plain["reading"]["manipulation"] == ["a"]
    assert facts().plain()["reading"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rationale", "x" * 2_001),
        ("product_lines", ["x"] * 51),
        ("manipulation", ["x"] * 21),
        ("order_reference", "x" * 201),
        ("confidence", 101),
        ("amount", -1),
        ("intent", "pay_me"),
        ("approver", "me"),
    ],
)
def test_field_63_a_reading_outside_its_bounds_is_an_error(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        Reading.model_validate({"intent": "refund", field: value})
