"""The payments of a pull as they are kept until they are judged: whose they are, and of which order, sealed."""

import re
from collections import defaultdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.pulls import UNWRITABLE, ListedPayment, judge_alone
from store import identifiers
from store.sql import Row
from store.tables import pulled_payments

_ORDERS_A_STEP = 100
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


def row_of(connection: AsyncConnection, pull_id: str, payment: ListedPayment) -> dict[str, Any]:
    """A payment as it is kept. What no column takes is left out of its words, so that it keeps no other from being kept."""
    judged, order_id = judge_alone(payment), _writable(payment.order_ref) or None
    key = {"pull_id": pull_id, "processor_payment": payment.id}
    return key | {
        "order_lookup": order_id and identifiers.order_lookup(connection, order_id),
        "order_sealed": identifiers.stage(connection, _place(key), "order", order_id),
        "customer_sealed": None if judged is not None else identifiers.stage(connection, _place(key), "customer", payment.customer_ref),
        "currency": _writable(payment.currency),
        "captured": payment.captured,
        "raw_status": _writable(payment.raw_status),
        "created_at": payment.created_at,
        "outcome": judged.outcome.value if judged else None,
        "code": judged.code.value if judged and judged.code else None,
        "detail": judged.detail if judged else None,
    }


def _place(row: Row) -> str:
    return f"{row['pull_id']}/{row['processor_payment']}"


def _writable(word: str | None) -> str | None:
    return word and _NO_TEXT.sub(UNWRITABLE, word)


async def waiting(connection: AsyncConnection, pull_id: str) -> dict[str, list[ListedPayment]]:
    """The payments of the next orders, by order and oldest first."""
    mine = (pulled_payments.c.pull_id == pull_id, pulled_payments.c.outcome.is_(None))
    order = pulled_payments.c.order_lookup
    next_orders = select(order).where(*mine).distinct().order_by(order).limit(_ORDERS_A_STEP)
    query = (
        select(pulled_payments)
        .where(*mine, order.in_(next_orders))
        .order_by(order, pulled_payments.c.created_at, pulled_payments.c.processor_payment)
    )
    found: dict[str, list[ListedPayment]] = defaultdict(list)
    for row in (await connection.execute(query)).mappings():
        order_id = order_ref(connection, row) or ""
        found[order_id].append(
            ListedPayment(
                id=row["processor_payment"],
                raw_status=row["raw_status"],
                captured=row["captured"],
                currency=row["currency"],
                created_at=row["created_at"],
                order_ref=order_id,
                customer_ref=identifiers.staged(connection, _place(row), "customer", row["customer_sealed"]),
            )
        )
    return found


def order_ref(connection: AsyncConnection, row: Row) -> str | None:
    """The merchant's id of the order that a kept payment names. Raises :class:`store.sealing.Unreadable`."""
    return identifiers.staged(connection, _place(row), "order", row["order_sealed"])
