"""Exchange rates as they are recorded: each a row of its own that nobody edits; the newest that holds at a time is the one that counts then."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from sqlalchemy import bindparam, insert, literal_column, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.clock import Clock
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.money import Money
from refunds.policy import Policy
from refunds.rates import Rate, RecordedRate
from store.changes import enter
from store.sql import Query, Row
from store.tables import exchange_rates, principals

_NEWEST = (exchange_rates.c.effective_at.desc(), exchange_rates.c.id.desc())
_HELD = select(exchange_rates).where(
    exchange_rates.c.base == bindparam("base"),
    exchange_rates.c.currency == bindparam("currency"),
    exchange_rates.c.effective_at <= bindparam("at"),
)
_AT = Query(_HELD.order_by(*_NEWEST).limit(literal_column("1")))
_KNOWN_AT = Query(_HELD.where(exchange_rates.c.recorded_at <= bindparam("at")).order_by(*_NEWEST).limit(literal_column("1")))


async def rate_at(connection: AsyncConnection, *, base: str, currency: str, at: datetime) -> RecordedRate | None:
    """The rate of a currency in the base currency that held at a time, of those recorded by then; ``None`` without one.

    What is recorded later with a time that has passed changes no worth of before, so no limit comes out looser (or tighter) by dating a rate back.
    """
    row = await _KNOWN_AT.first(connection, base=base, currency=currency, at=at)
    return None if row is None else _recorded(row)


def _recorded(row: Row) -> RecordedRate:
    return RecordedRate(row["id"], Rate(row["base"], row["currency"], row["rate"]), row["effective_at"])


@dataclass(frozen=True, slots=True)
class Worth:
    """What something counts as in the base currency: ``amount`` in its API unit, ``None`` when no rate says; ``rate`` is the one it was counted by, if any."""

    base: str | None
    amount: int | None
    rate: RecordedRate | None = None

    @classmethod
    def of(cls, money: Money, base: str | None, rate: RecordedRate | None) -> Self:
        """Count an amount. In the base currency itself it is what it is; without a base currency it is unknown."""
        if base is None or money.currency == base:
            return cls(base, money.amount if base is not None else None)
        if rate is None or money.amount < 0:
            return cls(base, None, rate)
        return cls(base, rate.rate.worth(money).amount, rate)


async def worth(connection: AsyncConnection, policy: Policy, money: Money, at: datetime) -> Worth:
    """What an amount counts as at a time under a policy. A rate that is too old is given with it: the policy's check says so to a person."""
    base = policy.base
    rate = None
    if base is not None and base != money.currency:
        rate = await rate_at(connection, base=base, currency=money.currency, at=at)
    return Worth.of(money, base, rate)


async def record(
    connection: AsyncConnection, clock: Clock, *, rate: Rate, effective_at: datetime | None, source: str, principal_id: str
) -> tuple[Row, Row | None]:
    """Record a rate, from now on or from a time that has passed; returns it and the one that held until then.

    The same rate, source and time again is the same row. Raises ``INVALID_FIELD`` for a time to come: a rate that holds says what was true.
    """
    now = clock.now()
    if effective_at is not None and effective_at > now:
        raise RefundError(Code.INVALID_FIELD, "A rate holds from now on, or from a time that has passed.", field="effective_at")
    at = effective_at or now
    before = await _AT.first(connection, base=rate.base, currency=rate.currency, at=at)
    if before is not None and (before["rate"], before["source"], before["effective_at"]) == (rate.text, source, at):
        return await _shown(connection, before["id"]), None
    new = {
        "id": new_id(Prefix.RATE),
        "base": rate.base,
        "currency": rate.currency,
        "rate": rate.text,
        "effective_at": at,
        "source": source,
        "recorded_by": principal_id,
        "recorded_at": now,
    }
    await connection.execute(insert(exchange_rates).values(new))
    entered = {name: new[name] for name in ("base", "currency", "rate", "effective_at", "source")}
    await enter(connection, "rate_recorded", now, actor=principal_id, rate_id=new["id"], **entered)
    return await _shown(connection, new["id"]), None if before is None else await _shown(connection, before["id"])


async def held(connection: AsyncConnection, base: str, at: datetime) -> dict[str, RecordedRate]:
    """The rate of each currency in the base currency that holds at a time."""
    holds = (exchange_rates.c.base == base, exchange_rates.c.effective_at <= at)
    query = select(exchange_rates).where(*holds).ext(distinct_on(exchange_rates.c.currency)).order_by(exchange_rates.c.currency, *_NEWEST)
    return {row["currency"]: _recorded(row) for row in (await connection.execute(query)).mappings()}


_SHOWN = select(exchange_rates, principals.c.handle, principals.c.name).join(principals, principals.c.id == exchange_rates.c.recorded_by)


async def _shown(connection: AsyncConnection, rate_id: str) -> Row:
    return (await connection.execute(_SHOWN.where(exchange_rates.c.id == rate_id))).mappings().one()


async def listed(
    connection: AsyncConnection, *, base: str | None, currency: str | None, history: bool, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Row]:
    """Recorded rates, newest first: of each pair of currencies the one that holds, or with ``history`` all, from behind ``after`` on."""
    query = _SHOWN.order_by(*_NEWEST).limit(limit)
    if base is not None:
        query = query.where(exchange_rates.c.base == base)
    if currency is not None:
        query = query.where(exchange_rates.c.currency == currency)
    if not history:
        newest: Any = (
            select(exchange_rates.c.id)
            .ext(distinct_on(exchange_rates.c.base, exchange_rates.c.currency))
            .order_by(exchange_rates.c.base, exchange_rates.c.currency, *_NEWEST)
        )
        query = query.where(exchange_rates.c.id.in_(newest))
    if after is not None:
        before_it = (exchange_rates.c.effective_at < after[0]) | (
            (exchange_rates.c.effective_at == after[0]) & (exchange_rates.c.id < after[1])
        )
        query = query.where(before_it)
    return (await connection.execute(query)).mappings().all()
