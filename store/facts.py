"""Gathering the facts one decision rests on, from what is stored and from the live reading. Read under the locks of the quote."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    Executable,
    Interval,
    Text,
    and_,
    any_,
    bindparam,
    exists,
    false,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.classification import Classification, Intent, Proposal, Reading, Source
from refunds.facts import CustomerFacts, Facts, OrderFacts, PaymentFacts, ReadingFacts, RequestFacts
from refunds.policy import Policy
from refunds.processor import PaymentState, RefundState
from refunds.reasons import Reason
from refunds.refundable import Refundable
from refunds.status import RESERVING, Status
from store.changes import Change
from store.lines import Priced
from store.sql import Query, Row
from store.tables import classifications, operations, orders, payments, processor_refunds, refunds, revisions


@dataclass(frozen=True, slots=True)
class StoredReading:
    """What a reader made of a text: whether it names an order, and which of this customer's that is."""

    classification: Classification
    names_an_order: bool
    order_id: str | None

    @property
    def reading(self) -> Reading | None:
        """The reading, or ``None`` when no reader answered properly."""
        return self.classification.reading


_COUNTED = sorted(status.value for status in RESERVING | {Status.SUCCEEDED})
DUPLICATE_WITHIN = timedelta(hours=24)
"""Two refunds of the same payment and amount within this time may be one wish asked twice: a person looks."""


_READING = Query(select(classifications).where(classifications.c.refund_id == bindparam("refund")))


UNREAD = StoredReading(
    Classification(reading=None, failure="not_read", source=Source.PERSON, classifier="none", model="none", version="none", prompt_hash=""),
    names_an_order=False,
    order_id=None,
)
"""Stands for a text that nobody has read: a person must."""


async def reading_of(connection: AsyncConnection, refund_id: str) -> StoredReading | None:
    """The classification of a refund's text without the words it quotes, or ``None`` when there is none."""
    row = await _READING.first(connection, refund=refund_id)
    return None if row is None else StoredReading(Classification.model_validate(row["body"]), row["names_an_order"], row["order_id"])


async def gather(
    connection: AsyncConnection,
    change: Change,
    *,
    policy: Policy,
    order: Row,
    payment_id: str,
    state: PaymentState,
    figures: Refundable,
    amount: int,
    currency: str,
    full: bool,
    reason: Reason | None,
    asked_by_customer: bool,
    extracted: bool,
    account_since: datetime | None,
    stored: StoredReading | None,
    priced: Priced,
    by_lines: bool,
) -> Facts:
    """Gather everything for one decision.

    ``currency`` is the one the request was made in, which the policy holds against what the processor says. ``asked_by_customer`` is false for terms
    that a reviewer wrote: those need to be asked for anew. ``priced`` is what the named lines come to, ``by_lines`` says that ``amount`` is just that.
    """
    row = change.row
    customer, duplicate = await _customer(
        connection,
        change,
        policy=policy,
        payment_id=payment_id,
        amount=amount,
        currency=currency,
        account_since=account_since,
    )
    authenticated = "customer_authentication" in row["details"]
    stated = asked_by_customer and not (full or extracted or by_lines)
    named = stated and authenticated and row["agent_id"] is None and amount == row["amount"]
    return Facts(
        at=change.at,
        request=RequestFacts(
            amount=amount,
            currency=currency,
            full=full,
            reason=reason,
            channel=row["channel"],
            agent_id=row["agent_id"],
            requested_at=row["created_at"],
            amount_named_by_customer=named,
            customer_authenticated=authenticated,
            extracted=extracted,
            possible_duplicate_of=duplicate,
            by_lines=by_lines,
            lines_amount=priced.amount,
        ),
        order=OrderFacts(
            version=order["version"],
            placed_at=order["placed_at"],
            delivered_at=order["delivered_at"],
            categories=priced.order.categories,
            currency=priced.order.currency,
            total=priced.total,
        ),
        payment=PaymentFacts(
            status=state.status,
            currency=state.currency,
            captured=state.captured,
            capturable=state.capturable,
            remaining=figures.remaining,
            dispute=state.dispute,
            risk_level=state.risk_level,
            refunds_made=sum(1 for r in state.refunds if r.state.counts),
        ),
        customer=customer,
        reading=None if stored is None else _reading(stored, row, order, extracted=extracted),
        lines=priced.facts(full=full),
    )


def _reading(stored: StoredReading, row: dict[str, Any], order: Row, *, extracted: bool) -> ReadingFacts:
    reading = stored.reading
    if reading is None:
        return ReadingFacts(failed=True, intent=None, proposal=None, confidence=0)
    contradictions: list[str] = []
    if stored.names_an_order and stored.order_id != order["id"]:
        contradictions.append("order")
    if not extracted and reading.amount is not None and row["amount"] is not None:
        other_currency = reading.currency is not None and reading.currency.upper() != row["currency"]
        if reading.amount != row["amount"] or other_currency:
            contradictions.append("amount")
    if not extracted and reading.reason and row["reason"] and reading.reason.value != row["reason"]:
        contradictions.append("reason")
    # A structured request that comes with words asks for a refund whatever the reader makes of the words; they can only make it stricter.
    intent = reading.intent if extracted or reading.intent is Intent.OUT_OF_SCOPE else Intent.REFUND
    return ReadingFacts(
        failed=False,
        intent=intent,
        proposal=Proposal(reading.proposal),
        confidence=reading.confidence,
        manipulation=tuple(reading.manipulation),
        contradictions=tuple(contradictions),
    )


def _history() -> Executable:
    """One customer's refunds besides one, and those made without us, counted in one statement."""
    counted = and_(refunds.c.status == any_(bindparam("counted", type_=ARRAY(Text))), refunds.c.id != bindparam("refund"))
    # One that had succeeded and failed on a later day gives that later day nothing back (field report 17).
    bounced = and_(
        refunds.c.status == literal(Status.FAILED.value),
        refunds.c.final_at >= revisions.c.created_at + literal(timedelta(days=1), Interval),
        exists().where(operations.c.refund_id == refunds.c.id, processor_refunds.c.operation_id == operations.c.id),
    )
    this_week = and_(or_(counted, bounced), revisions.c.created_at > bindparam("week_ago"))
    today = and_(counted, revisions.c.created_at >= bindparam("today"), revisions.c.currency == bindparam("currency"))
    same = and_(
        counted,
        revisions.c.payment_id == bindparam("payment"),
        revisions.c.amount == bindparam("amount"),
        # Two that name other lines of the order are two wishes, whatever they come to; the same line again may be the same wish.
        not_(func.coalesce(refunds.c.details[literal_column("'lines'", Text)] != bindparam("named", type_=JSONB), false())),
        refunds.c.created_at > bindparam("recently"),
    )
    placed = select(func.count()).select_from(orders).where(orders.c.customer_id == bindparam("customer")).scalar_subquery()
    external = _external()
    return (
        select(
            (func.count().filter(counted) + select(external.c.refunds).scalar_subquery()).label("refunds"),
            (func.count().filter(this_week) + select(external.c.week).scalar_subquery()).label("week"),
            (
                func.coalesce(func.sum(revisions.c.amount).filter(today), literal_column("0")) + select(external.c.today).scalar_subquery()
            ).label("today"),
            func.max(refunds.c.id).filter(same).label("duplicate"),
            placed.label("orders"),
        )
        .select_from(refunds)
        .join(revisions, and_(revisions.c.refund_id == refunds.c.id, revisions.c.revision == refunds.c.revision))
        .where(refunds.c.customer_id == bindparam("customer"))
    )


def _external() -> CTE:
    """What went back on this customer's payments without us: imported by observing them, and counted by the processor's time."""
    made_at = func.coalesce(processor_refunds.c.created_at, processor_refunds.c.first_seen_at)
    today = and_(made_at >= bindparam("today"), processor_refunds.c.currency == bindparam("currency"))
    return (
        select(
            func.count().label("refunds"),
            func.count().filter(made_at > bindparam("week_ago")).label("week"),
            func.coalesce(func.sum(processor_refunds.c.amount).filter(today), literal_column("0")).label("today"),
        )
        .select_from(processor_refunds)
        .join(payments, payments.c.id == processor_refunds.c.payment_id)
        .join(orders, orders.c.id == payments.c.order_id)
        .where(
            orders.c.customer_id == bindparam("customer"),
            processor_refunds.c.operation_id.is_(None),
            processor_refunds.c.state.not_in([literal(state.value) for state in RefundState if not state.counts]),
        )
        .cte("external")
    )


_HISTORY = Query(_history())


async def _customer(
    connection: AsyncConnection,
    change: Change,
    *,
    policy: Policy,
    payment_id: str,
    amount: int,
    currency: str,
    account_since: datetime | None,
) -> tuple[CustomerFacts, str | None]:
    """The customer's history besides this refund, and an earlier refund that this one may repeat."""
    row, at = change.row, change.at
    today, _ = policy.customer_limits.day(at)
    history = await _HISTORY.one(
        connection,
        customer=row["customer_id"],
        refund=change.id,
        counted=_COUNTED,
        today=today,
        week_ago=at - timedelta(days=7),
        recently=at - DUPLICATE_WITHIN,
        currency=currency,
        payment=payment_id,
        amount=amount,
        named=row["details"].get("lines"),
    )
    facts = CustomerFacts(
        account_age_days=_days(account_since, at),
        orders=history["orders"],
        refunds=history["refunds"],
        share_refunded_percent=history["refunds"] * 100 // history["orders"] if history["orders"] else None,
        amount_today=int(history["today"]),
        refunds_week=history["week"],
    )
    return facts, history["duplicate"]


def _days(since: datetime | None, at: datetime) -> int | None:
    return None if since is None else max(0, (at - since).days)
