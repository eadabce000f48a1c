"""Silence: reminders, escalation and expiry (field report 57). Silence never approves.

Judged lazily under the refund's lock, from the stored deadlines and the time taken after locking: by the workflow when its timer fires, and by the API
before it takes a decision, so that a decision and an expiry that race have exactly one order.
"""

from datetime import timedelta

from refunds.errors import Code
from refunds.settings import Settings
from refunds.status import Event, Status
from store.changes import Change
from store.requirements import review_from, stand_on


def climb(change: Change) -> None:
    """Do what is due by now for a refund that waits for consent or review: remind, escalate, expire."""
    if change.status is Status.AWAITING_CONSENT and change.at >= change["review_by"]:
        change.put(detail="the customer did not answer in time")
        change.move(Event.EXPIRE, code=Code.CONSENT_EXPIRED, revision=change["revision"])
    if change.status is not Status.AWAITING_REVIEW:
        return
    ladder = review_from(change["review"]).ladder
    if change.at < change["review_by"]:
        if not change["reminded"] and change["wake_at"] <= change.at:
            change.put(reminded=True, wake_at=change["review_by"])
            change.note("reminded", queue=change["queue"], rung=change["rung"])
            change.notice("reminder", queue=change["queue"])
        return
    if change["rung"] + 1 < len(ladder):
        before = change["queue"]
        stand_on(change, ladder, change["rung"] + 1)
        change.note("escalated", queue=change["queue"], rung=change["rung"], until=change["review_by"], **{"from": before})
        change.notice("escalation", queue=change["queue"])
        return
    change.put(detail="nobody decided in time")
    change.move(Event.EXPIRE, code=Code.REVIEW_EXPIRED, revision=change["revision"])
    change.notice("expired")


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
