"""Reviewers' own limits: how many refunds, or how much, one person may approve in a window. What they approved counts whatever became of it, and under whichever
account they did."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain

from sqlalchemy import literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.approving import Who
from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.facts import LimitFacts
from refunds.limits import Who as Counted
from refunds.limits import reopens, state, why
from refunds.money import Money
from refunds.people import Actor, PrincipalKind
from refunds.policy.limits import LimitRule
from store import policies, rates
from store.limits import LOCK, by_newest_rate, rate_words
from store.sql import Query, Row, pipelined
from store.tables import principals

_APPROVED = Query(
    text(
        f"""
    SELECT d.recorded_at, coalesce(CASE WHEN v.currency = CAST(:base AS text) THEN v.amount
                                        WHEN v.facts #>> '{{base,currency}}' = CAST(:base AS text) THEN CAST(v.facts #>> '{{base,amount}}' AS numeric) END,
                                   {by_newest_rate("v")}) AS worth
      FROM decisions d
      JOIN revisions v ON v.refund_id = d.refund_id AND v.revision = d.revision
     WHERE d.kind = 'review' AND d.verdict = 'approve' AND (d.principal_id = ANY(:accounts) OR d.on_behalf_of = ANY(:accounts))
       AND d.recorded_at >= :since
     ORDER BY d.recorded_at
    """
    )
)
_PERSONS = Query(
    select(principals.c.id, principals.c.handle, principals.c.name).where(principals.c.kind == literal(PrincipalKind.PERSON.value))
)


async def check_limits(connection: AsyncConnection, at: datetime, *, reviewers: Sequence[Actor], terms: Row) -> None:
    """Raise ``REVIEWER_LIMIT`` when one of the reviewers (who decides, and in whose right), with whoever stood in for them, has approved as much as one may:
    naming the limit, what is used and left, and when it opens again.

    ``terms`` is the revision that is about to be approved. Exact however many decide at once: it takes the limits' locks, the last of the order, until the
    transaction ends.
    """
    policy = (await policies.in_force(connection, at)).policy
    limits = [limit for limit in policy.limits if limit.who is Counted.REVIEWER]
    if not limits:
        return
    persons = [Who(row["id"], row["handle"], row["name"]) for row in await _PERSONS.all(connection)]
    accounts = [[one.id for one in persons if one.is_also(reviewer)] for reviewer in reviewers]
    since, words = min(limit.over.begins(at) for limit in limits), rate_words(policy, at)
    async with pipelined(connection):
        await LOCK.ask(connection, keys=[f"{Counted.REVIEWER}:{account}" for account in chain(*accounts)])
        asked = [await _APPROVED.ask(connection, accounts=of_one, since=since, **words) for of_one in accounts]
    base = terms["facts"].get("base") or {}
    worth = terms["amount"] if terms["currency"] == policy.base else base.get("amount") if base.get("currency") == policy.base else None
    if worth is None:  # there was no rate when it was quoted; there may be one by now
        worth = (await rates.worth(connection, policy, Money(terms["amount"], terms["currency"]), at)).amount
    for answer in asked:
        rows = await answer.all()
        for limit in limits:
            _check(limit, at, [row for row in rows if row["recorded_at"] >= limit.over.begins(at)], worth, policy.base)


def _check(limit: LimitRule, at: datetime, rows: list[Row], worth: int | None, base: str | None) -> None:
    counted = [(row["recorded_at"], int(row["worth"] or 0) if limit.counts_money else 1) for row in rows]
    uncounted = sum(1 for row in rows if row["worth"] is None) if limit.counts_money else 0
    own = worth if limit.counts_money else 1
    found = state(limit, LimitFacts(limit.name, sum(amount for _, amount in counted), own, uncounted))
    if found.fits:
        return
    opens_at = None if own is None else reopens(limit, at, counted, own)
    told = LimitFacts(limit.name, found.used, own, uncounted, opens_at)
    raise RefundError(
        Code.REVIEWER_LIMIT,
        f"Not decided: {why(limit, state(limit, told), base)}.",
        limit=limit.name,
        at_most=limit.at_most,
        used=found.used,
        left=found.left,
        opens_at=None if opens_at is None else rfc3339(opens_at),
    )
