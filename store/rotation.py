"""Renewing what protects the keys of customers: a new wrapping key under the present master key, and every customer's key wrapped anew, some at a time.

Each step is a transaction of its own and starts from what is there, so a rotation that is killed is carried on by whoever runs the next step. Meanwhile both
wrapping keys open what they wrapped. All sealing keys, the old ones too, are under the present master key from the first step on: after it nothing needs the
master key before. The look-up key keeps its value, so everything is found as before.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, bindparam, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from store.changes import enter
from store.sealing import new_key
from store.tables import customer_keys, sealing_keys
from store.vault import WRAPPING, Keys, Vault, vault_of

_ONE_AT_A_TIME = 0x5345_414C  # any fixed number; this one spells SEAL
KEYS_A_STEP = 500


@dataclass(frozen=True, slots=True)
class Standing:
    """The present master key by its name, the newest wrapping key by its number, and how many customers' keys older ones still wrap."""

    master: str
    number: int
    customers: int
    left: int
    under_other_masters: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step did: whether it began a rotation, how many customers' keys it wrapped anew, and whether none is left."""

    master: str
    number: int
    began: bool
    rewrapped: int
    done: bool


async def standing(connection: AsyncConnection) -> Standing:
    """How far it is. ``under_other_masters`` counts the sealing keys that need another master key than the present one."""
    rows = (await connection.execute(select(sealing_keys.c.purpose, sealing_keys.c.number, sealing_keys.c.master))).all()
    newest, master = max(row.number for row in rows if row.purpose == WRAPPING), vault_of(connection).masters.current
    counted = await connection.execute(
        select(func.count(), func.count().filter(customer_keys.c.wrapping < newest)).select_from(customer_keys)
    )
    customers, left = counted.one()
    return Standing(master, newest, customers, left, sum(row.master != master for row in rows))


async def step(connection: AsyncConnection, clock: Clock, *, actor: str, anew: bool, limit: int = KEYS_A_STEP) -> Stepped:
    """Carry on a rotation that is not done, or with ``anew`` begin one; without either nothing happens.

    What ``anew`` carries on is only a rotation to the present master key: an older one is overtaken by the one that is begun.
    Two at once take turns. Raises :class:`store.sealing.Unreadable` when this process holds no key to open what is there; nothing is changed then.
    """
    await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ONE_AT_A_TIME})
    vault = vault_of(connection)
    keys = await vault.reload(connection)
    began = anew and (not await _some_left(connection, keys) or await _under_others(connection, vault))
    if began:
        keys = await _begin(connection, clock, vault, keys, actor)
    rewrapped = await _rewrap(connection, keys, limit)
    done = not await _some_left(connection, keys)
    if rewrapped:
        await enter(connection, "customer_keys_rewrapped", clock.now(), actor=actor, number=keys.newest, count=rewrapped)
    return Stepped(vault.masters.current, keys.newest, began, rewrapped, done)


async def _some_left(connection: AsyncConnection, keys: Keys) -> bool:
    """Whether an older wrapping key still wraps a customer's key."""
    query = select(customer_keys.c.customer_id).where(customer_keys.c.wrapping < keys.newest).limit(1)
    return (await connection.execute(query)).first() is not None


async def _under_others(connection: AsyncConnection, vault: Vault) -> bool:
    """Whether a sealing key needs another master key than the present one: then carrying on an older rotation is not what is wanted."""
    query = select(sealing_keys.c.number).where(sealing_keys.c.master != vault.masters.current).limit(1)
    return (await connection.execute(query)).first() is not None


async def _begin(connection: AsyncConnection, clock: Clock, vault: Vault, keys: Keys, actor: str) -> Keys:
    """Make the next wrapping key, and put all sealing keys under the present master key.

    The new key is not the vault's yet: it would use it for new customers although this transaction may still fail. It finds it when it looks again.
    """
    now, number, key = clock.now(), keys.newest + 1, new_key()
    await connection.execute(insert(sealing_keys).values(purpose=WRAPPING, created_at=now, **await vault.wrapped(WRAPPING, number, key)))
    for row in (await connection.execute(select(sealing_keys).where(sealing_keys.c.master != vault.masters.current))).mappings().all():
        wrapped = await vault.wrapped(row["purpose"], row["number"], await vault.unwrapped(row))
        at = (sealing_keys.c.purpose == row["purpose"], sealing_keys.c.number == row["number"])
        await connection.execute(update(sealing_keys).where(*at).values(master=wrapped["master"], wrapped=wrapped["wrapped"]))
    await enter(connection, "master_key_rotated", now, actor=actor, master=vault.masters.current, number=number)
    return keys.also(number, key)


async def _rewrap(connection: AsyncConnection, keys: Keys, limit: int) -> int:
    """Wrap some customers' keys with the newest wrapping key. Whoever is being forgotten at this moment is left out."""
    query = (
        select(customer_keys.c.customer_id, customer_keys.c.wrapped, customer_keys.c.wrapping)
        .where(customer_keys.c.wrapping < keys.newest)
        .order_by(customer_keys.c.customer_id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = (await connection.execute(query)).all()
    changed: list[dict[str, Any]] = [
        {"customer": row.customer_id, "again": keys.wrap(row.customer_id, keys.unwrap(row.customer_id, row.wrapped, row.wrapping))}
        for row in rows
    ]
    if changed:
        putting = update(customer_keys).where(customer_keys.c.customer_id == bindparam("customer", type_=Text))
        await connection.execute(putting.values(wrapped=bindparam("again"), wrapping=keys.newest), changed)
    return len(changed)
