"""Read-only queries for what the API shows. Each is one statement where it can be, because reading a refund is part of answering every call.

Rows come back as plain mappings; their shape for the outside is made in ``api/presenting.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.apart import DETAILS
from refunds.errors import Code, RefundError
from refunds.facts import LimitStanding
from refunds.groups import BEFORE_REVIEW
from refunds.limits import Stage
from refunds.processor import MANUAL
from refunds.refundable import Refundable
from refunds.status import Status
from store import brakes, identifiers, limits, policies
from store.claims import CLAIMS, claiming, fold
from store.identifiers import KEY_SQL
from store.sending import worth_of
from store.snapshots import by_hand, from_plain, to_plain
from store.sql import Query, Row, pipelined
from store.tables import instructions, refunds

_HELD_UP_BY = f"""
    (SELECT json_build_object('id', s.id, 'status', s.status) FROM refunds s
      WHERE s.group_id = r.group_id AND s.id <> r.id AND r.status = '{Status.AWAITING_REVIEW.value}'
        AND s.status IN ({", ".join(f"'{status.value}'" for status in BEFORE_REVIEW)})
      ORDER BY s.id LIMIT 1) AS held_up_by
"""
"""The part that keeps the group of one that waits for review from being approved."""

_ASSIGNED = f"""
    (SELECT a.handle FROM principals a WHERE a.id = r.assigned_to AND r.status = '{Status.AWAITING_REVIEW.value}') AS assigned_handle
"""
"""Whom it is given to, while it waits for a review."""

_REFS = f"{KEY_SQL}, c.forgotten_at AS customer_forgotten_at, o.ref_sealed AS order_sealed"
"""The merchant's own ids, sealed: there as long as the customer is not forgotten."""

_REFUND = Query(
    text(
        f"""
    SELECT r.*, {_ASSIGNED}, {_HELD_UP_BY}, {_REFS}, p.processor, p.processor_payment,
           p.tender, p.amount AS payment_amount, p.currency AS payment_currency,
           q.handle AS requester_handle, q.name AS requester_name, q.kind AS requester_kind,
           v.terms, v.decision AS policy_decision, v.facts, v.policy_version, v.policy_hash, v.expires_at AS terms_expire_at,
           (SELECT f.facts -> 'request' FROM revisions f WHERE f.refund_id = r.id AND f.revision = 1) AS first_facts,
           (SELECT s.body FROM payment_snapshots s WHERE s.payment_id = r.payment_id) AS snapshot,
           (SELECT k.body FROM classifications k WHERE k.refund_id = r.id) AS classification,
           (SELECT t.sealed FROM texts t WHERE t.refund_id = r.id AND t.kind = '{DETAILS}') AS details_sealed,
           (SELECT json_agg(json_build_object('id', d.id, 'kind', d.kind, 'step', d.step, 'revision', d.revision, 'verdict', d.verdict,
                       'terms_hash', d.terms_hash, 'person', d.person, 'principal_id', d.principal_id, 'handle', w.handle, 'name', w.name,
                       'on_behalf_of', d.on_behalf_of, 'of_handle', b.handle, 'of_name', b.name, 'delegation', d.delegation_id, 'role', d.role,
                       'recorded_at', d.recorded_at, 'delivered_at', d.delivered_at) ORDER BY d.recorded_at, d.id)
              FROM decisions d LEFT JOIN principals w ON w.id = d.principal_id LEFT JOIN principals b ON b.id = d.on_behalf_of
             WHERE d.refund_id = r.id) AS decisions,
           (SELECT json_agg(json_build_object('id', e.id, 'kind', e.kind, 'digest', e.digest, 'by', w.id, 'handle', w.handle, 'name', w.name,
                       'by_agent', w.kind = 'agent', 'recorded_at', e.recorded_at) ORDER BY e.recorded_at, e.id)
              FROM evidence e JOIN principals w ON w.id = e.given_by WHERE e.refund_id = r.id) AS evidence,
           (SELECT json_agg(json_build_object('id', i.id, 'kind', i.kind, 'body', i.body, 'principal_id', i.principal_id,
                       'handle', w.handle, 'name', w.name, 'recorded_at', i.recorded_at, 'applied_at', i.applied_at,
                       'outcome', i.outcome, 'detail', i.detail) ORDER BY i.recorded_at, i.id)
              FROM instructions i JOIN principals w ON w.id = i.principal_id WHERE i.refund_id = r.id) AS instructions,
           (SELECT json_agg(json_build_object('id', x.id, 'revision', x.revision, 'kind', x.kind, 'amount', x.amount, 'currency', x.currency,
                       'created_at', x.created_at, 'settled_at', x.settled_at, 'outcome', x.outcome,
                       'processor_refund_id', (SELECT pr.id FROM processor_refunds pr WHERE pr.operation_id = x.id),
                       'processor_refund_state', (SELECT pr.raw_state FROM processor_refunds pr WHERE pr.operation_id = x.id),
                       'attempts', (SELECT coalesce(json_agg(json_build_object('number', a.number, 'opened_at', a.opened_at,
                                       'send_by', a.send_by, 'answered_at', a.answered_at, 'outcome', a.outcome, 'reason', a.reason)
                                       ORDER BY a.number), '[]') FROM attempts a WHERE a.operation_id = x.id)) ORDER BY x.created_at)
              FROM operations x WHERE x.refund_id = r.id) AS operations,
           (SELECT json_agg(json_build_object('id', l.id, 'operation', l.operation_id, 'kind', l.kind, 'target', l.target,
                       'account', l.account, 'amount', l.amount, 'currency', l.currency, 'state', l.state, 'state_since', l.state_since,
                       'due_at', l.due_at, 'code', l.code, 'detail', l.detail, 'receipt_id', l.receipt_id,
                       'attempts', (SELECT coalesce(json_agg(json_build_object('number', a.number, 'opened_at', a.opened_at,
                                       'send_by', a.send_by, 'answered_at', a.answered_at, 'outcome', a.outcome, 'reason', a.reason)
                                       ORDER BY a.number), '[]') FROM leg_attempts a WHERE a.leg_id = l.id)) ORDER BY l.created_at, l.number)
              FROM legs l WHERE l.refund_id = r.id) AS legs,
           (SELECT to_jsonb(t) FROM settlements t JOIN processor_refunds pr ON pr.id = t.processor_refund_id
              JOIN operations x ON x.id = pr.operation_id WHERE x.refund_id = r.id ORDER BY t.first_read_at DESC LIMIT 1) AS settlement,
           (SELECT json_agg(json_build_object('revision', h.revision, 'amount', h.amount, 'currency', h.currency,
                       'terms_hash', h.terms_hash, 'author', w.handle, 'changes', h.changes, 'created_at', h.created_at) ORDER BY h.revision)
              FROM revisions h JOIN principals w ON w.id = h.author_id WHERE h.refund_id = r.id) AS revisions,
           (SELECT json_agg(json_build_object('id', e.id, 'status', e.status, 'amount', e.amount, 'currency', e.currency,
                       'created_at', e.created_at) ORDER BY e.created_at)
              FROM (SELECT * FROM refunds e WHERE e.payment_id = r.payment_id AND e.id <> r.id
                       AND (CAST(:integration AS text) IS NULL OR e.integration = :integration)
                     ORDER BY e.created_at DESC LIMIT 20) e) AS earlier,
           (SELECT json_build_object('id', u.id, 'status', u.status, 'amount', u.amount, 'currency', u.currency, 'created_at', u.created_at,
                       'payment_id', up.processor_payment, 'channel', u.channel, 'agent_id', u.agent_id, 'requested_by', u.requested_by,
                       'requester', uq.handle)
              FROM refunds u JOIN principals uq ON uq.id = u.requester_id LEFT JOIN payments up ON up.id = u.payment_id
             WHERE u.id = r.possible_duplicate_of
               AND (CAST(:integration AS text) IS NULL OR u.integration = :integration)) AS looks_like
      FROM refunds r
      JOIN customers c ON c.id = r.customer_id
      LEFT JOIN customer_keys k ON k.customer_id = r.customer_id
      JOIN principals q ON q.id = r.requester_id
      LEFT JOIN orders o ON o.id = r.order_id
      LEFT JOIN payments p ON p.id = r.payment_id
      LEFT JOIN revisions v ON v.refund_id = r.id AND v.revision = r.revision
     WHERE r.id = :id AND (CAST(:integration AS text) IS NULL OR r.integration = :integration)
    """
    )
)


_MAY_BE_STOPPED = (Status.APPROVED, Status.HELD, Status.SUBMITTING)


@dataclass(frozen=True, slots=True)
class Seen:
    """A refund with everything about it, and what is still refundable of its payment by the last reading (``None`` before there is one)."""

    row: Row
    figures: Refundable | None
    limits: Sequence[tuple[Stage, LimitStanding]] | None = None

    @property
    def status(self) -> Status:
        """Where it stands."""
        return Status(self.row["status"])


async def refund(connection: AsyncConnection, refund_id: str, *, integration: str | None, now: datetime, limits_now: bool = False) -> Seen:
    """Everything about a refund, with ``limits_now`` also how the limits over time stand by now.

    With ``integration`` only one of that integration is seen. Raises ``REFUND_NOT_FOUND``.
    """
    row: Row | None = await _REFUND.first(connection, id=refund_id, integration=integration)
    if row is None:
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)
    row = await identifiers.opened(connection, row)
    if row["processor"] == MANUAL:
        payment = {"id": row["payment_id"], "currency": row["payment_currency"], "amount": row["payment_amount"]}
        row = {**row, "snapshot": to_plain(by_hand(payment, now))}
    waiting = Status(row["status"]) in _MAY_BE_STOPPED or row["legs_at"] is not None
    stopped = claimed = None
    async with pipelined(connection):
        if waiting and row["processor"]:
            stopped = await brakes.STOPS.ask(connection, refund=refund_id, processor=row["processor"])
        if row["payment_id"] is not None and row["snapshot"] is not None:
            claimed = await CLAIMS.ask(connection, **claiming(row["payment_id"], besides=refund_id))
    row = {**row, "held_by": [] if stopped is None else await stopped.all()}
    figures = None
    if claimed is not None:
        # Without this refund altogether: neither what it claims nor what the processor may already show of it.
        own = {operation["id"] for operation in row["operations"] or ()}
        state = from_plain(row["snapshot"])
        state = replace(state, refunds=tuple(r for r in state.refunds if r.operation not in own))
        figures = fold(state, await claimed.all())
    return Seen(row, figures, await _limits(connection, row, now) if limits_now else None)


async def _limits(connection: AsyncConnection, row: Row, now: datetime) -> list[tuple[Stage, LimitStanding]]:
    policy = (await policies.in_force(connection, now)).policy
    worth = await worth_of(connection, policy, row, now) if row["amount"] and row["currency"] else None
    return await limits.standings_now(connection, policy, row, worth, now)


async def check_visible(connection: AsyncConnection, refund_id: str, *, integration: str | None) -> None:
    """Raise ``REFUND_NOT_FOUND`` unless the refund exists and, with ``integration``, is of that integration."""
    query = select(refunds.c.integration).where(refunds.c.id == refund_id)
    found = (await connection.execute(query)).scalar_one_or_none()
    if found is None or integration not in (None, found):
        raise RefundError(Code.REFUND_NOT_FOUND, refund=refund_id)


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to; ``None`` leaves out that filter. ``after`` is the place the page before ended at."""

    integration: str | None = None
    status: str | None = None
    queue: str | None = None
    order_ref: str | None = None
    customer_ref: str | None = None
    agent_id: str | None = None
    group_id: str | None = None
    assigned_to: str | None = None
    created_after: datetime | None = None
    after: tuple[datetime, str] | None = None


_LIST = """
    SELECT r.*, {assigned}, {held_up_by}, {refs}, p.processor_payment, p.tender
      FROM refunds r
      JOIN customers c ON c.id = r.customer_id
      LEFT JOIN customer_keys k ON k.customer_id = r.customer_id
      LEFT JOIN orders o ON o.id = r.order_id
      LEFT JOIN payments p ON p.id = r.payment_id
     WHERE {conditions}
     ORDER BY r.created_at DESC, r.id DESC
     LIMIT :limit
"""

_CONDITIONS = {
    "integration": "r.integration = :integration",
    "status": "r.status = :status",
    "queue": "r.queue = :queue",
    "order_ref": "o.ref_lookup = :order_ref",
    "customer_ref": "c.ref_lookup = :customer_ref",
    "agent_id": "r.agent_id = :agent_id",
    "group_id": "r.group_id = :group_id",
    "assigned_to": f"""r.status = '{Status.AWAITING_REVIEW.value}' AND r.assigned_to IN
        (SELECT a.id FROM principals a WHERE a.id = :assigned_to OR lower(a.handle) = lower(:assigned_to))""",
    "created_after": "r.created_at > :created_after",
}
_LOOKUPS = {"order_ref": identifiers.order_lookup, "customer_ref": identifiers.customer_lookup}
_WAITING = frozenset({Status.AWAITING_REVIEW, Status.AWAITING_CONSENT})


async def page(connection: AsyncConnection, filters: Filters, *, limit: int, now: datetime) -> list[Row]:
    """One page, newest first, of at most ``limit`` refunds.

    A list of what is pending (by queue, or by a status that waits for somebody) leaves out what nobody can answer in time any more, even when its
    expiry has not been written yet (field report 57).
    """
    values: dict[str, Any] = {"limit": limit}
    conditions = ["TRUE"]
    for name, condition in _CONDITIONS.items():
        if (value := getattr(filters, name)) is not None:
            conditions.append(condition)
            values[name] = _LOOKUPS[name](connection, value) if name in _LOOKUPS else value
    if filters.queue is not None or filters.status in _WAITING:
        conditions.append("(r.review_by IS NULL OR r.review_by > :now)")
        values["now"] = now
    if filters.after is not None:
        conditions.append("(r.created_at, r.id) < (:after_at, :after_id)")
        values |= {"after_at": filters.after[0], "after_id": filters.after[1]}
    query = text(_LIST.format(assigned=_ASSIGNED, refs=_REFS, held_up_by=_HELD_UP_BY, conditions=" AND ".join(conditions)))
    return list[Row](await identifiers.all_opened(connection, (await connection.execute(query, values)).mappings()))


async def instruction(connection: AsyncConnection, instruction_id: str) -> Row:
    """A recorded instruction and what became of it."""
    return (await connection.execute(select(instructions).where(instructions.c.id == instruction_id))).mappings().one()


async def open_by_status(connection: AsyncConnection) -> dict[str, int]:
    """How many refunds are not final, by status."""
    query = select(refunds.c.status, func.count().label("refunds")).where(refunds.c.final_at.is_(None)).group_by(refunds.c.status)
    return {row.status: row.refunds for row in await connection.execute(query)}
