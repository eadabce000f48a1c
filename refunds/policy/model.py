"""The policy as typed values: what a merchant writes in YAML, after reading and checking.

Amounts are in the unit of the processor's API, lengths of time in seconds (except return windows, which are days). A policy is made by
:func:`refunds.policy.load_policy` and never changed; two policies with the same content have the same hash (:func:`refunds.policy.policy_hash`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from refunds.facts import TimeFacts
from refunds.hours import Calendar, is_holiday, is_open, local
from refunds.policy.breakers import BreakerRule
from refunds.policy.calendars import WEEKDAYS, OpeningHours
from refunds.policy.exceptions import PolicyException
from refunds.policy.kinds import (
    Amount,
    Answer,
    Days,
    Name,
    NamedReason,
    NamedRole,
    Part,
    Percent,
    ReviewRole,
    Seconds,
    Sentence,
    Stricter,
    Words,
    Zone,
    is_default,
)
from refunds.policy.limits import LimitRule
from refunds.reasons import Reason

__all__ = ["Policy", "ReviewRole"]

Evidence = Annotated[tuple[Name, ...], Field(min_length=1, max_length=20)]
"""Kinds of evidence, in words of the merchant's own: ``photo``, ``carrier_statement``."""


class LadderRung(Part):
    """One rung: the queue and role that are asked, when they are reminded, and how long they have, both counted from reaching the rung."""

    queue: Name
    role: NamedRole
    remind_after: Seconds
    decide_within: Seconds
    hours: Annotated[Name | None, is_default(None)] = None


class Ladder(Part):
    """Who decides, and to whom silence climbs; after the last rung the refund expires.

    ``specialists`` are handles of persons and roles of the API: where there are any, only these may approve. With ``reasons_required`` everybody who decides
    says why.
    """

    people: Literal[1, 2] = 1
    specialists: Annotated[tuple[Words, ...], Field(max_length=100), is_default(())] = ()
    reasons_required: Annotated[bool, is_default(False)] = False
    rungs: Annotated[tuple[LadderRung, ...], Field(min_length=1, max_length=10)]


class Tier(Part):
    """One of the four tiers of impact; the two that people decide name a ladder. With ``draft`` its refunds are prepared and never sent."""

    title: Annotated[str, Field(min_length=1, max_length=120)]
    ladder: Name | None = None
    draft: Annotated[bool, is_default(False)] = False
    approval_owner: Annotated[Words | None, is_default(None)] = None


class Tiers(Part):
    """All four tiers; there are no gaps."""

    informational: Tier
    automatic: Tier
    reviewed: Tier
    high_impact: Tier

    def at(self, number: int) -> Tier:
        """The tier with a number, 1 to 4."""
        return (self.informational, self.automatic, self.reviewed, self.high_impact)[number - 1]


class Ceilings(Part):
    """The ceilings of one currency, in its API unit, each included in what it allows."""

    consent_only_up_to: Amount
    manager_above: Amount
    two_people_above: Annotated[Amount | None, is_default(None)] = None
    largest: Amount
    per_customer_per_day: Amount


class Windows(Part):
    """Return windows in days of 24 hours from delivery (or from the order, for what is not delivered); the last instant is still inside."""

    start: Annotated[Literal["delivered", "placed"], is_default("delivered")] = "delivered"
    default_days: Days
    categories: dict[Annotated[str, Field(min_length=1, max_length=100)], Days] = Field(default_factory=dict[str, int])
    delivery_unknown: Stricter = "review"

    def days(self, categories: tuple[str, ...]) -> int:
        """The days for an order of these categories: the shortest of all that apply."""
        return self.shortest(categories)[0]

    def shortest(self, categories: tuple[str, ...]) -> tuple[int, str]:
        """The shortest window of all that apply to an order of these categories, and the category it is of; empty for the default."""
        each = ((self.categories[c], c) if c in self.categories else (self.default_days, "") for c in categories)
        return min(each, default=(self.default_days, ""))


class Duplicates(Part):
    """How long after one refund another for the same order that looks like it may be the same wish asked twice."""

    within: Seconds = 24 * 3600


class Returns(Part):
    """The categories of goods that must have come back before they are refunded, and what happens when some were sent and have not.

    Where nobody recorded what was sent and came back, a person looks, whatever ``not_returned`` says.
    """

    require_return_for: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = ()
    not_returned: Stricter = "review"


class Reasons(Part):
    """The reasons that are accepted, and what happens with any other and with none."""

    accepted: tuple[NamedReason, ...]
    any_other: Stricter = "deny"
    not_given: Answer = "review"
    evidence: Annotated[dict[NamedReason, Evidence], is_default({})] = Field(default_factory=dict[Reason, tuple[str, ...]])


class Payments(Part):
    """How many refunds one payment has without a person; ``None`` is no limit."""

    refunds_per_payment: Annotated[int | None, Field(ge=1, le=1_000)] = None
    when_exceeded: Stricter = "review"


class Channels(Part):
    """The channels that are covered, and what happens with any other and with none."""

    accepted: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...]
    any_other: Stricter = "deny"
    not_given: Answer = "review"


class Requesters(Part):
    """Whether requests made by people and services of the merchant, and by AI agents, are covered."""

    people_and_services: Answer = "deny"
    agents: Answer = "deny"


class Consent(Part):
    """Whether the customer must agree to the exact terms, and how long there is for it."""

    required: bool = True
    within: Seconds


class CustomerLimits(Part):
    """Limits over time per customer for what goes without a person; the amount a day is with each currency, and for all together that of the base currency."""

    zone: Zone
    refunds_per_week: Annotated[int, Field(ge=1, le=10_000)]
    when_exceeded: Stricter = "review"

    def day(self, at: datetime) -> tuple[datetime, datetime]:
        """The calendar day of the zone that contains ``at``: its first instant and the first instant of the next day, in UTC.

        A day on which clocks change has 23 or 25 hours.
        """
        zone = ZoneInfo(self.zone)
        first = at.astimezone(zone).date()
        start, end = (datetime.combine(d, time.min, zone).astimezone(UTC) for d in (first, first + timedelta(days=1)))
        return start, end


class FraudSignals(Part):
    """What sends a refund to a person, whatever its size. Missing data does, too."""

    risk_levels_accepted: tuple[Annotated[str, Field(min_length=1, max_length=40)], ...]
    account_younger_than_days: Annotated[int, Field(ge=0, le=3_650)]
    share_refunded_above_percent: Annotated[int, Field(ge=0, le=100)]
    share_counts_from_orders: Annotated[int, Field(ge=1, le=10_000)]
    refunds_above: Annotated[int | None, Field(ge=0, le=10_000), is_default(None)] = None
    requests_per_hour_above: Annotated[int | None, Field(ge=0, le=10_000), is_default(None)] = None
    requests_per_day_above: Annotated[int | None, Field(ge=0, le=10_000), is_default(None)] = None
    mismatches: Annotated[tuple[Literal["customer", "country", "checks"], ...], is_default(())] = ()
    ladder: Name


class ReadingLimits(Part):
    """How sure the reader of free text must be, in percent, by tier: for a question to be answered (1), for a refund to go without a person (2), and for it
    to be decided by a reviewer (3). Less sure than that is for the ladder of tier 4; ``None`` leaves it with the reviewer.
    """

    confidence_to_refund: Percent
    confidence_to_answer: Percent
    confidence_to_review: Annotated[Percent | None, is_default(None)] = None


class OutOfScope(Part):
    """What this system never pays, refused by name with these words."""

    payouts: Sentence
    credits: Sentence
    goodwill: Sentence


class Payouts(Part):
    """Paying out what is no return of a captured payment. This system has no such operation and refuses it by name whatever a policy says; one that means to
    allow it must still name the process in which a payout is disputed.
    """

    allowed: bool = False
    dispute_process: Sentence | None = None


class Governing(Part):
    """The merchant's facts that are recorded with every refund. What an order says of its own legal entity, customer type and geography counts more."""

    system_of_record: Words | None = None
    legal_entity: Words | None = None
    customer_type: Words | None = None
    geography: Words | None = None
    data_involved: Annotated[tuple[Words, ...], Field(max_length=50)] = ()
    approval_owner: Words | None = None


MACHINE_WRITTEN = "A machine wrote this answer. It rests on these words of our refund policy:"
APPEAL = "If you do not agree, tell our customer service why: a person who has not decided it yet will look at it again."


class Texts(Part):
    """The merchant's own words, quoted to customers."""

    policy_question: Sentence
    track_refund: Sentence
    outside_window: Sentence
    not_covered: Sentence
    limits: Sentence
    machine_written: Annotated[Sentence, is_default(MACHINE_WRITTEN)] = MACHINE_WRITTEN
    appeal: Annotated[Sentence, is_default(APPEAL)] = APPEAL


class Rule(Part):
    """A rule of the merchant's own: a CEL condition over the facts that may require or deny, and never permit.

    With ``kept_with_order`` it is one of the return rules, which an order keeps as they were when it was placed; any other holds for all at once.
    """

    id: Name
    when: Annotated[str, Field(min_length=1, max_length=2_000)]
    then: Literal["require_consent", "require_review", "deny"]
    ladder: Name | None = None
    kept_with_order: Annotated[bool, is_default(False)] = False
    text: Sentence


class Policy(Part):
    """The whole rule set of one merchant."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    terms_valid_for: Seconds
    consent: Consent
    tiers: Tiers
    review: dict[Name, Ladder]
    currencies: dict[Annotated[str, Field(pattern=r"^[A-Z]{3}$")], Ceilings]
    base_currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None
    rates_at_most_days_old: Annotated[int, Field(ge=1, le=365)] = 7
    zone: Annotated[Zone | None, is_default(None)] = None
    calendars: Annotated[dict[Name, OpeningHours], is_default({})] = Field(default_factory=dict[str, OpeningHours])
    business_hours: Annotated[Name | None, is_default(None)] = None
    windows: Windows
    returns: Returns = Returns()
    reasons: Reasons
    payments: Annotated[Payments, is_default(Payments())] = Payments()
    duplicates: Annotated[Duplicates, is_default(Duplicates())] = Duplicates()
    channels: Channels
    requesters: Requesters
    customer_limits: CustomerLimits
    limits: Annotated[tuple[LimitRule, ...], Field(max_length=50), is_default(())] = ()
    breakers: Annotated[tuple[BreakerRule, ...], Field(max_length=20), is_default(())] = ()
    fraud: FraudSignals
    reading: ReadingLimits
    out_of_scope: OutOfScope
    payouts: Annotated[Payouts, is_default(Payouts())] = Payouts()
    governance: Annotated[Governing, is_default(Governing())] = Governing()
    texts: Texts
    exceptions: Annotated[tuple[PolicyException, ...], Field(max_length=200), is_default(())] = ()
    rules: Annotated[tuple[Rule, ...], Field(max_length=100)] = ()

    @property
    def base(self) -> str | None:
        """The currency in which limits over time count all currencies together: the named one, or the only one there is. ``None``: nothing says which."""
        return self.base_currency or (next(iter(self.currencies)) if len(self.currencies) == 1 else None)

    @property
    def clock_zone(self) -> str:
        """The zone in which the facts of the time are told: the named one, or that of the customer's day."""
        return self.zone or self.customer_limits.zone

    @cached_property
    def open_hours(self) -> dict[str, Calendar]:
        """Every calendar by its name."""
        return {name: hours.calendar(name) for name, hours in self.calendars.items()}

    def time_facts(self, at: datetime) -> TimeFacts:
        """What the clocks of the policy say of an instant."""
        here, hours = local(self.clock_zone, at), self.open_hours.get(self.business_hours or "")
        return TimeFacts(
            zone=self.clock_zone,
            weekday=WEEKDAYS[here.weekday()],
            hour=here.hour,
            business_hours=None if hours is None else is_open(hours, at),
            holiday=None if hours is None else is_holiday(hours, at),
        )

    def ladders_named(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every place that names a ladder, with the name."""
        for tier, value in self.tiers:
            if value.ladder is not None:
                yield ("tiers", tier, "ladder"), value.ladder
        yield ("fraud", "ladder"), self.fraud.ladder
        for at, rule in enumerate(self.rules):
            if rule.ladder is not None:
                yield ("rules", at, "ladder"), rule.ladder
