"""What is not as it was, in words, and what of it a person looks at again."""

from copy import deepcopy
from typing import Any

import pytest

from refunds.differences import OTHERWISE, TERMS, differences, moved_meanwhile
from refunds.facts import PolicyDecision, Review, Rung
from refunds.requoting import reviewed_again
from refunds.terms import Terms
from tests.refunds.conftest import GOOD
from tests.refunds.test_terms import OTHER
from tests.refunds.test_terms import TERMS as EXACT

FACTS: dict[str, Any] = {
    "payment": {"status": "captured", "currency": "USD", "remaining": 10_000, "dispute": "none"},
    "order": {
        "version": 2,
        "placed_at": None,
        "delivered_at": "2026-05-25T00:00:00Z",
        "categories": ["shoes"],
        "currency": "USD",
        "total": 10_000,
    },
}
BEFORE: dict[str, Any] = {"amount": 3_000, "currency": "USD", "terms": EXACT.canonical(), "facts": FACTS}


def after(**changed: Any) -> dict[str, Any]:
    """The same a moment later, with what is ``changed``: dotted paths, with __ for dots."""
    made = deepcopy(BEFORE)
    for path, value in changed.items():
        *way, last = path.split("__")
        place = made
        for step in way:
            place = place[step]
        place[last] = value
    return made


def test_every_field_of_the_terms_is_compared_or_is_compared_otherwise() -> None:
    assert set(TERMS) | OTHERWISE == set(Terms.model_fields)
    assert not set(TERMS) & OTHERWISE


@pytest.mark.parametrize("field", [*sorted(TERMS), "legs", "flow"])
def test_any_term_that_differs_is_shown(field: str) -> None:
    then = after()
    then["terms"] = EXACT.model_copy(update={field: OTHER[field]}).canonical()

    [found] = differences(BEFORE, then)

    assert (found.field, found.by_itself) == (field, False)
    assert found.words.endswith(".")


def test_nothing_that_differs_is_nothing_to_show() -> None:
    assert differences(BEFORE, after()) == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"facts__payment__remaining": 6_000}, ["What is still refundable: $60.00; it was $100.00."]),
        ({"facts__payment__dispute": "inquiry"}, ["The dispute of the payment: inquiry; it was none."]),
        ({"facts__payment__status": "canceled"}, ["The payment's state at the processor: canceled; it was captured."]),
        ({"facts__order__version": 3}, ["The version of the order: 3; it was 2."]),
        (
            {"facts__order__version": 3, "facts__order__total": 9_000, "facts__order__categories": ["shoes", "final_sale"]},
            [
                "The version of the order: 3; it was 2.",
                "The categories of goods: shoes, final sale; it was shoes.",
                "What the order comes to: $90.00; it was $100.00.",
            ],
        ),
        (
            {"amount": 2_500, "facts__payment__remaining": 2_500},
            ["What is still refundable: $25.00; it was $100.00.", "The amount is $25.00; it was $30.00."],
        ),
        ({"terms": None}, ["There are no exact terms any more."]),
    ],
)
def test_each_difference_is_one_sentence_with_both_values(changed: dict[str, Any], words: list[str]) -> None:
    expected = [one.replace("final sale", "final_sale") for one in words]

    assert [one.words for one in differences(BEFORE, after(**changed))] == expected


def test_more_or_less_that_is_refundable_matters_where_the_amount_hangs_on_it() -> None:
    other_refunds = differences(BEFORE, after(facts__payment__remaining=6_000))
    less_for_this = differences(BEFORE, after(facts__payment__remaining=2_500, amount=2_500))

    assert moved_meanwhile(other_refunds) == ()  # two honest refunds of one payment: neither sends the other back
    assert [one.field for one in moved_meanwhile(less_for_this)] == ["refundable"]


@pytest.mark.parametrize("path", ["facts__payment__dispute", "facts__payment__status", "facts__order__version"])
def test_a_dispute_a_state_and_an_order_that_moved_matter_always(path: str) -> None:
    assert len(moved_meanwhile(differences(BEFORE, after(**{path: "other" if "payment" in path else 3})))) == 1


TEAM = Review("reviewer", 1, (Rung("team", "reviewer", 60, 600),))
MANAGERS = Review("manager", 1, (Rung("managers", "manager", 60, 600),))


def decided(review: Review | None) -> PolicyDecision:
    return PolicyDecision(
        "proceed", 2 if review is None else 3, consent=False, consent_within_s=60, review=review, checks=(), terms_valid_s=60
    )


def test_terms_that_only_lapsed_need_no_person_who_was_not_needed_before() -> None:
    facts = GOOD
    before = {"amount": facts.request.amount, "currency": facts.request.currency, "facts": facts.plain()}

    again = reviewed_again(decided(None), facts, before, None, TEAM)

    assert (again.review, again.tier, again.checks) == (None, 2, ())


def test_what_a_person_had_approved_a_person_approves_again() -> None:
    facts = GOOD
    before = {"amount": facts.request.amount, "currency": facts.request.currency, "facts": facts.plain()}

    again = reviewed_again(decided(None), facts, before, MANAGERS, TEAM)

    assert (again.review, again.tier, [c.id for c in again.checks]) == (MANAGERS, 4, ["reviewed_before"])


def test_what_has_moved_is_for_a_person_and_a_stricter_review_stays() -> None:
    facts = GOOD
    plain = facts.plain()
    before = {
        "amount": facts.request.amount,
        "currency": facts.request.currency,
        "facts": plain | {"order": plain["order"] | {"version": 99}},
    }

    automatic, managed = (reviewed_again(decided(review), facts, before, None, TEAM) for review in (None, MANAGERS))

    assert (automatic.review, automatic.tier, managed.review) == (TEAM, 3, MANAGERS)
    for again in (automatic, managed):
        [check] = again.checks
        assert (check.id, check.result) == ("moved_meanwhile", "require_review")
        assert "it was 99" in check.observed
