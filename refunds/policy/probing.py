"""Tries a policy's own rules on a few ordinary requests before it is published, to find what only shows when a rule is judged.

A rule that fails on a request sends that request to a person, so such a mistake never pays. But it would send all of them, and nobody would know why.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from refunds.facts import BaseFacts, CustomerFacts, Facts, LineFacts, OrderFacts, PaymentFacts, RequestFacts
from refunds.policy import positions, rules
from refunds.policy.contradictions import over_by
from refunds.policy.load import PolicyError, Problem, load_policy
from refunds.policy.model import Policy
from refunds.processor import DisputeState, PaymentStatus
from refunds.reasons import Reason

_NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def _first_of_a_customer(code: str) -> Facts:
    """The most ordinary request there is: the first one of a customer, about an order that nobody has refunded anything of."""
    return Facts(
        at=_NOW,
        request=RequestFacts(
            amount=1_000,
            currency=code,
            full=False,
            reason=Reason.CUSTOMER_REQUEST,
            channel="chat",
            agent_id=None,
            requested_at=_NOW,
            amount_named_by_customer=True,
            customer_authenticated=True,
        ),
        order=OrderFacts(version=1, placed_at=_NOW - timedelta(days=9), delivered_at=_NOW - timedelta(days=5), categories=("books",)),
        payment=PaymentFacts(
            status=PaymentStatus.CAPTURED,
            currency=code,
            captured=10_000,
            capturable=0,
            remaining=10_000,
            dispute=DisputeState.NONE,
            risk_level="normal",
            refunds_made=0,
        ),
        customer=CustomerFacts(account_age_days=0, orders=1, refunds=0, share_refunded_percent=0, amount_today=0, refunds_week=0),
        base=BaseFacts(currency=code, amount=1_000, amount_today=0),
        lines=(LineFacts(category="books", ordered=1, asked=None, refunded=0, shipped=1, returned=0),),
    )


def _requests(policy: Policy) -> Iterator[tuple[str, Facts]]:
    """Ordinary requests, each with words for it."""
    first = _first_of_a_customer(next(iter(policy.currencies), "USD"))
    yield "a customer's first request", first
    again = replace(first.customer, account_age_days=365, orders=5, refunds=1, share_refunded_percent=20, refunds_week=1, amount_today=500)
    yield "a customer's second request", replace(first, customer=again, payment=replace(first.payment, refunds_made=1))
    everything = replace(first.request, amount=first.payment.remaining, full=True)
    yield "a full refund", replace(first, request=everything, payment=replace(first.payment, captured=everything.amount))
    yield "a payment of which nothing is left", replace(first, payment=replace(first.payment, remaining=0))


def ready_to_publish(source: str, effective_from: datetime | None = None) -> Policy:
    """Read a policy that is to be published. Raises :class:`refunds.policy.PolicyError` as ``load_policy`` does, for a rule that cannot be judged on an
    ordinary request, whatever is known of it, and for an exception that is over before the version is in force."""
    policy = load_policy(source)
    found = unjudgeable(policy)
    over = list(over_by(policy, effective_from)) if effective_from is not None else []
    if not found and not over:
        return policy
    placed = positions.read(source)
    problems = [Problem(placed.mark(p).line, placed.mark(p).column, ".".join(map(str, p)), what, remedy) for p, what, remedy in over]
    for at, request, failure in found:
        mark = placed.mark(("rules", at, "when"))
        problem, remedy = failure
        what = f"{problem} on {request}, so a person would have to look at each such refund"
        problems.append(Problem(mark.line, mark.column, f"rules.{at}.when", what, remedy))
    raise PolicyError(problems)


def unjudgeable(policy: Policy) -> list[tuple[int, str, tuple[str, str]]]:
    """The rules (by their place, counted from 0) that fail on an ordinary request for what is written in them, each with the request in words, what is wrong
    and what to do. A fact that is not known, or text compared with a number, is none: rules may meet that on purpose."""
    found: list[tuple[int, str, tuple[str, str]]] = []
    for at, rule in enumerate(policy.rules):
        if rules.uses_reading(rule.when):
            continue
        tried = [(words, rules.plain_facts(facts)) for words, facts in _requests(policy)]
        tried.append((EVERYTHING_KNOWN, _known(tried[0][1])))
        for words, plain in tried:
            failure = _failure(rule.when, plain, known=words == EVERYTHING_KNOWN)
            if failure is not None:
                found.append((at, words, failure))
                break
    return found


EVERYTHING_KNOWN = "a request of which every fact is known"


def _known(plain: dict[str, Any]) -> dict[str, Any]:
    """The same facts, with something of its kind wherever one is not known: a function fails on what is not known, too."""
    something = {int: 1, bool: True, str: "x"}
    known = dict(plain)
    for group, kinds in rules.KINDS.items():
        if group in plain and plain[group] is not None:
            missing = {name: plain["at"] if name.endswith("_at") else something[kind] for name, kind in kinds.items()}
            known[group] = {name: missing.get(name) if value is None else value for name, value in plain[group].items()}
    known["lines"] = [{name: 1 if value is None else value for name, value in line.items()} for line in plain["lines"]]
    return known


def _failure(condition: str, plain: dict[str, Any], *, known: bool) -> tuple[str, str] | None:
    """Why a condition fails on these facts for what is written in it. Of functions that only shows where every fact is ``known``."""
    try:
        rules.judge(condition, plain)
    except rules.NoAnswer as error:
        words = f"the rule comes to {error.kind}"
        return None if error.nothing else (words, "Compare it, so that it comes to true or false: request.amount > 5000.")
    except rules.RuleError as error:
        if isinstance(error.__cause__, ZeroDivisionError):
            told = ("the rule divides by zero", "Ask first whether it is zero: x > 0 && y / x > 3.")
            return None if known else told  # there the numbers are made up
        if not known:
            return None
        said = str(error)
        return next((told for sign, told in _WRITTEN_WRONGLY if sign in said), None)
    return None


_WRITTEN_WRONGLY = (
    ("not a valid regex", ("the rule has a pattern that is none", 'Write a regular expression (RE2) such as "^[a-z]+$".')),
    (
        "Function 'duration' error",
        ("the rule has a length of time that is none", 'Write it with h, m and s, such as duration("720h") for 30 days.'),
    ),
    (
        "Function 'timestamp' error",
        ("the rule has a time that is none", 'Write it with its zone, such as timestamp("2026-01-31T00:00:00Z").'),
    ),
    (
        "Undefined variable or function",
        ("the rule calls a function with what it does not take", "Call it with as many arguments, and of such a kind, as CEL says."),
    ),
)
