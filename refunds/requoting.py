"""Terms that nobody asked to change and that lapsed or no longer fit: what has to be looked at by a person before the next ones are sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from refunds.differences import differences, moved_meanwhile
from refunds.facts import Check, Facts, PolicyDecision, Review


def reviewed_again(
    decision: PolicyDecision, facts: Facts, before: Mapping[str, Any], reviewed: Review | None, people: Review
) -> PolicyDecision:
    """The decision about terms that follow others by themselves. Adds to what it requires, and never takes from it.

    What a person had approved (``reviewed``) a person approves again. Where what is refundable, a dispute or the order has moved since ``before`` (the
    revision as recorded), a person looks as well, by the ladder ``people`` if no other is required; the check says what has moved.
    """
    review, checks = decision.review, list(decision.checks)
    if reviewed is not None and review is None:
        words = "A person approved the terms that lapsed, so a person approves these."
        checks.append(Check("reviewed_before", words, "approved", "again", "require_review"))
        review = reviewed
    after = {"amount": facts.request.amount, "currency": facts.request.currency, "terms": None, "facts": facts.plain()}
    if moved := moved_meanwhile(differences({**before, "terms": None}, after)):
        words = "What is refundable, the disputes and the order are as they were when the terms before these were written."
        checks.append(Check("moved_meanwhile", words, " ".join(one.words for one in moved), "as it was", "require_review"))
        review = review or people
    if review is None or review is decision.review:
        return replace(decision, checks=tuple(checks))
    return replace(decision, review=review, tier=4 if review.role == "manager" or review.people > 1 else 3, checks=tuple(checks))
