"""Limits over time in the database: what is used, and taking it, exactly, however many ask at once (promise P5).

What one refund uses is one row for when its terms were reserved and one for when its money moved, keyed by the refund: replaying either counts nothing twice
(field report 52), and a revision takes the place of what it replaces in one step. Whether a row counts follows the refund's status, written in the same
statement (``store/changes.py``). What is used is the sum of the rows in the window, read after the limit's lock: the last lock of the order.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Self

from sqlalchemy import ARRAY, DateTime, Text, and_, bindparam, case, func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.erasure import BY_AGENT
from refunds.facts import LimitFacts, LimitStanding
from refunds.limits import Stage, Who, reopens, state
from refunds.money import CURRENCIES
from refunds.policy import Policy
from refunds.policy.limits import LimitRule, standing
from refunds.processor import RefundState
from store.changes import Change
from store.sql import Answer, Query, pipelined
from store.tables import limit_uses, limit_warnings

_LOCKS = 0x4C_494D_4954  # any fixed number; this one spells LIMIT
_KEYS = func.unnest(bindparam("keys", type_=ARRAY(Text))).column_valued("key")
_HASHES = select(func.hashtextextended(_KEYS, literal_column(str(_LOCKS))).label("hash")).distinct().order_by("hash").offset(0).subquery()
LOCK = Query(select(func.count(func.pg_advisory_xact_lock(_HASHES.c.hash).cast(Text))))
"""Takes the locks of several limits, always in the same order: who comes second waits, and then reads what the first has taken."""

_ROW = tuple(column.name for column in limit_uses.c)
_TAKEN = insert(limit_uses).values({name: bindparam(name, type_=limit_uses.c[name].type) for name in _ROW})
_FRESH: dict[str, Any] = {name: _TAKEN.excluded[name] for name in _ROW if name not in ("refund_id", "stage", "taken_at")}
_KEPT = and_(
    limit_uses.c.stage == Stage.RESERVED.value,
    limit_uses.c.given_back_at.is_(None),
    limit_uses.c.base == _TAKEN.excluded.base,
    limit_uses.c.worth >= _TAKEN.excluded.worth,
)
_FRESH["taken_at"] = case((_KEPT, limit_uses.c.taken_at), else_=_TAKEN.excluded.taken_at)
"""Terms that take no more than those they replace keep the place that those had: they were in time."""
_TAKE = Query(
    _TAKEN.on_conflict_do_update(
        index_elements=["refund_id", "stage"],
        set_=_FRESH,
        # The same terms again take nothing again; money that did not move and is to move now, moves now.
        where=(limit_uses.c.revision < _TAKEN.excluded.revision)
        | ((limit_uses.c.stage == Stage.SENT.value) & limit_uses.c.given_back_at.is_not(None)),
    )
)
_FAILED = ", ".join(f"'{state.value}'" for state in RefundState if not state.counts)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a refund counts for. ``session`` is a hash of what the agent's system calls it."""

    customer: str
    agent: str | None
    by_agent: bool
    session: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read it from a refund's row."""
        details = row["details"]
        session = details.get("agent_session_id")
        hashed = None if session is None else hashlib.sha256(f"{row['integration']}:{session}".encode()).hexdigest()[:32]
        by_agent = row["agent_id"] is not None or any(details.get(name) is not None for name in BY_AGENT)
        return cls(row["customer_id"], row["agent_id"], by_agent, hashed)

    def key(self, who: Who) -> str | None:
        """What names those that are counted together with it; ``None`` where a limit does not concern it."""
        match who:
            case Who.CUSTOMER:
                return self.customer
            case Who.AGENT:
                return self.agent
            case Who.AGENTS:
                return "" if self.by_agent else None
            case Who.SESSION:
                return self.session
            case Who.EVERYONE:
                return ""
            case Who.REVIEWER:
                return None


_WHOSE = {
    Who.CUSTOMER: "u.customer_id = :customer",
    Who.AGENT: "u.agent_id = :agent",
    Who.AGENTS: "u.by_agent",
    Who.SESSION: "u.session = :session",
    Who.EVERYONE: "true",
}
_OUTSIDE = {
    Who.CUSTOMER: "AND p.payment_id IN (SELECT y.id FROM payments y JOIN orders o ON o.id = y.order_id WHERE o.customer_id = :customer)",
    Who.EVERYONE: "",
}
"""Who else may have returned money without us: anybody with the processor's dashboard. It counts for the customer and for everyone together."""

_RATE = """
    (SELECT ceil(p.amount * CAST(e.rate AS numeric) * CAST(CAST(:scale AS jsonb) ->> p.currency AS numeric)) FROM exchange_rates e
      WHERE e.base = CAST(:base AS text) AND e.currency = p.currency AND e.recorded_at <= {made} AND e.effective_at <= {made}
        AND e.effective_at >= {made} - CAST(:youth AS interval)
      ORDER BY e.effective_at DESC, e.id DESC LIMIT 1)
"""
_MADE = "coalesce(p.created_at, p.first_seen_at)"


def by_newest_rate(row: str) -> str:
    """What an amount of which nobody recorded what it counts as counts as by the newest rate there is by now, if one is young: so a missing rate that is
    recorded late is the remedy that it is said to be. In SQL, for a row with ``amount`` and ``currency``; takes what :func:`rate_words` gives."""
    return f"""
    (SELECT ceil({row}.amount * CAST(e.rate AS numeric) * CAST(CAST(:scale AS jsonb) ->> {row}.currency AS numeric)) FROM exchange_rates e
      WHERE e.base = CAST(:base AS text) AND e.currency = {row}.currency
        AND e.effective_at BETWEEN CAST(:now AS timestamptz) - CAST(:youth AS interval) AND CAST(:now AS timestamptz)
      ORDER BY e.effective_at DESC, e.id DESC LIMIT 1)
    """


def rate_words(policy: Policy, at: datetime) -> dict[str, Any]:
    """The parameters by which a statement works out what amounts count as."""
    return {"base": policy.base, "scale": _scales(policy.base), "youth": timedelta(days=policy.rates_at_most_days_old), "now": at}


_UNMOVED = """
    CASE WHEN NOT EXISTS (SELECT FROM limit_uses m WHERE m.refund_id = u.refund_id AND m.stage = 'sent' AND m.given_back_at IS NULL) THEN 0 END
"""
"""What terms that nobody can count keep from others while their money has not moved: nothing. Before it moves they have to fit (``store/sending.py``)."""


def _counted(at: int, who: Who, stage: Stage) -> str:
    """The statement that lists what counts towards the limit at a place of the list: when it was taken, and what it counts as in the base currency."""
    uncounted = f", {_UNMOVED}" if stage is Stage.RESERVED else ""
    rows = f"""
        SELECT u.taken_at, coalesce(CASE WHEN u.currency = CAST(:base AS text) THEN u.amount WHEN u.base = CAST(:base AS text) THEN u.worth END,
                                    {by_newest_rate("u")}{uncounted}) AS worth
          FROM limit_uses u
         WHERE u.stage = '{stage.value}' AND u.taken_at >= :since_{at} AND u.given_back_at IS NULL AND u.refund_id <> :refund AND {_WHOSE[who]}
    """
    if who not in _OUTSIDE:
        return rows
    worth = f"CASE WHEN p.currency = CAST(:base AS text) THEN p.amount ELSE coalesce({_RATE.format(made=_MADE)}, {by_newest_rate('p')}) END"
    # Nothing is seen long before it was made; the index is by when it was first seen.
    return f"""{rows}
        UNION ALL
        SELECT {_MADE}, {worth} FROM processor_refunds p
         WHERE p.operation_id IS NULL AND p.first_seen_at >= CAST(:since_{at} AS timestamptz) - interval '1 hour' AND {_MADE} >= :since_{at}
           AND p.state NOT IN ({_FAILED}) {_OUTSIDE[who]}
    """


_HELD = """
    SELECT -1, count(*), coalesce(sum(u.worth) FILTER (WHERE u.base = CAST(:base AS text)), -1), 0 FROM limit_uses u
     WHERE u.refund_id = :refund AND u.stage = 'reserved' AND u.given_back_at IS NULL
"""
"""What earlier terms of the same refund took and still hold; less than nothing where there is none of it."""


@cache
def _sums(limits: tuple[Who, ...], stage: Stage) -> Query:
    """The one statement that adds up all limits of a request."""
    parts = [
        f"SELECT {at} AS place, count(*) AS refunds, coalesce(sum(worth), 0) AS worth, count(*) FILTER (WHERE worth IS NULL) AS uncounted"
        f" FROM ({_counted(at, who, stage)}) counted"
        for at, who in enumerate(limits)
    ]
    if stage is Stage.RESERVED:
        parts.append(_HELD)
    return Query(text(" UNION ALL ".join(parts)))


@cache
def _list(who: Who, stage: Stage) -> Query:
    return Query(text(_counted(0, who, stage)))


@cache
def _scales(base: str | None) -> str:
    """By what an amount in each currency's unit is multiplied, beside the rate, to be in the base currency's unit."""
    if base is None:
        return "{}"
    there = CURRENCIES[base].exponent
    scale = {code: 10 ** (there - kind.exponent) if there >= kind.exponent else None for code, kind in CURRENCIES.items()}
    words = {
        code: str(factor) if factor is not None else f"0.{'1'.rjust(CURRENCIES[code].exponent - there, '0')}"
        for code, factor in scale.items()
    }
    return "{" + ", ".join(f'"{code}": "{factor}"' for code, factor in words.items()) + "}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked about limits in a pipeline, until the answer is there."""

    limits: tuple[LimitRule, ...]
    stage: Stage
    at: datetime
    given: Mapping[str, Any]
    answer: Answer | None


def concerning(policy: Policy, subject: Subject, stage: Stage) -> tuple[LimitRule, ...]:
    """The limits of a policy that are taken at a stage and count this subject."""
    return tuple(limit for limit in policy.limits if limit.is_taken(stage) and subject.key(limit.who) is not None)


async def ask(
    connection: AsyncConnection,
    policy: Policy,
    subject: Subject,
    stage: Stage,
    at: datetime,
    *,
    besides: str,
    locking: bool,
    only: tuple[LimitRule, ...] | None = None,
) -> Asked:
    """Lock the limits that concern a subject, or ``only`` some of those, and ask in one statement what is used of each, without the refund ``besides``. Inside
    a pipeline.

    What only holds later refuses nothing when terms are reserved, so it is not waited for then.
    """
    limits = concerning(policy, subject, stage) if only is None else only
    given = _given(policy, subject, at, besides, limits)
    if not limits:
        return Asked(limits, stage, at, given, None)
    if locking:
        exact = [limit for limit in limits if stage is Stage.SENT or limit.when_exceeded != "hold"]
        keys = sorted({f"{stage}:{limit.who}:{subject.key(limit.who)}" for limit in exact})
        if keys:
            await LOCK.ask(connection, keys=keys)
    return Asked(limits, stage, at, given, await _sums(tuple(limit.who for limit in limits), stage).ask(connection, **given))


def _given(policy: Policy, subject: Subject, at: datetime, besides: str, limits: Sequence[LimitRule]) -> dict[str, Any]:
    given: dict[str, Any] = {"refund": besides} | rate_words(policy, at)
    given |= {"customer": subject.customer, "agent": subject.agent, "session": subject.session}
    return given | {f"since_{at_}": limit.over.begins(at) for at_, limit in enumerate(limits)}


async def answered(connection: AsyncConnection, asked: Asked, worth: int | None) -> tuple[LimitFacts, ...]:
    """What is used of each limit, for a refund that counts as ``worth`` in the base currency, and when one that does not fit opens again."""
    if asked.answer is None:
        return ()
    found: list[LimitFacts] = []
    rows = sorted(await asked.answer.all(), key=lambda row: row["place"])
    held = int(rows.pop(0)["worth"]) if rows[0]["place"] < 0 else -1
    keeps = worth is not None and worth <= held
    for row in rows:
        limit = asked.limits[row["place"]]
        used = int(row["worth"]) if limit.counts_money else row["refunds"]
        own, uncounted = (worth, row["uncounted"]) if limit.counts_money else (1, 0)
        # In time when it was taken; but what is more than the whole limit by now fits nowhere.
        kept = keeps and own is not None and own <= limit.at_most
        facts = LimitFacts(limit.name, used, own, uncounted, kept=kept)
        if own is not None and not state(limit, facts).fits:
            opens_at = await _reopens(connection, asked, limit, own, used, row["place"])
            facts = LimitFacts(limit.name, used, own, uncounted, opens_at)
        found.append(facts)
    return tuple(found)


async def _reopens(connection: AsyncConnection, asked: Asked, limit: LimitRule, own: int, used: int, place: int) -> datetime | None:
    if limit.over.calendar is not None:
        return reopens(limit, asked.at, [(asked.at, used)], own)
    given = dict(asked.given) | {"since_0": asked.given[f"since_{place}"]}
    rows = await _list(limit.who, asked.stage).all(connection, **given)
    counted = [(row["taken_at"], int(row["worth"] or 0) if limit.counts_money else 1) for row in rows]
    return reopens(limit, asked.at, counted, own)


async def take(
    connection: AsyncConnection,
    row: Mapping[str, Any],
    stage: Stage,
    *,
    revision: int,
    processor: str,
    amount: int,
    currency: str,
    base: str | None,
    worth: int | None,
    at: datetime,
) -> None:
    """Count a refund (its ``row``) towards every limit of a stage, in place of what it counted as there before. In a pipeline, or outside of one.

    The same revision again takes nothing again, except to send it anew after what was to be sent did not leave.
    """
    subject = Subject.of(row)
    await _TAKE.ask(
        connection,
        refund_id=row["id"],
        stage=stage.value,
        revision=revision,
        customer_id=subject.customer,
        agent_id=subject.agent,
        by_agent=subject.by_agent,
        session=subject.session,
        processor=processor,
        amount=amount,
        currency=currency,
        base=base,
        worth=worth,
        taken_at=at,
        given_back_at=None,
    )


async def standings_now(
    connection: AsyncConnection, policy: Policy, row: Mapping[str, Any], worth: int | None, at: datetime
) -> list[tuple[Stage, LimitStanding]]:
    """How every limit that concerns a refund stands at an instant, for showing it: nothing is locked, and nothing taken."""
    subject = Subject.of(row)
    async with pipelined(connection):
        asked = [await ask(connection, policy, subject, stage, at, besides=row["id"], locking=False) for stage in Stage]
    shown: list[tuple[Stage, LimitStanding]] = []
    for one in asked:
        by_name = {limit.name: limit for limit in one.limits}
        for facts in await answered(connection, one, worth):
            limit = by_name[facts.name]
            shown.append((one.stage, standing(limit, state(limit, facts), policy.base)))
    return shown


_COUNT = Query(
    update(limit_uses)
    .where(
        limit_uses.c.refund_id == bindparam("refund"),
        limit_uses.c.stage == literal_column(f"'{Stage.RESERVED}'"),
        limit_uses.c.worth.is_(None),
    )
    .values(base=bindparam("base"), worth=bindparam("worth", type_=limit_uses.c.worth.type))
)


async def count(connection: AsyncConnection, refund_id: str, *, base: str | None, worth: int) -> None:
    """Record what terms count as of which nobody could tell when they were reserved. In a pipeline, or outside of one."""
    await _COUNT.ask(connection, refund=refund_id, base=base, worth=worth)


_TOLD = Query(
    select(limit_warnings.c.told_at).where(
        limit_warnings.c.name == bindparam("name"),
        limit_warnings.c.subject == bindparam("subject"),
        limit_warnings.c.told_at >= bindparam("begins"),
    )
)
_TELL = Query(
    insert(limit_warnings)
    .values({name: bindparam(name) for name in ("name", "subject", "told_at")})
    .on_conflict_do_update(
        index_elements=["name", "subject"],
        set_={"told_at": bindparam("told_at", type_=DateTime(timezone=True))},
        where=limit_warnings.c.told_at < bindparam("begins", type_=DateTime(timezone=True)),
    )
)


async def tell_of_warnings(connection: AsyncConnection, change: Change, policy: Policy, standings: Sequence[LimitStanding]) -> None:
    """Tell people of limits of which a set share is used: once for each of whom they count, in each window."""
    by_name = {limit.name: limit for limit in policy.limits}
    for warned in standings:
        if not warned.warns:
            continue
        limit = by_name[warned.name]
        subject = Subject.of(change.row).key(limit.who) or ""
        about = {"name": limit.name, "subject": subject, "begins": limit.over.begins(change.at)}
        if await _TOLD.first(connection, **about) is None and await _TELL.do(connection, told_at=change.at, **about):
            used = warned.used + (warned.own or 0)
            change.notice("limit_warning", limit=limit.name, at_most=limit.at_most, used=used, currency=warned.currency)
