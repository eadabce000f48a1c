"""Every shape of capture that Stripe shows, read and refunded to the last unit over HTTP: the ceiling is what was captured and is still there (promise P2)."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from activities.processors.stripe import StripeProcessor
from refunds.processor import DisputeState, PaymentState, PaymentStatus, Refused
from refunds.refundable import refundable
from tests.activities.processors.conftest import request_for, soon
from tests.conftest import Sandbox


@dataclass(frozen=True)
class Shape:
    """A payment as it is placed, the id it is known by, and what has to be read of it."""

    name: str
    placed: dict[str, Any]
    captured: int
    capturable: int = 0
    status: PaymentStatus = PaymentStatus.CAPTURED
    known_by: str = "pi_1"
    charge: str = "ch_1"


CAPTURED = [
    Shape("whole", {}, 10_000),
    Shape("part", {"captured": 6_000}, 6_000),
    Shape("above", {"captured": 11_500, "overcapture": True}, 11_500),
    Shape("several captures, closed short", {"captures": [3_000, 2_500]}, 5_500),
    Shape("several captures, still open", {"captures": [3_000, 2_500], "open": True}, 5_500, capturable=4_500),
    Shape("after two failed attempts", {"failed_before": 2}, 10_000),
    Shape("the latest charge is one that failed", {"captured": 7_000, "failed_before": 1, "failed_after": 1}, 7_000),
    Shape("by its charge", {"captured": 6_000}, 6_000, known_by="ch_1"),
    Shape("without a PaymentIntent", {"legacy": True, "charge": "ch_old", "captured": 8_000}, 8_000, known_by="ch_old", charge="ch_old"),
]
NOT_CAPTURED = [
    Shape("only authorised", {"captured": 0}, 0, 10_000, PaymentStatus.AUTHORISED),
    Shape("no attempt succeeded", {"status": "requires_payment_method"}, 0, status=PaymentStatus.INCOMPLETE, charge=""),
    Shape(
        "never captured, without a PaymentIntent",
        {"legacy": True, "charge": "ch_old", "captured": 0},
        0,
        status=PaymentStatus.UNKNOWN,
        known_by="ch_old",
        charge="ch_old",
    ),
]


def place(sandbox: Sandbox, shape: Shape) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd"} | shape.placed)


async def read(processor: StripeProcessor, payment: str) -> PaymentState:
    state = await processor.read_payment(payment)
    assert state is not None
    return state


def by(shape: Shape, amount: int, number: int) -> Any:
    """A refund request that names the payment as the shape is known."""
    key = f"refunds-refund-test-op_{number}"
    request = request_for(shape.known_by, amount, key)
    if shape.known_by.startswith("ch_"):
        request.params["charge"] = request.params.pop("payment_intent")
    return request


@pytest.mark.parametrize("shape", CAPTURED + NOT_CAPTURED, ids=lambda shape: shape.name)
async def test_field_28_30_what_is_read(processor: StripeProcessor, sandbox: Sandbox, shape: Shape) -> None:
    place(sandbox, shape)

    state = await read(processor, shape.known_by)

    assert (state.captured, state.capturable, state.status) == (shape.captured, shape.capturable, shape.status)
    assert ((state.charge or ""), state.refunds, state.dispute) == (shape.charge, (), DisputeState.NONE)


@pytest.mark.parametrize("shape", CAPTURED, ids=lambda shape: shape.name)
async def test_field_30_the_ceiling_holds_to_the_last_unit(processor: StripeProcessor, sandbox: Sandbox, shape: Shape) -> None:
    """A part; one unit more than is left, refused; exactly the rest; then not one unit more."""
    place(sandbox, shape)
    first = 1_999

    await processor.refund(by(shape, first, 1), send_before=soon())
    left = refundable(await read(processor, shape.known_by), []).remaining
    with pytest.raises(Refused) as more:
        await processor.refund(by(shape, left + 1, 2), send_before=soon())
    await processor.refund(by(shape, left, 3), send_before=soon())
    state = await read(processor, shape.known_by)
    with pytest.raises(Refused) as nothing_left:
        await processor.refund(by(shape, 1, 4), send_before=soon())

    assert left == shape.captured - first
    assert (more.value.reason, nothing_left.value.reason) == ("amount_too_large", "already_refunded")
    assert sorted(refund.amount for refund in state.refunds) == sorted([first, left])
    assert refundable(state, []).remaining == 0
    truth = sandbox.control("GET", f"/truth?payment_intent={shape.known_by}")
    assert sum(refund["amount"] for refund in truth["refunds"]) == shape.captured


@pytest.mark.parametrize("shape", NOT_CAPTURED, ids=lambda shape: shape.name)
async def test_field_28_what_was_not_captured_is_refused(processor: StripeProcessor, sandbox: Sandbox, shape: Shape) -> None:
    place(sandbox, shape)

    with pytest.raises(Refused):
        await processor.refund(by(shape, 1, 1), send_before=soon())

    assert sandbox.control("GET", "/truth")["refunds"] == []


async def test_field_30_several_captures_raise_the_ceiling_as_they_come(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd", "captures": [3_000], "open": True})
    await processor.refund(request_for("pi_1", 3_000, "k1"), send_before=soon())
    empty = refundable(await read(processor, "pi_1"), []).remaining
    await processor._post("test", "/v1/payment_intents/pi_1/capture", "k2", {"amount_to_capture": 2_500})

    state = await read(processor, "pi_1")

    assert empty == 0
    assert (state.captured, state.capturable, state.status) == (5_500, 0, PaymentStatus.CAPTURED)
    assert refundable(state, []).remaining == 2_500


async def test_field_28_what_is_released_is_no_refund(processor: StripeProcessor, sandbox: Sandbox) -> None:
    """Since API version 2025-03-31.basil neither a partial capture nor a cancellation leaves a refund, and no refund field moves."""
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd", "captured": 6_000})
    sandbox.control("POST", "/payments", {"id": "pi_2", "amount": 10_000, "currency": "usd", "captured": 0})
    await processor._post("test", "/v1/payment_intents/pi_2/cancel", "k1", {})

    part, cancelled = await read(processor, "pi_1"), await read(processor, "pi_2")

    assert (part.captured, part.refunds, refundable(part, []).remaining) == (6_000, (), 6_000)
    assert (cancelled.captured, cancelled.refunds, cancelled.status) == (0, (), PaymentStatus.CANCELED)


async def test_an_old_refund_that_says_an_authorisation_expired_is_none(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd"})
    sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": 4_000})
    sandbox.control("POST", "/faults", {"on": "refund.list", "fault": {"kind": "alter", "fields": {"reason": "expired_uncaptured_charge"}}})

    released, after = await read(processor, "pi_1"), await read(processor, "pi_1")

    assert (released.refunds, [refund.amount for refund in after.refunds]) == ((), [4_000])


async def test_refunds_of_every_charge_are_counted_once(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd", "failed_before": 2, "failed_after": 2})
    sandbox.control("POST", "/refunds", {"charge": "ch_1", "amount": 1_200})
    sandbox.control("POST", "/refunds", {"payment_intent": "pi_1", "amount": 800})

    state = await read(processor, "pi_1")

    assert (state.charge, [refund.amount for refund in state.refunds]) == ("ch_1", [800, 1_200])
    assert refundable(state, []).remaining == 8_000


@pytest.mark.parametrize("known_by", ["pi_1", "ch_1", "ch_old"])
async def test_field_32_the_dispute_of_the_charge_that_took_the_money_counts(
    processor: StripeProcessor, sandbox: Sandbox, known_by: str
) -> None:
    """Of a payment of several charges, by whichever id it is known; and of a charge without a PaymentIntent."""
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 10_000, "currency": "usd", "failed_before": 1, "failed_after": 1})
    sandbox.control("POST", "/payments", {"legacy": True, "charge": "ch_old", "amount": 10_000, "currency": "usd"})
    sandbox.control("POST", "/disputes", {"charge": "ch_old" if known_by == "ch_old" else "ch_1", "status": "needs_response"})
    request = request_for(known_by, 100)
    if known_by.startswith("ch_"):
        request.params["charge"] = request.params.pop("payment_intent")

    state = await read(processor, known_by)
    with pytest.raises(Refused) as refused:
        await processor.refund(request, send_before=soon())

    assert (state.dispute, refused.value.reason) == (DisputeState.OPEN, "disputed")


@pytest.mark.parametrize("seed", range(24))
async def test_field_30_whatever_happened_what_is_shown_is_accepted_and_no_unit_more(
    processor: StripeProcessor, sandbox: Sandbox, seed: int
) -> None:
    """Ours, the dashboard's, pending ones and ones that fail later, in any order on any shape: 0 <= shown <= captured, and it is the truth's own rest."""
    draw = random.Random(seed)
    shape = draw.choice(CAPTURED)
    place(sandbox, shape)
    made: list[str] = []
    for number in range(draw.randint(1, 6)):
        left = refundable(await read(processor, shape.known_by), []).remaining
        happening = draw.choice(["ours", "theirs", "fails", "pending"])
        amount = draw.randint(1, max(1, left // 2))
        if happening == "fails" and made:
            sandbox.control("POST", f"/refunds/{made.pop()}", {"status": "failed"})
        elif left and happening == "ours":
            made.append((await processor.refund(by(shape, amount, number), send_before=soon())).id)
        elif left:
            status = "pending" if happening == "pending" else "succeeded"
            made.append(sandbox.control("POST", "/refunds", {"charge": shape.charge, "amount": amount, "status": status})["id"])

    shown = refundable(await read(processor, shape.known_by), []).remaining

    standing = [one["amount"] for one in sandbox.control("GET", "/truth")["refunds"] if one["status"] in ("succeeded", "pending")]
    assert 0 <= shown == shape.captured - sum(standing) <= shape.captured
    with pytest.raises(Refused):
        await processor.refund(by(shape, shown + 1, 100), send_before=soon())
    if shown:
        await processor.refund(by(shape, shown, 101), send_before=soon())
    assert refundable(await read(processor, shape.known_by), []).remaining == 0
