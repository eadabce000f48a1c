"""Signed checkpoints of the chain: when one is made, what it must agree with, and the copies of it that go where nobody here can change them.

A checkpoint is never signed that contradicts an earlier one (c2sp.org/tlog-checkpoint): the root at the earlier size is made again from what is stored, and
must be what was signed. Its copies are rows of the same transaction, so that none is lost between making and copying; each is tried until it has arrived.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Update, func, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.ledger.notes import SigningKey, checkpoint_text, signed
from store.chain import newest_checkpoint, root_at
from store.changes import SYSTEM, enter, tell
from store.sequencing import LOCK, Inconsistent
from store.sql import Row
from store.tables import ledger, ledger_checkpoints, ledger_entries, ledger_exports

REQUESTED = "checkpoint_requested"
"""The entry of somebody who asked for a checkpoint: the sequencer makes one when it numbers it."""

KEYS_CHANGED = "ledger_keys_changed"
"""The entry that names the log and its keys, made with the first checkpoint that these sign."""

_BACK_OFF_S = (1, 5, 15, 60, 300)
TOLD_AFTER = 4
"""People are told when a copy could not be made so many times."""
LEASE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Made:
    """What was signed: so many entries, and the root over them."""

    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A checkpoint that is due somewhere."""

    checkpoint_id: int
    target: str
    tries: int
    size: int
    note: str


async def request(connection: AsyncConnection, at: datetime, *, actor: str) -> int:
    """Enter that somebody asks for a checkpoint; returns the row that the checkpoint will cover."""
    entry = {"at": at, "type": REQUESTED, "actor": actor, "data": {}}
    points.writes(REQUESTED)
    return (await connection.execute(insert(ledger).values(entry).returning(ledger.c.id))).scalar_one()


async def covering(connection: AsyncConnection, ledger_id: int) -> Row | None:
    """The newest checkpoint, if it signs this row."""
    query = select(ledger_entries.c.seq).where(ledger_entries.c.ledger_id == ledger_id)
    seq = (await connection.execute(query)).scalar_one_or_none()
    newest = await newest_checkpoint(connection)
    return newest if seq is not None and newest is not None and newest["size"] >= seq else None


async def make(
    connection: AsyncConnection,
    at: datetime,
    *,
    keys: Sequence[SigningKey],
    targets: Sequence[str],
    again: bool = False,
    known: Mapping[int, bytes] | None = None,
) -> Made | None:
    """Sign what is numbered, and have a copy sent to each target; returns what is signed.

    ``None`` when there is nothing new to sign (unless ``again``), and the size 0 when another one is at work. ``known`` are sizes and roots that this log signed, as
    the caller knows from elsewhere than the database. Raises :class:`store.sequencing.Inconsistent` when what is stored contradicts what was signed before: then
    nothing is signed.
    """
    if not (await connection.execute(select(func.pg_try_advisory_xact_lock(LOCK)))).scalar_one():
        return Made(0, b"")
    size = (await connection.execute(select(func.coalesce(func.max(ledger_entries.c.seq), 0)))).scalar_one()
    last = await newest_checkpoint(connection)
    origin, names = keys[0].name, [key.vkey for key in keys]
    renamed = last is None or (last["origin"], last["keys"]) != (origin, names)
    if size == 0 or (last is not None and last["size"] == size and not renamed and not again):
        return None
    try:
        if last is not None and (last["size"] > size or await root_at(connection, last["size"]) != bytes(last["root"])):
            raise Inconsistent(f"the first {last['size']} entries are not those that were signed on {last['made_at']:%Y-%m-%d %H:%M:%S}")
        for signed_size, signed_root in (known or {}).items():
            await _check_known(connection, size, signed_size, signed_root)
        root = await root_at(connection, size)
    except KeyError as error:
        raise Inconsistent(f"the tree has no node {error.args[0]}, although {size} entries are numbered") from None
    note = signed(checkpoint_text(origin, size, root), keys)
    values = {"size": size, "root": root, "origin": origin, "keys": names, "note": note, "made_at": at}
    made = (await connection.execute(insert(ledger_checkpoints).values(values).returning(ledger_checkpoints.c.id))).scalar_one()
    if targets:
        await connection.execute(insert(ledger_exports), [{"checkpoint_id": made, "target": target, "due_at": at} for target in targets])
    if renamed:
        await enter(connection, KEYS_CHANGED, at, actor=SYSTEM, origin=origin, keys=names)
    points.writes("checkpoint")
    return Made(size, root)


async def _check_known(connection: AsyncConnection, size: int, signed_size: int, signed_root: bytes) -> None:
    if signed_size > size:
        raise Inconsistent(
            f"{signed_size} entries were signed, and here are {size}: the database is an older one (ledger.md, after a restore)"
        )
    if await root_at(connection, signed_size) != signed_root:
        raise Inconsistent(f"the first {signed_size} entries are not those of which a copy is kept (ledger.md, after a restore)")


async def targets_due(connection: AsyncConnection, now: datetime) -> list[str]:
    """The places for which a copy is due."""
    due = select(ledger_exports.c.target).where(ledger_exports.c.done_at.is_(None), ledger_exports.c.due_at <= now).distinct()
    return list((await connection.execute(due)).scalars())


async def take_copy(connection: AsyncConnection, now: datetime, target: str) -> Copy | None:
    """Take the copy that has been due for longest at a place, for :data:`LEASE`: if it has not arrived by then it is due again. ``None`` when none is."""
    due = (
        select(ledger_exports.c.checkpoint_id, ledger_exports.c.target)
        .where(ledger_exports.c.target == target, ledger_exports.c.done_at.is_(None), ledger_exports.c.due_at <= now)
        .order_by(ledger_exports.c.due_at, ledger_exports.c.checkpoint_id)
        .limit(1)
        .with_for_update(skip_locked=True)
    ).cte("due")
    taken = await connection.execute(
        update(ledger_exports)
        .where(ledger_exports.c.checkpoint_id == due.c.checkpoint_id, ledger_exports.c.target == due.c.target)
        .where(ledger_exports.c.checkpoint_id == ledger_checkpoints.c.id)
        .values(due_at=now + LEASE, tries=ledger_exports.c.tries + 1)
        .returning(
            ledger_exports.c.checkpoint_id,
            ledger_exports.c.target,
            ledger_exports.c.tries,
            ledger_checkpoints.c.size,
            ledger_checkpoints.c.note,
        )
    )
    row = taken.one_or_none()
    return None if row is None else Copy(*row)


async def arrived(connection: AsyncConnection, copy: Copy, now: datetime) -> None:
    """Mark a copy as made."""
    await connection.execute(_this(copy).values(done_at=now, last_error=None))


async def failed(connection: AsyncConnection, copy: Copy, now: datetime, why: str) -> None:
    """Try again later, ever less often up to every five minutes, for as long as it takes; tell people once it has failed often."""
    wait = _BACK_OFF_S[min(copy.tries, len(_BACK_OFF_S)) - 1]
    await connection.execute(_this(copy).values(due_at=now + timedelta(seconds=wait), last_error=why[:500]))
    if copy.tries == TOLD_AFTER:
        await tell(connection, "ledger_copy_failed", now, target=copy.target, size=copy.size, why=why[:200], runbook="ledger.md")


def _this(copy: Copy) -> Update:
    return update(ledger_exports).where(
        ledger_exports.c.checkpoint_id == literal(copy.checkpoint_id), ledger_exports.c.target == literal(copy.target)
    )
