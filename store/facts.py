"""Gathering the facts one decision rests on, from what is stored and from the live reading. Read under the locks of the quote."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    ColumnElement,
    Executable,
    Interval,
    Numeric,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    distinct,
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

from refunds.alike import ALIKE
from refunds.classification import Classification, Intent, Proposal, Reading, Source
from refunds.clock import parse_rfc3339
from refunds.facts import AgentFacts, BaseFacts, CustomerFacts, Facts, OrderFacts, ReadingFacts, RequesterFacts, RequestFacts
from refunds.fitting import payment_facts
from refunds.limits import Stage
from refunds.money import Money
from refunds.people import PrincipalKind
from refunds.policy import Policy
from refunds.processor import PaymentState, PaymentStatus, RefundState
from refunds.reasons import Reason
from refunds.refundable import Refundable
from refunds.status import RESERVING, Status
from store import limits, rates
from store.changes import Change
from store.lines import Priced
from store.sql import Query, Row, pipelined
from store.tables import classifications, operations, orders, payments, principals, processor_refunds, refunds, revisions


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
    locking: bool,
) -> Facts:
    """Gather everything for one decision. With ``locking`` the limits over time are locked, the last lock of the order, so that what is read of them stays so.

    ``currency`` is the one the request was made in, which the policy holds against what the processor says. ``asked_by_customer`` is false for terms
    that a reviewer wrote: those need to be asked for anew. ``priced`` is what the named lines come to, ``by_lines`` says that ``amount`` is just that.
    """
    row = change.row
    customer, base, duplicate, used = await _customer(
        connection,
        change,
        policy=policy,
        order_id=order["id"],
        payment_id=payment_id,
        amount=amount,
        currency=currency,
        account_since=account_since,
        locking=locking,
    )
    worth = 0 if state.status is PaymentStatus.AUTHORISED else base.amount  # a release moves no money
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
            id=order["id"],
            legal_entity=priced.order.legal_entity,
            customer_type=priced.order.customer_type,
            geography=priced.order.geography,
        ),
        payment=payment_facts(priced.order, state, remaining=figures.remaining),
        customer=customer,
        base=base,
        reading=None if stored is None else _reading(stored, row, order, extracted=extracted),
        lines=priced.facts(full=full),
        requester=_requester(order, row, change.at),
        agent=_agent(order, row, change.at),
        time=policy.time_facts(row["created_at"]),
        limits=await limits.answered(connection, used, worth),
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


REQUESTER = tuple(principals.c[name].label(f"requester_{name}") for name in ("kind", "created_at", "disabled_at"))
"""The columns that tell whose key a request was made with; the query of the order has them, so that they cost no question of their own."""


def _requester(asked: Row, row: dict[str, Any], at: datetime) -> RequesterFacts:
    return RequesterFacts(
        kind=asked["requester_kind"], age_days=_days(asked["requester_created_at"], at), person_named=row["requested_by"] is not None
    )


def _agent(asked: Row, row: dict[str, Any], at: datetime) -> AgentFacts:
    if row["agent_id"] is None:
        return AgentFacts()
    known = asked["requester_kind"] == PrincipalKind.AGENT.value
    return AgentFacts(
        known=known,
        allowed=known and asked["requester_disabled_at"] is None,
        age_days=_days(asked["requester_created_at"], at),
        session_named="agent_session_id" in row["details"],
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
    in_day = and_(counted, revisions.c.created_at >= bindparam("today"))
    today = and_(in_day, revisions.c.currency == bindparam("currency"))
    worth = _worth()
    # Two that name other lines of the order are two wishes, whatever they come to; the same line again may be the same wish.
    other_lines = func.coalesce(refunds.c.details[literal_column("'lines'", Text)] != bindparam("named", type_=JSONB), false())
    same_lines = refunds.c.details[literal_column("'lines'", Text)] == bindparam("named", type_=JSONB)
    of_order = refunds.c.order_id == bindparam("order", type_=Text)
    of_payment = revisions.c.payment_id == bindparam("payment")
    of_another_group = or_(refunds.c.group_id.is_(None), refunds.c.group_id.is_distinct_from(bindparam("group", type_=Text)))
    same = and_(
        counted,
        or_(
            and_(
                or_(of_payment, of_order),
                revisions.c.amount == bindparam("amount"),
                revisions.c.currency == bindparam("currency"),
                not_(other_lines),
            ),
            and_(of_order, same_lines),
            and_(
                or_(of_payment, of_order), refunds.c.details[literal_column("'alike'", Text)].has_any(bindparam("alike", type_=ARRAY(Text)))
            ),
        ),
        of_another_group,  # the parts of a group are one wish by design
        refunds.c.created_at > bindparam("recently"),
    )
    placed = select(func.count()).select_from(orders).where(orders.c.customer_id == bindparam("customer")).scalar_subquery()
    external = _external()
    # However many parts a group has, it was asked for once.
    asked = func.count(distinct(func.coalesce(refunds.c.group_id, refunds.c.id)))
    another = and_(refunds.c.id != bindparam("refund"), of_another_group)
    return (
        select(
            (func.count().filter(counted) + select(external.c.refunds).scalar_subquery()).label("refunds"),
            (func.count().filter(this_week) + select(external.c.week).scalar_subquery()).label("week"),
            (
                func.coalesce(func.sum(revisions.c.amount).filter(today), literal_column("0")) + select(external.c.today).scalar_subquery()
            ).label("today"),
            (func.coalesce(func.sum(worth).filter(in_day), literal_column("0")) + select(external.c.today_in_base).scalar_subquery()).label(
                "today_in_base"
            ),
            func.array_agg(distinct(revisions.c.currency)).filter(in_day, worth.is_(None)).label("not_counted"),
            func.array_agg(distinct(revisions.c.currency)).filter(in_day, revisions.c.currency != bindparam("currency")).label("others"),
            select(external.c.elsewhere).scalar_subquery().label("elsewhere"),
            func.max(refunds.c.id).filter(same).label("duplicate"),
            placed.label("orders"),
            asked.filter(refunds.c.created_at > bindparam("hour_ago"), another).label("requests_hour"),
            asked.filter(refunds.c.created_at > bindparam("day_ago"), another).label("requests_day"),
        )
        .select_from(refunds)
        .outerjoin(revisions, and_(revisions.c.refund_id == refunds.c.id, revisions.c.revision == refunds.c.revision))
        .where(refunds.c.customer_id == bindparam("customer"))
    )


def _worth() -> ColumnElement[Any]:
    """What a revision was recorded to count as in the base currency; null when nobody recorded that. It is never converted again at another day's rate."""
    base, fact = bindparam("base", type_=Text), func.jsonb_extract_path_text
    recorded_in = fact(revisions.c.facts, literal_column("'base'"), literal_column("'currency'"))
    # Not a bigint: with an enormous rate an amount is worth more than that holds.
    recorded = cast(fact(revisions.c.facts, literal_column("'base'"), literal_column("'amount'")), Numeric)
    return case((revisions.c.currency == base, revisions.c.amount), (recorded_in == base, recorded))


def _external() -> CTE:
    """What went back on this customer's payments without us: imported by observing them, and counted by the processor's time."""
    made_at = func.coalesce(processor_refunds.c.created_at, processor_refunds.c.first_seen_at)
    in_day = made_at >= bindparam("today")
    today = and_(in_day, processor_refunds.c.currency == bindparam("currency"))
    in_base = and_(in_day, processor_refunds.c.currency == bindparam("base", type_=Text))
    elsewhere = and_(in_day, processor_refunds.c.currency.is_distinct_from(bindparam("base", type_=Text)))
    each = func.jsonb_build_array(processor_refunds.c.amount, processor_refunds.c.currency, made_at)
    return (
        select(
            func.count().label("refunds"),
            func.count().filter(made_at > bindparam("week_ago")).label("week"),
            func.coalesce(func.sum(processor_refunds.c.amount).filter(today), literal_column("0")).label("today"),
            func.coalesce(func.sum(processor_refunds.c.amount).filter(in_base), literal_column("0")).label("today_in_base"),
            func.jsonb_agg(each).filter(elsewhere).label("elsewhere"),
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
    order_id: str,
    payment_id: str,
    amount: int,
    currency: str,
    account_since: datetime | None,
    locking: bool,
) -> tuple[CustomerFacts, BaseFacts, str | None, limits.Asked]:
    """The customer's history besides this refund, the same in the base currency, an earlier refund that this one may repeat, and what limits have counted."""
    row, at = change.row, change.at
    today, _ = policy.customer_limits.day(at)
    async with pipelined(connection):
        answer = await _HISTORY.ask(
            connection,
            customer=row["customer_id"],
            refund=change.id,
            counted=_COUNTED,
            today=today,
            week_ago=at - timedelta(days=7),
            day_ago=at - timedelta(days=1),
            hour_ago=at - timedelta(hours=1),
            group=row["group_id"],
            recently=at - timedelta(seconds=policy.duplicates.within),
            currency=currency,
            base=policy.base,
            payment=payment_id,
            order=order_id,
            amount=amount,
            named=row["details"].get("lines"),
            alike=row["details"].get(ALIKE) or [],
        )
        counted = await limits.ask(connection, policy, limits.Subject.of(row), Stage.RESERVED, at, besides=change.id, locking=locking)
    history = await answer.one()
    facts = CustomerFacts(
        account_age_days=_days(account_since, at),
        orders=history["orders"],
        refunds=history["refunds"],
        share_refunded_percent=history["refunds"] * 100 // history["orders"] if history["orders"] else None,
        amount_today=int(history["today"]),
        refunds_week=history["week"],
        requests_hour=history["requests_hour"],
        requests_day=history["requests_day"],
    )
    return facts, await _base(connection, policy, Money(amount, currency), history, at), history["duplicate"], counted


async def _base(connection: AsyncConnection, policy: Policy, asked: Money, history: Row, at: datetime) -> BaseFacts:
    """What the refund and the customer's day count as in the base currency.

    Refunds made without us were never quoted: each counts by the rate that held, and was recorded, when it was made, so that its worth, too, never changes.
    """
    elsewhere = [(Money(amount, code), parse_rfc3339(made_at)) for amount, code, made_at in history["elsewhere"] or ()]
    if policy.base is None:
        others = {*(history["others"] or ()), *(money.currency for money, _ in elsewhere)} - {asked.currency}
        return BaseFacts(not_counted=tuple(sorted(others)))
    today, not_counted = int(history["today_in_base"]), set[str](history["not_counted"] or ())
    for money, made_at in elsewhere:
        counted = await rates.worth(connection, policy, money, made_at)
        if counted.amount is None or (counted.rate and counted.rate.is_too_old(made_at, policy.rates_at_most_days_old)):
            not_counted.add(money.currency)
        else:
            today += counted.amount
    worth = await rates.worth(connection, policy, asked, at)
    return BaseFacts(
        currency=policy.base,
        amount=worth.amount,
        amount_today=today,
        not_counted=tuple(sorted(not_counted)),
        rate=worth.rate.rate.text if worth.rate else None,
        rate_id=worth.rate.id if worth.rate else None,
        rate_at=worth.rate.effective_at if worth.rate else None,
    )


def _days(since: datetime | None, at: datetime) -> int | None:
    return None if since is None else max(0, (at - since).days)
