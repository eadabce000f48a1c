"""Instructions to settle something by hand, as the payments role carries them out: each once, and what became of it stays written on it."""

from sqlalchemy import bindparam, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.messages import Situation
from store.changes import Change
from store.operation_rows import OperationRows
from store.situations import situation
from store.sql import Query, Row
from store.tables import instructions

_GIVEN_BACK = Query(
    select(instructions.c.principal_id)
    .where(
        instructions.c.refund_id == bindparam("refund"),
        instructions.c.kind == literal("settle"),
        instructions.c.applied_at.is_(None),
        instructions.c.body["outcome"].astext == literal("refunded"),
    )
    .order_by(instructions.c.recorded_at)
)


async def said_given_back(connection: AsyncConnection, refund_id: str) -> str | None:
    """The principal who recorded of a manual part that it was given back, which has not been heard yet. Read it under the refund's lock.

    Nobody else can be asked, so this is money that moved: nobody's word that nothing did may come before it, in whatever order they are heard.
    """
    return await _GIVEN_BACK.value(connection, refund=refund_id)


class Instructed(OperationRows):
    """What settling a refund and settling a leg of one have in common."""

    async def instruction(self, refund_id: str, instruction_id: str) -> Row | None:
        """A recorded settlement of this refund, or ``None`` when no such one is recorded."""
        query = select(instructions).where(
            instructions.c.id == instruction_id, instructions.c.refund_id == refund_id, instructions.c.kind == "settle"
        )
        async with self.database.begin() as connection:
            return (await connection.execute(query)).mappings().one_or_none()

    async def _already(self, connection: AsyncConnection, change: Change, instruction: Row) -> Situation | None:
        """The answer of a settlement that counted, or was refused, when it was heard before: it comes twice when an answer was lost."""
        query = select(instructions.c.applied_at, instructions.c.outcome, instructions.c.detail).where(
            instructions.c.id == instruction["id"]
        )
        row = (await connection.execute(query)).one()
        return None if row.applied_at is None else situation(change.row, refused=row.outcome or "", refused_detail=row.detail or "")

    async def _done(self, connection: AsyncConnection, change: Change, instruction: Row, code: Code | None, detail: str) -> Situation:
        await connection.execute(
            update(instructions)
            .where(instructions.c.id == instruction["id"])
            .values(applied_at=change.at, outcome=code.value if code else None, detail=detail or None)
        )
        if code is not None:
            change.note("instruction_refused", kind="settle", instruction=instruction["id"], code=code.value)
        saved = await self._saved(connection, change)
        return saved if code is None else situation(change.row, refused=code.value, refused_detail=detail)
