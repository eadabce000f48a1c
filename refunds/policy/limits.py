"""The section ``limits``: limits over time as a merchant writes them, what is wrong with them together, and what they make of facts.

They are safety settings: the version in force now counts, also for terms that were quoted under an earlier one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from refunds.errors import Code
from refunds.facts import Facts, LimitFacts, LimitStanding
from refunds.limits import Calendar, Stage, State, Who, Window, rule, shown, state, why
from refunds.money import CURRENCIES, Money, format_money
from refunds.policy.findings import Case, Finding
from refunds.policy.kinds import Amount, Name, Part, Percent, Zone, seconds
from refunds.policy.positions import Path

LONGEST_ROLLING_S = 31 * 86_400
"""The longest rolling window."""


def _who(value: object) -> Who:
    try:
        return Who(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"write one of: {', '.join(Who)}") from error


def _window(value: object) -> str | int:
    if isinstance(value, str) and value in set(Calendar):
        return value
    try:
        length = seconds(value)
    except ValueError as error:
        raise ValueError("write day, week or month (of a zone), or a rolling length such as 60s, 15m or 24h") from error
    if length > LONGEST_ROLLING_S:
        raise ValueError("a rolling window is at most 31d; write month for a calendar month")
    return length


class LimitRule(Part):
    """One limit over time: at most so many ``refunds``, or so much ``amount`` in the base currency, in a ``window``, of those that ``who`` counts together.

    It is taken when terms are ``reserved``, when money is about to be ``sent``, or both. Where it does not fit when terms are reserved, ``when_exceeded``
    says what happens; what does not fit when it is about to be sent is held until it does.
    """

    name: Name
    who: Annotated[Who, BeforeValidator(_who)]
    refunds: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    amount: Amount | None = None
    window: Annotated[str | int, BeforeValidator(_window)]
    zone: Zone | None = None
    taken: Literal["reserved", "sent", "both"] = "both"
    when_exceeded: Literal["review", "deny", "hold"] = "review"
    warn_at_percent: Percent | None = None

    @property
    def at_most(self) -> int:
        """How much fits, inclusive: refunds, or an amount in the unit of the base currency."""
        return self.amount if self.refunds is None and self.amount is not None else self.refunds or 0

    @property
    def counts_money(self) -> bool:
        """Whether it counts amounts instead of refunds."""
        return self.refunds is None

    @property
    def over(self) -> Window:
        """Its window."""
        if isinstance(self.window, int):
            return Window(seconds=self.window)
        return Window(Calendar(self.window), self.zone or "UTC")

    def is_taken(self, stage: Stage) -> bool:
        """Whether it is taken at this stage. Reviewers' limits are taken by their decisions instead."""
        return self.who is not Who.REVIEWER and self.taken in ("both", stage.value)


class Limiting(Protocol):
    """What of a policy is needed to judge its limits."""

    @property
    def limits(self) -> tuple[LimitRule, ...]:
        """Its limits over time."""
        ...

    @property
    def base(self) -> str | None:
        """Its base currency."""
        ...


def read_amounts(source: Mapping[str, Any]) -> list[tuple[Path, str, str]]:
    """Turn the amounts of limits into the unit of the base currency, in place; one that cannot be read becomes 1 and is reported."""
    found: list[tuple[Path, str, str]] = []
    currencies = _mapping(source.get("currencies"))
    base = str(source.get("base_currency") or (next(iter(currencies)) if len(currencies) == 1 else ""))
    listed: Any = source.get("limits")
    for at, one in enumerate(listed if isinstance(listed, tuple) else ()):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        limit = _mapping(one)
        if "amount" not in limit:
            continue
        path: Path = ("limits", at, "amount")
        if base not in CURRENCIES:
            if "base_currency" not in source:  # one that is wrong is told of itself
                found.append((path, "without base_currency nobody knows in which currency", "Add base_currency, or count refunds instead."))
            limit["amount"] = 1
            continue
        try:
            limit["amount"] = _amount(limit["amount"], base)
        except ValueError as error:
            limit["amount"] = 1
            found.append((path, "not an amount", str(error)))
    return found


def _amount(value: object, code: str) -> int:
    """Read an amount with exactly the currency's decimals. A limit may be far more than one refund can be. Raises ``ValueError`` with the remedy."""
    kind = CURRENCIES[code]
    decimals = kind.shown_decimals
    text = str(value) if type(value) in (str, int) else ""
    if not re.fullmatch(r"(?:0|[1-9][0-9]{0,11})" + (rf"\.[0-9]{{{decimals}}}" if decimals else ""), text) or not text.strip("0."):
        example = f"100.{'0' * decimals}" if decimals else "100"
        raise ValueError(f"Write it above zero and with {decimals or 'no'} decimals, as {code} is written: such as {example}.")
    return int(text.replace(".", "")) * 10 ** (kind.exponent - decimals)


def _mapping(value: Any) -> dict[str, Any]:
    """The value itself when it is a mapping (so that it can be changed in place), else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def contradictions(policy: Limiting, largest: int | None) -> Iterator[tuple[Path, str, str]]:
    """What each limit allows by itself, but not together with the rest. ``largest`` is the most that one refund in the base currency may be."""
    seen: set[str] = set()
    for at, limit in enumerate(policy.limits):
        here: Path = ("limits", at)
        if limit.name in seen:
            yield (*here, "name"), f"the name {limit.name} is there twice", "Give each limit its own."
        seen.add(limit.name)
        if (limit.refunds is None) == (limit.amount is None):
            yield here, "it must say refunds or amount, and not both", "Write two limits to count both."
        if isinstance(limit.window, int) and limit.zone is not None:
            yield (*here, "zone"), "a rolling window has no zone", "Remove it, or write window: day, week or month."
        if isinstance(limit.window, str) and limit.zone is None:
            yield (*here, "window"), f"a calendar {limit.window} is one of a zone", "Add zone: with a name such as UTC or Europe/Berlin."
        if limit.who is Who.REVIEWER:
            for name in ("taken", "when_exceeded"):
                if name in limit.model_fields_set:
                    problem = "a reviewer's limit is taken by each decision, which is refused when it does not fit"
                    yield (*here, name), problem, f"Remove {name}."
        elif limit.taken == "reserved" and limit.when_exceeded == "hold":
            yield (*here, "when_exceeded"), "nothing can be held when terms are reserved", "Write taken: both, or review or deny."
        elif limit.taken == "sent" and "when_exceeded" in limit.model_fields_set and limit.when_exceeded != "hold":
            yield (*here, "when_exceeded"), "what is about to be sent can only be held", "Write hold, or taken: both."
        if limit.is_taken(Stage.SENT) and limit.amount is not None and largest is not None and limit.amount < largest:
            smallest = format_money(Money(largest, policy.base or ""))
            problem = f"a refund of the largest amount ({smallest}) could never be sent"
            yield (*here, "amount"), problem, f"Write at least {smallest}, lower largest, or write taken: reserved."


def assumed(policy: Limiting, facts: Facts) -> Facts:
    """The facts with limits of which nothing was gathered taken to have room: for trying a policy on requests that were recorded under another."""
    known = {one.name for one in facts.limits}
    worth = facts.base.amount or 0
    taken = [limit for limit in policy.limits if limit.is_taken(Stage.RESERVED) and _concerns(limit, facts)]
    missing = [limit for limit in taken if limit.name not in known]
    more = tuple(LimitFacts(limit.name, 0, min(worth, limit.at_most) if limit.counts_money else 1) for limit in missing)
    return replace(facts, limits=facts.limits + more) if more else facts


def standings(policy: Limiting, facts: Facts) -> tuple[LimitStanding, ...]:
    """How every limit stands that is taken when terms are reserved, by the facts gathered for it."""
    found = {one.name: one for one in facts.limits}
    stand: list[LimitStanding] = []
    for limit in policy.limits:
        if not limit.is_taken(Stage.RESERVED) or limit.name not in found:
            continue
        stand.append(standing(limit, state(limit, found[limit.name]), policy.base))
    return tuple(stand)


def standing(limit: LimitRule, now: State, base: str | None) -> LimitStanding:
    """A limit and how it stands, for the record and for people."""
    return LimitStanding(
        name=limit.name,
        rule=rule(limit, base),
        currency=base if limit.counts_money else None,
        at_most=limit.at_most,
        used=now.used,
        left=now.left,
        own=now.own,
        exceeded=not now.fits,
        warns=now.warns,
        opens_at=now.opens_at,
    )


def findings(policy: Limiting, facts: Facts, text: str) -> Iterator[Finding]:
    """What the limits make of facts. One of which nothing was gathered is not known, and a person looks; ``text`` is the merchant's word when one denies."""
    found = {one.name: one for one in facts.limits}
    for limit in policy.limits:
        if not limit.is_taken(Stage.RESERVED) or not (limit.name in found or _concerns(limit, facts)):
            continue
        money = policy.base if limit.counts_money else None
        case_text = f"The limit {limit.name} has room for it."
        if limit.name not in found:
            yield Case(f"limit:{limit.name}", case_text, "not known", rule(limit, policy.base)).review()
            continue
        now = state(limit, found[limit.name])
        own = "what this one counts as is not known" if now.own is None else f"{shown(now.own, money)} with this one"
        case = Case(f"limit:{limit.name}", case_text, f"{shown(now.used, money)} used before, {own}", rule(limit, policy.base))
        yield _judged(limit, now, case, policy.base, text)


def _concerns(limit: LimitRule, facts: Facts) -> bool:
    """Whether the request is certainly one of those it counts, so that something should have been gathered."""
    if limit.who is Who.SESSION:  # which sessions there are is not among the facts
        return False
    return limit.who not in (Who.AGENT, Who.AGENTS) or facts.request.agent_id is not None


def _judged(limit: LimitRule, now: State, case: Case, base: str | None, text: str) -> Finding:
    if now.fits:
        return case.passed()
    case = Case(case.id, case.text, why(limit, now, base), case.limit)
    if not now.is_exceeded:
        return case.review(signal=case.id)  # nobody can tell: a person looks, whatever the limit says
    if limit.when_exceeded == "hold":
        return case.passed()
    if limit.when_exceeded == "review":
        return case.review(signal=case.id)
    return case.deny(Code.LIMIT_EXCEEDED, text)
