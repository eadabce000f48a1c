"""The sections ``limits`` and ``breakers``: what is wrong is told with line and field, and what a limit makes of facts."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from refunds.errors import Code
from refunds.facts import Facts, LimitFacts
from refunds.limits import Calendar, Stage, Who, Window
from refunds.policy import Policy, PolicyError, evaluate, load_policy, policy_hash, sample_policy
from tests.policies import with_breakers, with_limits, without_limits

Build = Callable[..., Facts]
OPENS = datetime(2026, 9, 10, 13, tzinfo=UTC)


def policy(*written: str) -> Policy:
    return load_policy(with_limits(*written))


def problems(text: str) -> list[tuple[str, str]]:
    with pytest.raises(PolicyError) as refused:
        load_policy(text)
    lines = text.splitlines()
    for problem in refused.value.problems:
        assert "- {" in lines[problem.line - 1], problem
        assert problem.remedy
    return [(one.path, one.problem) for one in refused.value.problems]


GOOD = "name: a, who: agent, refunds: 5, window: 60s"


@pytest.mark.parametrize(
    ("written", "path", "said"),
    [
        ("name: a, who: agent, refunds: -5, window: 60s", "limits.0.refunds", "-5 is not taken here"),
        ("name: a, who: agent, refunds: 0, window: 60s", "limits.0.refunds", "0 is not taken here"),
        ("name: a, who: agent, amount: -5.00, window: 60s", "limits.0.amount", "not an amount"),
        ("name: a, who: agent, amount: 0.00, window: 60s", "limits.0.amount", "not an amount"),
        ("name: a, who: agent, amount: 5, window: 60s", "limits.0.amount", "not an amount"),
        ("name: a, who: agent, refunds: 5, window: day, zone: Mars/Olympus", "limits.0.zone", "'Mars/Olympus' is not taken here"),
        ("name: a, who: agent, refunds: 5, window: day", "limits.0.window", "a calendar day is one of a zone"),
        ("name: a, who: agent, refunds: 5, window: 60s, zone: UTC", "limits.0.zone", "a rolling window has no zone"),
        ("name: a, who: agent, refunds: 5, window: year, zone: UTC", "limits.0.window", "'year' is not taken here"),
        ("name: a, who: agent, refunds: 5, window: 32d", "limits.0.window", "'32d' is not taken here"),
        ("name: a, who: robots, refunds: 5, window: 60s", "limits.0.who", "'robots' is not taken here"),
        ("name: a, who: agent, window: 60s", "limits.0", "it must say refunds or amount, and not both"),
        (
            "name: a, who: agent, refunds: 5, amount: 5.00, window: 60s, taken: reserved",
            "limits.0",
            "it must say refunds or amount, and not both",
        ),
        (f"{GOOD}, taken: reserved, when_exceeded: hold", "limits.0.when_exceeded", "nothing can be held when terms are reserved"),
        (f"{GOOD}, taken: sent, when_exceeded: deny", "limits.0.when_exceeded", "what is about to be sent can only be held"),
        (
            "name: a, who: agent, amount: 500.00, window: 60s",
            "limits.0.amount",
            "a refund of the largest amount ($10,000.00) could never be sent",
        ),
        (f"{GOOD}, per: 5", "limits.0.per", "this name is not known"),
        (f"{GOOD}, warn_at_percent: 101", "limits.0.warn_at_percent", "101 is not taken here"),
        (
            "name: a, who: reviewer, refunds: 5, window: 60s, taken: both",
            "limits.0.taken",
            "a reviewer's limit is taken by each decision, which is refused when it does not fit",
        ),
    ],
)
def test_a_wrong_limit_is_told_with_line_and_field(written: str, path: str, said: str) -> None:
    assert (path, said) in problems(with_limits(written))


def test_names_are_there_once() -> None:
    assert problems(with_limits(GOOD, GOOD)) == [("limits.1.name", "the name a is there twice")]


def test_an_amount_needs_a_base_currency() -> None:
    text = with_limits("name: a, who: agent, amount: 500.00, window: 60s, taken: reserved").replace("\nbase_currency: USD\n", "\n")
    text = text.replace("\nrates_at_most_days_old: 7\n", "\n")
    assert problems(text) == [("limits.0.amount", "without base_currency nobody knows in which currency")]


CALM = "name: a, scope: everything, watches: volume, times: 5, at_least: 20, cool_down: 30m, half_open_per_hour: 5"


@pytest.mark.parametrize(
    ("written", "path", "said"),
    [
        (CALM.replace("times: 5, ", ""), "breakers.0", "one that watches volume needs times"),
        (CALM + ", percent: 5", "breakers.0.percent", "one that watches volume has no percent"),
        (CALM.replace("volume", "failures"), "breakers.0.times", "one that watches failures has no times"),
        (CALM.replace("times: 5", "times: 1"), "breakers.0.times", "1 is not taken here"),
        (CALM.replace("at_least: 20", "at_least: 1"), "breakers.0.at_least", "1 is not taken here"),
        (CALM + ", usual_over: 30m", "breakers.0.usual_over", "less than an hour tells of no usual hour"),
        (CALM.replace("everything", "all"), "breakers.0.scope", "'all' is not taken here"),
        (CALM.replace("volume", "weather"), "breakers.0.watches", "'weather' is not taken here"),
        (CALM.replace("half_open_per_hour: 5", "half_open_per_hour: 0"), "breakers.0.half_open_per_hour", "0 is not taken here"),
    ],
)
def test_a_wrong_breaker_is_told_with_line_and_field(written: str, path: str, said: str) -> None:
    assert (path, said) in problems(with_breakers(written))


def test_what_is_written_is_what_is_read() -> None:
    one, other = policy(
        "name: a, who: customer, amount: 600.00, window: month, zone: Europe/Berlin, taken: reserved, when_exceeded: deny, warn_at_percent: 80",
        "name: b, who: everyone, refunds: 60, window: 90m",
    ).limits
    assert (one.who, one.at_most, one.counts_money, one.over) == (Who.CUSTOMER, 60_000, True, Window(Calendar.MONTH, "Europe/Berlin"))
    assert (one.is_taken(Stage.RESERVED), one.is_taken(Stage.SENT), one.when_exceeded, one.warn_at_percent) == (True, False, "deny", 80)
    assert (other.at_most, other.counts_money, other.over, other.when_exceeded) == (60, False, Window(seconds=5_400), "review")
    assert other.is_taken(Stage.RESERVED)
    assert other.is_taken(Stage.SENT)


@pytest.mark.parametrize(
    ("base", "written", "read"),
    [("USD", "250000000.00", 25_000_000_000), ("JPY", "9000000", 9_000_000), ("KWD", "0.010", 10), ("USD", "0.01", 1)],
)
def test_an_amount_is_read_in_the_base_currency_and_may_be_more_than_one_refund_can_be(base: str, written: str, read: int) -> None:
    text = with_limits(f"name: a, who: everyone, amount: {written}, window: month, zone: UTC, taken: reserved")
    assert load_policy(text.replace("base_currency: USD", f"base_currency: {base}")).limits[0].at_most == read


def test_a_policy_without_these_sections_keeps_its_hash_and_one_with_them_has_another() -> None:
    bare = load_policy(without_limits())
    assert policy_hash(bare) == policy_hash(bare.model_copy(update={"limits": (), "breakers": ()}))
    assert len({policy_hash(bare), policy_hash(policy(GOOD)), policy_hash(load_policy(with_breakers(CALM)))}) == 3


def test_the_sample_has_a_limit_of_every_kind_and_breakers_of_all_they_watch() -> None:
    sample = sample_policy()
    assert {limit.who for limit in sample.limits} == set(Who) - {Who.AGENTS}
    assert {breaker.watches.value for breaker in sample.breakers} == {"volume", "amount", "failures", "parked"}


def with_facts(facts: Facts, *limits: LimitFacts) -> Facts:
    return replace(facts, limits=limits)


@pytest.mark.parametrize(
    ("then", "found", "outcome", "reviewed", "code"),
    [
        ("deny", LimitFacts("a", 4, 1), "proceed", False, None),
        ("deny", LimitFacts("a", 5, 1, opens_at=OPENS), "deny", False, "LIMIT_EXCEEDED"),
        ("deny", LimitFacts("a", 5, 1, kept=True), "proceed", False, None),
        ("deny", LimitFacts("a", 4, 1, uncounted=1), "proceed", True, None),
        ("deny", LimitFacts("a", 4, None), "proceed", True, None),
        ("deny", LimitFacts("a", 6, None), "deny", False, "LIMIT_EXCEEDED"),
        ("review", LimitFacts("a", 5, 1, opens_at=OPENS), "proceed", True, None),
        ("hold", LimitFacts("a", 5, 1, opens_at=OPENS), "proceed", False, None),
    ],
)
def test_what_a_limit_makes_of_facts(facts: Build, then: str, found: LimitFacts, outcome: str, reviewed: bool, code: str | None) -> None:
    rules = policy(f"name: a, who: everyone, refunds: 5, window: 1h, when_exceeded: {then}")

    decision = evaluate(rules, with_facts(facts(), found))

    assert (decision.outcome, decision.review is not None, decision.code) == (outcome, reviewed, code)
    [standing] = decision.limits
    assert (standing.used, standing.left, standing.exceeded) == (
        found.used,
        max(0, 5 - found.used),
        not (found.kept or found == LimitFacts("a", 4, 1)),
    )


def test_a_limit_of_which_nothing_was_gathered_is_not_known_and_a_person_looks(facts: Build) -> None:
    rules = policy("name: a, who: everyone, refunds: 5, window: 1h, when_exceeded: deny")
    decision = evaluate(rules, with_facts(facts()))
    assert (decision.outcome, decision.review is not None) == ("proceed", True)


def test_a_limit_of_agents_does_not_concern_a_person(facts: Build) -> None:
    rules = policy("name: a, who: agent, refunds: 5, window: 1h, when_exceeded: deny")
    assert evaluate(rules, with_facts(facts())).review is None
    by_agent = facts(request={"agent_id": "bot", "amount_named_by_customer": True})
    assert evaluate(rules, with_facts(by_agent)).review is not None


def test_the_explanation_says_what_is_used_and_when_it_opens(facts: Build) -> None:
    rules = policy("name: a, who: everyone, refunds: 5, window: 1h, when_exceeded: deny")
    decision = evaluate(rules, with_facts(facts(), LimitFacts("a", 5, 1, opens_at=OPENS)))
    assert "5 refunds used, 0 refunds left; it opens again at 2026-09-10T13:00:00.000000Z" in decision.explanation
    assert decision.code == Code.LIMIT_EXCEEDED
