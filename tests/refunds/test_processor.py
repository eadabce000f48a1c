"""What an answer of the processor means."""

from dataclasses import replace

import pytest

from refunds.errors import Code
from refunds.money import Money
from refunds.processor import NotSent, ProcessorRefund, RefundState, Refused, Unknown, conclude
from refunds.status import Event, Status, allows

APPROVED = Money(2_500, "USD")
ANSWER = ProcessorRefund("re_1", "pi_1", 2_500, "usd", RefundState.SUCCEEDED, "succeeded")


@pytest.mark.parametrize(
    ("state", "event", "code"),
    [
        (RefundState.PENDING, Event.PROCESSOR_PENDING, None),
        (RefundState.REQUIRES_ACTION, Event.PROCESSOR_PENDING, None),
        (RefundState.SUCCEEDED, Event.PROCESSOR_SUCCEEDED, None),
        (RefundState.FAILED, Event.PROCESSOR_FAILED, Code.PROCESSOR_FAILED),
        (RefundState.CANCELED, Event.PROCESSOR_FAILED, Code.PROCESSOR_FAILED),
        (RefundState.UNKNOWN, Event.PARK, Code.STATUS_UNKNOWN),
    ],
)
def test_field_16_five_states_and_the_unknown(state: RefundState, event: Event, code: Code | None) -> None:
    found = conclude(replace(ANSWER, state=state, raw_state=state.value), amount=APPROVED, processor_payment="pi_1")
    assert (found.event, found.code) == (event, code)
    assert allows(Status.SUBMITTING, found.event)


def test_field_16_every_state_is_in_the_table() -> None:
    for state in RefundState:
        conclude(replace(ANSWER, state=state), amount=APPROVED, processor_payment="pi_1")


@pytest.mark.parametrize("raw", ["something_new", "", "x" * 10_000])
def test_field_16_an_unknown_state_keeps_the_raw_word_bounded(raw: str) -> None:
    found = conclude(replace(ANSWER, state=RefundState.UNKNOWN, raw_state=raw), amount=APPROVED, processor_payment="pi_1")
    assert raw[:60] in found.detail
    assert len(found.detail) < 120


@pytest.mark.parametrize("state", list(RefundState))
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"amount": 10_000}, "amount: approved 2500, answered 10000"),
        ({"currency": "eur"}, "currency: approved USD, answered EUR"),
        ({"processor_payment": "pi_2"}, "payment: approved pi_1, answered pi_2"),
    ],
)
def test_field_29_an_answer_that_is_not_what_was_approved_is_parked(state: RefundState, changed: dict[str, object], words: str) -> None:
    found = conclude(replace(ANSWER, state=state, **changed), amount=APPROVED, processor_payment="pi_1")  # pyright: ignore[reportArgumentType]
    assert (found.event, found.code, found.detail) == (Event.PARK, Code.RESPONSE_MISMATCH, words)


def test_field_29_all_differences_are_named() -> None:
    found = conclude(replace(ANSWER, amount=1, currency="eur"), amount=APPROVED, processor_payment="pi_9")
    assert found.detail.count(": approved ") == 3


def test_a_failure_keeps_the_processors_reason() -> None:
    failed = replace(ANSWER, state=RefundState.FAILED, failure_reason="expired_or_canceled_card")
    assert conclude(failed, amount=APPROVED, processor_payment="pi_1").detail == "expired_or_canceled_card"


def test_only_failed_and_canceled_refunds_do_not_count() -> None:
    assert {state for state in RefundState if not state.counts} == {RefundState.FAILED, RefundState.CANCELED}


def test_the_three_ways_to_fail_are_not_kinds_of_each_other() -> None:
    kinds = (Refused, NotSent, Unknown)
    assert [[issubclass(a, b) for b in kinds] for a in kinds] == [[a is b for b in kinds] for a in kinds]
    assert str(Refused("charge_disputed", "no", code="charge_disputed")) == "charge_disputed: no"
    assert str(NotSent("no_connection")) == "no_connection"
