"""Submitting against the real sandbox and the real database: one operation, at most one refund, and unknown is never guessed (promises P1, P2, P7)."""

from tests.activities.shop import Shop


async def test_an_approved_refund_is_sent_once_and_succeeds(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)

    found = await shop.submit(refund_id)

    assert found.status == "succeeded"
    truth = await shop.truth(intent)
    [request] = truth["create_requests"]
    [refund] = truth["refunds"]
    assert (refund["amount"], refund["currency"], refund["payment_intent"]) == (3_000, "usd", intent)
    assert request["made"] == refund["id"]
    [operation] = await shop.query("SELECT * FROM operations WHERE refund_id = :r", r=refund_id)
    assert request["key"] == operation["idempotency_key"]
    assert refund["metadata"]["refunds_operation"] == operation["id"]
    assert await shop.outcomes(refund_id) == ["answered"]
    assert await shop.remaining(intent) == 7_000
