"""The records of a period, one kind after another, in one look at the database; and the entry that stands behind what was handed out."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import points
from refunds.period import COLUMNS, ENTRY, plain
from store.changes import plain as ledger_plain
from store.tables import ledger

_READ: Mapping[str, str] = {
    "refunds": """
        SELECT r.id, r.created_at, r.status, r.status_since, r.final_at, r.amount, r.currency, r."full", r.reason, r.channel, r.integration,
               q.handle AS requester, r.requested_by, r.agent_id AS agent, r.customer_id AS customer, r.order_id AS "order", r.payment_id AS payment,
               p.processor_payment, r.revision, r.terms_hash, r.tier, v.policy_version, v.policy_hash, r.code, r.version
          FROM refunds r JOIN principals q ON q.id = r.requester_id LEFT JOIN payments p ON p.id = r.payment_id
          LEFT JOIN revisions v ON v.refund_id = r.id AND v.revision = r.revision
         WHERE r.created_at >= :from AND r.created_at < :to ORDER BY r.created_at, r.id""",
    "decisions": """
        SELECT d.id, d.recorded_at, d.refund_id AS refund, d.revision, d.kind, d.step, d.verdict, d.terms_hash, d.principal_id AS principal,
               d.person, d.role, d.on_behalf_of, d.delegation_id AS delegation
          FROM decisions d WHERE d.recorded_at >= :from AND d.recorded_at < :to ORDER BY d.recorded_at, d.id""",
    "operations": """
        SELECT x.id, x.created_at, x.refund_id AS refund, x.revision, x.kind, x.terms_hash, x.payment_id AS payment, x.amount, x.currency,
               x.idempotency_key, x.request, x.settled_at, x.outcome, p.id AS processor_refund, p.raw_state AS processor_state
          FROM operations x LEFT JOIN processor_refunds p ON p.operation_id = x.id
         WHERE x.created_at >= :from AND x.created_at < :to ORDER BY x.created_at, x.id""",
    "attempts": """
        SELECT a.id, a.opened_at, a.operation_id AS operation, a.number, a.send_by, a.answered_at, a.outcome, a.reason
          FROM attempts a WHERE a.opened_at >= :from AND a.opened_at < :to ORDER BY a.opened_at, a.id""",
    "settlements": """
        SELECT t.processor_refund_id AS processor_refund, t.first_read_at, p.operation_id AS operation, t.presentment_amount,
               t.presentment_currency, t.settlement_amount, t.settlement_currency, t.rate, t.fee, t.returned, t.read_at
          FROM settlements t JOIN processor_refunds p ON p.id = t.processor_refund_id
         WHERE t.first_read_at >= :from AND t.first_read_at < :to ORDER BY t.first_read_at, t.processor_refund_id""",
    "ledger": """
        SELECT l.id, l.at, e.seq, l.type, l.refund_id AS refund, l.refund_version, l.actor, l.on_behalf_of, l.data, l.commitments
          FROM ledger l LEFT JOIN ledger_entries e ON e.ledger_id = l.id
         WHERE l.at >= :from AND l.at < :to ORDER BY l.id""",
}
"""Which records fall into a period: those that began in it. None of them holds anything personal: ids are ours, and texts are sealed elsewhere."""


async def as_of_one_moment(connection: AsyncConnection) -> None:
    """Have everything that this transaction reads be as of one moment. Call it first."""
    await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


async def records(connection: AsyncConnection, kind: str, from_: datetime, to: datetime) -> AsyncIterator[dict[str, Any]]:
    """The records of a kind, oldest first, as they come: memory does not grow with their number."""
    result = await connection.stream(text(_READ[kind]), {"from": from_, "to": to})
    async for row in result.mappings():
        yield plain({name: row[name] for name in COLUMNS[kind]})


async def note_exported(
    connection: AsyncConnection, at: datetime, *, actor: str, from_: datetime, to: datetime, manifest: str, records: int
) -> int:
    """Enter that a period was exported, with the SHA-256 of the manifest; returns the row, whose proof stands behind every file."""
    data = ledger_plain({"from": from_, "to": to, "manifest": manifest, "records": records})
    entry = {"at": at, "type": ENTRY, "actor": actor, "data": data}
    points.writes(ENTRY)
    return (await connection.execute(insert(ledger).values(entry).returning(ledger.c.id))).scalar_one()
