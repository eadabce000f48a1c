"""Breakers in the database: what was seen of each scope, the state of each breaker, and the halt by which an open one holds what is approved.

An open breaker is a halt of its scope with the code ``BREAKER_OPEN``, so it holds through the same brakes as a stop. While it is half-open the halt is lifted and
``store/sending.py`` lets a set number through in an hour. The ``refunds`` role judges them; it moves no money. An operator closes one by resuming its scope.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.breaker import HOUR, Breaking, Seen, Standing, Step, counted_from, step
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.people import Actor, PrincipalKind
from refunds.policy import Policy
from refunds.policy.breakers import BreakerRule
from store import controls, halts, policies
from store.changes import SYSTEM, enter, tell
from store.db import Database
from store.limits import by_newest_rate, rate_words
from store.sql import Query, Row
from store.tables import breakers

_GROUPS = {
    "everything": ("'everything'", "true"),
    "agents": ("'agents'", "u.by_agent"),
    "each_agent": ("'agent:' || u.agent_id", "u.agent_id IS NOT NULL"),
    "each_processor": ("'processor:' || u.processor", "u.processor <> 'manual'"),
}
"""How the uses of a rule's scopes are told apart, and which of them there are."""
_EACH = {"each_agent": halts.AGENT, "each_processor": halts.PROCESSOR}
"""How the names of a rule's scopes begin where it has one for each."""

_FIRST = dict.fromkeys(_GROUPS, "(SELECT min(f.taken_at) FROM limit_uses f WHERE f.stage = 'sent')")
_FIRST["each_agent"] = (
    "(SELECT min(f.taken_at) FROM limit_uses f WHERE f.stage = 'sent' AND f.agent_id = substr(s.scope, length('agent:') + 1))"
)
"""When the first refund was sent, from when on there are hours to compare the last one with: for each agent since it began."""

_SEEN = {
    of: Query(
        text(
            f"""
    SELECT s.scope, count(*) FILTER (WHERE s.recent) AS volume, coalesce(sum(s.worth) FILTER (WHERE s.recent), 0) AS amount,
           count(*) FILTER (WHERE s.recent AND s.status = 'failed') AS failed,
           count(*) FILTER (WHERE s.recent AND s.status = 'parked' AND s.code IS DISTINCT FROM 'MANUAL_PART') AS parked,
           count(*) FILTER (WHERE s.before) AS usual_volume, coalesce(sum(s.worth) FILTER (WHERE s.before), 0) AS usual_amount,
           greatest(0, extract(epoch FROM CAST(:hour_ago AS timestamptz) - greatest(CAST(:oldest AS timestamptz), {_FIRST[of]}))) AS usual_s
      FROM (SELECT {scope} AS scope, r.status, r.code,
                   u.taken_at > coalesce(since.at, :hour_ago) AS recent, u.taken_at <= :hour_ago AS before,
                   coalesce(CASE WHEN u.currency = CAST(:base AS text) THEN u.amount WHEN u.base = CAST(:base AS text) THEN u.worth END,
                            {by_newest_rate("u")}) AS worth
              FROM limit_uses u
              JOIN refunds r ON r.id = u.refund_id
              LEFT JOIN (SELECT key AS scope, CAST(value AS timestamptz) AS at FROM jsonb_each_text(CAST(:since AS jsonb))) since
                     ON since.scope = {scope}
             WHERE u.stage = 'sent' AND u.taken_at > :oldest AND {which}
               AND (u.given_back_at IS NULL OR r.status IN ('failed', 'released'))) s
     GROUP BY s.scope
    """
        )
    )
    for of, (scope, which) in _GROUPS.items()
}
_OPEN = select(breakers).where(breakers.c.closed_at.is_(None))
_LAST = Query(text("SELECT name, scope, max(closed_at) AS at FROM breakers WHERE closed_at > :hour_ago GROUP BY name, scope"))
_INSERT = Query(insert(breakers))
_MOVE = Query(
    update(breakers)
    .where(breakers.c.id == bindparam("breaker"))
    .values(
        {name: bindparam(name, type_=breakers.c[name].type) for name in ("state", "since", "cool_until", "reason", "figures", "per_hour")}
    )
)
_CLOSE = (
    update(breakers)
    .where(breakers.c.closed_at.is_(None))
    .values(state=Breaking.CLOSED.value, since=bindparam("at"), closed_at=bindparam("at"), closed_reason=bindparam("why"))
)


@dataclass(frozen=True, slots=True)
class Moved:
    """What happened to one breaker."""

    name: str
    scope: str
    to: Breaking
    why: str


async def judge(database: Database) -> list[Moved]:
    """Judge every breaker of the policy in force and let happen what is due; returns what did. Safe to call at any time, by several at once.

    It looks first, without waiting for anybody. Only when something is due does it take the stop's lock, look again, and act: so from the moment it has
    committed no attempt is opened in an open breaker's scope.
    """
    now = database.clock.now()
    async with database.read() as connection:
        policy = (await policies.in_force(connection, now)).policy
        if not await _due(connection, policy, now):
            return []
    async with database.begin() as connection:
        await controls.lock_exclusively(connection)
        return [await _move(connection, policy, now, *due) for due in await _due(connection, policy, now)]


_Due = tuple[BreakerRule | None, str, Row | None, Step, Seen]


async def _due(connection: AsyncConnection, policy: Policy, now: datetime) -> list[_Due]:
    """What is due: each with its rule, its scope, the row of one that is not closed, what happens and what was seen."""
    kept = {(row["name"], row["scope"]): row for row in (await connection.execute(_OPEN)).mappings()}
    closed = {(row["name"], row["scope"]): row["at"] for row in await _LAST.all(connection, hour_ago=now - HOUR)}
    due: list[_Due] = []
    for rule in policy.breakers:
        mine = {scope: row for (name, scope), row in kept.items() if name == rule.name and _is_of(scope, rule)}
        stand = {scope: Standing(Breaking(row["state"]), row["since"], row["cool_until"]) for scope, row in mine.items()}
        stand |= {scope: Standing(since=at) for (name, scope), at in closed.items() if name == rule.name and scope not in stand}
        seen = await _seen(connection, policy, rule, now, {scope: counted_from(one, now) for scope, one in stand.items()})
        for scope in sorted({*seen, *mine}):
            one, found = stand.get(scope, Standing()), seen.get(scope, Seen())
            if (next_ := step(rule, one, found, now, policy.base)) is not None:
                due.append((rule, scope, mine.get(scope), next_, found))
    known = {rule.name: rule for rule in policy.breakers}
    gone = Step(Breaking.CLOSED, "the policy in force has no such breaker")
    due += [
        (None, scope, row, gone, Seen())
        for (name, scope), row in sorted(kept.items())
        if name not in known or not _is_of(scope, known[name])
    ]
    return due


def _is_of(scope: str, rule: BreakerRule) -> bool:
    """Whether a scope is one of the rule's: the policy may have changed what a breaker of this name is for."""
    begins = _EACH.get(rule.scope)
    return scope == rule.scope if begins is None else scope.startswith(begins)


async def _seen(
    connection: AsyncConnection, policy: Policy, rule: BreakerRule, now: datetime, since: Mapping[str, datetime]
) -> dict[str, Seen]:
    words = ", ".join(f'"{scope}": "{at.isoformat()}"' for scope, at in since.items())
    hour_ago = now - HOUR
    rows = await _SEEN[rule.scope].all(
        connection, hour_ago=hour_ago, oldest=hour_ago - timedelta(seconds=rule.usual_over), since=f"{{{words}}}", **rate_words(policy, now)
    )
    return {row["scope"]: Seen(**{name: int(row[name]) for name in Seen.__dataclass_fields__}) for row in rows}


async def _move(
    connection: AsyncConnection,
    policy: Policy,
    now: datetime,
    rule: BreakerRule | None,
    scope: str,
    row: Row | None,
    next_: Step,
    seen: Seen,
) -> Moved:
    name = row["name"] if rule is None and row is not None else rule.name if rule is not None else ""
    figures = {field: getattr(seen, field) for field in Seen.__dataclass_fields__} | {"base": policy.base}
    breaker = row["id"] if row is not None else new_id(Prefix.BREAKER)
    about = {"breaker": breaker, "name": name, "scope": scope, "why": next_.why}
    if rule is not None and next_.to is not Breaking.CLOSED:
        cool_until = now + timedelta(seconds=rule.cool_down) if next_.to is Breaking.OPEN or row is None else row["cool_until"]
        values = {"state": next_.to.value, "since": now, "reason": next_.why, "figures": figures, "per_hour": rule.half_open_per_hour}
        values |= {"cool_until": cool_until}
        if row is None:
            nobody = dict.fromkeys(("closed_at", "closed_by", "closed_reason"))
            await _INSERT.do(connection, id=breaker, name=name, scope=scope, opened_at=now, **nobody, **values)
        else:
            await _MOVE.do(connection, breaker=breaker, **values)
    else:
        await connection.execute(_CLOSE.where(breakers.c.id == breaker), {"at": now, "why": next_.why})
    if next_.to is Breaking.OPEN:
        await halts.open_scope(connection, now, scope=scope, code=Code.BREAKER_OPEN, reason=f"breaker {name}: {next_.why}")
    elif not await _another_is_open(connection, scope, besides=breaker):
        await halts.lift_own(connection, now, scope=scope, code=Code.BREAKER_OPEN, reason=f"breaker {name}: {next_.why}")
    await enter(connection, f"breaker_{next_.to.value}", now, actor=SYSTEM, **about, figures=figures)
    await tell(connection, f"breaker_{next_.to.value}", now, **about)
    return Moved(name, scope, next_.to, next_.why)


async def _another_is_open(connection: AsyncConnection, scope: str, *, besides: str) -> bool:
    others = (
        select(breakers.c.id).where(breakers.c.scope == scope, breakers.c.state == Breaking.OPEN.value, breakers.c.id != besides).limit(1)
    )
    return (await connection.execute(others)).first() is not None


async def close_all(connection: AsyncConnection, now: datetime, *, scope: str, actor: Actor, reason: str) -> int:
    """Close every breaker of exactly this scope, open or half-open, as an operator says, with the reason; returns how many. The caller lifts the halt.

    What was sent before counts no more towards them. Raises ``PERSON_REQUIRED`` when there is one and the actor is no person.
    """
    mine = _OPEN.where(breakers.c.scope == scope)
    if actor.kind is not PrincipalKind.PERSON and (await connection.execute(mine)).first() is not None:
        raise RefundError(Code.PERSON_REQUIRED, "Only a person may close a breaker, never a service or an agent.", scope=scope)
    closing = _CLOSE.values(closed_by=bindparam("by")).where(breakers.c.scope == scope).returning(breakers.c.id, breakers.c.name)
    rows = (await connection.execute(closing, {"at": now, "why": reason[:500], "by": actor.principal_id})).all()
    for row in rows:
        about = {"breaker": row.id, "name": row.name, "scope": scope}
        await enter(connection, "breaker_closed", now, actor=actor.principal_id, **about, why=reason[:500])
        await tell(connection, "breaker_closed", now, **about)
    return len(rows)


async def shown(connection: AsyncConnection, at: datetime) -> Sequence[dict[str, Any]]:
    """Every breaker that is not closed, as the API shows it, the oldest first; how many it lets through is what the policy in force says of it."""
    per_hour = {rule.name: rule.half_open_per_hour for rule in (await policies.in_force(connection, at)).policy.breakers}
    names = ("id", "name", "scope", "state", "since", "reason", "figures", "opened_at", "cool_until", "per_hour")
    rows = (await connection.execute(_OPEN.order_by(breakers.c.opened_at, breakers.c.id))).mappings()
    return [{name: row[name] for name in names} | {"per_hour": per_hour.get(row["name"], row["per_hour"])} for row in rows]


async def by_state(connection: AsyncConnection) -> dict[str, int]:
    """How many breakers are open and half-open, for metrics."""
    rows = (await connection.execute(_OPEN)).mappings().all()
    return {state.value: sum(1 for row in rows if row["state"] == state) for state in (Breaking.OPEN, Breaking.HALF_OPEN)}
