"""The facts a policy may use: gathered by the store, judged by ``refunds.policy``, recorded with the decision.

A fact that is not known is ``None``; a rule that needs it sends the refund to a person (promise P11). Facts that a model supplied
(``classification``) can add requirements and never satisfy or remove one (promise P10).
"""

from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast

from refunds.classification import Intent, Proposal
from refunds.clock import rfc3339
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is asked for. ``amount`` is in API units; ``amount_named_by_customer`` says that the authenticated customer named exactly this amount.

    ``extracted`` is true when order, amount or reason were read from free text by a classifier instead of being given by the caller. ``by_lines`` says
    that the amount was worked out from lines; ``lines_amount`` is what the named lines and shipping come to, ``None`` when none are named.
    """

    amount: int
    currency: str
    full: bool
    reason: Reason | None
    channel: str | None
    agent_id: str | None
    requested_at: datetime
    amount_named_by_customer: bool
    customer_authenticated: bool
    extracted: bool = False
    possible_duplicate_of: str | None = None
    by_lines: bool = False
    lines_amount: int | None = None

    @property
    def amount_is_known(self) -> bool:
        """Whether somebody could tell how much is asked for. Where nobody could, ``amount`` is zero, which is then no amount."""
        return self.amount != 0 or self.full or self.lines_amount is not None


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """The merchant's order. ``placed_at`` starts nothing by itself: the window counts from ``delivered_at``.

    ``total`` is what its lines and shipping come to, in ``currency``; ``None`` when the order has no lines.
    """

    version: int
    placed_at: datetime | None
    delivered_at: datetime | None
    categories: tuple[str, ...] = ()
    currency: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class LineFacts:
    """A line of the order that the request concerns: the named ones; when none are named, all, except for a request for shipping alone.

    ``ordered`` units of it, of which ``asked`` are asked for now (``None`` when the request names an amount and no lines) and ``refunded`` were by earlier
    requests by lines. ``shipped`` and ``returned`` are as the merchant recorded them, ``None`` when not known. Its id is the merchant's and stays out of
    what is recorded with a decision (promise P9).
    """

    category: str
    ordered: int
    asked: int | None
    refunded: int
    shipped: int | None
    returned: int | None

    @property
    def awaited(self) -> int | None:
        """How many of the units that would then be refunded were sent and have not come back; ``None`` when nobody recorded it.

        Units that were never sent need not come back. Where only what came back is recorded, all others count as sent.
        """
        refunded = self.ordered if self.asked is None else self.refunded + self.asked
        if self.returned is None and self.shipped is None:
            return None
        kept = 0 if self.shipped is None else self.ordered - self.shipped
        return max(0, refunded - kept - (self.returned or 0))


@dataclass(frozen=True, slots=True)
class PaymentFacts:
    """The payment, live from the processor; amounts in API units."""

    status: PaymentStatus
    currency: str
    captured: int
    capturable: int
    remaining: int
    dispute: DisputeState
    risk_level: str
    refunds_made: int


@dataclass(frozen=True, slots=True)
class CustomerFacts:
    """The customer's history with us, across agents and channels. Amounts are in the request's currency; shares in percent.

    ``today`` is the calendar day of the policy's zone, ``week`` the seven days up to now. Counted are refunds that reserve or succeeded, without
    this one.
    """

    account_age_days: int | None
    orders: int
    refunds: int
    share_refunded_percent: int | None
    amount_today: int
    refunds_week: int


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """What the refund counts as where all currencies are counted together: in the policy's base currency ``currency``, ``None`` when it names none.

    ``amount`` is this refund, at the recorded rate ``rate_id`` (``rate`` as decimal text, one of the request's currency in the base currency, holding from
    ``rate_at``); ``None`` when there is no rate. ``amount_today`` is what was refunded or is reserved today without this one, each at what it was recorded
    to count as. Currencies of the day of which nobody recorded that are in ``not_counted``; without a base currency, all others than the request's.
    """

    currency: str | None = None
    amount: int | None = None
    amount_today: int | None = None
    not_counted: tuple[str, ...] = ()
    rate: str | None = None
    rate_id: str | None = None
    rate_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReadingFacts:
    """The classification, reduced to what may make a refund stricter. ``failed`` means that nobody could read the text."""

    failed: bool
    intent: Intent | None
    proposal: Proposal | None
    confidence: int
    manipulation: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything one decision rests on. ``reading`` is ``None`` when there was no free text to read."""

    at: datetime
    request: RequestFacts
    order: OrderFacts
    payment: PaymentFacts
    customer: CustomerFacts
    reading: ReadingFacts | None = None
    lines: tuple[LineFacts, ...] = ()
    base: BaseFacts = BaseFacts()

    def plain(self) -> dict[str, Any]:
        """The facts as JSON values (times as RFC 3339), for the record and for custom rules."""
        return _plain(self)


_AS_IT_IS = frozenset({str, int, bool, type(None)})


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def _plain(value: object) -> Any:
    """Facts and what they hold as new JSON values. Not ``dataclasses.asdict``, which copies every word of them: each quote does this twice."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if names := _names(kind):
        return {name: _plain(getattr(value, name)) for name in names}
    if kind is tuple or kind is list:
        return [_plain(one) for one in cast(list[object], value)]
    if kind is dict:
        return {str(name): _plain(one) for name, one in cast(dict[object, object], value).items()}
    return rfc3339(value) if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of a review ladder: who is asked, when they are reminded, and until when they may decide (seconds from reaching the rung)."""

    queue: str
    role: str
    remind_after_s: int
    decide_within_s: int


@dataclass(frozen=True, slots=True)
class Review:
    """A review that is required: the least role, how many different persons, and the ladder that silence climbs."""

    role: str
    people: int
    ladder: tuple[Rung, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """One rule, judged: what was observed, the limit it was held against, and what it leads to, all in words that a person can read.

    ``result`` is one of ``pass``, ``require_consent``, ``require_review``, ``deny``, ``answer``.
    """

    id: str
    text: str
    observed: str
    limit: str
    result: str


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What the policy makes of the facts. The same facts and the same version give the same decision, for ever.

    ``outcome`` is ``proceed``, ``deny`` or ``answer``. With ``proceed``, what is still required is the union over all rules: ``consent`` (and within
    how many seconds) and ``review``. ``code`` and ``explanation`` say why when it is not ``proceed``; ``policy_text`` quotes what it rests on.
    ``terms_valid_s`` is how long exact terms hold once everything required is there.
    """

    outcome: str
    tier: int
    consent: bool
    consent_within_s: int
    review: Review | None
    checks: tuple[Check, ...]
    terms_valid_s: int
    code: str | None = None
    explanation: str = ""
    policy_text: str = ""
    signals: tuple[str, ...] = field(default_factory=tuple[str, ...])

    def plain(self) -> dict[str, Any]:
        """The decision as JSON values, for the record."""
        return _plain(self)
