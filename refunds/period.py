"""The files of a period's export: one JSON object a line and the same as CSV, and the manifest that names them with their hashes.

JSON Lines: UTF-8, ``\\n`` after each line, RFC 8785 canonical. CSV (RFC 4180): UTF-8 without a byte order mark, a header, ``\\r\\n`` after each line, every cell quoted;
a text that a spreadsheet would take for a formula (``=``, ``+``, ``-``, ``@``, a tab or a line break at its beginning) gets an apostrophe before it, and a number
does not. What is not there is an empty cell.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import rfc8785

from refunds.clock import rfc3339

FORMAT = "refunds period 1"
ENTRY = "period_exported"
"""The type of the ledger entry that holds the manifest's hash, and so stands behind every file."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "refunds": (
        *("id", "created_at", "status", "status_since", "final_at", "amount", "currency", "full", "reason", "channel", "integration"),
        *("requester", "requested_by", "agent", "customer", "order", "payment", "processor_payment", "revision", "terms_hash", "tier"),
        *("policy_version", "policy_hash", "code", "version"),
    ),
    "decisions": (
        *(
            "id",
            "recorded_at",
            "refund",
            "revision",
            "kind",
            "step",
            "verdict",
            "terms_hash",
            "principal",
            "person",
            "role",
            "on_behalf_of",
        ),
        "delegation",
    ),
    "operations": (
        *("id", "created_at", "refund", "revision", "kind", "terms_hash", "payment", "amount", "currency", "idempotency_key", "request"),
        *("settled_at", "outcome", "processor_refund", "processor_state"),
    ),
    "attempts": ("id", "opened_at", "operation", "number", "send_by", "answered_at", "outcome", "reason"),
    "settlements": (
        *("processor_refund", "first_read_at", "operation", "presentment_amount", "presentment_currency", "settlement_amount"),
        *("settlement_currency", "rate", "fee", "returned", "read_at"),
    ),
    "ledger": ("id", "at", "seq", "type", "refund", "refund_version", "actor", "on_behalf_of", "data", "commitments"),
}
"""The kinds of records of an export, and their fields in the order of the CSV's columns. The first is the id, the second when it falls into the period."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON can carry it exactly: times in RFC 3339, large integers and fractions as text."""
    return {name: _plain(value) for name, value in record.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, dict):
        return plain(cast(dict[str, Any], value))
    if isinstance(value, list):
        return [_plain(one) for one in cast(list[Any], value)]
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > 2**53 - 1):
        return str(value)
    return value


def json_line(record: Mapping[str, Any]) -> str:
    """A record's line in JSON Lines."""
    return rfc8785.dumps(dict(record)).decode() + "\n"


def csv_line(values: list[Any]) -> str:
    """A line of CSV."""
    return ",".join(f'"{_cell(value)}"' for value in values) + "\r\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return ("'" + text if text.startswith(_FORMULA) else text).replace('"', '""')


class File:
    """One file while it is written: its text line by line, and its hash and number of records so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records = 0
        self._digest = hashlib.sha256()

    def add(self, line: str, *, record: bool = True) -> dict[str, str]:
        """A line, as it is handed out."""
        self._digest.update(line.encode())
        self.records += record
        return {"file": self.name, "text": line}

    def said(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"sha256": self._digest.hexdigest(), "records": self.records}


def manifest(from_: datetime, to: datetime, made_at: datetime, by: str, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest: ``from`` belongs to the period and ``to`` does not."""
    said = {name: dict(file) for name, file in files.items()}
    return {"format": FORMAT, "from": rfc3339(from_), "to": rfc3339(to), "made_at": rfc3339(made_at), "by": by, "files": said}


def manifest_hash(of: Mapping[str, Any]) -> str:
    """The SHA-256 of ``manifest.json``, in hex."""
    return hashlib.sha256(manifest_text(of).encode()).hexdigest()


def manifest_text(of: Mapping[str, Any]) -> str:
    """The manifest as the file ``manifest.json`` holds it; its SHA-256 is what the ledger's entry holds."""
    return rfc8785.dumps(dict(of)).decode() + "\n"
