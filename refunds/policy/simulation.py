"""What another version of the policy would have made of requests: each is judged under both, by itself, on the facts as they were recorded.

Pure. Tallies are merged in any order and give the same sums, so that the work can be shared among processes. A decision that would have been another does
not change the facts of the customer's later requests: it is one step, and no history that never was.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from refunds.errors import RefundError
from refunds.facts import Facts, PolicyDecision
from refunds.policy import limits
from refunds.policy.evaluate import evaluate
from refunds.policy.model import Policy, ReviewRole

MOST_EXAMPLES = 5
"""Ids that are kept as examples of what was left out, for each reason."""
_EXAMPLES = "examples"


class Way(StrEnum):
    """The way a request goes under a policy, from the easiest to the strictest."""

    ANSWERED = "answered"
    AUTOMATIC = "automatic"
    CONSENT = "consent"
    REVIEWER = "reviewer"
    MANAGER = "manager"
    DENIED = "denied"

    @property
    def words(self) -> str:
        """What happens, as people read it."""
        return _WORDS[self]

    @classmethod
    def of(cls, decision: PolicyDecision) -> "Way":
        """The way of a decision. Two people count as a manager: both are tier 4."""
        if decision.outcome == "deny":
            return cls.DENIED
        if decision.outcome == "answer":
            return cls.ANSWERED
        if decision.review is None:
            return cls.CONSENT if decision.consent else cls.AUTOMATIC
        high = decision.review.people > 1 or decision.review.role == ReviewRole.MANAGER or decision.tier >= _HIGH_IMPACT
        return cls.MANAGER if high else cls.REVIEWER


_HIGH_IMPACT = 4
_WORDS = {
    Way.ANSWERED: "answered, nothing moves",
    Way.AUTOMATIC: "goes at once",
    Way.CONSENT: "the customer's consent",
    Way.REVIEWER: "a reviewer",
    Way.MANAGER: "a manager or two people",
    Way.DENIED: "denied",
}


class Direction(StrEnum):
    """Which way a change goes. Answering a question in words is neither: nothing moves either way, and nobody is refused."""

    STRICTER = "stricter"
    LOOSER = "looser"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Changed:
    """One request that would have gone otherwise. ``checks`` are the ids of the checks that made the difference."""

    id: str
    amount: int
    currency: str
    reason: str
    before: Way
    after: Way
    tier_before: int
    tier_after: int
    direction: Direction
    checks: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "id": self.id,
            "amount": self.amount,
            "currency": self.currency,
            "reason": self.reason,
            "before": {"way": self.before.value, "tier": self.tier_before},
            "after": {"way": self.after.value, "tier": self.tier_after},
            "direction": self.direction.value,
            "checks": list(self.checks),
        }


NO_REASON = "none given"


def compare(identifier: str, before: PolicyDecision, after: PolicyDecision, facts: Facts) -> Changed | None:
    """What another decision would have changed about a request, or ``None`` when everybody would have done the same."""
    ways = Way.of(before), Way.of(after)
    if ways[0] is ways[1] and _demands(before) == _demands(after):
        return None
    results, others = _findings(before), _findings(after)
    checks = tuple(name for name in {**results, **others} if results.get(name) != others.get(name))
    request = facts.request
    return Changed(
        id=identifier,
        amount=request.amount,
        currency=request.currency,
        reason=request.reason.value if request.reason else NO_REASON,
        before=ways[0],
        after=ways[1],
        tier_before=before.tier,
        tier_after=after.tier,
        direction=_direction(before, after),
        checks=checks,
    )


def _findings(decision: PolicyDecision) -> dict[str, tuple[str, str]]:
    """What each check that was not in order led to, and the limit it was held against: with another limit the same result may ask somebody else."""
    return {check.id: (check.result, check.limit) for check in decision.checks if check.result != "pass"}


def _demands(decision: PolicyDecision) -> tuple[Any, ...]:
    """What people have to do because of a decision, and what the customer hears; not its words. Where nothing moves, nobody cares for the tier."""
    if decision.outcome != "proceed":
        return decision.outcome, decision.code
    return decision.outcome, decision.tier, decision.consent, decision.review


def _direction(before: PolicyDecision, after: PolicyDecision) -> Direction:
    """Stricter asks for at least as much in every respect and for more in one; looser the other way round; anything else is neither."""
    if "answer" in (before.outcome, after.outcome):
        return Direction.OTHER
    first, second = _measure(before), _measure(after)
    if first == second:
        return Direction.OTHER
    if all(a <= b for a, b in zip(first, second, strict=True)):
        return Direction.STRICTER
    return Direction.LOOSER if all(a >= b for a, b in zip(first, second, strict=True)) else Direction.OTHER


def _measure(decision: PolicyDecision) -> tuple[int, ...]:
    if decision.outcome == "deny":
        return (1, 1, 9, 9, 9, 9)
    review = decision.review
    if review is None:
        return (0, int(decision.consent), 0, 0, 0, 0)
    asked = len(review.evidence) + int(review.reasons_required) + int(bool(review.specialists))
    return (0, int(decision.consent), 1 + ReviewRole(review.ladder[0].role).rank, review.people, min(asked, 8), decision.tier)


def _counts() -> dict[str, list[int]]:
    return {}


@dataclass(slots=True)
class Tally:
    """The sums over requests, as they are merged. Amounts are integers in the API unit of each currency and never added across currencies."""

    requests: int = 0
    directions: dict[str, int] = field(default_factory=dict[str, int])
    moves: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    tiers: dict[str, list[int]] = field(default_factory=_counts)
    ways: dict[str, list[int]] = field(default_factory=_counts)
    amounts: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    reasons: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    checks: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    left_out: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    assumed: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, facts: Facts, before: PolicyDecision, after: PolicyDecision, changed: Changed | None) -> None:
        """Count one request."""
        self.requests += 1
        ways = Way.of(before).value, Way.of(after).value
        amount, code = facts.request.amount, facts.request.currency
        in_currency = self.amounts.setdefault(code, {})
        for at in (0, 1):
            self.ways.setdefault(ways[at], [0, 0])[at] += 1
            if ways[at] != Way.DENIED:
                self.tiers.setdefault(str((before, after)[at].tier), [0, 0])[at] += 1
            in_currency.setdefault(ways[at], [0, 0])[at] += amount
        reason = self.reasons.setdefault(facts.request.reason.value if facts.request.reason else NO_REASON, {})
        reason["requests"] = reason.get("requests", 0) + 1
        if changed is None:
            return
        direction = changed.direction.value
        self.directions[direction] = self.directions.get(direction, 0) + 1
        reason[direction] = reason.get(direction, 0) + 1
        for name in changed.checks:
            check = self.checks.setdefault(name, {})
            check[direction] = check.get(direction, 0) + 1
        move = self.moves.setdefault(f"{ways[0]} {ways[1]}", {"requests": 0, "amounts": {}})
        move["requests"] += 1
        move["amounts"][code] = move["amounts"].get(code, 0) + amount

    def leave_out(self, why: str, identifier: str, requests: int = 1) -> None:
        """Count a request that cannot be judged, and why."""
        left = self.left_out.setdefault(why, {"requests": 0, _EXAMPLES: []})
        left["requests"] += requests
        if identifier and len(left[_EXAMPLES]) < MOST_EXAMPLES:
            left[_EXAMPLES].append(identifier)

    def merge(self, other: Mapping[str, Any]) -> None:
        """Add what another tally came to, as :meth:`plain` gave it."""
        self.requests += other["requests"]
        _add(self.directions, other["directions"])
        for name in ("moves", "tiers", "ways", "amounts", "reasons", "checks", "left_out", "assumed"):
            _add(getattr(self, name), other[name])
        for left in self.left_out.values():
            del left[_EXAMPLES][MOST_EXAMPLES:]

    def plain(self) -> dict[str, Any]:
        """The sums as JSON values, to be merged elsewhere."""
        names = ("requests", "directions", "moves", "tiers", "ways", "amounts", "reasons", "checks", "left_out", "assumed")
        return {name: getattr(self, name) for name in names}

    @property
    def changed(self) -> int:
        """How many requests would have gone otherwise."""
        return sum(self.directions.values())

    def summary(self) -> dict[str, Any]:
        """The result for people and programs: everything sorted, so that the same requests always give the same bytes."""
        moves: list[dict[str, Any]] = []
        for name, move in sorted(self.moves.items(), key=lambda item: (-item[1]["requests"], item[0])):
            before, after = name.split()
            moves.append({"before": before, "after": after, "requests": move["requests"], "amounts": dict(sorted(move["amounts"].items()))})
        return {
            "requests": self.requests,
            "changed": self.changed,
            **{direction.value: self.directions.get(direction.value, 0) for direction in Direction},
            "left_out": [{"why": why, **left} for why, left in sorted(self.left_out.items())],
            "limits_taken_to_have_room": dict(sorted(self.assumed.items())),
            "moves": moves,
            "outcomes": _both(self.ways, [way.value for way in Way]),
            "tiers": _both(self.tiers, ["1", "2", "3", "4"]),
            "amounts": {code: _both(ways, [way.value for way in Way if way.value in ways]) for code, ways in sorted(self.amounts.items())},
            "reasons": _named(self.reasons, ("requests", *Direction)),
            "checks": _named(self.checks, tuple(Direction)),
        }


def _both(counts: Mapping[str, list[int]], names: Iterable[str]) -> dict[str, dict[str, int]]:
    return {name: dict(zip(("before", "after"), counts.get(name, [0, 0]), strict=True)) for name in names}


def _named(counts: Mapping[str, Mapping[str, int]], columns: Iterable[str]) -> dict[str, dict[str, int]]:
    wanted = [str(column) for column in columns]
    return {name: {column: found.get(column, 0) for column in wanted} for name, found in sorted(counts.items())}


def _add(mine: dict[str, Any], others: Mapping[str, Any]) -> None:
    for name, value in others.items():
        if isinstance(value, dict):
            _add(mine.setdefault(name, {}), cast(dict[str, Any], value))
        elif isinstance(value, list):
            new = cast(list[Any], value)
            here: list[Any] = mine.get(name) or ([] if name == _EXAMPLES else [0] * len(new))
            mine[name] = here + new if name == _EXAMPLES else [a + b for a, b in zip(here, new, strict=True)]
        else:
            mine[name] = mine.get(name, 0) + value


def judge_both(before: Policy, after: Policy, identifier: str, facts: Facts, tally: Tally) -> Changed | None:
    """Judge one request under both policies and count it; what cannot be judged is left out and counted as that.

    A limit over time of which nothing was gathered when the request came is taken to have room, and counted as taken so: nobody recorded what it would have
    counted then.
    """
    seen = limits.assumed(before, facts), limits.assumed(after, facts)
    try:
        decisions = evaluate(before, seen[0]), evaluate(after, seen[1])
    except RefundError as error:  # amounts in a currency that this version of the program no longer knows
        tally.leave_out(f"cannot be judged: {error.code}", identifier)
        return None
    for name in sorted({one.name for facts_seen in seen for one in facts_seen.limits[len(facts.limits) :]}):
        tally.assumed[name] = tally.assumed.get(name, 0) + 1
    changed = compare(identifier, *decisions, facts)
    tally.take(facts, *decisions, changed)
    return changed
