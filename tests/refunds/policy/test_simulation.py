"""Simulations: what counts as a change, sums that can be shared among processes, and the processes."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refunds.facts import Facts
from refunds.policy import Policy, evaluate, load_policy, sample_policy, sample_policy_text
from refunds.policy import judges as judging
from refunds.policy.judges import JudgeFailed, batch_of, judged
from refunds.policy.limits import assumed
from refunds.policy.simulation import Changed, Direction, Tally, Way, compare, judge_both
from tests.refunds.conftest import GOOD
from tests.refunds.policy import arbitrary
from tests.refunds.policy.test_properties import POLICIES, anything

SAMPLE = sample_policy_text()
STRICT = SAMPLE.replace("consent_only_up_to: 100.00", "consent_only_up_to: 10.00", 1)
Build = Callable[..., Facts]


def compared(facts: Facts, after: str, before: str = SAMPLE) -> Changed | None:
    first, second = load_policy(before), load_policy(after)
    return compare("rf_1", evaluate(first, assumed(first, facts)), evaluate(second, assumed(second, facts)), facts)


def test_a_stricter_ceiling_sends_to_a_reviewer_because_of_the_ceiling() -> None:
    found = compared(GOOD, STRICT)

    assert found is not None
    assert (found.before, found.after, found.tier_before, found.tier_after) == (Way.AUTOMATIC, Way.REVIEWER, 2, 3)
    assert (found.direction, found.checks, found.amount, found.currency, found.reason) == (
        Direction.STRICTER,
        ("ceiling",),
        3_000,
        "USD",
        "customer_request",
    )
    back = compared(GOOD, SAMPLE, STRICT)
    assert back is not None
    assert back.direction is Direction.LOOSER


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: Sample policy", "name: Ours"),
        ("not_covered: This", "not_covered: Sorry, this"),
        ("within: 3d", "within: 4d"),
        ("terms_valid_for: 24h", "terms_valid_for: 23h"),
    ],
)
def test_words_and_times_that_ask_nobody_for_more_change_nothing(old: str, new: str) -> None:
    assert compared(GOOD, SAMPLE.replace(old, new, 1)) is None


def test_another_ladder_is_a_change_even_in_the_same_tier(facts: Build) -> None:
    young = facts(customer={"account_age_days": 1})
    two = SAMPLE.replace("    people: 1", "    people: 2", 1)

    found = compared(young, two)

    assert found is not None
    assert (found.before, found.after, found.direction) == (Way.REVIEWER, Way.MANAGER, Direction.STRICTER)


def test_a_denial_for_another_reason_is_neither_stricter_nor_looser(facts: Build) -> None:
    odd = facts(request={"channel": "fax"}, order={"categories": ("final_sale",)})
    found = compared(odd, SAMPLE.replace("any_other: deny", "any_other: review", 1))

    assert found is not None
    assert (found.before, found.after, found.direction) == (Way.DENIED, Way.DENIED, Direction.OTHER)


@given(
    st.lists(st.tuples(anything | arbitrary.facts, st.integers(0, 2)), max_size=12), st.sampled_from(POLICIES), st.sampled_from(POLICIES)
)
def test_shared_work_comes_to_the_same_sums(requests: list[tuple[Facts, int]], before: Policy, after: Policy) -> None:
    whole, parts = Tally(), [Tally(), Tally(), Tally()]
    for number, (facts, part) in enumerate(sorted(requests, key=lambda one: one[1])):
        for tally in (whole, parts[part]):
            judge_both(before, after, f"r{number}", facts, tally)
            if number % 4 == 3:
                tally.leave_out("odd", f"r{number}")
    merged = Tally()
    for part in parts:
        merged.merge(json.loads(json.dumps(part.plain())))

    assert merged.summary() == whole.summary()
    assert merged.changed == merged.summary()["changed"] <= len(requests)
    outcomes, tiers = whole.summary()["outcomes"], whole.summary()["tiers"]
    for at in ("before", "after"):
        assert sum(both[at] for both in outcomes.values()) == whole.requests
        assert sum(both[at] for both in tiers.values()) == whole.requests - outcomes["denied"][at]


@given(anything | arbitrary.facts, st.sampled_from(POLICIES), st.sampled_from(POLICIES))
def test_there_and_back_are_opposite(facts: Facts, before: Policy, after: Policy) -> None:
    first, second = evaluate(before, facts), evaluate(after, facts)
    there, back = compare("x", first, second, facts), compare("x", second, first, facts)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        opposite = {Direction.STRICTER: Direction.LOOSER, Direction.LOOSER: Direction.STRICTER, Direction.OTHER: Direction.OTHER}
        assert back.direction is opposite[there.direction]
        assert back.checks == there.checks or set(back.checks) == set(there.checks)


# --- processes ---------------------------------------------------------------------------------------------------------------------------


async def batches(count: int, size: int = 20) -> AsyncIterator[str]:
    for batch in range(count):
        amounts = range(batch * size, (batch + 1) * size)
        yield batch_of([(f"r{n}", json.dumps(replace(GOOD, request=replace(GOOD.request, amount=500 + n)).plain())) for n in amounts])


async def test_results_come_in_the_order_of_the_batches_and_are_those_of_one_process() -> None:
    tally, changed = Tally(), list[str]()
    async for result in judged(SAMPLE, STRICT, batches(30)):
        tally.merge(result["tally"])
        changed += [one["id"] for one in result["changed"]]

    alone = Tally()
    for n in range(600):
        judge_both(sample_policy(), load_policy(STRICT), f"r{n}", replace(GOOD, request=replace(GOOD.request, amount=500 + n)), alone)
    assert tally.summary() == alone.summary()
    assert changed == [f"r{n}" for n in range(501, 600)], "those above $10.00"


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "refunds.policy.judging" in " ".join(child.cmdline())]


async def test_the_processes_know_no_secret_and_end_with_whoever_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_secret")
    async with aclosing(judged(SAMPLE, STRICT, batches(1_000))) as results:
        async for _ in results:
            running = children()
            assert len(running) == min(judging.MOST, os.cpu_count() or 1)
            assert all(not {"DATABASE_URL", "STRIPE_API_KEY"} & process.environ().keys() for process in running)
            break

    assert children() == []


async def test_a_simulation_that_is_cut_off_leaves_no_process() -> None:
    async def endless() -> AsyncIterator[str]:
        async for batch in batches(1):
            while True:
                yield batch

    seen = asyncio.Event()

    async def watch() -> None:
        async with aclosing(judged(SAMPLE, STRICT, endless())) as results:
            async for _ in results:
                seen.set()

    task = asyncio.create_task(watch())
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert children() == []


async def test_a_judge_that_dies_ends_the_simulation_and_not_quietly() -> None:
    with pytest.raises(JudgeFailed):
        async for _ in judged(SAMPLE, STRICT, batches(1_000)):
            for process in children():
                process.kill()

    assert children() == []


@pytest.mark.parametrize("batch", ["[", '[["a"]]', "{}", "[[1, 2, 3]]"])
async def test_a_batch_that_is_none_is_no_result(batch: str) -> None:
    async def one() -> AsyncIterator[str]:
        yield batch

    if batch == "{}":
        assert [result["tally"]["requests"] async for result in judged(SAMPLE, STRICT, one())] == [0]
        return
    with pytest.raises(JudgeFailed):
        async for _ in judged(SAMPLE, STRICT, one()):
            pass


@settings(max_examples=20)
@given(st.text(max_size=20))
def test_any_id_is_handed_over_as_it_is(identifier: str) -> None:
    [[found, _]] = json.loads(batch_of([(identifier, "{}")]))
    assert found == identifier


def test_what_is_left_out_is_counted_with_a_few_examples() -> None:
    tally = Tally()
    for number in range(9):
        tally.leave_out("odd", f"r{number}")
    other: dict[str, Any] = json.loads(json.dumps(tally.plain()))
    tally.merge(other)

    assert tally.summary()["left_out"] == [{"why": "odd", "requests": 18, "examples": ["r0", "r1", "r2", "r3", "r4"]}]


def test_a_limit_of_which_nothing_was_recorded_is_taken_to_have_room_and_said_so() -> None:
    tally = Tally()
    new = "\nlimits:\n  - {name: brand_new, who: customer, refunds: 1, window: 7d, taken: reserved, when_exceeded: deny}\n"

    after = load_policy(SAMPLE.replace("\nlimits:\n", new, 1))
    found = judge_both(sample_policy(), after, "rf_1", assumed(sample_policy(), GOOD), tally)

    assert (found, tally.summary()["limits_taken_to_have_room"]) == (None, {"brand_new": 1})
