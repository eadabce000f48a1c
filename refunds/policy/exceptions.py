"""Exceptions: named, dated and bounded. One lets pass what a return rule would not; it never lifts a ceiling, a limit, consent, a review or a signal of fraud."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from refunds.clock import rfc3339
from refunds.facts import Facts
from refunds.policy.kinds import Amount, CurrencyName, Name, Part, Sentence, Words

Lifts = Literal["window", "reason", "lines_returned", "evidence"]
"""The checks that an exception can let pass."""

LONGEST = timedelta(days=400)


def _instant(value: object) -> datetime:
    try:
        at = datetime.fromisoformat(value.upper()) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 1970 <= at.year <= 2999:
        raise ValueError("write a time with its zone, such as 2026-12-31T23:59:59Z")
    return at.astimezone(UTC)


Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]


class PolicyException(Part):
    """An exception for some orders, from a time to a time, up to an amount by currency.

    Each of ``orders`` (our ids), ``categories``, ``customer_types`` and ``geographies`` that is named must fit; at least one is. An order fits ``categories``
    when all its goods are of them, so that nothing else in it is let pass with them.
    """

    id: Name
    text: Sentence
    lifts: Annotated[tuple[Lifts, ...], Field(min_length=1)]
    starts: Instant
    ends: Instant
    at_most: Annotated[dict[CurrencyName, Amount], Field(min_length=1)]
    orders: Annotated[tuple[Annotated[str, Field(pattern=r"^or_[0-9A-Za-z]{1,60}$")], ...], Field(max_length=1_000)] = ()
    categories: tuple[Words, ...] = ()
    customer_types: tuple[Words, ...] = ()
    geographies: tuple[Words, ...] = ()

    @property
    def scoped(self) -> bool:
        """Whether it says for which orders it is."""
        return bool(self.orders or self.categories or self.customer_types or self.geographies)

    def fits(self, facts: Facts) -> bool:
        """Whether it holds for these facts. What a model read opens no exception (promise P10), and what is not known fits none."""
        request, order = facts.request, facts.order
        if request.extracted or not self.starts <= request.requested_at <= self.ends:
            return False
        if request.amount > self.at_most.get(request.currency, 0) or not self.scoped:
            return False
        if self.categories and not (order.categories and set(order.categories) <= set(self.categories)):
            return False
        named = ((self.orders, order.id), (self.customer_types, order.customer_type), (self.geographies, order.geography))
        return all(value in names for names, value in named if names)

    def __str__(self) -> str:
        return f"{self.id} until {rfc3339(self.ends)}: {self.text}"
