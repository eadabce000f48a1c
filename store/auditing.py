"""The whole chain behind one refund, for whoever must answer for it: what was asked and said, which rule decided, who agreed, what was sent and answered, and the
entries that prove it.

Beside what everybody sees of a refund (:mod:`store.views`), this reads what the record holds of each revision and each request to the processor. Looking is no
change, so it has no entry of its own: the ledger says what was done, and who read what is for the access log of whoever runs this.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from store import chain, identifiers, views
from store.identifiers import KEY_COLUMNS
from store.sealing import Opening, Unreadable
from store.sql import Query
from store.tables import customer_keys, customers, orders, refunds
from store.texts import Texts
from store.vault import customer_key

_CHAIN = Query(
    text(
        """
    SELECT
      (SELECT json_agg(json_build_object('revision', v.revision, 'payment', v.payment_id, 'amount', v.amount, 'currency', v.currency,
                  'terms', v.terms, 'terms_hash', v.terms_hash, 'policy_version', v.policy_version, 'policy_hash', v.policy_hash,
                  'decision', v.decision, 'facts', v.facts, 'sources', v.sources, 'changes', v.changes, 'loosened', v.loosened,
                  'author', json_build_object('id', w.id, 'handle', w.handle, 'name', w.name, 'kind', w.kind),
                  'created_at', v.created_at, 'expires_at', v.expires_at) ORDER BY v.revision)
         FROM revisions v JOIN principals w ON w.id = v.author_id WHERE v.refund_id = :refund) AS revisions,
      (SELECT json_agg(json_build_object('id', x.id, 'revision', x.revision, 'kind', x.kind, 'terms_hash', x.terms_hash, 'amount', x.amount,
                  'currency', x.currency, 'request', x.request, 'idempotency_key', x.idempotency_key, 'created_at', x.created_at,
                  'settled_at', x.settled_at, 'outcome', x.outcome,
                  'approvals', (SELECT json_agg(c.decision_id ORDER BY c.decision_id) FROM consumed_decisions c WHERE c.operation_id = x.id),
                  'attempts', (SELECT json_agg(json_build_object('number', a.number, 'opened_at', a.opened_at, 'send_by', a.send_by,
                                  'answered_at', a.answered_at, 'outcome', a.outcome, 'reason', a.reason, 'detail', a.detail) ORDER BY a.number)
                                 FROM attempts a WHERE a.operation_id = x.id),
                  'answer', (SELECT json_build_object('refund_id', p.id, 'processor', p.processor, 'amount', p.amount, 'currency', p.currency,
                                 'state', p.state, 'raw_state', p.raw_state, 'failure_reason', p.failure_reason, 'created_at', p.created_at,
                                 'first_seen_at', p.first_seen_at, 'updated_at', p.updated_at)
                               FROM processor_refunds p WHERE p.operation_id = x.id)) ORDER BY x.created_at, x.id)
         FROM operations x WHERE x.refund_id = :refund) AS operations,
      (SELECT json_agg(json_build_object('id', l.id, 'operation', l.operation_id, 'kind', l.kind, 'target', l.target, 'account', l.account,
                  'amount', l.amount, 'currency', l.currency, 'request', l.request, 'idempotency_key', l.idempotency_key, 'state', l.state,
                  'state_since', l.state_since, 'code', l.code, 'answer', l.receipt_id, 'created_at', l.created_at,
                  'attempts', (SELECT json_agg(json_build_object('number', a.number, 'opened_at', a.opened_at, 'send_by', a.send_by,
                                  'answered_at', a.answered_at, 'outcome', a.outcome, 'reason', a.reason, 'detail', a.detail) ORDER BY a.number)
                                 FROM leg_attempts a WHERE a.leg_id = l.id)) ORDER BY l.created_at, l.number)
         FROM legs l WHERE l.refund_id = :refund) AS legs,
      (SELECT json_build_object('body', k.body, 'order', k.order_id, 'recorded_at', k.recorded_at)
         FROM classifications k WHERE k.refund_id = :refund) AS classification
    """
    )
)
_IDS = Query(
    select(
        refunds.c.customer_id,
        refunds.c.order_id,
        customers.c.ref_sealed.label("customer_sealed"),
        orders.c.ref_sealed.label("order_sealed"),
        *KEY_COLUMNS,
    )
    .join(customers, customers.c.id == refunds.c.customer_id)
    .outerjoin(orders, orders.c.id == refunds.c.order_id)
    .outerjoin(customer_keys, customer_keys.c.customer_id == refunds.c.customer_id)
    .where(refunds.c.id == bindparam("refund"))
)
_RECORDED_FIRST = Query(
    text(
        """
    SELECT l.id, l.at, l.type, l.actor, l.on_behalf_of, l.data, l.commitments, e.seq FROM ledger l LEFT JOIN ledger_entries e ON e.ledger_id = l.id
     WHERE l.refund_id IS NULL AND (l.commitments IS NOT NULL AND l.data ->> 'order' = :order OR l.type = 'group_received' AND l.data ->> 'group' = :group)
     ORDER BY l.id
    """
    )
)


@dataclass(frozen=True, slots=True)
class Audited:
    """A refund with all of its record. ``openings`` open the commitments of its entries; ``None`` when what is sealed cannot be read with this key."""

    seen: views.Seen
    revisions: list[dict[str, Any]]
    operations: list[dict[str, Any]]
    legs: list[dict[str, Any]]
    classification: dict[str, Any] | None
    entries: list[dict[str, Any]]
    openings: dict[str, Opening] | None


async def audit(connection: AsyncConnection, texts: Texts, refund_id: str, *, integration: str | None, now: datetime) -> Audited:
    """Everything on record about a refund, with what opens its commitments. For those who may read what people wrote. Raises ``REFUND_NOT_FOUND``."""
    seen = await views.refund(connection, refund_id, integration=integration, now=now)
    found = await _CHAIN.one(connection, refund=refund_id)
    entries = await chain.of_refund(connection, refund_id, proofs=False)
    if seen.row["order_id"] is not None:
        entries = [*await _before(connection, seen.row["order_id"], seen.row["group_id"]), *entries]
    return Audited(
        seen=seen,
        revisions=found["revisions"] or [],
        operations=found["operations"] or [],
        legs=found["legs"] or [],
        classification=found["classification"],
        entries=entries,
        openings=await _openings(connection, texts, refund_id),
    )


async def _before(connection: AsyncConnection, order_id: str, group_id: str | None) -> list[dict[str, Any]]:
    """The entries that recorded its order, where the ids of order and customer were committed to, and the one that its group was asked for by."""
    rows = await _RECORDED_FIRST.all(connection, order=order_id, group=group_id)
    return [{**row, "refund_id": None, "refund_version": None, "proof": None} for row in rows]


async def _openings(connection: AsyncConnection, texts: Texts, refund_id: str) -> dict[str, Opening] | None:
    try:
        ids = await _IDS.one(connection, refund=refund_id)
        key = await customer_key(connection, ids["customer_id"], ids["key_wrapped"], ids["key_wrapping"])
        named = {
            identifiers.CUSTOMER: identifiers.customer_opening(key, ids["customer_id"], ids["customer_sealed"]),
            identifiers.ORDER: identifiers.order_opening(key, ids["order_id"], ids["order_sealed"]),
        }
        return {name: one for name, one in named.items() if one is not None} | await texts.openings(connection, refund_id)
    except Unreadable:
        return None
