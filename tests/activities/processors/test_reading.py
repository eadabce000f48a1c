"""What is read of a payment: status, captured amount, every refund to the last page, the strongest dispute (field reports 16, 28, 30)."""

import pytest

from activities.processors.stripe import StripeProcessor
from refunds.processor import DisputeState, PaymentStatus, RefundState
from tests.activities.processors.conftest import request_for, soon
from tests.conftest import Sandbox


def paid(sandbox: Sandbox, intent: str = "pi_1", amount: int = 10_000, currency: str = "usd", **more: object) -> str:
    sandbox.control("POST", "/payments", {"id": intent, "amount": amount, "currency": currency} | more)
    return intent


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        ("succeeded", PaymentStatus.CAPTURED),
        ("requires_capture", PaymentStatus.AUTHORISED),
        ("processing", PaymentStatus.PROCESSING),
        ("canceled", PaymentStatus.CANCELED),
        ("requires_action", PaymentStatus.INCOMPLETE),
        ("requires_confirmation", PaymentStatus.INCOMPLETE),
        ("requires_payment_method", PaymentStatus.INCOMPLETE),
    ],
)
async def test_field_28_the_status_decides_what_can_be_done(
    processor: StripeProcessor, sandbox: Sandbox, status: str, seen: PaymentStatus
) -> None:
    paid(sandbox, **({"captured": 0} if status == "requires_capture" else {} if status == "succeeded" else {"status": status}))

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert (state.status, state.raw_status) == (seen, status)
    assert (state.captured, state.capturable) == (
        (10_000, 0) if status == "succeeded" else (0, 10_000 if status == "requires_capture" else 0)
    )


async def test_field_28_a_status_nobody_knows_is_unknown(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    sandbox.control("POST", "/faults", {"on": "payment_intent.retrieve", "fault": {"kind": "alter", "fields": {"status": "something_new"}}})

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert (state.status, state.raw_status) == (PaymentStatus.UNKNOWN, "something_new")


async def test_field_30_the_ceiling_is_what_was_captured(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox, captured=6_000)

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert (state.captured, state.currency, state.charge) == (6_000, "USD", "ch_1")


async def test_a_payment_by_its_charge(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox, captured=6_000)
    await processor.refund(request_for("pi_1", 1_000), send_before=soon())

    state = await processor.read_payment("ch_1")

    assert state is not None
    assert (state.status, state.captured, [r.amount for r in state.refunds]) == (PaymentStatus.CAPTURED, 6_000, [1_000])
    assert [r.processor_payment for r in state.refunds] == ["ch_1"], "compared by the id that was asked with"


async def test_a_payment_nobody_knows(processor: StripeProcessor, sandbox: Sandbox) -> None:
    assert await processor.read_payment("pi_unknown") is None
    assert await processor.read_payment("ch_unknown") is None
    assert await processor.retrieve("re_unknown") is None


async def test_refunds_are_listed_to_the_last_page(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """The one that is looked for is the oldest: the last of 205 in a list of pages of 100, newest first."""
    paid(sandbox, amount=100_000)
    ours = await processor.refund(request_for("pi_1", 500), send_before=soon())
    for _ in range(204):
        sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": 100})

    state = await processor.read_payment("pi_1")
    found = await processor.find("pi_1", "op_1")

    assert state is not None
    assert len({refund.id for refund in state.refunds}) == 205
    assert sum(refund.amount for refund in state.refunds) == 500 + 204 * 100
    assert found is not None
    assert (found.id, found.operation) == (ours.id, "op_1")


async def test_a_refund_that_is_not_ours_is_not_found(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    paid(sandbox, "pi_2")
    sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": 3_000, "metadata": {"refunds_operation": "op_2"}})
    await processor.refund(request_for("pi_2"), send_before=soon())

    assert await processor.find("pi_1", "op_1") is None


@pytest.mark.parametrize(
    ("disputes", "seen"),
    [
        ([], DisputeState.NONE),
        (["needs_response"], DisputeState.OPEN),
        (["under_review"], DisputeState.OPEN),
        (["warning_needs_response"], DisputeState.INQUIRY),
        (["warning_under_review"], DisputeState.INQUIRY),
        (["warning_closed"], DisputeState.NONE),
        (["won"], DisputeState.NONE),
        (["prevented"], DisputeState.NONE),
        (["lost"], DisputeState.LOST),
        (["won", "warning_needs_response"], DisputeState.INQUIRY),
        (["warning_needs_response", "lost"], DisputeState.LOST),
        (["lost", "needs_response", "won"], DisputeState.OPEN),
    ],
)
async def test_the_strongest_dispute_counts(processor: StripeProcessor, sandbox: Sandbox, disputes: list[str], seen: DisputeState) -> None:
    paid(sandbox)
    for status in disputes:
        sandbox.control("POST", "/disputes", {"payment_intent": "pi_1", "status": status, "amount": 100})

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert state.dispute is seen


async def test_a_dispute_nobody_knows_is_unknown_and_not_none(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    sandbox.control("POST", "/disputes", {"payment_intent": "pi_1", "status": "won", "amount": 100})
    sandbox.control("POST", "/faults", {"on": "dispute.list", "fault": {"kind": "alter", "fields": {"status": "something_new"}}})

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert state.dispute is DisputeState.UNKNOWN


@pytest.mark.parametrize("status", ["pending", "requires_action", "succeeded", "failed", "canceled", None, "something_new"])
async def test_field_16_every_status_of_a_refund(processor: StripeProcessor, sandbox: Sandbox, status: str | None) -> None:
    paid(sandbox)
    made = await processor.refund(request_for("pi_1"), send_before=soon())
    sandbox.control("POST", "/faults", {"on": "refund.retrieve", "fault": {"kind": "alter", "fields": {"status": status}}})

    refund = await processor.retrieve(made.id)

    assert refund is not None
    known = {state.value for state in RefundState}
    assert refund.state is (RefundState(status) if status in known else RefundState.UNKNOWN)
    assert status is None or refund.raw_state == status, "the raw value is kept"


@pytest.mark.parametrize("risk", ["normal", "elevated", "highest", "not_assessed"])
async def test_the_processor_s_risk_is_read(processor: StripeProcessor, sandbox: Sandbox, risk: str) -> None:
    paid(sandbox, risk_level=risk)

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert state.risk_level == risk
