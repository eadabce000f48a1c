"""The keys of a process: where they come from, and how code that holds a connection gets at them.

Three storeys. A *master key* outside the database (:mod:`store.master_keys`) wraps the *sealing keys*, a few rows in the database: one look-up key, which
stays the same for ever, and numbered wrapping keys, the newest of which wraps the *key of each customer*, which seals everything that is theirs.

A process without a master key opens nothing: its connections carry no vault, and whoever asks for one is told which setting is missing.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from store.changes import SYSTEM, enter
from store.master_keys import KeysMissing, MasterKeys
from store.sealing import Unreadable, derived, keyed, new_key, seal, unseal
from store.tables import sealing_keys

LOOKUP, WRAPPING = "lookup", "wrapping"
_OPTION = "vault"

LOOK_AGAIN_S = 60
"""How long a process goes on with the keys it has before it looks whether there is a newer one."""


@dataclass(frozen=True, slots=True)
class CustomerKey:
    """A customer's key: as it is used, and as it is stored, wrapped by the wrapping key of that number."""

    key: bytes
    wrapped: bytes
    wrapping: int


class Keys:
    """The opened sealing keys."""

    def __init__(self, lookup: bytes, wrapping: Mapping[int, bytes]) -> None:
        self._lookup, self._wrapping = lookup, dict(wrapping)
        self._purposes: dict[str, bytes] = {}
        self.newest = max(wrapping)

    def lookup(self, kind: str, value: str) -> bytes:
        """What an identifier of this kind is found by: the same for the same one, and nobody can try one without the key."""
        return keyed(self._for(kind), value)

    def fingerprint(self, kind: str, value: str) -> str:
        """The same as text, for what is compared and not found by."""
        return self.lookup(kind, value).hex()

    def staging(self) -> bytes:
        """What seals personal data that belongs to nobody's key yet."""
        return self._for("staging")

    def afterwards(self) -> bytes:
        """What seals what colleagues write about the refunds of a customer who is forgotten, and has no key any more."""
        return self._for("afterwards")

    def erasures(self) -> bytes:
        """What signs the lines of the list of erasures outside the database."""
        return self._for("erasures")

    def new_customer_key(self, customer_id: str) -> CustomerKey:
        """Make a customer's key. Store it in the transaction that makes the customer, and nowhere else."""
        key = new_key()
        return CustomerKey(key, self.wrap(customer_id, key), self.newest)

    def wrap(self, customer_id: str, key: bytes) -> bytes:
        """A customer's key, wrapped by the newest wrapping key."""
        return seal(self._wrapping[self.newest], key, _place(customer_id))

    def unwrap(self, customer_id: str, wrapped: bytes, wrapping: int) -> bytes:
        """A customer's key. Raises :class:`store.sealing.Unreadable`."""
        return unseal(self._wrapping[wrapping], wrapped, _place(customer_id))

    def knows(self, wrapping: int) -> bool:
        """Whether the wrapping key of that number is opened here."""
        return wrapping in self._wrapping

    def also(self, number: int, key: bytes) -> "Keys":
        """These keys and one more wrapping key."""
        return Keys(self._lookup, self._wrapping | {number: key})

    def _for(self, purpose: str) -> bytes:
        if (key := self._purposes.get(purpose)) is None:
            key = self._purposes[purpose] = derived(self._lookup, purpose)
        return key


class Vault:
    """The keys of one pool of connections, opened once: before its first transaction, over a connection of its own."""

    def __init__(self, masters: MasterKeys) -> None:
        self.masters = masters
        self._keys: Keys | None = None
        self._found: dict[tuple[str, int], bytes] = {}
        self._look_again = 0.0

    @property
    def keys(self) -> Keys:
        """The opened keys. Raises :class:`store.master_keys.KeysMissing` over a login that may not read them."""
        if self._keys is None:
            raise KeysMissing("this database login may not read sealing_keys: what is personal is not its business")
        return self._keys

    @property
    def is_fresh(self) -> bool:
        """Whether it was opened, and not so long ago that another process may have made a new wrapping key since."""
        return time.monotonic() < self._look_again

    async def open(self, engine: AsyncEngine, at: datetime) -> None:
        """Open the keys, and make them when there are none yet: two processes that begin at once end up with the same ones.

        Again it only reads, and opens what is new. Over a login that may not read the keys nothing happens. Raises :class:`store.sealing.Unreadable` when the
        master key is another one than they were wrapped with.
        """
        if self._keys is not None:
            self._look_again = time.monotonic() + LOOK_AGAIN_S  # one looks, the others go on with what there is
        rows: list[Mapping[Any, Any]] = []
        async with engine.begin() as connection:
            may_read = await connection.execute(text("SELECT has_table_privilege('sealing_keys', 'SELECT')"))
            if may_read.scalar_one():
                rows = await _rows(connection) or await self._made(connection, at)
        if rows:  # what was made is committed by now: a key that is nowhere stored must never be used
            self._keys = await self._opened(rows)
        self._look_again = time.monotonic() + LOOK_AGAIN_S

    async def _made(self, connection: AsyncConnection, at: datetime) -> list[Mapping[Any, Any]]:
        made = [{"purpose": purpose, **await self.wrapped(purpose, 1, new_key()), "created_at": at} for purpose in (LOOKUP, WRAPPING)]
        added = insert(sealing_keys).on_conflict_do_nothing().returning(sealing_keys.c.purpose)
        if purposes := sorted((await connection.execute(added, made)).scalars()):
            await enter(connection, "sealing_keys_made", at, actor=SYSTEM, master=self.masters.current, purposes=purposes)
        return await _rows(connection)

    async def reload(self, connection: AsyncConnection) -> Keys:
        """Read them again: another process has added one."""
        self._keys = await self._opened(await _rows(connection))
        return self._keys

    async def wrapped(self, purpose: str, number: int, key: bytes) -> dict[str, Any]:
        """The columns of a sealing key under the master key that is now current."""
        sealed = await asyncio.to_thread(self.masters.wrap, key, name_of(purpose, number))
        return {"number": number, "master": self.masters.current, "wrapped": sealed}

    async def unwrapped(self, row: Mapping[Any, Any]) -> bytes:
        """A sealing key. Raises :class:`store.sealing.Unreadable`."""
        place = name_of(row["purpose"], row["number"])
        return await asyncio.to_thread(self.masters.unwrap, row["master"], bytes(row["wrapped"]), place)

    async def _opened(self, rows: Iterable[Mapping[Any, Any]]) -> Keys:
        for row in rows:
            place = row["purpose"], row["number"]
            if place not in self._found:  # a sealing key never changes, however often it is wrapped anew
                self._found[place] = await self.unwrapped(row)
        return Keys(self._found[LOOKUP, 1], {number: key for (purpose, number), key in self._found.items() if purpose == WRAPPING})


def options(masters: MasterKeys | None) -> dict[str, Any]:
    """What a pool's connections carry, so that whoever has one has the keys as well."""
    return {} if masters is None else {_OPTION: Vault(masters)}


def of_engine(engine: AsyncEngine) -> Vault | None:
    """The vault of a pool; ``None`` in a process that holds no master key."""
    return engine.get_execution_options().get(_OPTION)


def vault_of(connection: AsyncConnection) -> Vault:
    """The vault of a connection's process. Raises :class:`store.master_keys.KeysMissing` in one that holds no master key."""
    under = connection.sync_connection
    assert under is not None
    vault: Vault | None = under.get_execution_options().get(_OPTION)
    if vault is None:
        raise KeysMissing(
            "this process holds no master key, and what it is asked for is personal: set REFUNDS_TEXT_KEY (or REFUNDS_TEXT_KEYS_FILE or REFUNDS_TEXT_KMS_URL)"
        )
    return vault


def keys_of(connection: AsyncConnection) -> Keys:
    """The opened keys of a connection's process. Raises as :func:`vault_of` does."""
    return vault_of(connection).keys


async def customer_key(connection: AsyncConnection, customer_id: str, wrapped: bytes | None, wrapping: int | None) -> bytes | None:
    """A customer's key from its row; ``None`` when there is none any more (they are forgotten). Raises :class:`store.sealing.Unreadable`."""
    if wrapped is None or wrapping is None:
        return None
    vault = vault_of(connection)
    keys = vault.keys if vault.keys.knows(wrapping) else await vault.reload(connection)
    if not keys.knows(wrapping):
        raise Unreadable(f"the key of {customer_id} was wrapped with sealing key {wrapping}, which is not there")
    return keys.unwrap(customer_id, bytes(wrapped), wrapping)


async def _rows(connection: AsyncConnection) -> list[Mapping[Any, Any]]:
    return list((await connection.execute(select(sealing_keys))).mappings())


def name_of(purpose: str, number: int) -> str:
    """Where a sealing key is bound to."""
    return f"sealing_keys/{purpose}/{number}"


def _place(customer_id: str) -> str:
    return f"customer_keys/{customer_id}"
