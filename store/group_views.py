"""Reading groups for an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.groups import MOST_PARTS
from refunds.processor import RefundState
from store import identifiers, orders, views
from store.groups import visible
from store.sql import Row
from store.tables import customers, operations, processor_refunds, refund_groups
from store.tables import orders as orders_table


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group with its parts, as rows of a list of refunds, the payments of its order, and what the processor shows as succeeded of each part."""

    group: Row
    members: Sequence[Row]
    payments: Sequence[Row]
    made: Mapping[str, int]


async def group(connection: AsyncConnection, group_id: str, *, integration: str | None, now: datetime) -> SeenGroup:
    """Everything about a group. With ``integration`` only one of that is seen. Raises ``GROUP_NOT_FOUND``."""
    row = await visible(connection, group_id, integration=integration)
    members = await views.page(connection, views.Filters(group_id=group_id), limit=MOST_PARTS, now=now)
    return SeenGroup(row, members, await orders.payments_of(connection, row["order_id"]), await _made(connection, members))


async def _made(connection: AsyncConnection, members: Sequence[Row]) -> dict[str, int]:
    """What succeeded of each part, by its id: a refund that a person settled may be of another amount than was approved."""
    query = (
        select(operations.c.refund_id, processor_refunds.c.amount)
        .join(operations, operations.c.id == processor_refunds.c.operation_id)
        .where(
            operations.c.refund_id.in_([row["id"] for row in members]),
            processor_refunds.c.currency == operations.c.currency,
            processor_refunds.c.state == RefundState.SUCCEEDED.value,
        )
    )
    return {row.refund_id: row.amount for row in await connection.execute(query)}


async def page(
    connection: AsyncConnection,
    *,
    integration: str | None,
    order_ref: str | None,
    customer_ref: str | None,
    after: str | None,
    limit: int,
) -> Sequence[Row]:
    """One page of groups, newest first, that follows the group ``after``."""
    query = (
        select(refund_groups.c.id)
        .join(orders_table, orders_table.c.id == refund_groups.c.order_id)
        .join(customers, customers.c.id == refund_groups.c.customer_id)
        .order_by(refund_groups.c.created_at.desc(), refund_groups.c.id.desc())
        .limit(limit)
    )
    given = (
        (refund_groups.c.integration, integration),
        (orders_table.c.ref_lookup, order_ref and identifiers.order_lookup(connection, order_ref)),
        (customers.c.ref_lookup, customer_ref and identifiers.customer_lookup(connection, customer_ref)),
    )
    for column, value in given:
        if value is not None:
            query = query.where(column == value)
    if after is not None:
        place = select(refund_groups.c.created_at, refund_groups.c.id).where(refund_groups.c.id == after)
        query = query.where(tuple_(refund_groups.c.created_at, refund_groups.c.id) < place.scalar_subquery())
    return (await connection.execute(query)).mappings().all()
