"""Payments that were only authorised: the whole is cancelled, a part goes to a person (field report 28)."""

from tests.activities.shop import Shop

LOST = {"kind": "lose_request"}
FOR_EVER = None


async def test_field_28_an_authorisation_is_cancelled_and_not_refunded(shop: Shop) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.approved(intent, amount=None)

    found = await shop.submit(refund_id)

    assert found.status == "released"
    truth = await shop.truth(intent)
    assert [request["answered"] for request in truth["cancel_requests"]] == [200]
    assert (truth["create_requests"], truth["refunds"]) == ([], [])
    assert (
        await shop.query("SELECT 1 FROM processor_refunds p JOIN operations o ON o.id = operation_id WHERE refund_id = :r", r=refund_id)
        == []
    )


async def test_field_28_a_part_of_an_authorisation_goes_to_a_person(shop: Shop) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.received(intent, 1_000)

    found = await shop.prepared(refund_id)

    assert (found.status, found.terms_hash) == ("awaiting_review", "")
    assert (await shop.truth(intent))["cancel_requests"] == []


async def test_field_28_captured_meanwhile_is_not_cancelled(shop: Shop) -> None:
    """Approved as a release, captured before it was sent: the terms are judged again, as a refund."""
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.approved(intent, amount=None)
    capture = {"on": "payment_intent.retrieve", "times": None, "match": {"payment_intent": intent}}
    fields = {"status": "succeeded", "amount_received": 3_000, "amount_capturable": 0}
    await shop.control("POST", "/faults", capture | {"fault": {"kind": "alter", "fields": fields}})

    found = await shop.submit(refund_id)

    assert (found.status, found.code) == ("held", "TERMS_EXPIRED")
    assert (await shop.truth(intent))["cancel_requests"] == []
    again = await shop.steps.resume_held(refund_id)
    assert again.revision == 2
    [revision] = await shop.query("SELECT terms FROM revisions WHERE refund_id = :r AND revision = 2", r=refund_id)
    assert revision["terms"]["operation"] == "refund"


async def test_a_lost_answer_of_a_release_is_looked_up(shop: Shop) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.approved(intent, amount=None)
    await shop.fault("payment_intent.cancel", {"kind": "lose_answer"})

    assert (await shop.submit(refund_id)).status == "released"
    assert len((await shop.truth(intent))["cancel_requests"]) == 1


async def test_no_answer_to_a_release_is_parked(shop: Shop) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund_id = await shop.approved(intent, amount=None)
    await shop.fault("payment_intent.cancel", LOST, times=FOR_EVER)

    found = await shop.submitted(refund_id)

    assert (found.status, found.code) == ("parked", "OUTCOME_UNKNOWN")
    cancels = (await shop.truth(intent))["cancel_requests"]
    assert len({request["key"] for request in cancels}) == 1
