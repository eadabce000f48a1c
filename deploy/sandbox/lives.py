"""What becomes of a refund by itself: the status it begins in, and those it goes through afterwards.

A life is `{initial?, then?, after_ms?, failure_reason?, pending_reason?}`. `then` is a status, `after_ms` after the refund was made; or a list of
`{status, after_ms?, failure_reason?}`, each counted from the one before, for a refund that is pending, succeeds, and fails days later.
"""

from typing import Any

from deploy.sandbox.words import words

COUNTED = frozenset({"pending", "requires_action", "succeeded"})
"""Statuses whose money is counted in the charge's amount_refunded; failed and canceled give it back."""
STATUSES = COUNTED | {"failed", "canceled"}
PENDING_REASONS = ("charge_pending", "insufficient_funds", "processing")
FIELDS = words("initial then after_ms failure_reason pending_reason")
_STEP = words("status after_ms failure_reason")
_DEFAULT_DELAY_MS = 1000

Step = dict[str, Any]


def check(life: Any) -> None:
    """Raises ValueError unless this life can be lived."""
    if not isinstance(life, dict) or set(life) - FIELDS:
        raise ValueError(f"a refund's life has {', '.join(sorted(FIELDS))}")
    if life.get("initial", "succeeded") not in STATUSES:
        raise ValueError(f"initial is one of {', '.join(sorted(STATUSES))}")
    if life.get("pending_reason") not in (None, *PENDING_REASONS):
        raise ValueError(f"pending_reason is one of {', '.join(PENDING_REASONS)}")
    for step in steps(life):
        if not isinstance(step, dict) or set(step) - _STEP or step.get("status") not in STATUSES:
            raise ValueError(f"then is one of {', '.join(sorted(STATUSES))}, or a list of steps with {', '.join(sorted(_STEP))}")
        if not isinstance(step.get("after_ms") or 0, int) or not isinstance(step.get("failure_reason") or "", str):
            raise ValueError("after_ms is a whole number of milliseconds, failure_reason a text")


def steps(life: dict[str, Any]) -> list[Step]:
    """The steps after the first status, in order."""
    then = life.get("then")
    if isinstance(then, list):
        return then
    return [] if then is None else [{"status": then, "after_ms": life.get("after_ms"), "failure_reason": life.get("failure_reason")}]


def delay_ms(step: Step) -> int:
    given = step.get("after_ms")
    return _DEFAULT_DELAY_MS if given is None else given
