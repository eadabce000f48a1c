"""A parked leg is settled by a person, whose word is checked live; its refund stays what it is."""

from typing import Any

import pytest

from refunds.errors import Code, RefundError
from store import leg_decisions
from tests.activities.shop import Shop
from tests.activities.test_marketplace import Blind, accepted, by_hand, lapse, legs_of, shop, sold, states, until_over

__all__ = ["shop"]


async def parked_leg(shop: Shop) -> tuple[str, str, dict[str, Any]]:
    intent = await sold(shop)
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts)
    await until_over(shop, refund)
    [leg] = await legs_of(shop, refund)
    assert leg["state"] == "parked"
    await lapse(shop, refund)
    return intent, refund, leg


async def says(shop: Shop, refund: str, leg: str, who: str, outcome: str, receipt: str | None = None) -> str:
    async with shop.api.begin() as connection:
        given = {"refund_id": refund, "leg_id": leg, "actor": shop.people[who], "outcome": outcome, "receipt": receipt}
        recorded = await leg_decisions.record_leg_settlement(connection, shop.clock, **given)
    return recorded.id


async def test_a_parked_leg_is_settled_by_what_was_made_by_hand(shop: Shop) -> None:
    intent, refund, leg = await parked_leg(shop)
    wrong, right = await by_hand(shop, leg["target"], 1), await by_hand(shop, leg["target"], 3_000)

    first = await shop.settled(refund, await says(shop, refund, leg["id"], "sam", "reversed", "trr_nothing"))
    second = await shop.settled(refund, await says(shop, refund, leg["id"], "sam", "reversed", wrong))
    third = await shop.settled(refund, await says(shop, refund, leg["id"], "sam", "reversed", right))

    assert (first.refused, second.refused, third.refused) == ("SETTLEMENT_NOT_FOUND", "SETTLEMENT_MISMATCH", "")
    assert third.legs_at is None
    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["receipt_id"]) == ("done", right)
    row = await shop.row(refund)
    assert (row["final_at"] is not None, row["queue"]) == (True, None)
    assert (await shop.truth(intent))["reversals"][-1]["amount"] == 3_000


async def test_a_reversal_settles_one_leg_only(shop: Shop) -> None:
    _, refund, leg = await parked_leg(shop)
    made_by_hand = await by_hand(shop, leg["target"], 3_000)
    await shop.settled(refund, await says(shop, refund, leg["id"], "sam", "reversed", made_by_hand))
    [payment] = await shop.query(
        "SELECT processor_payment FROM payments JOIN refunds r ON payment_id = payments.id WHERE r.id = :r", r=refund
    )
    other = await accepted(shop, payment["processor_payment"], 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_request"}, times=shop.settings.submit_max_attempts)
    await until_over(shop, other)
    [open_leg] = await legs_of(shop, other)

    heard = await shop.settled(other, await says(shop, other, open_leg["id"], "sam", "reversed", made_by_hand))

    assert heard.refused == "SETTLEMENT_MISMATCH"


async def test_not_reversed_needs_two_persons_and_a_list_without_it(shop: Shop) -> None:
    _, refund, leg = await parked_leg(shop)
    await says(shop, refund, leg["id"], "sam", "not_reversed")
    heard = await shop.settled(refund, await says(shop, refund, leg["id"], "tess", "not_reversed"))

    assert (heard.refused, heard.status, heard.legs_at) == ("", "succeeded", None)
    [leg] = await legs_of(shop, refund)
    assert (leg["state"], leg["code"]) == ("not_done", "SETTLED_NOT_REVERSED")
    with pytest.raises(RefundError) as refused:
        await says(shop, refund, leg["id"], "sam", "reversed", "trr_1")
    assert refused.value.code is Code.NOT_PARKED


async def test_not_reversed_is_contradicted_by_what_is_there(shop: Shop) -> None:
    intent = await sold(shop)
    refund = await accepted(shop, intent, 3_000, reverse_transfer=True)
    await shop.fault("transfer_reversal.create", {"kind": "lose_answer"}, times=9)
    await until_over(shop, refund, processor=Blind(shop.processor))
    [leg] = await legs_of(shop, refund)
    assert leg["state"] == "parked"
    await lapse(shop, refund)
    await says(shop, refund, leg["id"], "sam", "not_reversed")

    heard = await shop.settled(refund, await says(shop, refund, leg["id"], "tess", "not_reversed"))

    assert heard.refused == "SETTLEMENT_CONTRADICTED"
    assert (await states(shop, refund)) == {"reverse_transfer": "done"}
