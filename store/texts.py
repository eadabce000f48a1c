"""Customer text, encrypted at rest under a key per customer, which a wrapping key outside the database protects (AES-256-GCM both times).

Only the API (which takes and shows text) and the classify role (which reads it) hold the wrapping key.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from store.tables import customer_keys, texts

_NONCE = 12


class Unreadable(RuntimeError):
    """The text cannot be decrypted with the key of this process, or it was tampered with."""


def _seal(key: bytes, plain: bytes, bound_to: str) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound_to.encode())


def _open(key: bytes, sealed: bytes, bound_to: str) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], bound_to.encode())
    except InvalidTag as error:
        raise Unreadable(f"{bound_to} cannot be decrypted: wrong REFUNDS_TEXT_KEY, or the row was changed") from error


class Texts:
    """Reads and writes encrypted text with one wrapping key. Each sealed value is bound to its refund and kind, so that rows cannot be swapped."""

    def __init__(self, wrapping_key: bytes, clock: Clock) -> None:
        self._wrapping = wrapping_key
        self._clock = clock

    async def write(self, connection: AsyncConnection, *, refund_id: str, customer_id: str, values: dict[str, str | None]) -> None:
        """Store each text under its kind; empty ones are left out. Writing the same kind again changes nothing."""
        present = {kind: value for kind, value in values.items() if value}
        if not present:
            return
        key = await self._customer_key(connection, customer_id)
        now = self._clock.now()
        rows = [
            {
                "refund_id": refund_id,
                "kind": kind,
                "customer_id": customer_id,
                "sealed": _seal(key, value.encode(), f"{refund_id}/{kind}"),
                "recorded_at": now,
            }
            for kind, value in present.items()
        ]
        await connection.execute(insert(texts).on_conflict_do_nothing(), rows)

    async def read(self, connection: AsyncConnection, refund_id: str) -> dict[str, str]:
        """All texts of a refund, by kind. Raises :class:`Unreadable`."""
        rows = (
            await connection.execute(
                select(texts.c.kind, texts.c.sealed, texts.c.customer_id, customer_keys.c.wrapped)
                .join(customer_keys, customer_keys.c.customer_id == texts.c.customer_id)
                .where(texts.c.refund_id == refund_id)
            )
        ).all()
        return {
            kind: _open(_open(self._wrapping, wrapped, customer), sealed, f"{refund_id}/{kind}").decode()
            for kind, sealed, customer, wrapped in rows
        }

    async def _customer_key(self, connection: AsyncConnection, customer_id: str) -> bytes:
        fresh = os.urandom(32)
        made = insert(customer_keys).values(
            customer_id=customer_id, wrapped=_seal(self._wrapping, fresh, customer_id), created_at=self._clock.now()
        )
        await connection.execute(made.on_conflict_do_nothing())
        wrapped = (await connection.execute(select(customer_keys.c.wrapped).where(customer_keys.c.customer_id == customer_id))).scalar_one()
        return _open(self._wrapping, wrapped, customer_id)
