"""Everything that is held of one customer, for the person who asks for it: read a page at a time, so that it is bounded however much there is.

Other customers are never in it, and of colleagues only their roles: what they decided and wrote belongs to the person, who they are does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.money import Money, format_money
from store import identifiers
from store.changes import enter
from store.remarks import open_remark
from store.sql import Query, Row
from store.vault import customer_key

PAGE = 50

_COUNTS = Query(
    text(
        """
    SELECT c.id, c.account_created_at, c.created_at,
           (SELECT count(*) FROM orders o WHERE o.customer_id = c.id) AS orders,
           (SELECT count(*) FROM refunds r WHERE r.customer_id = c.id) AS refunds,
           (SELECT count(*) FROM refund_groups g WHERE g.customer_id = c.id) AS groups,
           (SELECT count(*) FROM texts t WHERE t.customer_id = c.id AND t.kind <> 'details') AS texts,
           (SELECT coalesce(json_agg(s), '[]') FROM
              (SELECT r.status, r.currency, count(*) AS refunds, sum(r.amount) AS amount FROM refunds r
                WHERE r.customer_id = c.id GROUP BY r.status, r.currency ORDER BY r.status, r.currency) s) AS standing
      FROM customers c WHERE c.id = :customer AND c.forgotten_at IS NULL
    """
    )
)

_ORDERS = Query(
    text(
        """
    SELECT o.*, k.wrapped AS key_wrapped, k.wrapping AS key_wrapping,
           (SELECT json_agg(json_build_object('version', v.version, 'recorded_at', v.recorded_at, 'body', v.body,
                       'body_sealed', encode(v.body_sealed, 'hex')) ORDER BY v.version)
              FROM order_versions v WHERE v.order_id = o.id) AS versions,
           (SELECT json_agg(json_build_object('id', p.id, 'processor', p.processor, 'payment_id', p.processor_payment, 'amount', p.amount,
                       'currency', p.currency, 'tender', p.tender,
                       'as_last_read', (SELECT s.body FROM payment_snapshots s WHERE s.payment_id = p.id),
                       'refunds_at_the_processor', (SELECT json_agg(json_build_object('id', x.id, 'amount', x.amount, 'currency', x.currency,
                           'state', x.raw_state, 'created_at', x.created_at, 'first_seen_at', x.first_seen_at) ORDER BY x.first_seen_at, x.id)
                           FROM processor_refunds x WHERE x.payment_id = p.id),
                       'events', (SELECT json_agg(json_build_object('id', e.id, 'type', e.type, 'created_at', e.created_at,
                           'received_at', e.received_at, 'said', e.facts) ORDER BY e.created_at, e.id)
                           FROM events e WHERE e.processor_payment = p.processor_payment),
                       'differences', (SELECT json_agg(json_build_object('id', d.id, 'kind', d.kind, 'evidence', d.evidence, 'state', d.state,
                           'note', d.note, 'first_seen_at', d.first_seen_at) ORDER BY d.first_seen_at, d.id)
                           FROM discrepancies d WHERE d.payment_id = p.id)) ORDER BY p.id)
              FROM payments p WHERE p.order_id = o.id) AS payments
      FROM orders o LEFT JOIN customer_keys k ON k.customer_id = o.customer_id
     WHERE o.customer_id = :customer AND o.id > :after ORDER BY o.id LIMIT :limit
    """
    )
)

_GROUPS = Query(text("SELECT g.* FROM refund_groups g WHERE g.customer_id = :customer AND g.id > :after ORDER BY g.id LIMIT :limit"))

_REFUNDS = Query(
    text(
        """
    SELECT r.*, p.processor, p.processor_payment,
           (SELECT k.body FROM classifications k WHERE k.refund_id = r.id) AS classification,
           (SELECT json_agg(json_build_object('revision', v.revision, 'amount', v.amount, 'currency', v.currency, 'terms', v.terms,
                       'terms_hash', v.terms_hash, 'policy_version', v.policy_version, 'facts', v.facts, 'decision', v.decision,
                       'created_at', v.created_at) ORDER BY v.revision) FROM revisions v WHERE v.refund_id = r.id) AS revisions,
           (SELECT json_agg(json_build_object('id', d.id, 'kind', d.kind, 'step', d.step, 'revision', d.revision, 'verdict', d.verdict,
                       'role', d.role, 'recorded_at', d.recorded_at) ORDER BY d.recorded_at, d.id)
              FROM decisions d WHERE d.refund_id = r.id) AS decisions,
           (SELECT json_agg(json_build_object('id', i.id, 'kind', i.kind, 'body', i.body - 'first_person', 'role', i.role,
                       'recorded_at', i.recorded_at, 'outcome', i.outcome, 'detail', i.detail) ORDER BY i.recorded_at, i.id)
              FROM instructions i WHERE i.refund_id = r.id AND i.kind <> 'assign') AS instructions,
           (SELECT json_agg(json_build_object('id', x.id, 'kind', x.kind, 'amount', x.amount, 'currency', x.currency,
                       'created_at', x.created_at, 'settled_at', x.settled_at, 'outcome', x.outcome,
                       'processor_refund_id', (SELECT pr.id FROM processor_refunds pr WHERE pr.operation_id = x.id)) ORDER BY x.created_at)
              FROM operations x WHERE x.refund_id = r.id) AS operations,
           (SELECT json_agg(json_build_object('at', l.at, 'type', l.type, 'version', l.refund_version, 'data', l.data,
                       'commitments', l.commitments) ORDER BY l.refund_version) FROM ledger l WHERE l.refund_id = r.id) AS ledger
      FROM refunds r
      LEFT JOIN payments p ON p.id = r.payment_id
     WHERE r.customer_id = :customer AND r.id > :after ORDER BY r.id LIMIT :limit
    """
    )
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Who it is about and how much there is, before any of it is read."""

    customer: str
    row: Row

    @property
    def counts(self) -> dict[str, int]:
        """How many of each."""
        return {name: self.row[name] for name in ("orders", "refunds", "groups", "texts")}


async def begin(connection: AsyncConnection, clock: Clock, *, customer_id: str, actor: str) -> Extent:
    """Record in the ledger that everything of a customer is handed out, and tell how much that is. Raises ``CUSTOMER_NOT_FOUND``."""
    row = await _COUNTS.first(connection, customer=customer_id)
    if row is None:
        raise RefundError(Code.CUSTOMER_NOT_FOUND)
    found = Extent(customer_id, row)
    await enter(connection, "customer_exported", clock.now(), actor=actor, customer=customer_id, held=found.counts)
    return found


async def orders_after(connection: AsyncConnection, customer_id: str, after: str) -> list[Row]:
    """The next page of orders, opened, with their versions, payments, and what is known of these. Raises :class:`store.sealing.Unreadable`."""
    return [await _opened(connection, row) for row in await _ORDERS.all(connection, customer=customer_id, after=after, limit=PAGE)]


async def _opened(connection: AsyncConnection, row: Row) -> Row:
    key = await customer_key(connection, row["customer_id"], row["key_wrapped"], row["key_wrapping"])
    ref = identifiers.order_opening(key, row["id"], row["ref_sealed"])
    versions = [
        {
            "version": v["version"],
            "recorded_at": v["recorded_at"],
            "body": identifiers.open_body(key, v | {"id": row["id"], "body_sealed": v["body_sealed"] and bytes.fromhex(v["body_sealed"])}),
        }
        for v in row["versions"] or ()
    ]
    for payment in row["payments"] or ():
        for found in payment["differences"] or ():
            found["note"] = open_remark(connection, found["id"], found["note"])
    return {**row, "external_ref": ref and ref.value, "body": identifiers.open_body(key, row), "versions": versions}


async def groups_after(connection: AsyncConnection, customer_id: str, after: str) -> list[Row]:
    """The next page of order-wide refunds."""
    return list(await _GROUPS.all(connection, customer=customer_id, after=after, limit=PAGE))


async def refunds_after(connection: AsyncConnection, customer_id: str, after: str) -> list[Row]:
    """The next page of refunds with what was decided, said, sent and entered about them."""
    return list(await _REFUNDS.all(connection, customer=customer_id, after=after, limit=PAGE))


def summary(extent: Extent) -> list[str]:
    """The same in sentences that anybody can read."""
    row = extent.row
    said = [
        f"{_number(row['orders'], 'order')}, {_number(row['refunds'], 'refund')} and {_number(row['texts'], 'text')} are held.",
        f"First recorded on {row['created_at']:%Y-%m-%d}."
        + (f" A customer of the merchant since {row['account_created_at']:%Y-%m-%d}." if row["account_created_at"] else ""),
    ]
    standing: Sequence[Mapping[str, Any]] = row["standing"]
    return said + [_standing(one) for one in standing]


def _standing(one: Mapping[str, Any]) -> str:
    amount = (
        f", {format_money(Money(one['amount'], one['currency']))} ({one['currency']})"
        if one["amount"] is not None and one["currency"]
        else ""
    )
    return f"{one['status']}: {_number(one['refunds'], 'refund')}{amount}."


def _number(count: int, of: str) -> str:
    return f"{count} {of}" if count == 1 else f"{count} {of}s"
