"""What people take back at the processor by hand: it counts once, for what it was made for, and is never done again by us (promises P1, P7)."""

from datetime import timedelta
from typing import Any

from refunds.errors import Code
from refunds.marketplace import LegKind
from tests.activities.shop import Shop
from tests.activities.test_marketplace import BOTH, Blind, accepted, by_hand, lapse, legs_of, made, shop, sold, states, target, until_over
from tests.activities.test_marketplace_settling import parked_leg, says

__all__ = ["shop"]


async def refunded_by_hand(shop: Shop, intent: str, **ticks: str) -> str:
    """A person refunds 30.00 in the dashboard, with what the form there offers to return beside it."""
    made: Any = await shop.processor._post(
        "test", "/v1/refunds", f"dashboard-{intent}", {"payment_intent": intent, "amount": 3_000} | ticks
    )
    return made["id"]


async def settled_with(shop: Shop, refund: str, leg: str, receipt: str) -> str:
    return (await shop.settled(refund, await says(shop, refund, leg, "sam", "reversed", receipt))).refused


# --- before a leg is sent --------------------------------------------------------------------------------------------------------------------


async def parked_then_refunded_by_hand(shop: Shop, intent: str, **ticks: str) -> str:
    """Our refund is lost and parked, a person makes it in the dashboard and settles it with that."""
    refund = await shop.approved(intent, 3_000, **BOTH)
    await shop.fault("refund.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts)
    assert (await shop.submitted(refund)).status == "parked"
    in_dashboard = await refunded_by_hand(shop, intent, **ticks)
    heard = await shop.settled(refund, await shop.says(refund, "sam", "refunded", in_dashboard))
    assert (heard.status, heard.refused, heard.legs_at is not None) == ("succeeded", "", True)
    return refund


async def test_what_the_processor_reversed_together_with_a_refund_made_by_hand_is_that_leg(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await parked_then_refunded_by_hand(shop, intent, reverse_transfer="true", refund_application_fee="true")

    await until_over(shop, refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    [reversal, fee] = await legs_of(shop, refund)
    truth = await shop.truth(intent)
    assert (reversal["state"], reversal["receipt_id"]) == ("done", truth["reversals"][0]["id"])
    assert (fee["state"], fee["code"]) == ("parked", "LEG_GIVEN_UP")
    assert "somebody else took $3.00" in fee["detail"]
    assert await settled_with(shop, refund, fee["id"], truth["fee_refunds"][0]["id"]) == ""
    assert await states(shop, refund) == {"reverse_transfer": "done", "refund_fee": "done"}
    assert (await shop.row(refund))["final_at"] is not None


async def test_a_refund_made_by_hand_without_its_legs_has_them_sent(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await parked_then_refunded_by_hand(shop, intent)

    assert await until_over(shop, refund) == ""

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}


async def test_what_the_processor_reversed_in_another_amount_is_shown_to_a_person(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await parked_then_refunded_by_hand(shop, intent, reverse_transfer="true")
    await shop.query_nothing(
        "UPDATE legs SET amount = 2999, request = jsonb_set(request, '{amount}', '2999') WHERE refund_id = :r AND kind = 'reverse_transfer'",
        r=refund,
    )

    await until_over(shop, refund)

    [reversal, _] = await legs_of(shop, refund)
    assert (reversal["state"], reversal["code"], reversal["detail"]) == (
        "parked",
        "RESPONSE_MISMATCH",
        "amount: approved 2999, answered 3000",
    )
    assert (await made(shop, intent))["reversals"] == [3_000]
    assert await settled_with(shop, refund, reversal["id"], reversal["receipt_id"]) == ""


async def test_a_reversal_made_by_hand_while_the_leg_was_held_is_not_made_again(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent)
    await shop.stop()
    await shop.send_legs(refund)
    reversed_by_hand = await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 3_000)
    await shop.stop(stopped=False)

    await until_over(shop, refund)

    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}
    [reversal, fee] = await legs_of(shop, refund)
    assert (reversal["state"], reversal["code"], fee["state"]) == ("parked", "LEG_GIVEN_UP", "done")
    assert f"somebody else took $30.00 ({reversed_by_hand})" in reversal["detail"]
    assert await settled_with(shop, refund, reversal["id"], reversed_by_hand) == ""


async def test_what_came_back_before_keeps_no_leg_back(shop: Shop) -> None:
    intent = await sold(shop)
    await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 1_000)
    shop.clock.advance(timedelta(minutes=2))
    refund = await accepted(shop, intent, 2_000, reverse_transfer=True)

    assert await until_over(shop, refund) == ""

    assert sorted((await made(shop, intent))["reversals"]) == [1_000, 2_000]


async def test_what_came_back_for_another_refund_keeps_no_leg_back(shop: Shop) -> None:
    """Another leg of ours, one of ours that was settled with what somebody made, and a refund in the dashboard with its own transfer reversed."""
    intent = await sold(shop)
    first, settled, last = [await accepted(shop, intent, amount, reverse_transfer=True) for amount in (2_000, 1_000, 2_000)]
    await shop.send_legs(first)
    by_somebody = await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 1_000)
    await until_over(shop, settled)
    [leg] = await legs_of(shop, settled)
    assert await settled_with(shop, settled, leg["id"], by_somebody) == ""
    await refunded_by_hand(shop, intent, reverse_transfer="true")

    assert await until_over(shop, last) == ""

    assert sorted((await made(shop, intent))["reversals"]) == [1_000, 2_000, 2_000, 3_000]


async def test_a_leg_in_doubt_is_not_taken_for_what_came_with_the_refund(shop: Shop) -> None:
    """The list did not show yet what the dashboard's refund had reversed, and our own call may have been carried out as well: a person looks."""
    intent = await sold(shop)
    refund = await parked_then_refunded_by_hand(shop, intent, reverse_transfer="true")
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})
    await shop.send_legs(refund, processor=Blind(shop.processor))
    await lapse(shop, refund)

    await until_over(shop, refund)

    [reversal, _] = await legs_of(shop, refund)
    assert (reversal["state"], reversal["code"]) == ("parked", "OUTCOME_UNKNOWN")
    assert (await made(shop, intent))["reversals"] == [3_000]


async def test_a_leg_in_doubt_beside_one_made_by_hand_is_not_sent_again(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})
    await shop.send_legs(refund)
    await lapse(shop, refund)
    await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 3_000)

    await until_over(shop, refund)

    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["code"]) == ("parked", "OUTCOME_UNKNOWN")
    assert (await made(shop, intent))["reversals"] == [3_000]


# --- what settles a parked one ---------------------------------------------------------------------------------------------------------------


async def test_a_reversal_from_before_the_refund_settles_no_leg(shop: Shop) -> None:
    intent = await sold(shop)
    older = await by_hand(shop, await target(shop, intent, LegKind.REVERSE_TRANSFER), 3_000)
    shop.clock.advance(timedelta(seconds=30))
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts)
    await until_over(shop, refund)
    await lapse(shop, refund)
    [leg] = await legs_of(shop, refund)

    assert await settled_with(shop, refund, leg["id"], older) == "SETTLEMENT_MISMATCH"

    assert await states(shop, refund) == {"reverse_transfer": "parked"}


async def test_a_reversal_that_the_processor_made_for_another_refund_settles_no_leg(shop: Shop) -> None:
    intent, refund, leg = await parked_leg(shop)
    await refunded_by_hand(shop, intent, reverse_transfer="true")
    [reversal] = (await shop.truth(intent))["reversals"]

    assert await settled_with(shop, refund, leg["id"], reversal["id"]) == "SETTLEMENT_MISMATCH"

    assert await states(shop, refund) == {"reverse_transfer": "parked"}


async def test_one_made_by_hand_does_not_settle_a_leg_that_was_made_itself(shop: Shop) -> None:
    """Its own had been lost from sight, so a person reversed again: the leg's own is adopted, and the person told."""
    intent, refund, leg = await parked_leg(shop)
    request = next(found.request for found in (await shop.legs.standing(refund)).legs)
    own = await shop.processor.reverse_transfer(request, send_before=float("inf"))
    again = await by_hand(shop, leg["target"], 3_000)

    assert await settled_with(shop, refund, leg["id"], again) == "SETTLEMENT_CONTRADICTED"

    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["receipt_id"]) == ("done", own.id)
    assert len((await made(shop, intent))["reversals"]) == 2


async def test_one_made_by_hand_settles_nothing_while_our_own_may_be_under_way(shop: Shop) -> None:
    refund = await accepted(shop, await sold(shop), 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"})
    await shop.send_legs(refund)
    await shop.legs.park((await shop.legs.standing(refund)).legs[0], Code.OUTCOME_UNKNOWN, "test")
    [leg] = await legs_of(shop, refund)
    message = await says(shop, refund, leg["id"], "sam", "reversed", await by_hand(shop, leg["target"], 3_000))

    early = await shop.settled(refund, message)
    await lapse(shop, refund)
    late = await shop.settled(refund, message)

    assert (early.refused, late.refused) == ("ATTEMPT_OPEN", "")
    assert await states(shop, refund) == {"reverse_transfer": "done"}
