"""What each setting of a policy allows by itself, but not together with the others: each with its path, what is wrong, and what to do."""

import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

from refunds.clock import rfc3339
from refunds.money import Money, format_money
from refunds.people import Role
from refunds.policy import breakers, cost, exceptions, limits, patterns, reach, rules
from refunds.policy.model import Ladder, Policy, ReviewRole
from refunds.policy.positions import Path
from refunds.policy.uniting import AND

Told = tuple[Path, str, str]

SHORTEST_TERMS_S = 60

MOST_WAYS = 1_000
"""In so many ways somebody may be a specialist of all ladders at once: the product of how many each names."""

_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Signs that turn the reading order, so that a text reads as what it is not."""

LONGEST_OPEN_WEEKS = 52
"""The longest time that a rung may have, in weeks of its calendar's open time."""


def contradictions(policy: Policy) -> Iterator[Told]:
    """All of them."""
    yield from _ceilings(policy)
    yield from _base(policy)
    yield from _tiers(policy)
    yield from _ladders(policy)
    yield from _calendars(policy)
    yield from _rules(policy)
    yield from reach.unreachable(policy)
    ceilings = policy.currencies.get(policy.base or "")
    yield from limits.contradictions(policy, ceilings.largest if ceilings else None)
    yield from breakers.contradictions(policy.breakers, policy.base)
    yield from _returns(policy)
    yield from _coverage(policy)
    yield from _signals(policy)
    yield from _payouts(policy)
    yield from _exceptions(policy)
    yield from _specialists(policy)
    yield from _texts((), policy.model_dump())


def over_by(policy: Policy, effective_from: datetime) -> Iterator[Told]:
    """The exceptions that are over before a version is in force: they would never hold."""
    for at, one in enumerate(policy.exceptions):
        if one.ends < effective_from:
            yield ("exceptions", at, "ends"), f"it is over before the version is in force ({rfc3339(effective_from)})", "Remove it."


def _ceilings(policy: Policy) -> Iterator[Told]:
    if policy.terms_valid_for < SHORTEST_TERMS_S:
        yield ("terms_valid_for",), "terms would lapse before anything could be sent", "Write at least 1m."
    if not policy.currencies:
        yield ("currencies",), "no currency is named", "Name at least one with its ceilings, or nothing could go without a manager."
    for code, c in policy.currencies.items():
        for low, high in (
            ("consent_only_up_to", "manager_above"),
            ("manager_above", "two_people_above"),
            ("two_people_above", "largest"),
            ("manager_above", "largest"),
            ("consent_only_up_to", "per_customer_per_day"),
        ):
            if None not in (getattr(c, low), getattr(c, high)) and getattr(c, low) > getattr(c, high):
                yield (
                    ("currencies", code, low),
                    f"{low} ({format_money(Money(getattr(c, low), code))}) is above {high} ({format_money(Money(getattr(c, high), code))})",
                    f"Lower {low} or raise {high}; otherwise a part of it can never be reached.",
                )


def _base(policy: Policy) -> Iterator[Told]:
    base = policy.base_currency
    if base is not None and base not in policy.currencies:
        known = ", ".join(policy.currencies) or "(none yet)"
        yield ("base_currency",), f"{base} has no ceilings under currencies", f"Use one of: {known}, or add {base} there."
    if base is None and "rates_at_most_days_old" in policy.model_fields_set and len(policy.currencies) != 1:
        yield ("rates_at_most_days_old",), "without base_currency nothing is converted", "Add base_currency, or remove this."


def _tiers(policy: Policy) -> Iterator[Told]:
    for tier, value in policy.tiers:
        if tier in ("informational", "automatic") and value.ladder is not None:
            yield ("tiers", tier, "ladder"), "this tier is not decided by people", "Remove the ladder."
        if tier in ("reviewed", "high_impact") and value.ladder is None:
            yield ("tiers", tier), "this tier is decided by people and names no ladder", "Add ladder: with a name from review."
    if policy.tiers.informational.draft:
        yield ("tiers", "informational", "draft"), "nothing moves in this tier, so nothing is drafted", "Remove it."
    high = policy.review.get(policy.tiers.high_impact.ladder or "")
    if high is not None and high.people == 1 and high.rungs[0].role is not ReviewRole.MANAGER:
        yield (
            ("tiers", "high_impact", "ladder"),
            "one reviewer alone would decide it",
            "Use a ladder that begins with a manager or asks two people.",
        )


def _ladders(policy: Policy) -> Iterator[Told]:
    for path, name in policy.ladders_named():
        if name not in policy.review:
            yield path, f"there is no ladder {name} under review", f"Use one of: {', '.join(policy.review) or '(none yet)'}, or add it."
    used = {name for _, name in policy.ladders_named()}
    for name, ladder in policy.review.items():
        if name not in used:
            yield ("review", name), "nothing leads to this ladder", "Name it in a tier, in fraud or in a rule, or remove it."
        yield from _rungs(policy, name, ladder)
        for at, one in enumerate(ladder.specialists):
            if AND in one:
                yield ("review", name, "specialists", at), f"{one!r} would be read as several", "Name one handle or role each."
            elif one.casefold() in {other.casefold() for other in ladder.specialists[:at]}:
                yield ("review", name, "specialists", at), f"{one} is there twice", "Name each once."


def _rungs(policy: Policy, name: str, ladder: Ladder) -> Iterator[Told]:
    for at, rung in enumerate(ladder.rungs):
        here: Path = ("review", name, "rungs", at)
        if rung.remind_after >= rung.decide_within:
            yield (*here, "remind_after"), "the reminder would come after the end", "Make it shorter than decide_within."
        if at and rung.role.rank < ladder.rungs[at - 1].role.rank:
            yield (*here, "role"), "silence would climb down", "Use the role of the rung before, or a higher one."
        calendar = policy.calendars.get(rung.hours or "")
        if rung.hours is not None and calendar is None:
            known = ", ".join(policy.calendars) or "(none yet)"
            yield (*here, "hours"), f"there is no calendar {rung.hours} under calendars", f"Use one of: {known}, or add it."
        if calendar is not None and rung.decide_within > LONGEST_OPEN_WEEKS * calendar.minutes_a_week * 60 > 0:
            what = f"{rung.hours} is open {calendar.minutes_a_week // 60} hours a week, so it would take more than a year"
            yield (*here, "decide_within"), what, "Make it shorter, or the hours longer."


def _calendars(policy: Policy) -> Iterator[Told]:
    used = {rung.hours for ladder in policy.review.values() for rung in ladder.rungs} | {policy.business_hours}
    if policy.business_hours is not None and policy.business_hours not in policy.calendars:
        known = ", ".join(policy.calendars) or "(none yet)"
        yield ("business_hours",), f"there is no calendar {policy.business_hours} under calendars", f"Use one of: {known}, or add it."
    for name, calendar in policy.calendars.items():
        if name not in used:
            yield ("calendars", name), "nothing uses this calendar", "Name it in a rung as hours: or as business_hours, or remove it."
        for path, problem, remedy in calendar.faults():
            yield ("calendars", name, *path), problem, remedy


def _returns(policy: Policy) -> Iterator[Told]:
    categories = policy.returns.require_return_for
    if policy.returns.model_fields_set and not categories:
        yield ("returns",), "no category is named that must come back", "Add require_return_for with at least one, or remove this part."
    for at, category in enumerate(categories):
        if category in categories[:at]:
            yield ("returns", "require_return_for", at), f"{category} is there twice", "Name it once."


def _coverage(policy: Policy) -> Iterator[Told]:
    reasons = policy.reasons
    if not reasons.accepted and reasons.not_given == "deny":
        yield ("reasons",), "no reason is accepted and none may be missing, so everything would be refused", "Accept at least one reason."
    listed: list[tuple[Path, tuple[str, ...]]] = [
        (("reasons", "accepted"), reasons.accepted),
        (("channels", "accepted"), policy.channels.accepted),
        (("fraud", "risk_levels_accepted"), policy.fraud.risk_levels_accepted),
        *((("reasons", "evidence", reason), kinds) for reason, kinds in reasons.evidence.items()),
    ]
    for path, names in listed:
        for at, name in enumerate(names):
            if name in names[:at]:
                yield (*path, at), f"{name} is there twice", "Name it once."
    for reason in reasons.evidence:
        if reason not in reasons.accepted and reasons.any_other == "deny":
            yield ("reasons", "evidence", reason), "this reason is denied, so nothing is proved", "Accept the reason, or remove this."
    if not policy.channels.accepted and policy.channels.not_given == "deny":
        yield (
            ("channels",),
            "no channel is accepted and none may be missing, so everything would be refused",
            "Accept at least one channel.",
        )
    if policy.requesters.people_and_services == policy.requesters.agents == "deny":
        yield ("requesters",), "nobody may ask, so everything would be refused", "Accept people_and_services, agents, or both."
    if "when_exceeded" in policy.payments.model_fields_set and policy.payments.refunds_per_payment is None:
        yield ("payments", "when_exceeded"), "there is no limit that could be exceeded", "Add refunds_per_payment, or remove this."


def _signals(policy: Policy) -> Iterator[Told]:
    fraud, reading = policy.fraud, policy.reading
    hour, day = fraud.requests_per_hour_above, fraud.requests_per_day_above
    if hour is not None and day is not None and hour > day:
        yield (
            ("fraud", "requests_per_hour_above"),
            f"it ({hour}) is above requests_per_day_above ({day})",
            "Lower it; otherwise it can never be reached.",
        )
    for at, name in enumerate(fraud.mismatches):
        if name in fraud.mismatches[:at]:
            yield ("fraud", "mismatches", at), f"{name} is there twice", "Name it once."
    least = reading.confidence_to_review
    if least is not None and least > reading.confidence_to_refund:
        yield (
            ("reading", "confidence_to_review"),
            f"it ({least}) is above confidence_to_refund ({reading.confidence_to_refund})",
            "Lower it; a refund that can go without a person cannot be too unsure for a reviewer.",
        )


def _payouts(policy: Policy) -> Iterator[Told]:
    if policy.payouts.allowed and policy.payouts.dispute_process is None:
        yield (
            ("payouts", "allowed"),
            "a policy that would allow payouts must name its dispute process",
            "Add dispute_process, or write allowed: false. Payouts are refused here either way.",
        )
    if policy.payouts.dispute_process is not None and not policy.payouts.allowed:
        yield ("payouts", "dispute_process"), "no payout is allowed that could be disputed", "Remove it."


def _exceptions(policy: Policy) -> Iterator[Told]:
    seen: set[str] = set()
    for at, one in enumerate(policy.exceptions):
        here: Path = ("exceptions", at)
        if one.id in seen:
            yield (*here, "id"), f"the id {one.id} is there twice", "Give each exception its own."
        seen.add(one.id)
        if not one.scoped:
            yield here, "it does not say for which orders it is", "Add orders, categories, customer_types or geographies."
        if one.ends <= one.starts:
            yield (*here, "ends"), "it ends before it begins", "Write a later time."
        elif one.ends - one.starts > exceptions.LONGEST:
            yield (*here, "ends"), "it is longer than 400 days", "End it sooner; what holds for ever is a rule and no exception."
        for code, amount in one.at_most.items():
            ceilings = policy.currencies.get(code)
            if ceilings is None:
                yield (*here, "at_most", code), f"{code} has no ceilings under currencies", "Add it there, or remove it here."
            elif amount > ceilings.largest:
                largest = format_money(Money(ceilings.largest, code))
                yield (*here, "at_most", code), f"it is above largest ({largest})", "Lower it; no exception lifts a ceiling."
        nothing = {
            "evidence": not policy.reasons.evidence,
            "lines_returned": not policy.returns.require_return_for,
        }
        for place, name in enumerate(one.lifts):
            if nothing.get(name, False):
                yield (*here, "lifts", place), f"this policy asks for nothing that {name} could lift", "Remove it."


def _specialists(policy: Policy) -> Iterator[Told]:
    """Fewer specialists than must approve, and too many: ladders are united by everybody who is one of each, worked out with every quote."""
    ways, two = 1, any(ceilings.two_people_above is not None for ceilings in policy.currencies.values())
    for name, ladder in policy.review.items():
        people = 2 if two and name == policy.tiers.high_impact.ladder else ladder.people
        named = {one.casefold() for one in ladder.specialists}
        if named and not named & set(Role) and len(named) < people:
            what = f"{people} people must approve, and only {' and '.join(ladder.specialists)} may"
            yield ("review", name, "specialists"), what, "Name one more person, or a role."
        before, ways = ways, ways * max(len(ladder.specialists), 1)
        if before <= MOST_WAYS < ways:
            what = f"from here on there are more than {MOST_WAYS} ways to be a specialist of every ladder at once"
            yield ("review", name, "specialists"), what, "Name roles instead of persons, or fewer of them."


def _texts(path: Path, value: Any) -> Iterator[Told]:
    """Texts that cannot be read, or kept: with control characters, with signs that turn the reading order, or with nothing in them that is seen."""
    if isinstance(value, dict):
        for name, member in cast("dict[str, Any]", value).items():
            yield from _texts((*path, name), name)
            yield from _texts((*path, name), member)
    elif isinstance(value, tuple | list):
        for at, member in enumerate(cast("tuple[Any, ...]", value)):
            yield from _texts((*path, at), member)
    elif isinstance(value, str):
        odd = next((one for one in value if _unseen(one)), None)
        if odd is not None:
            yield path, f"it has the character U+{ord(odd):04X}, which nobody sees", "Leave it out."
        elif path[-1] == "zone" and value in _OF_THE_MACHINE:
            yield path, f"{value} is another zone on every machine", "Name a zone, such as UTC, Europe/Berlin or America/New_York."
        elif not any(unicodedata.category(one)[0] in "LNPS" for one in value):
            yield path, "there is nothing in it to be read", "Write words, or remove it."


def _unseen(character: str) -> bool:
    return character in _TURNING or (unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t")


def _rules(policy: Policy) -> Iterator[Told]:
    seen, lists, made = set[str](), 0, 0
    for at, rule in enumerate(policy.rules):
        faults = rules.faults(rule.when)
        weighed, made = made, made + (0 if faults else cost.patterns_in(rule.when))
        if weighed <= patterns.MOST_OF_ALL < made:
            what = "from here on the patterns of all rules together cost too much to make"
            yield ("rules", at, "when"), what, "Use simpler ones, startsWith, endsWith or contains: each is made anew with every quote."
        before, lists = lists, lists + cost.lists_in(rule.when)
        if before <= cost.MOST_LISTS_OF_ALL < lists:
            what = f"from here on the rules name lists of facts more than {cost.MOST_LISTS_OF_ALL} times together"
            yield ("rules", at, "when"), what, "Join conditions, or remove rules: each list costs time with every quote."
        if rule.id in seen:
            yield ("rules", at, "id"), f"the id {rule.id} is there twice", "Give each rule its own."
        seen.add(rule.id)
        if rule.ladder is not None and rule.then != "require_review":
            yield ("rules", at, "ladder"), "only require_review has a ladder", "Remove the ladder, or write then: require_review."
        for problem, remedy in faults:
            yield ("rules", at, "when"), problem, remedy
