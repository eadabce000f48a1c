"""What is not what was approved, and what a person says about it: nothing is settled twice with the same money, nothing is let go too early."""

import asyncio
from typing import Any

import pytest

from tests.activities.shop import Shop, Tampered

DIFFERENT = {"kind": "alter", "fields": {"amount": 1_500}}


async def receipt_of(shop: Shop, refund_id: str) -> list[str]:
    rows = await shop.query(
        "SELECT p.id FROM processor_refunds p JOIN operations o ON o.id = p.operation_id WHERE o.refund_id = :r", r=refund_id
    )
    return [row["id"] for row in rows]


async def test_one_refund_made_past_us_settles_one_of_ours_also_when_it_was_imported_before(shop: Shop) -> None:
    intent = await shop.paid()
    first, second = await shop.parked(intent), await shop.parked(intent)
    other = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})
    before = await shop.remaining(intent)  # whose reading imports it
    assert (before, await receipt_of(shop, first)) == (1_000, [])
    assert await shop.query("SELECT operation_id FROM processor_refunds WHERE id = :r", r=other["id"]) == [{"operation_id": None}]

    settled = await shop.settled(first, await shop.says(first, "sam", "refunded", other["id"]))
    again = await shop.settled(second, await shop.says(second, "sam", "refunded", other["id"]))

    assert (settled.status, settled.refused) == ("succeeded", "")
    assert (again.status, again.refused) == ("parked", "SETTLEMENT_MISMATCH")
    assert await receipt_of(shop, first) == [other["id"]], "from now on it is ours"
    assert await shop.remaining(intent) == 4_000, "counted once"


@pytest.mark.parametrize("fault", [{"amount": 1_500, "metadata": {}}, {"metadata": {}}])
async def test_what_a_receipt_names_was_refunded_whatever_its_metadata_say(shop: Shop, fault: dict[str, Any]) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent, 2_000)
    await shop.fault("refund.create", {"kind": "alter", "fields": fault}, intent=intent)
    assert (await shop.submit(refund_id)).code == "RESPONSE_MISMATCH"
    await shop.let_attempts_lapse(refund_id)
    await shop.says(refund_id, "sam", "not_refunded")

    found = await shop.settled(refund_id, await shop.says(refund_id, "tess", "not_refunded"))

    assert (found.status, found.refused) == ("parked", "SETTLEMENT_CONTRADICTED")


@pytest.mark.parametrize("metadata", [{}, {"refunds_operation": "op_0000000000000000000000000f"}])
async def test_an_answer_without_our_id_is_parked_and_holds_its_payment(shop: Shop, metadata: dict[str, str]) -> None:
    """Nothing could ever find it again; it is a person's to say what it is."""
    intent = await shop.paid()
    first, second = await shop.approved(intent, 2_000), await shop.approved(intent, 1_000)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"metadata": metadata}}, intent=intent)

    found = await shop.submit(first)

    assert (found.status, found.code) == ("parked", "RESPONSE_MISMATCH")
    assert "our id" in found.waits_for
    assert len(await receipt_of(shop, first)) == 1
    held = await shop.submit(second)
    assert held.status == "held"
    assert len((await shop.truth(intent))["create_requests"]) == 1


async def test_a_difference_that_shows_while_it_is_parked_is_what_it_is_parked_for(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id, other = await shop.approved(intent, 2_000), await shop.approved(intent, 4_000)
    lost = [DIFFERENT, {"kind": "hide"}, {"kind": "lose_answer"}]
    await shop.fault("refund.create", *lost, times=shop.settings.submit_max_attempts, intent=intent)
    assert (await shop.submitted(refund_id)).code == "OUTCOME_UNKNOWN"
    await shop.control("DELETE", "/faults")

    held = await shop.submit(other)  # whose reading shows it

    assert await shop.ended(refund_id) == ("parked", "RESPONSE_MISMATCH")
    assert "amount: approved 2000, answered 1500" in (await shop.row(refund_id))["detail"]
    assert (held.status, held.code) == ("held", "PAYMENT_HELD")
    assert [r["amount"] for r in (await shop.truth(intent))["refunds"]] == [1_500]
    assert (await shop.entries(refund_id)).count("parked_for_another_reason") == 1


async def test_a_payment_is_let_go_when_all_that_is_not_as_approved_is_settled(shop: Shop) -> None:
    """Two requests came back different, the first from a worker that had been given up: settling one does not let the payment go."""
    intent = await shop.paid()
    first, second, third = [await shop.approved(intent, amount) for amount in (2_000, 2_100, 1_000)]
    await shop.fault("refund.create", DIFFERENT, times=2, intent=intent)
    both = asyncio.Barrier(2)

    async def given_up() -> None:
        await shop.let_attempts_lapse(first)
        await both.wait()

    async def together() -> None:
        await both.wait()

    steps = [shop.submitting(Tampered(shop.processor, before={"refund": meanwhile})) for meanwhile in (given_up, together)]
    found = await asyncio.gather(shop.submit(first, step=steps[0]), shop.submit(second, step=steps[1]))
    assert [f.code for f in found] == ["RESPONSE_MISMATCH"] * 2

    async def settle(refund_id: str) -> str:
        [made] = await receipt_of(shop, refund_id)
        return (await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))).status

    assert (await shop.submit(third)).code == "PAYMENT_HELD"
    assert await settle(first) == "succeeded"
    assert (await shop.steps.resume_held(third)).status == "held"
    assert await settle(second) == "succeeded"
    assert (await shop.steps.resume_held(third)).status == "approved"


async def test_what_a_person_has_judged_stays_judged_while_it_is_what_it_was(shop: Shop) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent, 2_000)
    await shop.fault("refund.create", DIFFERENT, intent=intent)
    await shop.submit(refund_id)
    [made] = await receipt_of(shop, refund_id)
    assert (await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))).status == "succeeded"

    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 500})
    await shop.remaining(intent)  # whose reading shows both

    assert (await shop.row(refund_id))["status"] == "succeeded"
    assert (await shop.moves(refund_id)).count("parked") == 1
    await shop.control("POST", f"/refunds/{made}", {"status": "failed", "failure_reason": "expired_or_canceled_card"})
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 600})
    await shop.remaining(intent)
    assert (await shop.row(refund_id))["status"] == "parked", "something new is a person's again"
