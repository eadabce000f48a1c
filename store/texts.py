"""What people and models wrote about a refund, encrypted at rest under the key of its customer (AES-256-GCM), which a master key outside the database protects.

Only the API (which takes and shows text) and the classify role (which reads it) hold a master key and may read this table.

Of a forgotten customer nothing is kept, with one exception: what colleagues write afterwards about one of their refunds (how it was settled, why it was decided
so) is the record of what was done with money, and must not vanish. It is sealed under a key of the process and has the period of notes.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.apart import DETAILS
from refunds.clock import Clock
from refunds.masking import Masked, mask, mask_field
from store import identifiers
from store.sealing import Opening, Unreadable, open_value, seal_value
from store.sql import Query
from store.tables import customer_keys, texts
from store.vault import customer_key, keys_of

__all__ = ["READING", "Kept", "SealedTexts", "Texts", "Unreadable"]

READING = "reading"
"""The kind under which the words of a reading are kept."""

_OF_COLLEAGUES = ("note:", "evidence:")
"""How the kinds begin that are kept of a forgotten customer's refunds, too."""

_ADD = Query(postgresql.insert(texts).values({c.name: bindparam(c.name) for c in texts.c}).on_conflict_do_nothing())
_READ = Query(
    select(texts.c.kind, texts.c.sealed, texts.c.customer_id, customer_keys.c.wrapped, customer_keys.c.wrapping)
    .outerjoin(customer_keys, customer_keys.c.customer_id == texts.c.customer_id)
    .where(texts.c.refund_id == bindparam("refund"))
)


@dataclass(frozen=True, slots=True)
class SealedTexts:
    """Texts that are sealed and not yet stored, with what goes on the ledger entry of whatever brought them: the commitments, and how much of what kind was
    masked in each (:mod:`refunds.masking`)."""

    rows: list[dict[str, Any]]
    commitments: dict[str, str]
    masked: dict[str, dict[str, int]]


class Kept(NamedTuple):
    """The commitments to what was stored, and what was masked in it, both by kind."""

    commitments: dict[str, str]
    masked: dict[str, dict[str, int]]


class Texts:
    """Reads and writes encrypted text with the keys of the process, which the connection carries (:mod:`store.vault`).

    Each sealed value is bound to its refund and kind, so that rows cannot be swapped.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def write(self, connection: AsyncConnection, *, refund_id: str, customer_id: str, values: Mapping[str, str | None]) -> Kept:
        """Store each text under its kind and return the commitments by kind (hex SHA-256 over a salt and the text); empty ones are left out.

        What nobody may keep is masked first. Put them on the ledger entry of whatever brought the texts. Writing the same kind again changes nothing, and
        there is no commitment then. Of a forgotten customer only what colleagues write is stored.
        """
        if not any(values.values()):
            return Kept({}, {})
        key = (await identifiers.customer(connection, customer_id)).key
        if key is None:
            key = keys_of(connection).afterwards()
            values = {kind: value for kind, value in values.items() if kind.startswith(_OF_COLLEAGUES)}
        sealed = self.seal(key, refund_id=refund_id, customer_id=customer_id, values=values)
        added = [row["kind"] for row in sealed.rows if await _ADD.do(connection, **row)]
        return Kept(
            {kind: sealed.commitments[kind] for kind in added}, {kind: sealed.masked[kind] for kind in added if kind in sealed.masked}
        )

    def seal(self, key: bytes | None, *, refund_id: str, customer_id: str, values: Mapping[str, str | None]) -> SealedTexts:
        """Mask and seal texts under a customer's key: for a caller that has it at hand, and enters the commitments together with what brought the texts."""
        now, rows, commitments, masked = self.clock.now(), [], {}, {}
        for kind, value in values.items():
            if not value or key is None:
                continue
            kept = _masked(kind, value)
            sealed = seal_value(key, kept.text, place_of(refund_id, kind))
            commitments[kind] = sealed.commitment
            if kept.counts:
                masked[kind] = kept.counts
            rows.append({"refund_id": refund_id, "kind": kind, "customer_id": customer_id, "sealed": sealed.sealed, "recorded_at": now})
        return SealedTexts(rows, commitments, masked)

    async def store(self, connection: AsyncConnection, sealed: SealedTexts) -> None:
        """Store what was sealed for a refund that this transaction makes; it may be inside :func:`store.sql.pipelined`."""
        for row in sealed.rows:
            await _ADD.ask(connection, **row)

    async def read(self, connection: AsyncConnection, refund_id: str, *, only: str | None = None) -> dict[str, str]:
        """All texts of a refund, by kind; with ``only`` that kind alone, and no other is opened. Raises :class:`Unreadable`."""
        return {kind: opening.value for kind, opening in (await self.openings(connection, refund_id, only=only)).items()}

    async def openings(self, connection: AsyncConnection, refund_id: str, *, only: str | None = None) -> dict[str, Opening]:
        """All texts of a refund with their salts: what shows that a commitment in the ledger is of this text. Raises :class:`Unreadable`.

        For who may see the text itself, and no one else.
        """
        found: dict[str, Opening] = {}
        for row in await _READ.all(connection, refund=refund_id):
            if only not in (None, row["kind"]):
                continue
            key = await customer_key(connection, row["customer_id"], row["wrapped"], row["wrapping"])
            if key is None and row["kind"].startswith(_OF_COLLEAGUES):
                key = keys_of(connection).afterwards()
            if key is not None:
                found[row["kind"]] = open_value(key, row["sealed"], place_of(refund_id, row["kind"]))
        return found


def _masked(kind: str, value: str) -> Masked:
    """A text as it may be kept. What a model read quotes a text that was masked already, and is not touched; details are JSON, and are masked value by value."""
    if kind == READING:
        return Masked(value, {})
    if kind != DETAILS:
        return mask(value)
    counts = Counter[str]()

    def leaf(part: Any, name: str = "") -> Any:
        if isinstance(part, str):
            found = mask_field(name, part)
            counts.update(found.counts)
            return found.text
        if isinstance(part, dict):
            return {name: leaf(one, name) for name, one in part.items()}
        return [leaf(one) for one in part] if isinstance(part, list) else part

    text = json.dumps(leaf(json.loads(value)), ensure_ascii=False)
    return Masked(text, dict(counts)) if counts else Masked(value, {})


def place_of(refund_id: str, kind: str) -> str:
    """Where a text is bound to."""
    return f"texts/{refund_id}/{kind}"
