"""The return rules: the part of a policy that is a promise to the customer, and that an order therefore keeps as it was when the order was placed.

Everything else guards the merchant (ceilings, tiers, ladders, limits, signals of fraud) and is always that of the version in force now. Which is which is
said here once and explained in ``docs/policy.md``.
"""

from typing import Any

from refunds.policy.model import Policy, Rule
from refunds.terms import canonical_hash

SECTIONS = ("windows", "returns", "reasons")
"""The sections that are return rules as a whole: how long, what must come back, and which reasons are covered."""

WORDS = ("policy_question", "outside_window", "not_covered")
"""The merchant's words about them, under ``texts``."""


def return_rules(policy: Policy) -> dict[str, Any]:
    """The return rules alone, as JSON values: what two versions are compared by."""
    plain = policy.model_dump(mode="json", include={*SECTIONS, "texts", "rules"})
    return {
        **{name: plain.get(name) for name in SECTIONS},
        "texts": {name: plain["texts"].get(name) for name in WORDS},
        "rules": [shown for rule, shown in zip(policy.rules, plain["rules"], strict=True) if rule.kept_with_order],
    }


def return_rules_hash(policy: Policy) -> str:
    """SHA-256 of the return rules' content in lower-case hex: the same for versions that promise the same."""
    return canonical_hash(return_rules(policy))


def with_return_rules_of(now: Policy, placed: Policy) -> Policy:
    """The policy that judges an order placed under ``placed``: its return rules, and everything else as it is in ``now``.

    Never raises. Where the two promise the same, it is ``now`` itself. A kept rule whose ladder is gone asks the ladder of high impact instead.
    """
    if now is placed or return_rules(now) == return_rules(placed):
        return now
    kept = tuple(_on_a_ladder_of(now, rule) for rule in placed.rules if rule.kept_with_order)
    at_once = tuple(rule for rule in now.rules if not rule.kept_with_order)
    return now.model_copy(
        update={
            **{name: getattr(placed, name) for name in SECTIONS},
            "texts": now.texts.model_copy(update={name: getattr(placed.texts, name) for name in WORDS}),
            "rules": (*kept, *(rule for rule in at_once if rule not in kept)),
        }
    )


def _on_a_ladder_of(now: Policy, rule: Rule) -> Rule:
    if rule.ladder is None or rule.ladder in now.review:
        return rule
    return rule.model_copy(update={"ladder": now.tiers.high_impact.ladder})
