"""One entry of the ledger in the form that is hashed: RFC 8785 canonical JSON of what the row in the database holds, and of nothing else.

Only what is stored is hashed, and only in this form, so that reading it back gives the same bytes for ever (field report 75): integers and strings, times in
UTC with microseconds. An integer that not every reader of JSON keeps exactly, or a fraction that somebody put into the database, is written as text.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import rfc8785

from refunds.clock import rfc3339
from refunds.ledger.merkle import leaf_hash

VERSION = 1
"""The form of entries. A later form gets another number and its own rules; entries that exist keep theirs."""

EXACT = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly (RFC 8785, section 3.2.2.3)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A row of the ledger as the database has it; ``data`` and ``commitments`` are their JSON text."""

    id: int
    at: datetime
    type: str
    refund_id: str | None
    refund_version: int | None
    actor: str
    on_behalf_of: str | None
    data: str
    commitments: str | None


@dataclass(frozen=True, slots=True)
class Numbered:
    """An entry of the chain: its number, its canonical text, its leaf hash, and the hash before it."""

    seq: int
    entry: str
    hash: bytes
    previous: bytes


def number(row: Recorded, seq: int, previous: bytes) -> Numbered:
    """Make a row the entry ``seq`` after the one whose hash is ``previous``. The same row, number and hash give the same bytes."""
    entry = {
        "v": VERSION,
        "seq": seq,
        "at": rfc3339(row.at),
        "type": row.type,
        "refund": row.refund_id,
        "refund_version": row.refund_version,
        "actor": row.actor,
        "on_behalf_of": row.on_behalf_of,
        "data": read(row.data),
        "commitments": None if row.commitments is None else read(row.commitments),
        "previous": previous.hex(),
    }
    canonical = rfc8785.dumps(entry)
    return Numbered(seq, canonical.decode(), leaf_hash(canonical), previous)


def read(text: str) -> Any:
    """Read stored JSON exactly: fractions stay the text they are, and so do integers beyond :data:`EXACT`."""
    return _READER.decode(text)


def _integer(digits: str) -> int | str:
    value = int(digits)
    return value if -EXACT <= value <= EXACT else digits


def hash_of(value: Any) -> str:
    """The SHA-256 of something that is stored as JSON, over its canonical form, in lower-case hex: the same before it is stored and of what is read back."""
    return hash_of_json(json.dumps(value))


def hash_of_json(text: str) -> str:
    """The same of JSON as the database gives it, which writes numbers in its own way."""
    value = _AS_STORED.decode(text)
    written = _SORTED.encode(value)  # of nothing but ASCII this is the canonical form already, in a tenth of the time: quoting waits for it
    return hashlib.sha256(written.encode() if written.isascii() else rfc8785.dumps(value)).hexdigest()


def _digits(fraction: str) -> str:
    return format(Decimal(fraction), "f")


_READER = json.JSONDecoder(parse_float=str, parse_int=_integer)
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
_AS_STORED = json.JSONDecoder(parse_float=_digits, parse_int=_integer)


def parsed(entry: str) -> Mapping[str, Any]:
    """The fields of a canonical entry."""
    return cast(Mapping[str, Any], json.loads(entry))
