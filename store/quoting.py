"""Quoting: from what is asked and what is true to exact terms under the policy, and the reservation that goes with them.

Done under the locks of the payment, the refund and the customer, in that order, so that twenty racing requests for the last 60 of 100 give exactly one
reservation (promise P2).
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, func, insert, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds import sources
from refunds.allocation import Breakdown
from refunds.approving import Written
from refunds.differences import differences
from refunds.errors import Code, RefundError
from refunds.facts import Facts, PolicyDecision, Review
from refunds.groups import judge_as_a_whole
from refunds.limits import Stage
from refunds.marketplace import LEG_FIELDS, NOTHING_PLANNED, Planned, PlannedLeg, plan_legs
from refunds.money import Money, requested
from refunds.payment_ids import NotAPayment, answer_for
from refunds.policy import Policy, evaluate
from refunds.policy.uniting import review_of
from refunds.processor import MANUAL, MISSING, PaymentState, PaymentStatus
from refunds.reasons import processor_reason
from refunds.refundable import Refundable
from refunds.requoting import reviewed_again
from refunds.settings import Settings
from refunds.status import Event, Status, allows
from refunds.terms import LegTerms, OperationKind, Terms
from store import controls, flows, groups, limits, lines, policies
from store.agreeing import judged_hash
from store.asking import Asked
from store.changes import SYSTEM, Change
from store.claims import CLAIMS, claiming, fold
from store.facts import REQUESTER, UNREAD, StoredReading, gather, reading_of
from store.requirements import APPROVE, CONSENT, Required, advance, enter_review, record_decision
from store.sql import Query, Row, pipelined
from store.tables import customers, orders, payments, principals, processor_binding, revisions


def ladder_for_people(policy: Policy) -> Review:
    """The review that applies when a person must look and no rule has named another ladder."""
    return review_of(policy, policy.tiers.reviewed.ladder or next(iter(policy.review)))


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement: what it rests on and what the policy makes of it. ``account`` is the processor account this database is bound to, ``breakdown`` what
    the named lines come to."""

    force: policies.Applied
    order: Row
    account: str | None
    figures: Refundable
    facts: Facts
    decision: PolicyDecision
    breakdown: Breakdown | None = None
    planned: Planned = NOTHING_PLANNED

    @property
    def by_hand(self) -> bool:
        """Whether no processor can return the payment, so that a person gives it back."""
        return self.order["processor"] == MANUAL

    @property
    def destination(self) -> str:
        """Where it goes: back to the way it was paid, of which a manual one says what that was."""
        return self.order["tender"] if self.by_hand else "original_payment_method"

    def operation(self, state: PaymentState) -> OperationKind:
        """What would be done about a payment in this state."""
        if self.by_hand:
            return OperationKind.MANUAL
        return OperationKind.RELEASE if state.status is PaymentStatus.AUTHORISED else OperationKind.REFUND


_siblings = payments.alias("siblings")
_ORDER = Query(
    select(
        orders,
        payments.c.currency.label("recorded_currency"),
        payments.c.processor,
        payments.c.tender,
        select(func.count()).where(_siblings.c.order_id == orders.c.id, _siblings.c.amount > 0).scalar_subquery().label("payments"),
        select(processor_binding.c.account).scalar_subquery().label("account"),
        *policies.NEWEST,
        *policies.PLACED,
        controls.MODE,
        *REQUESTER,
    )
    .join(payments, payments.c.order_id == orders.c.id)
    .outerjoin(principals, principals.c.id == bindparam("requester"))
    .where(payments.c.id == bindparam("payment"))
)
_ACCOUNT_SINCE = select(customers.c.account_created_at).where(customers.c.id == bindparam("customer"))
_CUSTOMER, _LOCK_CUSTOMER = Query(_ACCOUNT_SINCE), Query(_ACCOUNT_SINCE.with_for_update(key_share=True))
_REVISE = Query(insert(revisions))
_LAST_BY_OTHERS = Query(
    select(revisions.c.amount, revisions.c.payment_id, revisions.c.terms)
    .where(revisions.c.refund_id == bindparam("refund"), revisions.c.author_id != bindparam("author"))
    .order_by(revisions.c.revision.desc())
    .limit(literal_column("1"))
)


async def judge(
    connection: AsyncConnection,
    change: Change,
    asked: Asked,
    state: PaymentState,
    *,
    stored: StoredReading | None,
    locking: bool = True,
) -> Judged:
    """Gather the facts and judge them under the policy in force, writing nothing; ``locking`` the customer and the limits over time unless nothing will be kept
    of it.

    Raises what the amount alone makes impossible.
    """
    async with pipelined(connection):
        customer = await (_LOCK_CUSTOMER if locking else _CUSTOMER).ask(connection, customer=change["customer_id"])
        ordered = await _ORDER.ask(connection, payment=asked.payment_id, requester=change["requester_id"], at=change.at)
        claimed = await CLAIMS.ask(connection, **claiming(asked.payment_id, besides=change.id))
        taken = await lines.TAKEN.ask(connection, **claiming(asked.payment_id, besides=change.id))
    order, figures = await ordered.one(), fold(state, await claimed.all())
    force = await policies.applied(connection, order, change.at)
    if change["group_id"]:
        priced = await lines.of_group(connection, order, asked.units, change["group_id"])
    else:
        priced = lines.price(order, asked.units, state, await taken.all())
    if asked.amount is not None:
        requested(asked.amount, order["recorded_currency"])
    facts = await gather(
        connection,
        change,
        policy=force.policy,
        order=order,
        payment_id=asked.payment_id,
        state=state,
        figures=figures,
        amount=figures.remaining if asked.full else (priced.amount if asked.by_lines else asked.amount) or 0,
        currency=order["recorded_currency"],
        full=asked.full,
        reason=asked.reason,
        asked_by_customer=asked.by_customer,
        extracted=asked.extracted,
        account_since=(await customer.one())["account_created_at"],
        stored=stored,
        priced=priced,
        by_lines=asked.by_lines or bool(change["group_id"] and asked.units and not asked.full),
        locking=locking,
    )
    if change["group_id"]:
        others = await groups.others(connection, change, force.policy, order["recorded_currency"])
        decision = judge_as_a_whole(force.policy, facts, others)
    else:
        decision = evaluate(force.policy, facts)
    planned = await _plan(connection, change, asked, state, figures, facts.request.amount)
    if state.raw_status == MISSING:
        code, why = answer_for(NotAPayment(state.not_a_payment or NotAPayment.UNKNOWN))
        decision = replace(decision, outcome="deny", code=code.value, explanation=why)
    elif (why := priced.refusal) is not None and _stands(priced, asked, decision):
        decision = replace(decision, outcome="deny", consent=False, review=None, code=why.code.value, explanation=why.detail)
    elif asked.amount is None and not asked.full and decision.code == Code.AMOUNT_NOT_POSITIVE:
        # Nobody said how much, so it cannot be denied for that: a person states it first.
        decision = replace(decision, outcome="proceed", code=None)
    elif decision.outcome == "answer" and not allows(change.status, Event.ANSWER):
        # It was no mere question when it was first judged, so a person says what it is.
        decision = replace(decision, outcome="proceed", tier=3, review=ladder_for_people(force.policy))
    if planned.refusal is not None and decision.outcome == "proceed":
        code, why = planned.refusal.value, planned.why
        decision = replace(decision, outcome="deny", consent=False, review=None, code=code, explanation=why)
    return Judged(force, order, order["account"], figures, facts, decision, priced.breakdown, planned)


async def _plan(
    connection: AsyncConnection, change: Change, asked: Asked, state: PaymentState, figures: Refundable, amount: int
) -> Planned:
    """The legs that are asked for beside a refund of this amount, from where the money went as it was read."""
    if not asked.wish or amount <= 0 or state.raw_status == MISSING:
        return NOTHING_PLANNED
    if state.flow is None:  # what no processor can return went through no marketplace
        code = Code.NO_TRANSFER if asked.wish.reverse_transfer else Code.NO_APPLICATION_FEE
        return Planned(refusal=code, why="This payment went through no marketplace.")
    return plan_legs(
        state.flow,
        asked.wish,
        amount=amount,
        before=state.captured - figures.remaining,
        captured=state.captured,
        claimed=await flows.claimed(connection, state.flow, besides=change.id),
    )


def _stands(priced: lines.Priced, asked: Asked, decision: PolicyDecision) -> bool:
    """Whether lines that cannot be refunded deny the request: unless a person stated the amount, or the policy denies it for what weighs more."""
    by_amount = decision.code is None or decision.code == Code.AMOUNT_NOT_POSITIVE
    about_lines = asked.by_lines or (asked.by_customer and not priced.worthless)
    return about_lines and (decision.outcome != "deny" or by_amount)


async def quote(
    connection: AsyncConnection,
    settings: Settings,
    change: Change,
    asked: Asked,
    state: PaymentState,
    *,
    refuse_denied: bool = False,
    before: Row | None = None,
    by_itself: bool = False,
) -> None:
    """Make the next revision of a refund and move it to whatever that needs, or to ``denied`` or ``answered``.

    The caller holds the payment's and the refund's lock; the customer's is taken here. With ``refuse_denied`` (a reviewer's revision) terms that the
    policy denies raise their code and leave the refund as it is, except where a dispute denies any terms. ``before`` is the revision that these terms follow:
    what is not as it was is recorded with them. With ``by_itself`` nobody asked for other terms, the old ones lapsed or no longer fit: what a person had
    approved, a person approves again, and so does one wherever the money, a dispute or the order has moved. Saves nothing by itself.
    """
    stored = (await reading_of(connection, change.id) or UNREAD) if change["has_text"] else None
    judged = await judge(connection, change, asked, state, stored=stored)
    denied = judged.decision.outcome == "deny" and judged.decision.code not in (Code.PAYMENT_DISPUTED, Code.ALREADY_RETURNED)
    if refuse_denied and denied:
        code = Code(judged.decision.code or Code.POLICY_DENIED)
        raise RefundError(code, judged.decision.explanation, field=LEG_FIELDS.get(code, "amount"))
    if before is not None and by_itself and judged.decision.outcome == "proceed":
        reviewed, people = Required.of(before["decision"]).review, ladder_for_people(judged.force.policy)
        judged = replace(judged, decision=reviewed_again(judged.decision, judged.facts, before, reviewed, people))
    await _write(connection, settings, change, asked, state, judged, before)


async def _write(
    connection: AsyncConnection,
    settings: Settings,
    change: Change,
    asked: Asked,
    state: PaymentState,
    judged: Judged,
    before: Row | None,
) -> None:
    revision, facts, decision = change["revision"] + 1, judged.facts, judged.decision
    why_no_terms = _why_no_terms(asked, state, facts)
    proceeding = decision.outcome == "proceed"
    if proceeding and why_no_terms and decision.review is None:
        decision = replace(decision, review=ladder_for_people(judged.force.policy))
    if proceeding and judged.force.policy.tiers.at(decision.tier).draft:
        decision = replace(decision, draft=True)  # also where it came to this tier only here
    terms = _terms(settings, change, asked, state, judged, revision=revision) if proceeding and not why_no_terms else None
    row = {
        "refund_id": change.id,
        "revision": revision,
        "payment_id": asked.payment_id,
        "amount": facts.request.amount,
        "currency": state.currency,
        "terms": terms.canonical() if terms else None,
        "terms_hash": terms.hash if terms else None,
        "policy_version": judged.force.version,
        "policy_hash": judged.force.hash,
        "facts": _recorded(facts) | lines.recorded(judged.breakdown),
        "decision": decision.plain() | {"versions": judged.force.recorded()},
        "author_id": asked.author,
        "loosened": await _loosened(connection, change, asked, facts),
        "changes": None,
        "sources": _sources(change, asked, judged),
        "created_at": change.at,
        "expires_at": terms.expires_at if terms else None,
    }
    changed = differences(before, row) if before is not None else ()
    row["changes"] = [one.plain() for one in changed] if before is not None else None
    if proceeding:
        await limits.tell_of_warnings(connection, change, judged.force.policy, decision.limits)
    change.put(
        revision=revision,
        terms_hash=row["terms_hash"],
        payment_id=asked.payment_id,
        order_id=judged.order["id"],
        amount=facts.request.amount or None,  # not zero when nobody could tell: a person states it
        currency=state.currency,
        full=asked.full,
        reason=asked.reason.value if asked.reason else None,
        reason_by_fraud_role=asked.reason_by_fraud_role,
        reverse_transfer=asked.wish.reverse_transfer,
        refund_application_fee=asked.wish.refund_application_fee,
        tier=decision.tier,
        possible_duplicate_of=facts.request.possible_duplicate_of,
        sources=row["sources"],
        pending_revision=None,
        detail=None,
    )
    if change.status is Status.RECEIVED:
        change.move(Event.READ)
    change.note(
        "quoted",
        actor=asked.author if not asked.by_customer else SYSTEM,
        revision=revision,
        terms_hash=row["terms_hash"],
        amount=facts.request.amount,
        currency=state.currency,
        payment=asked.payment_id,
        policy_version=judged.force.version,
        policy_hash=judged.force.hash,
        return_rules_version=judged.force.placed.version,
        return_rules_hash=judged.force.placed.hash,
        judged=judged_hash(row["facts"], row["decision"]),
        outcome=decision.outcome,
        changed=[one.field for one in changed] or None,
        sources=row["sources"],
    )
    async with pipelined(connection):
        await _REVISE.ask(connection, **row)
        if proceeding:
            await _take(connection, change, state, judged, revision)
        await _move(connection, change, row, decision, why_no_terms, judged.order["mode"])


async def _take(connection: AsyncConnection, change: Change, state: PaymentState, judged: Judged, revision: int) -> None:
    """Take what the terms reserve of limits over time, in place of what earlier terms of the refund took. A release moves no money and counts as a refund."""
    facts, release = judged.facts, judged.operation(state) is OperationKind.RELEASE
    await limits.take(
        connection,
        change.row,
        Stage.RESERVED,
        revision=revision,
        processor=judged.order["processor"],
        amount=0 if release else facts.request.amount,
        currency=state.currency,
        base=facts.base.currency,
        worth=0 if release else facts.base.amount,
        at=change.at,
    )


async def _move(
    connection: AsyncConnection,
    change: Change,
    row: dict[str, Any],
    decision: PolicyDecision,
    why_no_terms: str | None,
    mode: str,
) -> None:
    recorded: list[Row] = []
    if decision.outcome == "deny":
        change.put(detail=decision.explanation)
        change.move(Event.DENY, code=Code(decision.code or Code.POLICY_DENIED), revision=change["revision"])
        return
    if decision.outcome == "answer":
        change.put(detail=decision.explanation or decision.policy_text)
        change.move(Event.ANSWER, revision=change["revision"])
        return
    if why_no_terms:
        change.put(detail=why_no_terms)
    elif _consented_by_asking(row["facts"]):
        consent = await record_decision(
            connection,
            change,
            kind=CONSENT,
            step=1,
            verdict=APPROVE,
            terms_hash=row["terms_hash"],
            principal_id=change["requester_id"],
            person=f"customer:{change['customer_id']}",
            role="customer",
        )
        recorded.append(consent)
    await advance(connection, change, row, recorded, mode)


def _recorded(facts: Facts) -> dict[str, Any]:
    """The facts as they are kept: of what a reader noticed only how much, because its words may quote the customer (promise P9)."""
    plain = facts.plain()
    if plain["reading"] is not None:
        plain["reading"] |= {"manipulation": len(plain["reading"]["manipulation"])}
    return plain


def _consented_by_asking(facts: dict[str, Any]) -> bool:
    request = facts["request"]
    return request["amount_named_by_customer"] and request["customer_authenticated"]


def _why_no_terms(asked: Asked, state: PaymentState, facts: Facts) -> str | None:
    """Why no exact terms can be written although the policy does not deny: then only a person can go on, by a revision."""
    if facts.request.amount <= 0:
        return "nobody could tell the amount"
    if state.status not in (PaymentStatus.CAPTURED, PaymentStatus.AUTHORISED):
        return f"the payment is {state.raw_status or state.status} at the processor, which nothing can be sent for"
    if state.status is PaymentStatus.AUTHORISED and facts.request.amount != state.capturable:
        whole = Money(state.capturable, state.currency)
        return f"the payment is only authorised, and cancelling releases all of it ({whole}), not a part"
    return None


def _terms(settings: Settings, change: Change, asked: Asked, state: PaymentState, judged: Judged, *, revision: int) -> Terms:
    facts, decision = judged.facts, judged.decision
    account = MANUAL if judged.by_hand else judged.account
    assert account is not None  # the payments role bound it before it ever read a payment
    money = Money(facts.request.amount, state.currency)
    decided_by = change.at + timedelta(seconds=decision.consent_within_s if decision.consent else 0)
    if decision.review is not None:
        decided_by = decision.review.ends_by(decided_by)
    return Terms(
        refund=change.id,
        revision=revision,
        operation=judged.operation(state),
        processor=judged.order["processor"],
        processor_account=account,
        mode=settings.refunds_mode.value,
        api_version=settings.stripe_api_version,
        order=judged.order["id"],
        order_version=judged.order["version"],
        payment=asked.payment_id,
        processor_payment=state.processor_payment,
        amount=money.amount,
        amount_text=str(money),
        currency=money.currency,
        full=money.amount == facts.payment.remaining,
        destination=judged.destination,
        reverse_transfer=asked.wish.reverse_transfer,
        refund_application_fee=asked.wish.refund_application_fee,
        legs=tuple(_leg_terms(leg) for leg in judged.planned.legs),
        flow=judged.planned.flow,
        reason=asked.reason,
        processor_reason=None if judged.by_hand else processor_reason(asked.reason, set_by_fraud_role=asked.reason_by_fraud_role),
        policy_version=judged.force.version,
        # Everything the terms wait for may take its whole time, and then they still hold for a while.
        expires_at=decided_by + timedelta(seconds=decision.terms_valid_s),
    )


def _leg_terms(leg: PlannedLeg) -> LegTerms:
    amount = Money(leg.amount, leg.currency)
    return LegTerms(
        kind=leg.kind, target=leg.target, account=leg.account, amount=leg.amount, amount_text=str(amount), currency=leg.currency
    )


async def _loosened(connection: AsyncConnection, change: Change, asked: Asked, facts: Facts) -> bool:
    """Whether terms ask for more, for another payment, or to take less back from connected accounts than the last terms that somebody else wrote.

    Their author can then not approve them; a second revision by the same person, or the same terms quoted again, does not change that. Where nobody else
    wrote any terms, as for a ticket of which nobody could tell the payment, the first ones are looser than none. Here accounts are compared, because quoting
    reads no names; a second account of one person is seen through where somebody approves (``store.approvers``).
    """
    if asked.by_customer:
        return False
    others = await _LAST_BY_OTHERS.first(connection, refund=change.id, author=asked.author)
    if others is None:
        return True
    wish, before = asked.wish, others["terms"] or {}
    now = Written(facts.request.amount, asked.payment_id, bool(wish.reverse_transfer), bool(wish.refund_application_fee))
    then = Written(
        others["amount"], others["payment_id"], *(bool(before.get(name)) for name in ("reverse_transfer", "refund_application_fee"))
    )
    return now.is_looser_than(then)


def _sources(change: Change, asked: Asked, judged: Judged) -> dict[str, str]:
    read = [name for name, value in (("amount", asked.amount), ("reason", asked.reason)) if value and asked.extracted and asked.by_customer]
    return sources.quoted(
        change["sources"],
        named=asked.named,
        stated=asked.stated,
        read=read,
        by_lines=asked.by_lines,
        full=asked.full,
        by_hand=judged.by_hand,
    )


async def to_a_person(connection: AsyncConnection, change: Change, why: str) -> None:
    """Send a request whose payment nobody could tell to a person: no terms, no reservation of a payment, a place in the review queue."""
    force = await policies.in_force(connection, change.at)
    if change.status is Status.RECEIVED:
        change.move(Event.READ)
    change.put(detail=why, tier=3)
    change.note("unquotable", why=why, policy_version=force.version)
    enter_review(change, ladder_for_people(force.policy), actor=SYSTEM)
