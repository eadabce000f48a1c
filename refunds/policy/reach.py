"""Whether a rule of the merchant's own can ever matter: told from the conditions alone, before any request.

Told are, and only these: a condition without any fact; a fact compared with a word that it never is, or with numbers that leave nothing; a condition whose
parts (joined by ``&&``) include all parts of a rule that denies; the same condition twice with the same consequence; and a condition that asks for what
``reasons``, ``channels``, ``requesters`` or ``largest`` refuse already. Anything else is taken: a rule can only make a refund stricter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from refunds.classification import Intent, Proposal
from refunds.money import CURRENCIES, Money, format_money
from refunds.people import PrincipalKind
from refunds.policy import cost, rules
from refunds.policy.calendars import WEEKDAYS
from refunds.policy.model import Policy, Rule
from refunds.policy.positions import Path
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

_Told = tuple[Path, str, str]

WORDS: dict[str, tuple[str, ...]] = {
    "request.reason": tuple(Reason),
    "request.currency": tuple(sorted(CURRENCIES)),
    "order.currency": tuple(sorted(CURRENCIES)),
    "payment.currency": tuple(sorted(CURRENCIES)),
    "base.currency": tuple(sorted(CURRENCIES)),
    "payment.status": tuple(PaymentStatus),
    "payment.dispute": tuple(DisputeState),
    "reading.intent": tuple(Intent),
    "reading.proposal": tuple(Proposal),
    "requester.kind": tuple(PrincipalKind),
    "time.weekday": WEEKDAYS,
}
"""Facts that are one of a few words."""

_NUMBERS = re.compile(
    r"\.(?:amount|amount_today|total|captured|capturable|remaining|refunds_made|orders|refunds|refunds_week|\w+_percent|\w+_days)$"
)
_MOST = {"reading.confidence": 100, "time.hour": 23}
_FACT = r"([a-z]+\.[a-z_]+)"
_SIGN = r"(==|!=|<=|>=|<|>)"
_LITERAL = r"(-?\d+(?:\.\d+)?u?\b|\"[^\"\\]*\"|'[^'\\]*'|\btrue\b|\bfalse\b)"
_PART = re.compile(rf"{_FACT} ?{_SIGN} ?{_LITERAL}")
_TURNED = re.compile(rf"{_LITERAL} ?{_SIGN} ?{_FACT}")
_COMPARED = re.compile(rf"(?<![.\w]){_FACT}\s*{_SIGN}\s*{_LITERAL}")
_COMPARED_TURNED = re.compile(rf"{_LITERAL}\s*{_SIGN}\s*{_FACT}(?![.\w\[(])")
_LISTED = re.compile(rf"(?<![.\w]){_FACT}\s+in\s+\[([^\[\]]*)\]")
_OTHER_WAY = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_CATEGORY = re.compile(r"order\.categories\.exists\((\w+), ?\1 ?== ?(?:\"([^\"\\]*)\"|'([^'\\]*)')\)")


@dataclass(slots=True)
class _Bounds:
    """What the parts of a condition leave of one fact."""

    least: int | None = None
    most: int | None = None
    word: set[str] = field(default_factory=set[str])

    def narrow(self, sign: str, number: int) -> None:
        if sign in (">", ">=", "=="):
            least = number + (sign == ">")
            self.least = least if self.least is None else max(self.least, least)
        if sign in ("<", "<=", "=="):
            most = number - (sign == "<")
            self.most = most if self.most is None else min(self.most, most)

    @property
    def everything(self) -> bool:
        """Whether that is every amount there is."""
        return not self.word and self.most is None and self.least is not None and self.least <= 1

    @property
    def nothing(self) -> bool:
        return len(self.word) > 1 or (self.least is not None and self.most is not None and self.least > self.most)


def unreachable(policy: Policy) -> Iterator[_Told]:
    """Every rule that can never matter, at its place, with why and what to do."""
    sound = [(at, rule) for at, rule in enumerate(policy.rules) if not rules.faults(rule.when)]
    for at, rule in sound:
        told = list(_never(rule)) or list(_refused_already(policy, rule))
        for problem, remedy in told:
            yield ("rules", at, "when"), problem, remedy
    yield from _covered(sound)
    denied = {category for _, rule in sound if rule.then == "deny" and (category := _category(rule.when)) is not None}
    for category in policy.windows.categories:
        if category in denied:
            yield ("windows", "categories", category), "a rule denies every refund of this category", "Remove the window or the rule."
    for at, category in enumerate(policy.returns.require_return_for):
        if category in denied:
            yield ("returns", "require_return_for", at), "a rule denies every refund of this category", "Remove it here, or the rule."


def _never(rule: Rule) -> Iterator[tuple[str, str]]:
    if not rules.groups_in(rule.when):
        try:
            answer = "always applies" if rules.judge(rule.when, {}) else "never applies"
        except rules.RuleError as error:
            answer = f"can never be judged ({error})"
        yield f"it looks at no fact, so it {answer}", "Compare a fact, or remove the rule."
        return
    for fact, literal in _compared(rule.when):
        known, kind = WORDS.get(fact), _kind(fact)
        if kind is not None and _written_as(literal) != kind:
            yield f"{fact} is {kind} and is compared with {_written_as(literal)}", f"Compare it with {kind}."
        elif known is not None and literal[1:-1] not in known:
            yield f"{fact} is never {literal[1:-1]!r}", f"Use one of: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}."
    bounds_of = _bounds(rule.when)
    if rule.then == "deny" and len(_parts(rule.when)) == 1 and "request.amount" in bounds_of and bounds_of["request.amount"].everything:
        yield "it denies every refund", "Narrow it, or stop refunds instead: refunds stop --reason WHY."
    for fact, bounds in bounds_of.items():
        if bounds.nothing:
            yield f"{fact} can never be all that it asks", "Correct the numbers or words, or remove the rule."


def _compared(condition: str) -> Iterator[tuple[str, str]]:
    """Every fact of which a condition says that it is, or is not, or is among, something written out: with what is written, in the order of the text."""
    blank = cost.blanked(condition)
    found = [(m.start(), m[1], m[3]) for m in _COMPARED.finditer(condition)]
    found += [(m.start(3), m[3], m[1]) for m in _COMPARED_TURNED.finditer(condition)]
    for listed in _LISTED.finditer(condition):
        found += [(listed.start(), listed[1], one) for one in re.findall(_LITERAL, listed[2])]
    yield from ((fact, literal) for at, fact, literal in sorted(set(found)) if not blank[at].isspace())


def _kind(fact: str) -> str | None:
    """What a fact is, in words; ``None`` where it is no single number, text or truth."""
    group, _, name = fact.partition(".")
    hint = rules.KINDS.get(group, {}).get(name)
    return None if hint is None else _NUMBER if hint is int else _TRUTH if hint is bool else _TEXT


_NUMBER, _TRUTH, _TEXT = "a number", "true or false", "a text"


def _written_as(literal: str) -> str:
    return _TEXT if literal[0] in "\"'" else _TRUTH if literal in ("true", "false") else _NUMBER


def _refused_already(policy: Policy, rule: Rule) -> Iterator[tuple[str, str]]:
    bounds = _bounds(rule.when)
    asked = {fact: next(iter(found.word)) for fact, found in bounds.items() if len(found.word) == 1}
    reason, channel, kind = (asked.get(fact) for fact in ("request.reason", "request.channel", "requester.kind"))
    if reason is not None and reason not in policy.reasons.accepted and policy.reasons.any_other == "deny":
        yield f"reasons denies {reason} already", "Accept the reason there, or remove the rule."
    if channel is not None and channel not in policy.channels.accepted and policy.channels.any_other == "deny":
        yield f"channels denies {channel} already", "Accept the channel there, or remove the rule."
    if kind is not None:
        section = "agents" if kind == PrincipalKind.AGENT else "people_and_services"
        if getattr(policy.requesters, section) == "deny":
            yield f"requesters.{section} denies them already", "Accept them there, or remove the rule."
    ceilings = policy.currencies.get(asked.get("request.currency", ""))
    least = bounds["request.amount"].least if "request.amount" in bounds else None
    if ceilings is not None and least is not None and least > ceilings.largest:
        largest = format_money(Money(ceilings.largest, asked["request.currency"]))
        yield f"amounts above largest ({largest}) are denied already", "Lower the amount, raise largest, or remove the rule."


def _covered(sound: list[tuple[int, Rule]]) -> Iterator[_Told]:
    """Rules that another makes pointless, and rules that are there twice."""
    for at, rule in sound:
        for earlier, other in sound:
            if earlier == at or not _parts(other.when) <= _parts(rule.when) or (other.kept_with_order and not rule.kept_with_order):
                continue
            same = _parts(other.when) == _parts(rule.when)
            if other.then == "deny" and rule.then != "deny":
                what = f"the rule {other.id} denies all that this one asks something of"
                yield ("rules", at, "when"), what, f"Remove one of them, or narrow {other.id}."
            elif same and earlier < at and (other.then, other.ladder) == (rule.then, rule.ladder):
                yield ("rules", at, "when"), f"the rule {other.id} says the same already", "Remove one of them."


@lru_cache(maxsize=1_024)
def _parts(condition: str) -> frozenset[str]:
    """The parts of a condition that must all hold, each written in one way; the whole of it where it is not simply joined."""
    bare = cost.blanked(condition)
    depth, parts, begins = 0, list[str](), 0
    for at, sign in enumerate(bare):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and (bare.startswith("||", at) or sign == "?"):
            return frozenset({_one_way(condition)})
        if depth == 0 and bare.startswith("&&", at):
            parts.append(condition[begins:at])
            begins = at + 2
    return frozenset(map(_one_way, [*parts, condition[begins:]]))


def _one_way(part: str) -> str:
    """A part without what does not matter: spaces outside texts, and brackets around the whole of it."""
    pieces = re.split(r"(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')", part.strip())
    text = "".join(piece if at % 2 else re.sub(r"\s*([^\w\s])\s*", r"\1", re.sub(r"\s+", " ", piece)) for at, piece in enumerate(pieces))
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1]
    return text


def _closes_last(text: str) -> bool:
    depth = 0
    for at, sign in enumerate(cost.blanked(text)):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _bounds(condition: str) -> dict[str, _Bounds]:
    """What the parts of a condition leave of each fact that they compare with a number or a word."""
    found: dict[str, _Bounds] = {}
    for part in _parts(condition):
        if (compared := _PART.fullmatch(part)) is not None:
            fact, sign, value = compared.groups()
        elif (compared := _TURNED.fullmatch(part)) is not None:
            value, sign, fact = compared[1], _OTHER_WAY[compared[2]], compared[3]
        else:
            continue
        bounds = found.setdefault(fact, _Bounds(0 if _NUMBERS.search(fact) or fact in _MOST else None, _MOST.get(fact)))
        if value[0] in "\"'":
            bounds.word.update({value[1:-1]} if sign == "==" else ())
        elif value.removeprefix("-").isdigit():
            bounds.narrow(sign, int(value))
    return found


def _category(condition: str) -> str | None:
    """The category that a condition is about, when it is about nothing else."""
    found = _CATEGORY.fullmatch(condition.strip())
    return None if found is None else found[2] or found[3]
