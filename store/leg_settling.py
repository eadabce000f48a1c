"""Settling a parked leg by hand: what a person says is checked live before it counts, as for the refund itself."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.marketplace import LegReceipt, leg_differences
from refunds.messages import Situation
from refunds.processor import CLOCKS_OF_A_PERSON, made_before
from store import leg_rows
from store.changes import Change
from store.instructed import Instructed
from store.leg_rows import DONE, NOT_DONE, PARKED, Leg
from store.legs import Legs, made_by
from store.situations import situation
from store.sql import Row


class LegSettling(Legs, Instructed):
    """The settling half of what the payments role does about legs."""

    async def settle_made(self, seen: Leg, instruction: Row, made: Sequence[LegReceipt]) -> Situation:
        """Let ``reversed`` count if what the person names is, at the processor, what was approved, and cannot be anything else's.

        A difference is refused as ``SETTLEMENT_MISMATCH``, unless it is the very one that parked this leg: then the person has judged it. ``made`` is the complete
        fresh list: where it shows one with the leg's own id, that is adopted, and another one refused as ``SETTLEMENT_CONTRADICTED``.
        """
        receipt = next((shown for shown in made if shown.id == instruction["body"]["reversal_id"]), None)
        ours = None if receipt is not None and receipt.operation == seen.id else made_by(seen, made)
        if ours is not None and seen.receipt_id is None:
            await self.receipt(seen, ours, attempt=None)
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            if ours is not None:
                return await self._settled(
                    connection, change, instruction, (Code.SETTLEMENT_CONTRADICTED, f"the processor shows {ours.id}")
                )
            refusal = await self._unsettled(connection, leg, receipt)
            if refusal is None:
                assert receipt is not None
                if leg.may_answer and receipt.operation != leg.id:
                    return situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="a request may still be under way")
                await leg_rows.become(connection, change, leg, DONE, actor=instruction["principal_id"], receipt=receipt.id)
            return await self._settled(connection, change, instruction, refusal)

    async def settle_not_made(self, seen: Leg, instruction: Row, found: LegReceipt | None) -> Situation:
        """Let ``not_reversed`` count if a second person says it, no attempt can still be under way, and the complete fresh list has no such thing.

        ``found`` is ours in that list, if it is there: then it is adopted and the settlement refused as ``SETTLEMENT_CONTRADICTED``.
        """
        if found is not None:
            await self.receipt(seen, found, attempt=None)
        async with self.database.begin() as connection:
            change, leg = await self._locked_leg(connection, seen)
            if (heard := await self._already(connection, change, instruction)) is not None:
                return heard
            made = found.id if found else leg.receipt_id
            if made is None and leg.state == PARKED and leg.may_answer:
                return situation(change.row, refused=Code.ATTEMPT_OPEN.value, refused_detail="a request may still be under way")
            refusal: tuple[Code, str] | None = None
            if made is not None:
                refusal = Code.SETTLEMENT_CONTRADICTED, f"the processor shows {made}"
            elif leg.state != PARKED:
                refusal = Code.NOT_PARKED, f"the leg is {leg.state}"
            elif not instruction["body"].get("first_person"):
                refusal = Code.SECOND_PERSON_REQUIRED, "only one person has said so"
            else:
                code, by = Code.SETTLED_NOT_REVERSED, instruction["principal_id"]
                await leg_rows.become(
                    connection, change, leg, NOT_DONE, actor=by, code=code, detail="two persons found that it was not made"
                )
            return await self._settled(connection, change, instruction, refusal)

    async def _unsettled(self, connection: AsyncConnection, leg: Leg, receipt: LegReceipt | None) -> tuple[Code, str] | None:
        """Why what a person names does not settle the leg, or ``None``."""
        if leg.state != PARKED:
            return Code.NOT_PARKED, f"the leg is {leg.state}"
        if receipt is None:
            return Code.SETTLEMENT_NOT_FOUND, f"the processor shows no such thing of {leg.request.target}"
        if leg.receipt_id not in (None, receipt.id):
            return Code.SETTLEMENT_MISMATCH, f"the receipt names {leg.receipt_id}"
        if leg.receipt_id is not None:
            return None
        others = await leg_rows.not_its(connection, leg, [receipt])
        if receipt.operation != leg.id and made_before(receipt.created_at, leg.created_at, CLOCKS_OF_A_PERSON):
            others.setdefault(receipt.id, "it was made before this refund was sent")
        difference = others.get(receipt.id) or leg_differences(replace(receipt, operation=leg.id), leg.request)
        return (Code.SETTLEMENT_MISMATCH, difference) if difference else None

    async def _settled(self, connection: AsyncConnection, change: Change, instruction: Row, refusal: tuple[Code, str] | None) -> Situation:
        leg_rows.stand(change, await leg_rows.of_refund(connection, change.id, longest=self._longest_call))
        return await self._done(connection, change, instruction, *(refusal or (None, "")))
