"""Test mode runs everything to its end and moves no money: an answer of the live side halts the processor, and nothing is concluded from it."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.activities.shop import Shop


async def halted_for(shop: Shop) -> list[str]:
    return [row["code"] for row in await shop.query("SELECT code FROM halts WHERE lifted_at IS NULL")]


def answering(**body: Any) -> dict[str, Any]:
    return {"kind": "status", "status": 200, "body": body}


@pytest.mark.parametrize("body", [{"livemode": True}, {"object": "list", "data": [{"livemode": True}]}])
async def test_a_reading_of_the_other_side_halts_and_sends_nothing(shop: Shop, body: dict[str, Any]) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    await shop.fault("payment_intent.retrieve", answering(**body), intent=intent)

    found = await shop.submit(refund)

    assert (found.status, found.code) == ("held", "PROCESSOR_HALTED")
    assert await halted_for(shop) == ["ANSWER_OF_OTHER_MODE"]
    assert (await shop.asked_and_made(intent), await shop.outcomes(refund)) == ((0, 0), [])
    await shop.control_scope("processor:stripe", "running", "olga")  # the orchestrator's own: one person is enough
    assert (await shop.goes_on(refund)).status == "approved"
    assert (await shop.submit(refund)).status == "succeeded"


async def test_an_answer_of_the_other_side_to_what_was_sent_concludes_nothing(shop: Shop) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund = await shop.approved(intent)
    await shop.fault(
        "payment_intent.cancel", answering(id=intent, object="payment_intent", status="canceled", livemode=True), intent=intent
    )

    with pytest.raises(ApplicationError, match="answer_of_other_mode"):
        await shop.submit(refund)

    assert (await shop.row(refund))["status"] == "submitting"
    assert (await shop.outcomes(refund), await halted_for(shop)) == (["unknown"], ["ANSWER_OF_OTHER_MODE"])
    await shop.control_scope("processor:stripe", "running", "olga")
    await shop.let_attempts_lapse(refund)
    assert (await shop.submit(refund, attempt=2)).status == "released"


async def test_an_answer_of_our_own_side_is_as_ever(shop: Shop) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)

    assert (await shop.submit(refund)).status == "succeeded"
    assert await halted_for(shop) == []
