"""Ids that are no payment of ours, and payments that take no refund: each has an answer of its own, and nothing moves."""

from typing import Any

import pytest

from activities.processors.stripe import StripeProcessor
from refunds.payment_ids import NotAPayment
from refunds.processor import NotSent, Refused
from tests.activities.processors.conftest import request_for, soon
from tests.conftest import Sandbox


def placed(sandbox: Sandbox, **wanted: Any) -> None:
    sandbox.control("POST", "/payments", {"amount": 10_000, "currency": "usd"} | wanted)


async def reason(processor: StripeProcessor, payment: str, amount: int = 100) -> str:
    with pytest.raises(Refused) as refused:
        await processor.refund(request_for(payment, amount, f"key-{payment}"), send_before=soon())
    return refused.value.reason


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("re_3MabcSandbox", NotAPayment.REFUND),
        ("cs_test_a1Sandbox", NotAPayment.CHECKOUT_SESSION),
        ("in_1MabcSandbox", NotAPayment.INVOICE),
        ("seti_1MabcSandbox", NotAPayment.SETUP_INTENT),
        ("cus_MabcSandbox", NotAPayment.OTHER_OBJECT),
        ("pi_nobody", NotAPayment.UNKNOWN),
        ("ch_nobody", NotAPayment.UNKNOWN),
        ("ORDER-17/2", NotAPayment.UNKNOWN),
    ],
)
async def test_an_id_that_is_no_payment(processor: StripeProcessor, sandbox: Sandbox, given: str, why: NotAPayment) -> None:
    assert await processor.read_payment(given) is None
    assert await processor.why_missing(given) is why
    assert await reason(processor, given) == "not_found"


@pytest.mark.parametrize("known_by", ["pi_1", "ch_1"])
async def test_a_payment_of_the_other_mode(processor: StripeProcessor, sandbox: Sandbox, known_by: str) -> None:
    placed(sandbox, id="pi_1", livemode=True)

    assert await processor.read_payment(known_by) is None
    assert await processor.why_missing(known_by) is NotAPayment.OTHER_MODE
    assert await reason(processor, "pi_1") == "other_mode"


async def test_a_payment_of_another_account_is_answered_like_none(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/accounts", {"id": "acct_seller"})
    placed(sandbox, id="pi_theirs", account="acct_seller")

    assert await processor.read_payment("pi_theirs") is None
    assert await processor.why_missing("pi_theirs") is NotAPayment.UNKNOWN
    assert await reason(processor, "pi_theirs") == "not_found"


async def test_a_payment_that_takes_no_refund(processor: StripeProcessor, sandbox: Sandbox) -> None:
    placed(sandbox, id="pi_done")
    sandbox.control("POST", "/refunds", {"payment_intent": "pi_done"})
    placed(sandbox, id="pi_disputed")
    sandbox.control("POST", "/disputes", {"payment_intent": "pi_disputed"})
    placed(sandbox, id="pi_old", refund_window_days=90)
    sandbox.control("POST", "/clock", {"advance_seconds": 90 * 86_400 + 2})
    placed(sandbox, id="pi_young", refund_window_days=90)

    found = {payment: await reason(processor, payment) for payment in ("pi_done", "pi_disputed", "pi_old")}
    young = await processor.refund(request_for("pi_young", key="k2"), send_before=soon())

    assert found == {"pi_done": "already_refunded", "pi_disputed": "disputed", "pi_old": "too_old"}
    assert young.amount == 3_000


async def test_a_stripe_that_cannot_be_asked_says_nothing_of_an_id(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/faults", {"on": "payment_intent.retrieve", "fault": {"kind": "status", "status": 503}})

    with pytest.raises(NotSent):
        await processor.why_missing("pi_1")
    assert await processor.why_missing("re_1") is NotAPayment.REFUND, "what the id says needs nobody"
