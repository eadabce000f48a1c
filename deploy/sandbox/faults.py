"""Faults that the control API orders: which call they hit and what they do to it."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from deploy.sandbox import lives
from deploy.sandbox.state import State, dumps

Fault = dict[str, Any]
WEBHOOK = "webhook"
API_KINDS = {
    "lose_answer": {},
    "lose_request": {},
    "status": {"status": int, "body": (dict, str), "after_work": bool},
    "malformed": {},
    "rate_limit": {"lock_timeout": bool},
    "key_in_use": {},
    "delay": {"ms": int},
    "hang": {"ms": int},
    "alter": {"fields": dict},
    "hide": {},
    "outcome": dict.fromkeys(lives.FIELDS, object),
    "forget_key": {},
}
WEBHOOK_KINDS = {"duplicate": {}, "delay": {"ms": int}, "drop": {}, "hold": {}}
REQUIRED = {"status": ("status",), "delay": ("ms",), "hang": ("ms",), "alter": ("fields",)}
MATCHES, WEBHOOK_MATCHES = ("payment_intent", "key"), ("payment_intent", "type")


@dataclass(slots=True)
class Order:
    """One ordered fault. `times` counts down; None means for ever."""

    seq: int
    on: str
    match: dict[str, str]
    times: int | None
    faults: list[Fault]

    def shown(self) -> dict[str, Any]:
        return {"id": self.seq, "on": self.on, "match": self.match, "times": self.times, "fault": self.faults}


def _check(fault: Any, kinds: dict[str, dict[str, Any]]) -> None:
    kind = fault.get("kind") if isinstance(fault, dict) else None
    if kind not in kinds:
        raise ValueError(f"fault.kind is one of {', '.join(kinds)}")
    for name, value in fault.items():
        if name == "kind":
            continue
        if name not in kinds[kind] or not isinstance(value, kinds[kind][name]):
            raise ValueError(f"fault {kind}: {name} is unknown or of the wrong type")
    for name in REQUIRED.get(kind, ()):
        if name not in fault:
            raise ValueError(f"fault {kind} needs {name}")
    if kind == "outcome":
        lives.check({name: value for name, value in fault.items() if name != "kind"})


def _listed(fault: Any) -> list[Any]:
    return fault if isinstance(fault, list) else [fault]


class Faults:
    """The queue of ordered faults, on disk. Each call is hit by the first order that matches it and is not used up."""

    def __init__(self, state: State, operations: Collection[str]) -> None:
        self._state = state
        self._operations = operations
        self._orders: list[Order] = []
        for seq, body, times in state.db.execute("SELECT seq, body, times FROM faults ORDER BY seq").fetchall():
            saved = json.loads(body)
            self._orders.append(Order(seq, saved["on"], saved["match"], times, saved["faults"]))

    def __bool__(self) -> bool:
        return bool(self._orders)

    def shown(self) -> list[dict[str, Any]]:
        return [order.shown() for order in self._orders]

    def check(self, wanted: Any) -> None:
        """Raises ValueError unless this can be ordered."""
        if not isinstance(wanted, dict):
            raise ValueError("an order is an object with on, match, times and fault")
        unknown = set(wanted) - {"on", "match", "times", "fault"}
        on, match, times = wanted.get("on"), wanted.get("match") or {}, wanted.get("times", 1)
        if unknown:
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
        if on not in ("any", WEBHOOK, *self._operations):
            raise ValueError(f"on is one of any, webhook, {', '.join(sorted(self._operations))}")
        matches = WEBHOOK_MATCHES if on == WEBHOOK else MATCHES
        if not isinstance(match, dict) or set(match) - set(matches):
            raise ValueError(f"match holds {', '.join(matches)}")
        if times is not None and (not isinstance(times, int) or times < 1):
            raise ValueError("times is a positive whole number, or null for ever")
        for fault in _listed(wanted.get("fault")):
            _check(fault, WEBHOOK_KINDS if on == WEBHOOK else API_KINDS)

    def order(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Adds one order that `check` accepted. `fault` may be a list: its faults hit the same call together."""
        on, match, times = str(wanted["on"]), wanted.get("match") or {}, wanted.get("times", 1)
        faults = _listed(wanted["fault"])
        body = dumps({"on": on, "match": match, "faults": faults})
        cursor = self._state.db.execute("INSERT INTO faults (body, times) VALUES (?, ?)", (body, times))
        assert cursor.lastrowid is not None
        order = Order(cursor.lastrowid, on, match, times, faults)
        self._orders.append(order)
        return order.shown()

    def clear(self) -> None:
        """Forgets every order and shows hidden refunds again."""
        self._orders.clear()
        self._state.db.execute("DELETE FROM faults")
        self._state.db.execute("UPDATE objects SET hidden = 0 WHERE hidden = 1")

    def take(self, op: str, seen: Callable[[str], str | None]) -> dict[str, Fault]:
        """The faults that hit this call, by kind; one use of their order is spent. `seen` gives what may be matched."""
        for order in self._orders:
            hits = order.on == op or (order.on == "any" and op != WEBHOOK)
            if hits and all(seen(name) == value for name, value in order.match.items()):
                self._spend(order)
                return {fault["kind"]: fault for fault in order.faults}
        return {}

    def _spend(self, order: Order) -> None:
        if order.times is None:
            return
        order.times -= 1
        if order.times == 0:
            self._orders.remove(order)
            self._state.db.execute("DELETE FROM faults WHERE seq = ?", (order.seq,))
        else:
            self._state.db.execute("UPDATE faults SET times = ? WHERE seq = ?", (order.times, order.seq))
