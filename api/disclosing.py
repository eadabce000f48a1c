"""A customer's export as one JSON document, written part by part: each page is a short transaction of its own, and a slow reader holds none open."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from api.calls import Call
from refunds.apart import DETAILS, together
from refunds.clock import rfc3339
from refunds.logs import logger
from store import disclosing
from store.db import Connection
from store.disclosing import PAGE, Extent
from store.sql import Row
from store.texts import Unreadable

FORMAT = "durable-refunds/customer-export"
VERSION = 1
_log = logger(__name__)

_OF_REFUND = (
    *("id", "group_id", "status", "created_at", "status_since", "final_at", "agent_id", "channel"),
    *("amount", "currency", "full", "reason", "reverse_transfer", "refund_application_fee", "details", "sources", "possible_duplicate_of"),
    *(
        "revision",
        "terms_hash",
        "tier",
        "code",
        "detail",
        "classification",
        "revisions",
        "decisions",
        "instructions",
        "operations",
        "ledger",
    ),
)
_OF_GROUP = ("id", "created_at", "amount", "currency", "full", "details", "allocation", "breakdown")

Page = Callable[[Connection, str, str], Awaitable[list[Row]]]


async def written(call: Call, customer_ref: str, extent: Extent) -> AsyncIterator[str]:
    """The document. A connection that is lost on the way ends it in the middle, where no JSON can end."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": call.services.database.clock.now(),
        "summary": disclosing.summary(extent),
        "customer": {
            "customer_id": customer_ref,
            "our_id": extent.customer,
            "account_created_at": extent.row["account_created_at"],
            "first_recorded_at": extent.row["created_at"],
        },
        "counts": extent.counts,
    }
    yield _json(head)[:-1]
    parts: tuple[tuple[str, Page, Callable[[Connection, Row], Awaitable[dict[str, Any]]]], ...] = (
        ("orders", disclosing.orders_after, _order),
        ("groups", disclosing.groups_after, _group),
        ("refunds", disclosing.refunds_after, _Refunds(call).one),
    )
    for name, page, shown in parts:
        yield f', "{name}": ['
        async for text in _listed(call, extent.customer, page, shown):
            yield text
        yield "]"
    yield "}\n"


async def _listed(
    call: Call, customer: str, page: Page, shown: Callable[[Connection, Row], Awaitable[dict[str, Any]]]
) -> AsyncIterator[str]:
    after, comma, more = "", "", True
    while more:
        async with call.services.database.read() as connection:
            rows = await page(connection, customer, after)
            texts = [_json(await shown(connection, row)) for row in rows]
        for text in texts:
            yield comma + text
            comma = ", "
        more = len(rows) == PAGE
        after = rows[-1]["id"] if rows else after


async def _order(_connection: Connection, row: Row) -> dict[str, Any]:
    names = ("id", "version", "placed_at", "delivered_at", "updated_at")
    return (
        {"order_id": row["external_ref"]}
        | {name: row[name] for name in names}
        | {
            "order": row["body"],
            "versions": row["versions"] or [],
            "payments": row["payments"] or [],
        }
    )


async def _group(_connection: Connection, row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _OF_GROUP}


class _Refunds:
    def __init__(self, call: Call) -> None:
        self._texts = call.services.texts

    async def one(self, connection: Connection, row: Row) -> dict[str, Any]:
        """A refund with its texts opened. One that cannot be opened is said to be so, and keeps the rest from nobody."""
        shown = {name: row[name] for name in _OF_REFUND} | {"order": row["order_id"], "payment_id": row["processor_payment"]}
        try:
            opened = await self._texts.openings(connection, row["id"])
        except Unreadable:
            _log.error("text_unreadable", refund=row["id"])
            return shown | {"texts": None, "texts_unreadable": True}
        details = opened.pop(DETAILS, None)
        return shown | {
            "details": together(row["details"], json.loads(details.value) if details else {}),
            "texts": {kind: opening.value for kind, opening in opened.items()},
            # With its salt a text shows that the commitment in the ledger is of it.
            "salts": {kind: opening.salt.hex() for kind, opening in opened.items()},
        }


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return rfc3339(value)
    raise TypeError(f"{type(value).__name__} cannot be shown")
