"""Silence: reminders, escalation and expiry (field report 57). Silence never approves.

Judged lazily under the refund's lock, from the stored deadlines and the time taken after locking: by the workflow when its timer fires, and by the API
before it takes a decision, so that a decision and an expiry that race have exactly one order.

A group is approved as a whole, so the time of a part that waits for review does not run while another part has not come so far (docs/groups.md).
"""

from datetime import datetime, timedelta

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code
from refunds.groups import BEFORE_REVIEW
from refunds.settings import Settings
from refunds.status import Event, Status
from store.changes import Change
from store.requirements import REVIEW, review_from, stand_on
from store.sql import Query
from store.tables import decisions, refunds, revisions

_SAID = (
    select(func.max(decisions.c.recorded_at))
    .where(
        decisions.c.refund_id == refunds.c.id,
        decisions.c.revision == refunds.c.revision,
        decisions.c.kind != literal_column(f"'{REVIEW}'"),
    )
    .scalar_subquery()
)
_GROUP = Query(
    select(refunds.c.status, refunds.c.status_since, func.greatest(revisions.c.created_at, _SAID).label("passed"))
    .outerjoin(revisions, (revisions.c.refund_id == refunds.c.id) & (revisions.c.revision == refunds.c.revision))
    .where(refunds.c.group_id == bindparam("group"), refunds.c.id != bindparam("refund"))
)


async def climb(connection: AsyncConnection, change: Change) -> None:
    """Do what is due by now for a refund that waits for consent or review: remind, escalate, expire. Its time for a review is given anew where its group
    could not be approved."""
    if change.status is Status.AWAITING_CONSENT and change.at >= change["review_by"]:
        change.put(detail="the customer did not answer in time")
        change.move(Event.EXPIRE, code=Code.CONSENT_EXPIRED, revision=change["revision"])
    if change.status is not Status.AWAITING_REVIEW:
        return
    review = review_from(change["review"])
    if change.at < change["review_by"]:
        if not change["reminded"] and change["wake_at"] <= change.at:
            change.put(reminded=True, wake_at=change["review_by"])
            change.note("reminded", queue=change["queue"], rung=change["rung"])
            change.notice("reminder", queue=change["queue"])
        return
    since = await _decidable_since(connection, change)
    if since > change["rung_since"] and review.decide_by(change["rung"], since) > change.at:
        kept = {name: change[name] for name in ("queue", "assigned_to")}
        stand_on(change, review, change["rung"], since)
        change.put(**kept)
        change.note("review_time_anew", queue=change["queue"], rung=change["rung"], until=change["review_by"])
        return
    if change["rung"] + 1 < len(review.ladder):
        before = change["queue"]
        stand_on(change, review, change["rung"] + 1)
        change.note("escalated", queue=change["queue"], rung=change["rung"], until=change["review_by"], **{"from": before})
        change.notice("escalation", queue=change["queue"])
        return
    change.put(detail="nobody decided in time")
    change.move(Event.EXPIRE, code=Code.REVIEW_EXPIRED, revision=change["revision"])
    change.notice("expired")


async def _decidable_since(connection: AsyncConnection, change: Change) -> datetime:
    """Since when the last other part of its group was quoted and agreed to, or ended without: now, while one has not come so far."""
    since: datetime = change["rung_since"]
    if change["group_id"] is None:
        return since
    for row in await _GROUP.all(connection, group=change["group_id"], refund=change.id):
        if row["status"] in BEFORE_REVIEW:
            return change.at
        passed: datetime | None = None if row["status"] in (Status.WITHDRAWN, Status.EXPIRED) else row["passed"]
        since = max(since, passed or row["status_since"])
    return since


def remind_of_holding(change: Change, settings: Settings) -> None:
    """A held refund is looked at again and again; its owners are told of its age once in a while."""
    told = max(change["rung_since"] or change["status_since"], change["status_since"])
    if change.at - told >= timedelta(seconds=settings.parked_escalate_s):
        change.put(rung_since=change.at)
        change.note("reminded", status=change.status.value)
        change.notice("still_held")
    change.put(wake_at=change.at + timedelta(seconds=settings.held_recheck_s))


def remind_of_waiting(change: Change, settings: Settings) -> None:
    """A parked refund has an age: tell its owners again, and again after a while."""
    if change["wake_at"] is not None and change.at >= change["wake_at"]:
        change.put(wake_at=change.at + timedelta(seconds=settings.parked_escalate_s))
        change.note("reminded", status=change.status.value)
        change.notice("still_" + change.status.value)
