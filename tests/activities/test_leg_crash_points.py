"""The life of a refund with legs, cut short at each point its legs reach: it ends as it would have, with each leg made once (promises P1, P6, P7, P8)."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from refunds import points
from tests.activities.lives import LOSE_ANSWER, LOSE_REQUEST, Life, mortality
from tests.activities.shop import MakeShop
from tests.activities.test_crash_points import firsts_and_lasts
from tests.activities.test_marketplace import BOTH, SELLER, lapse, legs_of, made


@dataclass
class LifeWithLegs(Life):
    """One refund of a destination charge. ``trouble`` is what the processor has in store for the call that reverses the transfer."""

    trouble: tuple[dict[str, Any], ...] = ()
    fresh: int = 0
    doubtful: bool = field(default=False, init=False)

    async def lived(self) -> "LifeWithLegs":
        """All of it, from the request to the last leg."""
        flow = {"transfer_data": {"destination": SELLER}, "application_fee_amount": 1_000}
        await self.asked_for(payment=flow, **BOTH)
        self.fresh = len(self.reached)
        await self.sent()
        for fault in self.trouble:
            await self.shop.fault("transfer_reversal.create", fault)
        await self.legs_sent()
        return self

    async def legs_sent(self) -> None:
        """The run has the legs sent, again and again until nothing is due for them."""
        for _ in range(20):
            row = await self.shop.row(self.refund)
            if row["legs_at"] is None or {leg["state"] for leg in await legs_of(self.shop, self.refund)} <= {"done", "parked"}:
                return
            self.shop.clock.advance(max(row["legs_at"] - self.shop.clock.now(), timedelta(0)))
            try:
                await self.mortal(lambda: self.shop.send_legs(self.refund))
            except points.Crashed:
                await lapse(self.shop, self.refund)
        raise AssertionError("the legs never ended")

    async def end(self) -> dict[str, Any]:
        """What must be the same wherever the process died: the refund's own record, its legs, and what was really returned."""
        legs = await legs_of(self.shop, self.refund)
        row = await self.shop.row(self.refund)
        return {
            "record": await self.record(),
            "legs": [(leg["kind"], leg["amount"], leg["state"], leg["code"]) for leg in legs],
            "made": await made(self.shop, self.intent),
            "done": (await self.shop.entries(self.refund)).count("leg_done"),
            "over": (row["final_at"] is not None, row["legs_at"] is None, row["queue"]),
        }


STORIES = {
    "straight": (),
    "answer lost": (LOSE_ANSWER,),
    "request lost": (LOSE_REQUEST,),
}


@pytest.mark.parametrize("story", list(STORIES))
async def test_a_crash_at_any_point_of_a_leg_ends_with_each_leg_made_once(make_shop: MakeShop, story: str) -> None:
    shop = await make_shop(submit_max_attempts=4)
    await shop.control("POST", "/accounts", {"id": SELLER, "available": None})
    with mortality():
        whole = await LifeWithLegs(shop, trouble=STORIES[story]).lived()
        wanted = await whole.end()
        assert wanted["made"] == {"reversals": [3_000], "fee_refunds": [300]}
        assert wanted["done"] == 2
        fresh = whole.fresh
        for number in firsts_and_lasts(whole.reached[fresh:]):
            life = await LifeWithLegs(shop, dies_at=fresh + number, trouble=STORIES[story]).lived()

            assert life.died == whole.reached[fresh + number]
            assert (life.died, await life.end()) == (life.died, wanted)


async def test_the_points_of_a_leg_are_all_met(make_shop: MakeShop) -> None:
    """A change that takes a commit or a call out of the way of a leg shows here, and is then met no more by the test above."""
    shop = await make_shop(submit_max_attempts=4)
    await shop.control("POST", "/accounts", {"id": SELLER, "available": None})
    with mortality():
        life = await LifeWithLegs(shop).lived()

    steps = dict.fromkeys(point.partition(":")[2] for point in life.reached[life.fresh :])
    assert [step for step in steps if "leg_" in step or "transfer" in step or "fee" in step] == [
        "intent+leg_intended+submitting+attempt_opened",
        "leg_attempt_opened",
        "transfer.reverse",
        "leg_done",
        "fee.refund",
    ]
