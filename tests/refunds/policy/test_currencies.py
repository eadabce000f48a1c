"""Limits over all currencies together, in the base currency: what a rate says counts, and what nobody can tell goes to a person (promise P11)."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from refunds.facts import Check, Facts, PolicyDecision
from refunds.policy import PolicyError, evaluate, load_policy, policy_hash
from refunds.policy.model import Policy
from tests.policies import without_limits
from tests.refunds.conftest import NOW

Build = Callable[..., Facts]
SAMPLE = without_limits()
BEFORE = Path(__file__).with_name("published_before.yaml")
"""A policy as it was written before later settings were added."""

NAMED = "\nbase_currency: USD\n"
AGE = "\nrates_at_most_days_old: 7\n"
ONE_EURO = {"amount": 5_417, "rate": "1.0834", "rate_id": "rate_1", "rate_at": NOW - timedelta(days=2)}
"""What fifty euros count as."""


def changed(*changes: tuple[str, str]) -> str:
    text = SAMPLE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def judged(policy: str, facts: Facts, check: str) -> Check:
    [found] = [c for c in evaluate(load_policy(policy), facts).checks if c.id == check]
    return found


def euros(facts: Build, base: dict[str, Any], **parts: Any) -> Facts:
    return facts(request={"amount": 5_000, "currency": "EUR"}, payment={"currency": "EUR"}, base=base, **parts)


def needs(decision: PolicyDecision) -> list[str]:
    return [check.id for check in decision.checks if check.result != "pass"]


def test_field_36_all_currencies_count_together_in_the_base_currency(facts: Build) -> None:
    within = euros(facts, ONE_EURO | {"amount_today": 9_583})
    check = judged(SAMPLE, within, "customer_day_all")
    assert (check.observed, check.limit, check.result) == ("$150.00 with this one, $95.83 before", "$150.00 a day", "pass")
    assert judged(SAMPLE, within, "customer_day").observed == "€50.00 with this one, €0.00 before"

    decision = evaluate(load_policy(SAMPLE), euros(facts, ONE_EURO | {"amount_today": 9_584}))
    assert (needs(decision), decision.outcome) == (["customer_day_all"], "proceed")
    refusing = changed(("when_exceeded: review", "when_exceeded: deny"))
    assert evaluate(load_policy(refusing), euros(facts, ONE_EURO | {"amount_today": 9_584})).code == "LIMIT_EXCEEDED"


def test_the_rate_is_named_with_when_it_holds(facts: Build) -> None:
    check = judged(SAMPLE, euros(facts, ONE_EURO | {"amount_today": 0}), "exchange_rate")
    assert (check.observed, check.result) == ("1 EUR = 1.0834 USD since 2026-09-08T12:00:00.000000Z (rate_1)", "pass")
    own = judged(SAMPLE, facts(), "exchange_rate")
    assert (own.observed, own.limit, own.result) == ("USD is the base currency", "no rate needed", "pass")


def test_a_missing_rate_means_a_person_and_says_how_to_add_it(facts: Build) -> None:
    refusing = changed(("when_exceeded: review", "when_exceeded: deny"))
    missing = euros(facts, {"amount": None, "amount_today": 14_999})

    decision = evaluate(load_policy(refusing), missing)

    assert (decision.outcome, decision.tier, needs(decision)) == ("proceed", 3, ["exchange_rate", "customer_day_all"])
    check = judged(refusing, missing, "exchange_rate")
    assert check.observed == "no rate of EUR in USD is recorded"
    assert check.limit == "a rate at most 7 days old; to add one: refunds rates set EUR RATE --base USD --source WHERE"
    assert judged(refusing, missing, "customer_day_all").observed == "unknown with this one, $149.99 before"


@pytest.mark.parametrize(("age", "result"), [(timedelta(days=7), "pass"), (timedelta(days=7, seconds=1), "require_review")])
def test_an_old_rate_means_a_person(facts: Build, age: timedelta, result: str) -> None:
    assert judged(SAMPLE, euros(facts, ONE_EURO | {"amount_today": 0, "rate_at": NOW - age}), "exchange_rate").result == result


def test_what_was_refunded_today_and_cannot_be_counted_is_no_zero(facts: Build) -> None:
    refusing = changed(("when_exceeded: review", "when_exceeded: deny"))
    also = facts(base={"not_counted": ("ISK", "JPY")})

    check = judged(refusing, also, "customer_day_all")

    assert check.result == "require_review"
    assert check.observed == "$30.00 with this one, $0.00 before; also in ISK, JPY, of which no worth is recorded"


def test_facts_of_another_base_currency_count_as_unknown(facts: Build) -> None:
    check = judged(SAMPLE, facts(base={"currency": "EUR"}), "customer_day_all")
    assert (check.observed, check.result) == ("unknown", "require_review")
    gone = judged(changed((NAMED, "\nbase_currency: CAD\n")), facts(), "exchange_rate")
    assert (gone.observed, gone.result) == ("no rate of USD in CAD is recorded", "require_review")


def test_without_a_base_currency_two_currencies_on_one_day_mean_a_person(facts: Build) -> None:
    without = changed((NAMED, ""), (AGE, ""))
    alone = facts(base={"currency": None, "amount": None, "amount_today": None})
    both = facts(base={"currency": None, "amount": None, "amount_today": None, "not_counted": ("EUR",)})

    assert needs(evaluate(load_policy(without), alone)) == []
    assert needs(evaluate(load_policy(without), both)) == ["customer_day_all"]


def one_currency() -> str:
    return only_dollars(changed((NAMED, ""), (AGE, "")))


def only_dollars(text: str) -> str:
    others = ("EUR", "GBP", "CAD", "AUD", "CHF", "JPY", "INR", "KWD", "BHD")
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith(tuple(f"{code}: {{" for code in others)))


def test_the_only_currency_is_the_base_currency() -> None:
    policy = load_policy(one_currency())
    assert (list(policy.currencies), policy.base_currency, policy.base) == (["USD"], None, "USD")


def told(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PolicyError) as raised:
        load_policy(text)
    return [(problem.line, problem.path, f"{problem.problem}. {problem.remedy}") for problem in raised.value.problems]


def line_of(text: str, beginning: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith(beginning))


@pytest.mark.parametrize(
    ("changes", "name", "said"),
    [
        ([("base_currency: USD", "base_currency: NOK")], "base_currency", "NOK has no ceilings under currencies. Use one of: USD, EUR"),
        ([("base_currency: USD", "base_currency: usd")], "base_currency", "'usd' is not taken here"),
        ([("base_currency: USD", "base_currency: 840")], "base_currency", "840 is of the wrong kind. Write text."),
        ([(NAMED, "\n")], "rates_at_most_days_old", "without base_currency nothing is converted. Add base_currency, or remove this."),
        ([(AGE, "\nrates_at_most_days_old: 0\n")], "rates_at_most_days_old", "0 is not taken here"),
        ([(AGE, "\nrates_at_most_days_old: 1.5\n")], "rates_at_most_days_old", "is of the wrong kind. Write a whole number."),
    ],
)
def test_a_wrong_setting_is_told_with_line_and_field(changes: list[tuple[str, str]], name: str, said: str) -> None:
    text = changed(*changes)
    [(line, path, problem)] = told(text)
    assert (line, path) == (line_of(text, name), name)
    assert said in problem


def test_a_policy_without_these_settings_keeps_its_hash() -> None:
    """Recorded before there were such settings."""
    text = BEFORE.read_text(encoding="utf-8")
    assert text.count(NAMED) == text.count(AGE) == 1
    assert policy_hash(only_dollars(text.replace(NAMED, "").replace(AGE, ""))) == (
        "27d52f2e35af6a7f5173ea671543a56dc1635ea5f23bff3b62fbdd5242377e48"
    )
    assert policy_hash(SAMPLE) != policy_hash(changed((NAMED, "\nbase_currency: EUR\n")))
    assert policy_hash(SAMPLE) != policy_hash(changed((AGE, "\nrates_at_most_days_old: 8\n")))
    assert isinstance(load_policy(SAMPLE), Policy)
