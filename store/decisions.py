"""What people say: decisions, consent, withdrawals, revisions and settlements, recorded before anything is delivered (design, section 4).

A decision counts by the time it was recorded: it is judged under the refund's lock, with the time taken after locking, against the deadlines as they stand
then. Recording it moves the refund in the same transaction; the signal or update that follows only tells the run to look.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Who
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.groups import held_up
from refunds.ids import Prefix, new_id
from refunds.people import Actor, PrincipalKind, Role
from refunds.processor import MANUAL
from refunds.requests import RevisionRequest
from refunds.status import BEFORE_OPERATION, Event, Status
from store import orders
from store.approvers import right_to_approve, right_to_deny
from store.changes import Change, lock_payment, lock_refund, read_refund
from store.deadlines import climb
from store.instructed import said_given_back
from store.requirements import (
    APPROVE,
    CONSENT,
    DENY,
    REVIEW,
    advance_to_unmet,
    decisions_on,
    record_decision,
    revision_of,
)
from store.reviewing import check_limits
from store.sql import Row
from store.tables import instructions, payments, principals, refunds


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded: the id a message carries, the refund's row afterwards, and whether it had been recorded before."""

    id: str
    row: dict[str, Any]
    replayed: bool = False


async def record_review(
    connection: AsyncConnection,
    clock: Clock,
    *,
    refund_id: str,
    actor: Actor,
    verdict: str,
    terms_hash: str | None,
    reason: str = "",
    on_behalf_of: str | None = None,
    together: bool = False,
) -> Recorded:
    """Record a reviewer's decision and let it count.

    The same person saying the same about the same terms again gets the first answer. ``reason`` is what they say of it, which some reviews require;
    ``on_behalf_of`` names whose delegated right they use (without it their own, or what suffices of what was delegated to them). ``together`` says that all
    parts of the refund's group are decided in this transaction. Raises ``PERSON_REQUIRED``, ``TERMS_CHANGED``, ``ALREADY_DECIDED``, ``REVIEW_EXPIRED``,
    ``NOT_AWAITING_REVIEW``, ``REVIEWER_LIMIT``, what :mod:`store.approvers` raises, or ``DECIDED_TOGETHER`` for approving one part of a group of which another waits too.
    """
    change = await lock_refund(connection, refund_id, clock.now)
    recorded = await decisions_on(connection, refund_id, change["revision"])
    mine = [d for d in recorded if d["kind"] == REVIEW and d["principal_id"] == actor.principal_id]
    for earlier in mine:
        if (earlier["verdict"], earlier["terms_hash"]) == (verdict, terms_hash or ""):
            return Recorded(earlier["id"], change.row, replayed=True)
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    await climb(connection, change)
    _check_open(change, recorded, terms_hash, verdict)
    if verdict != DENY:
        await _check_together(connection, change, Status.AWAITING_REVIEW, together=together)
    if not actor.has(Role.REVIEWER):
        raise RefundError(Code.FORBIDDEN, "Deciding needs the role reviewer or manager.")
    revision: Row | None = None
    if verdict == DENY:
        right = await right_to_deny(connection, change, actor, on_behalf_of=on_behalf_of, reason=reason)
    else:
        right, revision = await right_to_approve(connection, change, actor, on_behalf_of=on_behalf_of, reason=reason)
        await check_limits(connection, change.at, reviewers=right.persons, terms=revision)
    step = sum(1 for d in recorded if d["kind"] == REVIEW) + 1
    decision = await record_decision(
        connection,
        change,
        kind=REVIEW,
        step=step,
        verdict=verdict,
        terms_hash=terms_hash or "",
        principal_id=actor.principal_id,
        person=actor.principal_id,
        role=right.role.value,
        on_behalf_of=right.on_behalf_of,
        delegation_id=right.delegated.id if right.delegated else None,
    )
    if revision is None:
        change.put(detail="a reviewer denied it")
        change.move(Event.DENY, actor=actor.principal_id, code=Code.REVIEWER_DENIED, revision=change["revision"])
    else:
        await advance_to_unmet(connection, change, revision, actor=actor.principal_id)
    change.signal(verdict, decision["id"])
    await change.save(connection)
    return Recorded(decision["id"], change.row)


def _check_open(change: Change, recorded: list[Row], terms_hash: str | None, verdict: str) -> None:
    if change.status is not Status.AWAITING_REVIEW:
        if change["code"] == Code.REVIEW_EXPIRED:
            raise RefundError(Code.REVIEW_EXPIRED)
        if change.status not in (Status.WITHDRAWN, Status.EXPIRED) and any(d["kind"] == REVIEW for d in recorded):
            raise RefundError(Code.ALREADY_DECIDED, f"It is {change.status} by an earlier decision.")
        raise RefundError(Code.NOT_AWAITING_REVIEW, f"It is {change.status}.")
    if change["pending_revision"] is not None:
        raise RefundError(Code.TERMS_CHANGED, "A revision of these terms is being quoted.")
    if terms_hash != change["terms_hash"]:
        raise RefundError(Code.TERMS_CHANGED, terms_hash=change["terms_hash"], revision=change["revision"])
    if verdict == APPROVE and change["terms_hash"] is None:
        raise RefundError(Code.TERMS_CHANGED, f"There are no exact terms yet ({change['detail']}); revise it first.")


async def _check_together(connection: AsyncConnection, change: Change, waiting: Status, *, together: bool) -> None:
    """A part of a group is not approved while another part waits for the same or has not come so far: the group is. A no needs no other part."""
    if change["group_id"] is None or together:
        return
    undecided = [Status.RECEIVED.value, Status.CLASSIFIED.value, Status.AWAITING_CONSENT.value, waiting.value]
    others = (refunds.c.group_id == change["group_id"], refunds.c.id != change.id, refunds.c.status.in_(undecided))
    query = select(refunds.c.id, refunds.c.status).where(*others).order_by(refunds.c.status == waiting.value, refunds.c.id).limit(1)
    if (other := (await connection.execute(query)).one_or_none()) is not None:
        words = f"{other.id} of the same group waits too" if other.status == waiting else held_up(other.id, other.status)
        raise RefundError(Code.DECIDED_TOGETHER, f"{words}.", group=change["group_id"])


async def record_consent(
    connection: AsyncConnection, clock: Clock, *, refund_id: str, actor: Actor, agreed: bool, terms_hash: str, together: bool = False
) -> Recorded:
    """Record that the customer agreed to, or declined, exactly these terms, as a requester says for them.

    Raises ``TERMS_CHANGED``, ``CONSENT_EXPIRED`` or ``NOT_AWAITING_CONSENT``, or ``DECIDED_TOGETHER`` as for a review. Saying the same again gets the
    first answer.
    """
    change = await lock_refund(connection, refund_id, clock.now)
    verdict = APPROVE if agreed else DENY
    recorded = await decisions_on(connection, refund_id, change["revision"])
    for earlier in recorded:
        if earlier["kind"] == CONSENT and (earlier["verdict"], earlier["terms_hash"]) == (verdict, terms_hash):
            return Recorded(earlier["id"], change.row, replayed=True)
    await climb(connection, change)
    if change.status is not Status.AWAITING_CONSENT:
        expired = change["code"] == Code.CONSENT_EXPIRED
        raise RefundError(Code.CONSENT_EXPIRED if expired else Code.NOT_AWAITING_CONSENT, f"It is {change.status}.")
    if change["pending_revision"] is not None or terms_hash != change["terms_hash"]:
        raise RefundError(Code.TERMS_CHANGED, terms_hash=change["terms_hash"], revision=change["revision"])
    if agreed:
        await _check_together(connection, change, Status.AWAITING_CONSENT, together=together)
    decision = await record_decision(
        connection,
        change,
        kind=CONSENT,
        step=1,
        verdict=verdict,
        terms_hash=terms_hash,
        principal_id=actor.principal_id,
        person=f"customer:{change['customer_id']}",
        role="customer",
    )
    if agreed:
        await advance_to_unmet(connection, change, await revision_of(connection, refund_id, change["revision"]), actor=actor.principal_id)
    else:
        change.put(detail="the customer declined")
        change.move(Event.WITHDRAW, actor=actor.principal_id, code=Code.CONSENT_DECLINED, revision=change["revision"])
    change.signal("consent", decision["id"])
    await change.save(connection)
    return Recorded(decision["id"], change.row)


async def record_withdrawal(connection: AsyncConnection, clock: Clock, *, refund_id: str, actor: Actor) -> Recorded:
    """Withdraw a refund: once this has answered, nothing is ever sent for it. Raises ``TOO_LATE`` when something may have been sent, or it is over."""
    change = await lock_refund(connection, refund_id, clock.now)
    if change.status is Status.WITHDRAWN:
        return Recorded("", change.row, replayed=True)
    if change.status not in BEFORE_OPERATION:
        raise RefundError(Code.TOO_LATE, f"It is {change.status}.")
    instruction_id = await instruct(connection, change, "withdraw", actor, {})
    change.move(Event.WITHDRAW, actor=actor.principal_id, instruction=instruction_id)
    change.signal("withdraw", instruction_id)
    await change.save(connection)
    return Recorded(instruction_id, change.row)


async def record_revision(connection: AsyncConnection, clock: Clock, *, refund_id: str, actor: Actor, request: RevisionRequest) -> Recorded:
    """Record other terms a reviewer wants. From here on the present terms can no longer be decided; the run quotes the new ones.

    The same person asking for the same instead of the same terms again, and nobody for anything since, is the first revision, unless that was refused.

    Raises ``PERSON_REQUIRED``, ``NOT_REVISABLE``, ``TERMS_CHANGED``, ``TERMS_UNCHANGED``, ``CURRENCY_MISMATCH``, and what finding the payment raises.
    """
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    row = await read_refund(connection, refund_id)
    payment = await _revised_payment(connection, row, request)
    for payment_id in sorted({p for p in (row["payment_id"], payment) if p}):
        await lock_payment(connection, payment_id)
    change = await lock_refund(connection, refund_id, clock.now)
    body = _revised(request, payment)
    if (earlier := await _same_revision(connection, change, actor, body)) is not None:
        return Recorded(earlier, change.row, replayed=True)
    await climb(connection, change)
    if change.status not in (Status.AWAITING_CONSENT, Status.AWAITING_REVIEW):
        raise RefundError(Code.NOT_REVISABLE, f"It is {change.status}.")
    if change["pending_revision"] is not None or request.terms_hash != change["terms_hash"]:
        raise RefundError(Code.TERMS_CHANGED, terms_hash=change["terms_hash"], revision=change["revision"])
    same = (
        payment in (None, change["payment_id"])
        and request.amount in (None, change["amount"])
        and not (request.full and not change["full"])
        and body["reason"] in (None, change["reason"])
        and all(body.get(name) in (None, change[name]) for name in ("reverse_transfer", "refund_application_fee"))
    )
    if same:
        raise RefundError(Code.TERMS_UNCHANGED, field="amount")
    instruction_id = await instruct(connection, change, "revise", actor, body)
    change.put(pending_revision=instruction_id)
    change.signal("revise", instruction_id)
    await change.save(connection)
    return Recorded(instruction_id, change.row)


def _revised(request: RevisionRequest, payment: str | None) -> dict[str, Any]:
    """What is kept of a revision: the terms that were seen, and what is wanted instead."""
    body = {"terms_hash": request.terms_hash, "payment": payment, "amount": request.amount, "full": request.full}
    body["reason"] = request.reason and request.reason.value
    body["currency"] = request.currency.strip().upper() if request.currency else None
    wish = {"reverse_transfer": request.reverse_transfer, "refund_application_fee": request.refund_application_fee}
    stated = {"sources": {field.value: by.value for field, by in request.sources.items()}} if request.sources else {}
    return body | {name: value for name, value in wish.items() if value is not None} | stated


async def _same_revision(connection: AsyncConnection, change: Change, actor: Actor, body: dict[str, Any]) -> str | None:
    """The refund's latest revision, if it is this one, and it counted or may still count."""
    query = (
        select(instructions)
        .where(instructions.c.refund_id == change.id, instructions.c.kind == "revise")
        .order_by(instructions.c.recorded_at.desc(), instructions.c.id.desc())
        .limit(1)
    )
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None or row["outcome"] is not None or (row["principal_id"], row["body"]) != (actor.principal_id, body):
        return None
    return row["id"]


async def _revised_payment(connection: AsyncConnection, row: Row, request: RevisionRequest) -> str | None:
    if request.payment_id is None:
        return None
    asked = {"customer_id": row["customer_id"], "order_id": row["order_id"], "payment_ref": request.payment_id}
    target = await orders.find_target_of(connection, **asked)
    return target.payment["id"]


async def record_settlement(
    connection: AsyncConnection, clock: Clock, *, refund_id: str, actor: Actor, outcome: str, processor_refund_id: str | None
) -> Recorded:
    """Record how a person settles a parked refund; the payments role checks it live before it counts.

    ``refunded`` names the processor's refund, which a manual part has none of; whoever asked for one cannot settle it, because nobody else is asked.
    ``not_refunded`` needs two persons: the first record answers with ``SECOND_PERSON_REQUIRED`` by the caller, the second one counts. Raises
    ``INVALID_FIELD``, ``PERSON_REQUIRED``, ``SELF_APPROVAL`` and ``NOT_PARKED``, and ``SETTLEMENT_CONTRADICTED`` when somebody has just said that they gave a
    manual part back.
    """
    by_hand = await _is_manual(connection, refund_id)
    if (outcome == "refunded" and not by_hand) != (processor_refund_id is not None):
        detail = "Name processor_refund_id with the outcome refunded, and only then."
        if by_hand:
            detail = "A manual part has no refund at a processor: leave processor_refund_id out and say in evidence how it was given back."
        raise RefundError(Code.INVALID_FIELD, detail, field="processor_refund_id")
    if actor.kind is not PrincipalKind.PERSON:
        raise RefundError(Code.PERSON_REQUIRED)
    change = await lock_refund(connection, refund_id, clock.now)
    if by_hand and await _asked_for_it(connection, change, actor):
        raise RefundError(Code.SELF_APPROVAL, "Who asked for a manual part cannot settle it.")
    if change.status is not Status.PARKED:
        raise RefundError(Code.NOT_PARKED, f"It is {change.status}.")
    body = {"outcome": outcome, "processor_refund_id": processor_refund_id}
    if outcome == "not_refunded":
        if by_hand and (giver := await said_given_back(connection, refund_id)) is not None:
            handle = (await connection.execute(select(principals.c.handle).where(principals.c.id == giver))).scalar_one()
            raise RefundError(Code.SETTLEMENT_CONTRADICTED, f"{handle} has said that it was given back.")
        body["first_person"] = await _first_to_say_so(connection, change, actor)
    instruction_id = await instruct(connection, change, "settle", actor, body)
    if outcome == "refunded" or body["first_person"]:
        change.signal("settle", instruction_id)
    await change.save(connection)
    return Recorded(instruction_id, change.row)


async def _asked_for_it(connection: AsyncConnection, change: Change, actor: Actor) -> bool:
    """Whether a person asked for a refund, or is named as who did, under whatever account."""
    if change["requested_by"] and actor.is_named(change["requested_by"]):
        return True
    query = select(principals.c.id, principals.c.handle, principals.c.name, principals.c.kind).where(
        principals.c.id == change["requester_id"]
    )
    row = (await connection.execute(query)).one()
    return Who(row.id, row.handle, row.name, PrincipalKind(row.kind)).is_also(actor)


async def _is_manual(connection: AsyncConnection, refund_id: str) -> bool:
    """Whether a person gives the refund's payment back. Raises ``REFUND_NOT_FOUND``."""
    row = await read_refund(connection, refund_id)
    query = select(payments.c.processor).where(payments.c.id == row["payment_id"])
    return row["payment_id"] is not None and (await connection.execute(query)).scalar_one() == MANUAL


async def _first_to_say_so(connection: AsyncConnection, change: Change, actor: Actor) -> str | None:
    """Another person who already said, since it was parked, that nothing was refunded."""
    said = (
        instructions.c.refund_id == change.id,
        instructions.c.kind == "settle",
        instructions.c.body["outcome"].astext == "not_refunded",
        instructions.c.body["leg"].astext.is_(None),
        instructions.c.recorded_at >= change["status_since"],
    )
    return await another_person(connection, actor, *said)


async def another_person(connection: AsyncConnection, actor: Actor, *said: ColumnElement[bool]) -> str | None:
    """The first person who gave such an instruction and is not the actor under another account; ``None`` when there is none."""
    query = (
        select(principals.c.id, principals.c.handle, principals.c.name)
        .join(instructions, instructions.c.principal_id == principals.c.id)
        .where(*said)
        .order_by(instructions.c.recorded_at, instructions.c.id)
    )
    return next((one.id for one in await connection.execute(query) if not Who(*one).is_also(actor)), None)


async def instruct(
    connection: AsyncConnection, change: Change, kind: str, actor: Actor, body: dict[str, Any], *, applied: bool = False
) -> str:
    """Record what a person asks of a refund, and enter it in the ledger; returns the id of the record. ``applied`` says that it is done by that."""
    instruction_id = new_id(Prefix.INSTRUCTION)
    await connection.execute(
        insert(instructions).values(
            id=instruction_id,
            refund_id=change.id,
            kind=kind,
            body=body,
            principal_id=actor.principal_id,
            role=",".join(sorted(role.value for role in actor.roles)),
            recorded_at=change.at,
            applied_at=change.at if applied else None,
        )
    )
    change.note(f"{kind}_recorded", actor=actor.principal_id, instruction=instruction_id, **body)
    return instruction_id
