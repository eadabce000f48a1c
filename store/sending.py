"""Whether money may move now: limits over time are taken again right before it does, and a breaker that is half-open lets a few through.

So a month of approvals, or a stop that was lifted, goes out at the pace that is permitted. What does not fit is held, with the limit and when it opens again,
and looks again by itself then.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Integer, bindparam, func, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import rfc3339
from refunds.errors import Code
from refunds.facts import LimitFacts
from refunds.limits import Stage, first_refused, shown, state, why
from refunds.money import Money
from refunds.policy import Policy
from refunds.policy.limits import LimitRule, standing
from refunds.status import Status
from refunds.terms import OperationKind
from store import limits, pacing, rates
from store.changes import Change
from store.sql import Query, Row, pipelined
from store.tables import refunds

_HALF_OPEN = Query(text("SELECT 1 FROM breakers WHERE state = 'half_open' LIMIT 1"))
_HALF_OPEN_LOCK = Query(text(f"SELECT CAST(pg_advisory_xact_lock({0x425245414B}) AS text) FROM breakers WHERE state = 'half_open' LIMIT 1"))
_LET_THROUGH = Query(
    text(
        """
    SELECT b.name, b.scope, h.per_hour, t.used, t.oldest
      FROM breakers b
      CROSS JOIN LATERAL (SELECT coalesce(CAST(CAST(:per_hour AS jsonb) ->> b.name AS integer), b.per_hour) AS per_hour) h
      CROSS JOIN LATERAL (
        SELECT count(*) AS used, min(u.taken_at) AS oldest FROM limit_uses u
         WHERE u.stage = 'sent' AND u.refund_id <> :refund AND u.taken_at >= b.since AND u.taken_at > :hour_ago
           AND (u.given_back_at IS NULL
                OR EXISTS (SELECT FROM refunds r WHERE r.id = u.refund_id AND r.status IN ('failed', 'released')))
           AND CASE WHEN b.scope = 'everything' THEN true WHEN b.scope = 'agents' THEN u.by_agent
                    WHEN b.scope LIKE 'agent:%' THEN b.scope = 'agent:' || u.agent_id ELSE b.scope = 'processor:' || u.processor END
      ) t
     WHERE b.state = 'half_open' AND t.used >= h.per_hour
       AND CASE WHEN b.scope = 'everything' THEN true WHEN b.scope = 'agents' THEN CAST(:by_agent AS boolean)
                WHEN b.scope LIKE 'agent:%' THEN b.scope = 'agent:' || CAST(:agent AS text) ELSE b.scope = 'processor:' || CAST(:processor AS text) END
     ORDER BY t.oldest DESC, b.id
     LIMIT 1
    """
    )
)
"""A half-open breaker that covers a refund and has let through as many as it may in an hour: also those that were refused, which is what it may have opened for.
How many the policy in force says now."""

_AHEAD = Query(
    select(func.count().cast(Integer)).where(
        refunds.c.final_at.is_(None),
        refunds.c.status == literal(Status.HELD.value),
        refunds.c.code == literal(Code.LIMIT_EXCEEDED.value),
        (refunds.c.status_since < bindparam("since"))
        | ((refunds.c.status_since == bindparam("since")) & (refunds.c.id < bindparam("refund"))),
    )
)


@dataclass(frozen=True, slots=True)
class Room:
    """Whether there is room for a refund to be sent now: ``refusal`` says why not, ``looks_at`` when to look again, and ``uses`` is what it takes if there is."""

    uses: Mapping[str, Any]
    refusal: tuple[Code, str] | None = None
    looks_at: datetime | None = None
    uncounted: bool = False

    async def take(self, connection: AsyncConnection, change: Change) -> None:
        """Count it. In a pipeline, or outside of one."""
        await limits.take(connection, change.row, Stage.SENT, **self.uses)
        if self.uncounted and self.uses["worth"] is not None:
            await limits.count(connection, change.id, base=self.uses["base"], worth=self.uses["worth"])

    def wait(self, change: Change) -> None:
        """Have the held refund look again when there may be room."""
        if self.looks_at is not None:
            change.put(wake_at=self.looks_at)


async def room(connection: AsyncConnection, change: Change, revision: Row, policy: Policy, *, processor: str, locking: bool) -> Room:
    """Whether a refund may be sent now, under the limits of the policy in force now. ``locking`` them, last of all locks, until the transaction ends."""
    subject, at = limits.Subject.of(change.row), change.at
    uses = await _uses(connection, change, revision, policy, processor)
    late = _not_counted_yet(policy, subject, revision)
    async with pipelined(connection):
        first = await limits.ask(connection, policy, subject, Stage.RESERVED, at, besides=change.id, locking=locking, only=late)
        asked = await limits.ask(connection, policy, subject, Stage.SENT, at, besides=change.id, locking=locking)
        half_open = await (_HALF_OPEN_LOCK if locking else _HALF_OPEN).ask(connection)
    if (refusal := _fits_late(policy, late, await limits.answered(connection, first, uses["worth"]))) is not None:
        return Room(uses, refusal, at if refusal[0] is Code.TERMS_EXPIRED else at + timedelta(seconds=pacing.LIMITED_S))
    found = await limits.answered(connection, asked, uses["worth"])
    by_name = {limit.name: limit for limit in asked.limits}
    states = [state(by_name[facts.name], facts) for facts in found]
    if (refused := first_refused(states)) is not None:
        limit = by_name[refused.name]
        looks_at = await _turn(connection, change, limit, refused.opens_at, refused.own)
        return Room(uses, (Code.LIMIT_EXCEEDED, why(limit, refused, policy.base)), looks_at)
    if await half_open.first() and (breaker := await _full(connection, change, subject, policy, processor)) is not None:
        opens_at = breaker["oldest"] + timedelta(hours=1)
        words = f"breaker {breaker['name']} is half-open: {shown(breaker['per_hour'], None)} in one hour went; the next may go at {rfc3339(opens_at)}"
        return Room(uses, (Code.BREAKER_OPEN, words), min(opens_at, at + timedelta(seconds=pacing.LIMITED_S)))
    if locking:
        await limits.tell_of_warnings(
            connection, change, policy, [standing(by_name[one.name], one, policy.base) for one in states if one.warns]
        )
    return Room(uses, uncounted=bool(late))


async def _full(connection: AsyncConnection, change: Change, subject: limits.Subject, policy: Policy, processor: str) -> Row | None:
    """The half-open breaker that lets nothing more through just now, or ``None``."""
    return await _LET_THROUGH.first(
        connection,
        refund=change.id,
        hour_ago=change.at - timedelta(hours=1),
        by_agent=subject.by_agent,
        agent=subject.agent,
        processor=processor,
        per_hour=json.dumps({rule.name: rule.half_open_per_hour for rule in policy.breakers}),
    )


def _not_counted_yet(policy: Policy, subject: limits.Subject, revision: Row) -> tuple[LimitRule, ...]:
    """The limits on amounts that were to be taken when the terms were reserved, where nobody could tell then what they count as."""
    recorded = revision["facts"].get("base") or {}
    if policy.base is None or revision["currency"] == policy.base or recorded.get("amount") is not None:
        return ()
    return tuple(limit for limit in limits.concerning(policy, subject, Stage.RESERVED) if limit.counts_money)


def _fits_late(policy: Policy, late: Sequence[LimitRule], found: Sequence[LimitFacts]) -> tuple[Code, str] | None:
    """Why terms that nobody could count when they were reserved may not go now, or ``None``: still nobody can, or what denies has no room for them."""
    by_name = {limit.name: limit for limit in late}
    for facts in found:
        limit = by_name[facts.name]
        now = state(limit, facts)
        if now.is_exceeded and limit.when_exceeded == "deny":
            return Code.TERMS_EXPIRED, f"{why(limit, now, policy.base)}; the terms are judged again"
        if not (now.fits or now.is_exceeded):
            return Code.LIMIT_EXCEEDED, why(limit, now, policy.base)
    return None


def _moves(revision: Row) -> Money:
    """What sending it moves: nothing, where an authorisation is released."""
    released = (revision["terms"] or {}).get("operation") == OperationKind.RELEASE.value
    return Money(0 if released else revision["amount"], revision["currency"])


async def worth_of(connection: AsyncConnection, policy: Policy, revision: Row, at: datetime) -> int | None:
    """What sending a revision (its terms, facts, amount and currency) counts as: at the rate recorded with its terms, if that was into the same base currency;
    where there was none, at the one of now; ``None`` while there is none."""
    recorded = (revision["facts"] or {}).get("base") or {}
    money = _moves(revision)
    worth = recorded.get("amount") if recorded.get("currency") == policy.base else None
    return 0 if not money.amount else worth if worth is not None else (await rates.worth(connection, policy, money, at)).amount


async def _uses(connection: AsyncConnection, change: Change, revision: Row, policy: Policy, processor: str) -> dict[str, Any]:
    """What sending it takes."""
    money = _moves(revision)
    return {
        "revision": change["revision"],
        "processor": processor,
        "amount": money.amount,
        "currency": money.currency,
        "base": policy.base,
        "worth": await worth_of(connection, policy, revision, change.at),
        "at": change.at,
    }


async def _turn(connection: AsyncConnection, change: Change, limit: LimitRule, opens_at: datetime | None, own: int | None) -> datetime:
    """When a refund that waits for a limit looks again: when the limit opens, and later for those behind others that wait longer.

    Never later than :data:`store.pacing.LIMITED_S`: an operator may have raised the limit meanwhile.
    """
    soonest, latest = change.at + timedelta(seconds=1), change.at + timedelta(seconds=pacing.LIMITED_S)
    if opens_at is None or opens_at >= latest:
        return latest
    ahead = 0
    if change.status is Status.HELD:
        ahead = await _AHEAD.value(connection, since=change["status_since"], refund=change.id)
    turns = ahead * (own or 1) // limit.at_most if limit.counts_money else ahead // limit.at_most
    length = limit.over.next_begins(opens_at) - opens_at
    return max(soonest, min(latest, opens_at + turns * length))
