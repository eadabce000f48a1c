"""Which entries the code can make, read from the code: the types that are written in it, with the names of their data."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ENTERING = frozenset({"enter", "note"})
_NO_DATA = frozenset({"actor", "on_behalf_of", "commitments", "connection"})

MADE_OF_PARTS = {
    "store/leg_rows.py": {"leg_done", "leg_parked", "leg_not_done", "leg_void"},
    "store/decisions.py": {"revise_recorded", "settle_recorded", "withdraw_recorded", "assign_recorded"},
    "store/refusals.py": {
        *("decision_refused", "consent_refused", "revision_refused", "withdrawal_refused", "settlement_refused", "assignment_refused"),
        "evidence_refused",
    },
    "store/breakers.py": {"breaker_half_open", "breaker_open", "breaker_closed"},
}
"""Types that the code puts together, by the file that does."""

ELSEWHERE = {
    **dict.fromkeys(("refund_received", "group_received"), "store/intake.py and store/groups.py"),
    **dict.fromkeys(("scope_halted", "processor_halted"), "store/halts.py"),
    **dict.fromkeys(("checkpoint_requested", "ledger_keys_changed"), "store/checkpoints.py"),
    "period_exported": "store/periods.py",
}
"""Types that stand in a name of their own or in a statement."""


def calls() -> Iterator[tuple[Path, ast.Call]]:
    """Every call that makes an entry."""
    for room in ("store", "api", "activities", "worker"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
                if isinstance(node, ast.Call) and name in _ENTERING:
                    yield path, node


def written() -> dict[str, set[str]]:
    """The types that are written out in such a call, with the names of what is given as data."""
    found: dict[str, set[str]] = {"status_changed": {"from", "to", "event", "code"}}
    for _, call in calls():
        for given in call.args[:2]:
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                names = {keyword.arg for keyword in call.keywords if keyword.arg and keyword.arg not in _NO_DATA}
                found.setdefault(given.value, set()).update(names)
    return found
