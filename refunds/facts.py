"""The facts a policy may use: gathered by the store, judged by ``refunds.policy``, recorded with the decision.

A fact that is not known is ``None``; a rule that needs it sends the refund to a person (promise P11). Facts that a model supplied
(``classification``) can add requirements and never satisfy or remove one (promise P10).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast

from refunds.classification import Intent, Proposal
from refunds.clock import rfc3339
from refunds.hours import Calendar, due
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

    ``total`` is what its lines and shipping come to, in ``currency``; ``None`` when the order has no lines. ``id`` is our surrogate. ``legal_entity``,
    ``customer_type`` and ``geography`` are as the merchant states them with the order: coarse words, nothing personal.
    """

    version: int
    placed_at: datetime | None
    delivered_at: datetime | None
    categories: tuple[str, ...] = ()
    currency: str | None = None
    total: int | None = None
    id: str | None = None
    legal_entity: str | None = None
    customer_type: str | None = None
    geography: str | None = None


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
    """The payment, live from the processor; amounts in API units.

    ``customer_matches`` says whether the processor's customer of the payment is the one that the order names for it, ``country_matches`` whether the country
    that issued the card is the order's ``geography``; ``None`` where either is not known. ``failed_checks`` are the issuer's own checks of what was stated
    when it was paid (``cvc``, ``address_line1``, ``address_postal_code``) that failed. No name, address or number is among the facts (promise P9).
    """

    status: PaymentStatus
    currency: str
    captured: int
    capturable: int
    remaining: int
    dispute: DisputeState
    risk_level: str
    refunds_made: int
    customer_matches: bool | None = None
    country: str | None = None
    country_matches: bool | None = None
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CustomerFacts:
    """The customer's history with us, across agents and channels. Amounts are in the request's currency; shares in percent.

    ``today`` is the calendar day of the policy's zone, ``week`` the seven days up to now. Counted are refunds that reserve or succeeded, without
    this one. ``requests_hour`` and ``requests_day`` count all requests of the last 60 minutes and 24 hours, whatever became of them, without this one.
    """

    account_age_days: int | None
    orders: int
    refunds: int
    share_refunded_percent: int | None
    amount_today: int
    refunds_week: int
    requests_hour: int = 0
    requests_day: int = 0


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
class RequesterFacts:
    """Who asks: the holder of the key. ``kind`` is ``person``, ``service`` or ``agent``; ``None`` is not known.

    ``person_named`` says that the request names the person at the support system who asked (``requested_by``).
    """

    kind: str | None = None
    age_days: int | None = None
    person_named: bool = False


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """The AI agent that asks; all ``None`` when a person or a service does. ``known`` says that it is registered here, ``allowed`` that nobody blocked it."""

    known: bool | None = None
    allowed: bool | None = None
    age_days: int | None = None
    session_named: bool | None = None


@dataclass(frozen=True, slots=True)
class TimeFacts:
    """When it was asked for, as the clocks of the policy's zone read it: ``weekday`` from ``monday``, ``hour`` from 0 to 23.

    ``business_hours`` and ``holiday`` are by the policy's calendar ``business_hours``; ``None`` when it names none.
    """

    zone: str | None = None
    weekday: str | None = None
    hour: int | None = None
    business_hours: bool | None = None
    holiday: bool | None = None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What one limit over time of the policy (by its ``name``) has counted: refunds, or an amount in the base currency, without this refund.

    ``own`` is what this refund counts as; ``None`` when there is no rate. ``uncounted`` of the counted refunds nobody recorded what they count as.
    ``opens_at`` is when it would fit, where it does not now; ``None`` where it fits, or never will. ``kept`` says that earlier terms of the same refund took at
    least as much and still hold it: then it fits, whatever others have used since.
    """

    name: str
    used: int
    own: int | None
    uncounted: int = 0
    opens_at: datetime | None = None
    kept: bool = False


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
    requester: RequesterFacts = RequesterFacts()
    agent: AgentFacts = AgentFacts()
    time: TimeFacts = TimeFacts()
    limits: tuple[LimitFacts, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The facts as JSON values (times as RFC 3339), for the record and for custom rules."""
        return _plain(self)

    def plain_of(self, groups: Iterable[str]) -> dict[str, Any]:
        """Some groups of the facts as JSON values."""
        return {name: _plain(getattr(self, name)) for name in groups}


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
    """One rung of a review ladder: who is asked, when they are reminded, and until when they may decide (seconds from reaching the rung).

    With ``hours`` only the open time of that calendar of the review counts for both.
    """

    queue: str
    role: str
    remind_after_s: int
    decide_within_s: int
    hours: str | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """A review that is required: the least role, how many different persons, and the ladder that silence climbs.

    ``specialists`` are handles of persons and roles: where there are any, only who is or has one of them may approve. With ``reasons_required`` everybody who
    decides says why. ``evidence`` are the kinds of evidence that must be there before anybody approves. ``calendars`` are those that the rungs name.
    """

    role: str
    people: int
    ladder: tuple[Rung, ...]
    specialists: tuple[str, ...] = ()
    reasons_required: bool = False
    evidence: tuple[str, ...] = ()
    calendars: tuple[Calendar, ...] = ()

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Review":
        """Rebuild a review from its JSON form, also from one that was recorded before a field was added."""
        return cls(
            plain["role"],
            plain["people"],
            tuple(Rung(**rung) for rung in plain["ladder"]),
            specialists=tuple(plain.get("specialists", ())),
            reasons_required=plain.get("reasons_required", False),
            evidence=tuple(plain.get("evidence", ())),
            calendars=tuple(Calendar.from_plain(one) for one in plain.get("calendars", ())),
        )

    def _due(self, rung: int, since: datetime, seconds: int) -> datetime:
        named = self.ladder[rung].hours
        return due(next((calendar for calendar in self.calendars if calendar.name == named), None), since, seconds)

    def remind_at(self, rung: int, since: datetime) -> datetime:
        """When a rung that was reached at ``since`` is reminded."""
        return self._due(rung, since, self.ladder[rung].remind_after_s)

    def decide_by(self, rung: int, since: datetime) -> datetime:
        """Until when a rung that was reached at ``since`` may decide."""
        return self._due(rung, since, self.ladder[rung].decide_within_s)

    def ends_by(self, since: datetime) -> datetime:
        """When the last rung ends at the latest, with the whole ladder once for each person who must decide."""
        for _ in range(self.people):
            for rung in range(len(self.ladder)):
                since = self.decide_by(rung, since)
        return since


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
class Governance:
    """What good governance asks to be recorded with every refund. The merchant's own words and the order's; ``None`` where nobody stated it.

    ``financial_ceiling`` is the most that one refund in its currency may be, as people read it. ``reversible`` says whether it can be taken back once it was
    sent, ``reversibility`` how in words. ``required_evidence`` are the kinds of evidence that must be there before anybody approves.
    """

    system_of_record: str | None = None
    legal_entity: str | None = None
    customer_type: str | None = None
    geography: str | None = None
    data_involved: tuple[str, ...] = ()
    financial_ceiling: str | None = None
    reversible: bool = False
    reversibility: str = ""
    approval_owner: str | None = None
    required_evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """A limit over time as it was judged: ``used`` without this refund, which counts as ``own``; in refunds, or in the unit of ``currency`` where it has one.

    ``opens_at`` is when it would have fitted, where it did not. ``exceeded`` says that it did not fit, ``warns`` that a set share of it is used with this one.
    """

    name: str
    rule: str
    currency: str | None
    at_most: int
    used: int
    left: int
    own: int | None
    exceeded: bool
    warns: bool
    opens_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """What the policy makes of the facts. The same facts and the same version give the same decision, for ever.

    ``outcome`` is ``proceed``, ``deny`` or ``answer``. With ``proceed``, what is still required is the union over all rules: ``consent`` (and within
    how many seconds) and ``review``. ``code`` and ``explanation`` say why when it is not ``proceed``; ``policy_text`` quotes what it rests on.
    ``terms_valid_s`` is how long exact terms hold once everything required is there. With ``draft`` it is prepared and never sent. ``appeal`` tells the
    customer how to have it looked at again, ``answer`` is what is said where only something was asked (with whose words, and that a machine wrote it), and
    ``governance`` is what is recorded beside it; all empty in decisions that were recorded before there were any.
    ``limits`` is how every limit over time stood that is taken when terms are reserved.
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
    draft: bool = False
    appeal: str = ""
    answer: str = ""
    governance: Governance | None = None
    limits: tuple[LimitStanding, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The decision as JSON values, for the record."""
        return _plain(self)
