"""Wrong payments, quoted and sent by the real steps against the sandbox: each has its own code and remedy, and no money moves."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.prepare import Prepare
from activities.read_payment import PaymentReader
from refunds.errors import CATALOGUE, Code
from refunds.messages import StepInput
from refunds.processor import NotSent
from tests.activities.shop import Shop, Tampered

_numbers = itertools.count(1)
Happening = Callable[[Shop, str], Awaitable[Any]]


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a payment of $100.00: how it was placed at the processor (``None``: not at all), and what happened then."""

    placed: dict[str, Any] | None = field(default_factory=dict[str, Any])
    then: Happening | None = None
    amount: int | None = 3_000


async def refunded(shop: Shop, intent: str) -> None:
    await shop.control("POST", "/refunds", {"payment_intent": intent})


def disputed(status: str) -> Happening:
    async def happen(shop: Shop, intent: str) -> None:
        await shop.control("POST", "/disputes", {"payment_intent": intent, "status": status})

    return happen


async def somebody_elses(shop: Shop, intent: str) -> None:
    await shop.control("POST", "/accounts", {"id": "acct_seller"})
    await shop.control("POST", "/payments", {"id": intent, "amount": 10_000, "currency": "usd", "account": "acct_seller"})


def recorded_as(prefix: str) -> Happening:
    """An id that no order takes any more, on an order that was recorded when they did."""

    async def happen(shop: Shop, intent: str) -> None:
        statement = "UPDATE payments SET processor_payment = :wrong WHERE processor_payment = :p"
        await shop.query_nothing(statement, wrong=f"{prefix}{intent}", p=intent)

    return happen


TABLE: dict[str, tuple[Wrong, str, Code | None]] = {
    "nobody knows it": (Wrong(None), "denied", Code.PAYMENT_MISSING),
    "another account's": (Wrong(None, somebody_elses), "denied", Code.PAYMENT_MISSING),
    "the other mode's": (Wrong({"livemode": True}), "denied", Code.PAYMENT_OTHER_MODE),
    "a refund's id": (Wrong({}, recorded_as("re_")), "denied", Code.PAYMENT_IS_REFUND),
    "a checkout session's id": (Wrong({}, recorded_as("cs_test_")), "denied", Code.PAYMENT_IS_CHECKOUT_SESSION),
    "a dispute's id": (Wrong({}, recorded_as("dp_")), "denied", Code.PAYMENT_IS_DISPUTE),
    "a balance transaction's id": (Wrong({}, recorded_as("txn_")), "denied", Code.PAYMENT_IS_BALANCE_TRANSACTION),
    "refunded already": (Wrong({}, refunded), "denied", Code.ALREADY_REFUNDED),
    "disputed": (Wrong({}, disputed("needs_response")), "denied", Code.PAYMENT_DISPUTED),
    "under review at the bank": (Wrong({}, disputed("under_review")), "denied", Code.PAYMENT_DISPUTED),
    "returned by the bank": (Wrong({}, disputed("lost")), "denied", Code.ALREADY_RETURNED),
    "asked about by the bank": (Wrong({}, disputed("warning_needs_response")), "awaiting_review", None),
    "won at the bank": (Wrong({}, disputed("won")), "approved", None),
    "processing": (Wrong({"status": "processing"}), "denied", Code.PAYMENT_PROCESSING),
    "cancelled": (Wrong({"status": "canceled"}), "denied", Code.PAYMENT_CANCELED),
    "failed": (Wrong({"status": "requires_payment_method"}), "denied", Code.PAYMENT_INCOMPLETE),
    "never confirmed": (Wrong({"status": "requires_confirmation"}), "denied", Code.PAYMENT_INCOMPLETE),
    "authorised, a part asked for": (Wrong({"status": "requires_capture"}), "awaiting_review", None),
    "authorised, all asked for": (Wrong({"status": "requires_capture"}, amount=10_000), "approved", None),
}


async def placed(shop: Shop, wrong: Wrong) -> str:
    """The order with its wrong payment; returns the refund that is asked for."""
    intent = f"pi_wrong{next(_numbers)}"
    if wrong.placed is not None:
        await shop.control("POST", "/payments", {"id": intent, "amount": 10_000, "currency": "usd"} | wrong.placed)
    refund_id = await shop.received(intent, wrong.amount)
    if wrong.then is not None:
        await wrong.then(shop, intent)
    return refund_id


@pytest.mark.parametrize("name", TABLE)
async def test_a_wrong_payment_has_an_answer_of_its_own(shop: Shop, name: str) -> None:
    wrong, status, code = TABLE[name]
    refund_id = await placed(shop, wrong)
    await shop.prepared(refund_id)
    assert await shop.ended(refund_id) == (status, code)
    [revision] = await shop.query("SELECT terms->>'operation' AS operation FROM revisions WHERE refund_id = :r", r=refund_id)
    if name == "authorised, all asked for":
        assert revision["operation"] == "release", "nothing was taken, so nothing is returned: it is let go"
    assert await shop.outcomes(refund_id) == []


def test_each_of_these_answers_tells_what_to_do_and_says_where() -> None:
    codes = {code for _, _, code in TABLE.values() if code is not None}
    assert len({CATALOGUE[code].remedy for code in codes}) == len(codes)
    for code in codes:
        if code.startswith("PAYMENT_IS_"):
            assert "in the named field" in CATALOGUE[code].remedy
    # What cannot be told apart is said to be so.
    assert "another account's, which look alike" in CATALOGUE[Code.PAYMENT_MISSING].meaning


@pytest.mark.parametrize(
    ("then", "code"),
    [("too old", Code.PAYMENT_TOO_OLD), ("refunded", Code.ALREADY_REFUNDED), ("disputed", Code.PAYMENT_DISPUTED)],
)
async def test_what_only_shows_when_it_is_sent_ends_by_the_same_codes(shop: Shop, then: str, code: Code) -> None:
    """How long a payment can be refunded hangs on the way it was paid, which is the processor's to say: its refusal is definite, and named."""
    aged: dict[str, Any] = {"refund_window_days": 90, "created": 1_600_000_000} if then == "too old" else {}
    intent = await shop.paid(**aged)
    refund_id = await shop.approved(intent, 3_000)
    if then == "refunded":
        await shop.fault("refund.create", {"kind": "status", "status": 400, "body": said("charge_already_refunded")}, intent=intent)
    elif then == "disputed":
        await shop.fault("refund.create", {"kind": "status", "status": 400, "body": said("charge_disputed")}, intent=intent)
    await shop.submitted(refund_id)
    assert await shop.ended(refund_id) == ("failed", code)
    assert (await shop.truth(intent))["refunds"] == []
    assert await shop.remaining(intent) == 10_000, "a definite no gives back what it had reserved"


def said(code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": "no", "type": "invalid_request_error"}}


async def test_a_processor_that_cannot_say_why_leaves_the_request_waiting(shop: Shop) -> None:
    """It did not know the payment, and could not be asked why: nothing is concluded from half an answer."""
    refund_id = await placed(shop, Wrong(None))

    async def gone() -> None:
        raise NotSent("no_connection")

    half: Any = Tampered(shop.processor, before={"why_missing": gone})
    reader = PaymentReader(shop.payments, half, shop.clock)
    await ActivityEnvironment().run(Prepare(shop.steps, reader).prepare, StepInput(refund_id))
    assert await shop.ended(refund_id) == ("received", None)
    await shop.prepared(refund_id)
    assert await shop.ended(refund_id) == ("denied", "PAYMENT_MISSING")
