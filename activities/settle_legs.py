"""Settling a leg by hand: a person says what became of it, and the processor is asked before it counts."""

from activities.processors.base import Marketplace
from refunds.messages import Situation
from store.leg_settling import LegSettling
from store.legs import made_by
from store.sql import Row


class SettleLegs:
    """The part of the settling step that is about legs."""

    def __init__(self, settling: LegSettling, processor: Marketplace) -> None:
        self._settling = settling
        self._processor = processor

    async def check(self, refund_id: str, instruction: Row) -> Situation | None:
        """Check a recorded settlement of a leg live and let it count, or refuse it; ``None`` when the refund has no such leg. Raises ``NotSent``."""
        body = instruction["body"]
        leg = await self._settling.leg(refund_id, body["leg"])
        if leg is None:
            return None
        made = await self._processor.returned_of(leg.request.kind, leg.request.target)
        if body["outcome"] == "reversed":
            return await self._settling.settle_made(leg, instruction, made)
        return await self._settling.settle_not_made(leg, instruction, made_by(leg, made))
