"""Legs when something is doubtful: what is forgotten, held, out of reach, made twice, or of a refund that changes its mind (promises P1, P4, P7)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from refunds.marketplace import LegKind
from refunds.processor import NotSent, Unknown
from store import controls
from tests.activities.shop import Shop, Tampered
from tests.activities.test_marketplace import (
    BOTH,
    Blind,
    accepted,
    by_hand,
    lapse,
    legs_of,
    made,
    shop,
    sold,
    states,
    target,
    until_over,
)

__all__ = ["shop"]


async def notices(shop: Shop, refund: str) -> list[str]:
    rows = await shop.query("SELECT body->>'kind' AS kind FROM outbox WHERE refund_id = :r AND kind = 'notice' ORDER BY id", r=refund)
    return [row["kind"] for row in rows]


async def becomes(shop: Shop, intent: str, refund: str, status: str) -> str:
    """The processor finishes the refund, and the run asks."""
    [at_stripe] = (await shop.truth(intent))["refunds"]
    await shop.control("POST", f"/refunds/{at_stripe['id']}", {"status": status})
    return (await shop.reconciled(refund)).status


async def test_what_the_database_has_forgotten_of_a_leg_is_found(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.send_legs(refund)
    for leg in await legs_of(shop, refund):
        await shop.query_nothing("DELETE FROM leg_attempts WHERE leg_id = :l", l=leg["id"])
        await shop.query_nothing("UPDATE legs SET state = 'waiting', receipt_id = NULL, due_at = now() WHERE id = :l", l=leg["id"])

    await shop.send_legs(refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert set((await states(shop, refund)).values()) == {"done"}
    assert await shop.query("SELECT 1 FROM leg_attempts a JOIN legs l ON l.id = leg_id WHERE refund_id = :r", r=refund) == []


async def test_a_stop_lists_the_call_of_a_leg_that_had_started(shop: Shop) -> None:
    refund = await accepted(shop, await sold(shop))
    listed: list[str] = []

    async def stop() -> None:
        async with shop.api.begin() as connection:
            listed.extend(row["refund_id"] for row in await controls.open_attempts(connection))

    await shop.send_legs(refund, processor=Tampered(shop.processor, before={"reverse_transfer": stop}))

    assert listed == [refund]
    async with shop.api.begin() as connection:
        assert [row for row in await controls.open_attempts(connection) if row["refund_id"] == refund] == []


async def test_what_never_left_is_sent_later_and_parks_nothing(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    tries = 0

    async def away() -> None:
        nonlocal tries
        tries += 1
        if tries <= 6:
            raise NotSent("no_connection")

    assert await until_over(shop, refund, processor=Tampered(shop.processor, before={"returned_of": away})) == ""

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    assert tries == 8


async def test_what_cannot_be_looked_up_is_not_sent_again(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})

    async def away() -> None:
        raise NotSent("no_connection")

    async def unknown() -> None:
        raise Unknown("no_answer")

    await shop.send_legs(refund, processor=Tampered(shop.processor, before={"reverse_transfer": unknown}))
    await lapse(shop, refund)
    shop.clock.advance(timedelta(seconds=30))
    await shop.send_legs(refund, processor=Tampered(shop.processor, before={"returned_of": away}))

    [reversal, _] = await legs_of(shop, refund)
    assert (reversal["state"], reversal["detail"]) == ("waiting", "no answer yet (cannot_look_up)")
    assert (await made(shop, intent))["reversals"] == []
    assert await shop.query("SELECT 1 FROM leg_attempts WHERE leg_id = :l", l=reversal["id"]) == [{"?column?": 1}]


async def test_a_leg_that_was_made_twice_is_parked(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    [leg] = (await shop.legs.standing(refund)).legs
    first = await shop.processor.reverse_transfer(leg.request, send_before=float("inf"))
    await shop.legs.receipt(leg, first, attempt=None)

    await shop.legs.receipt(leg, replace(first, id="trr_second"), attempt=None)

    [row] = await legs_of(shop, refund)
    assert (row["state"], row["code"], row["receipt_id"]) == ("parked", "REFUNDED_TWICE", first.id)
    assert "leg_made_twice" in await shop.entries(refund)


async def test_a_parked_leg_is_reminded_of_every_day(shop: Shop) -> None:
    refund = await accepted(shop, await sold(shop), 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "status", "status": 400, "body": REFUSAL})
    await shop.send_legs(refund)
    assert await notices(shop, refund) == ["leg_parked"]

    await shop.send_legs(refund)
    assert await notices(shop, refund) == ["leg_parked"]
    shop.clock.advance(timedelta(seconds=shop.settings.parked_escalate_s + 1))
    await shop.send_legs(refund)

    assert await notices(shop, refund) == ["leg_parked", "leg_still_parked"]


async def test_a_leg_of_another_api_version_is_never_sent(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.query_nothing(
        "UPDATE revisions SET terms = jsonb_set(terms, '{api_version}', '\"2020-01-01\"') WHERE refund_id = :r", r=refund
    )

    await shop.send_legs(refund)

    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["code"]) == ("parked", "LEG_GIVEN_UP")
    assert (await made(shop, intent))["reversals"] == []


async def test_a_leg_in_doubt_of_a_refund_that_failed_is_looked_for_and_not_sent(shop: Shop) -> None:
    intent = await sold(shop, refund_outcome={"initial": "pending"})
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})
    await shop.send_legs(refund)
    await lapse(shop, refund)

    assert await becomes(shop, intent, refund, "failed") == "failed"
    assert await until_over(shop, refund) != ""

    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["code"]) == ("parked", "OUTCOME_UNKNOWN")
    assert (await made(shop, intent))["reversals"] == []
    assert (await shop.row(refund))["queue"] == "settle"


async def test_a_leg_that_is_found_after_its_refund_failed_tells_a_person(shop: Shop) -> None:
    intent = await sold(shop, refund_outcome={"initial": "pending"})
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_answer"})
    await shop.send_legs(refund, processor=Blind(shop.processor))
    await lapse(shop, refund)

    assert await becomes(shop, intent, refund, "failed") == "failed"
    assert await until_over(shop, refund) == ""

    assert await states(shop, refund) == {"reverse_transfer": "done"}
    assert "leg_of_failed_refund" in await notices(shop, refund)


async def test_two_refunds_never_claim_the_same_part_of_a_transfer(shop: Shop) -> None:
    """The second is quoted while the first leg is not sent yet: what the first has promised counts as gone."""
    intent = await sold(shop)
    await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 7_000)
    await accepted(shop, intent, 5_000, reverse_transfer=True)

    second = await shop.received(intent, 5_000, reverse_transfer=True)

    assert (await shop.prepared(second)).code == "TRANSFER_REVERSED"


REFUSAL: dict[str, Any] = {"error": {"type": "invalid_request_error", "code": "balance_insufficient", "message": "Too little."}}


async def test_draft_mode_sends_no_leg(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent, **BOTH)
    await shop.stop(stopped=False, mode="draft")

    await shop.send_legs(refund)

    await shop.stop(stopped=False, mode="live")
    assert [leg["code"] for leg in await legs_of(shop, refund)] == ["DRAFT_MODE"] * 2
    assert await made(shop, intent) == {"reversals": [], "fee_refunds": []}
