"""Whether approved terms that were kept back still stand: what is judged anew before they go, and what sends them back to a person."""

from collections.abc import Mapping
from typing import Any

from refunds.differences import differences, moved_meanwhile
from refunds.errors import Code
from refunds.facts import Facts, PolicyDecision

_STRICTER = {result: rank for rank, result in enumerate(("pass", "answer", "require_consent", "require_review", "deny"))}
_COUNTED = ("limit:", "customer_day", "customer_week")
"""How the ids of checks begin that count what others take of a limit. What these terms took of it they keep, so what came after them is no news about them."""


def no_longer_stands(before: Mapping[str, Any], decision: PolicyDecision, facts: Facts) -> str | None:
    """Why approved terms (their revision as recorded) must be quoted again, judged anew a moment ago; ``None`` while nothing speaks against them.

    They stand while the policy would let them proceed, no check demands more than it did, and neither what is refundable nor a dispute nor the order has
    moved. A check that demands less changes nothing: who had to approve has.
    """
    if decision.outcome != "proceed" and decision.code != Code.LIMIT_EXCEEDED:
        return decision.explanation or "the policy does not allow it any more"
    then = {check["id"]: check["result"] for check in before["decision"]["checks"]}
    for check in decision.checks:
        demanded = _STRICTER[then.get(check.id, "pass")]
        if _STRICTER[check.result] > demanded and not check.id.startswith(_COUNTED):
            return f"{check.text.rstrip('.')}: observed {check.observed}; limit {check.limit}"
    after = {"amount": facts.request.amount, "currency": facts.request.currency, "terms": None, "facts": facts.plain()}
    moved = moved_meanwhile(differences({**before, "terms": None}, after))
    return " ".join(one.words for one in moved) or None
