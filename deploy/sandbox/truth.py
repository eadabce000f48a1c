"""What was asked and what was really done, for tests: the record that an application's own record is held against."""

import json
from typing import Any

from deploy.sandbox.state import State, dumps

LOGGED = frozenset({"refund.create", "payment_intent.cancel"})
LOST = "lost"


class RequestLog:
    """Every request to create a refund or to cancel a PaymentIntent that reached the sandbox."""

    def __init__(self, state: State) -> None:
        self._state = state

    def received(self, op: str, key: str | None, params: dict[str, Any], payment_intent: str | None) -> int:
        cursor = self._state.db.execute(
            "INSERT INTO requests (op, time_ms, idempotency_key, params, payment_intent) VALUES (?, ?, ?, ?, ?)",
            (op, self._state.clock.now_ms(), key, dumps(params), payment_intent),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def answered(self, seq: int, answer: int | str, *, made: str | None = None, replayed: bool = False) -> None:
        """`answer` is the HTTP status or "lost"; `made` the id of what this request (not an earlier one) made."""
        self._state.db.execute(
            "UPDATE requests SET answered = ?, made = coalesce(?, made), replayed = max(replayed, ?) WHERE seq = ?",
            (json.dumps(answer), made, int(replayed), seq),
        )

    def read(self, op: str, payment_intent: str | None) -> list[dict[str, Any]]:
        where, values = ("", ()) if payment_intent is None else (" AND payment_intent = ?", (payment_intent,))
        rows = self._state.db.execute(
            "SELECT time_ms, idempotency_key, params, payment_intent, answered, made, replayed FROM requests "
            f"WHERE op = ?{where} ORDER BY seq",
            (op, *values),
        )
        return [
            {
                "time_ms": row[0],
                "key": row[1],
                "params": json.loads(row[2]),
                "payment_intent": row[3],
                "answered": None if row[4] is None else json.loads(row[4]),
                "made": row[5],
                "replayed": bool(row[6]),
            }
            for row in rows
        ]


def report(state: State, log: RequestLog, payment_intent: str | None) -> dict[str, Any]:
    """`refunds` are those really made, hidden ones too; a released authorisation is not among them."""
    links = {} if payment_intent is None else {"payment_intent": payment_intent}
    return {
        "create_requests": log.read("refund.create", payment_intent),
        "cancel_requests": log.read("payment_intent.cancel", payment_intent),
        "refunds": state.every("refund", **links),
    }
