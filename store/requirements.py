"""What exact terms still need before they may be submitted, and moving a refund to the first of it that is unmet."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.facts import Review
from refunds.ids import Prefix, new_id
from refunds.status import Event, Status
from store import controls
from store.changes import SYSTEM, Change
from store.sql import Query, Row, pipelined
from store.tables import decisions, orders, payments, revisions

APPROVE, DENY = "approve", "deny"
CONSENT, REVIEW, POLICY = "consent", "review", "policy"


@dataclass(frozen=True, slots=True)
class Required:
    """What a revision requires, as the policy decided when it was quoted."""

    consent: bool
    consent_within_s: int
    review: Review | None

    @classmethod
    def of(cls, decision: dict[str, Any]) -> "Required":
        """Read it from a recorded policy decision."""
        review = None if decision["review"] is None else review_from(decision["review"])
        return cls(decision["consent"], decision["consent_within_s"], review)


def review_from(plain: dict[str, Any]) -> Review:
    """Rebuild a review from its JSON form."""
    return Review.from_plain(plain)


_ORDER_NOW = select(orders.c.version).join(payments, payments.c.order_id == orders.c.id).where(payments.c.id == revisions.c.payment_id)
REVISION = Query(
    select(revisions, _ORDER_NOW.correlate(revisions).scalar_subquery().label("order_version_now")).where(
        revisions.c.refund_id == bindparam("refund"), revisions.c.revision == bindparam("number")
    )
)
DECISIONS = Query(
    select(decisions)
    .where(decisions.c.refund_id == bindparam("refund"), decisions.c.revision == bindparam("number"))
    .order_by(decisions.c.recorded_at, decisions.c.id)
)
_RECORD = Query(insert(decisions))


async def revision_of(connection: AsyncConnection, refund_id: str, revision: int) -> Row:
    """One revision of a refund."""
    return await REVISION.one(connection, refund=refund_id, number=revision)


def order_moved(revision: Row) -> str | None:
    """Why terms no longer fit their order, which they name in one version of it; ``None`` while it is at that version."""
    then, now = revision["terms"]["order_version"], revision["order_version_now"]
    return None if then == now else f"the order is at version {now} and was quoted at version {then}"


async def decisions_on(connection: AsyncConnection, refund_id: str, revision: int) -> list[Row]:
    """The decisions recorded on one revision, in their order."""
    return list(await DECISIONS.all(connection, refund=refund_id, number=revision))


def approvals(recorded: list[Row], kind: str, terms_hash: str) -> list[Row]:
    """The recorded approvals of a kind that were given for exactly these terms."""
    return [d for d in recorded if d["kind"] == kind and d["verdict"] == APPROVE and d["terms_hash"] == terms_hash]


def sufficient(required: Required, recorded: list[Row], terms_hash: str) -> list[Row] | None:
    """The decisions that together meet every requirement for exactly these terms, or ``None`` when one is missing (promise P3).

    Without a review, the policy's own recorded approval stands in for it; it never stands in for a review that is required.
    """
    consents = approvals(recorded, CONSENT, terms_hash)
    judged = approvals(recorded, REVIEW if required.review else POLICY, terms_hash)
    people = required.review.people if required.review else 1
    if (required.consent and not consents) or independent(judged) < people:
        return None
    return consents + judged


def independent(judged: list[Row]) -> int:
    """How many of these approvals are of different persons. Whoever decided on behalf of another counts as both, so that nobody counts twice."""
    seen: set[str] = set()
    count = 0
    for decision in judged:
        persons = {decision["person"], decision["on_behalf_of"] or decision["person"]}
        count += seen.isdisjoint(persons)
        seen |= persons
    return count


async def record_decision(
    connection: AsyncConnection,
    change: Change,
    *,
    kind: str,
    step: int,
    verdict: str,
    terms_hash: str,
    principal_id: str | None,
    person: str,
    role: str,
    on_behalf_of: str | None = None,
    delegation_id: str | None = None,
) -> Row:
    """Record one decision on the present revision and enter it in the ledger; returns it. In a pipeline, or outside of one."""
    decision = {
        "id": new_id(Prefix.DECISION),
        "refund_id": change.id,
        "revision": change["revision"],
        "kind": kind,
        "step": step,
        "verdict": verdict,
        "terms_hash": terms_hash,
        "principal_id": principal_id,
        "person": person,
        "on_behalf_of": on_behalf_of,
        "delegation_id": delegation_id,
        "role": role,
        "recorded_at": change.at,
        "delivered_at": None,
    }
    await _RECORD.ask(connection, **decision)
    change.note(
        "decision_recorded",
        actor=principal_id or person,
        on_behalf_of=on_behalf_of,
        delegation=delegation_id,
        decision=decision["id"],
        kind=kind,
        step=step,
        verdict=verdict,
        revision=change["revision"],
        terms_hash=terms_hash,
        role=role,
    )
    return decision


async def advance_to_unmet(connection: AsyncConnection, change: Change, revision: Row, *, actor: str) -> None:
    """Move the refund to the first requirement of its revision that is unmet, as :func:`advance` does, by what is recorded now."""
    async with pipelined(connection):
        decided = await DECISIONS.ask(connection, refund=change.id, number=change["revision"])
        controlled = await controls.READ.ask(connection)
    mode = (await controlled.one())["mode"]
    await advance(connection, change, revision, list[Row](await decided.all()), mode, actor=actor)


async def advance(
    connection: AsyncConnection, change: Change, revision: Row, recorded: list[Row], mode: str, *, actor: str = SYSTEM
) -> None:
    """Move the refund to the first requirement of its revision that is unmet: consent, then review; with none left it is approved.

    ``recorded`` is every decision on that revision. In any ``mode`` of the installation but ``live``, and in a tier of which the policy makes drafts, it becomes
    ``drafted`` instead of approved. The caller holds the refund's lock and saves. In a pipeline, or outside of one.
    """
    required = Required.of(revision["decision"])
    terms_hash: str | None = revision["terms_hash"]
    if terms_hash is None:
        assert required.review is not None
        enter_review(change, required.review, actor=actor)
        return
    if required.consent and not approvals(recorded, CONSENT, terms_hash):
        until = change.at + timedelta(seconds=required.consent_within_s)
        change.put(queue=None, review_by=until, wake_at=until, rung=0, reminded=False)
        change.move(Event.ASK_CONSENT, actor=actor, revision=change["revision"], until=until)
        return
    if required.review is not None:
        given = independent(approvals(recorded, REVIEW, terms_hash))
        if given < required.review.people:
            if change.status is not Status.AWAITING_REVIEW or not given:
                enter_review(change, required.review, actor=actor)
            return
    elif not approvals(recorded, POLICY, terms_hash):
        version = revision["policy_version"]
        await record_decision(
            connection,
            change,
            kind=POLICY,
            step=0,
            verdict=APPROVE,
            terms_hash=terms_hash,
            principal_id=None,
            person=f"policy:{version}",
            role="policy",
        )
    drafted = mode != "live" or revision["decision"].get("draft", False)
    change.put(queue=None, review_by=None, wake_at=None)
    change.move(Event.DRAFT if drafted else Event.APPROVE, actor=actor, revision=change["revision"], terms_hash=terms_hash)


def enter_review(change: Change, review: Review, *, actor: str) -> None:
    """Put a refund on the first rung of its review ladder."""
    change.put(review=asdict(review), assigned_to=None)
    stand_on(change, review, 0)
    change.move(Event.ASK_REVIEW, actor=actor, revision=change["revision"], queue=review.ladder[0].queue, until=change["review_by"])


def stand_on(change: Change, review: Review, index: int, since: datetime | None = None) -> None:
    """Put a refund on a rung, from now on or since a while: its queue, its deadline, and the next instant at which something is due.

    Where the ladder says so, both are counted in business hours, by the calendars that were recorded with the review.
    """
    begun = since or change.at
    deadline, remind = review.decide_by(index, begun), review.remind_at(index, begun)
    change.put(
        rung=index,
        rung_since=begun,
        queue=review.ladder[index].queue,
        assigned_to=None,
        review_by=deadline,
        wake_at=min(remind, deadline),
        reminded=remind >= deadline,
    )
