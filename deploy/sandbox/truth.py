"""What was asked and what was really done, for tests: the record that an application's own record is held against."""

import json
from typing import Any

from deploy.sandbox.scopes import account_of
from deploy.sandbox.state import State, dumps

RETURNS = frozenset({"refund.create", "transfer_reversal.create", "fee_refund.create"})
"""The operations that return money, and the objects they make."""
RETURNED = frozenset({"refund", "transfer_reversal", "fee_refund"})
LOGGED = RETURNS | {"payment_intent.cancel"}
LOST = "lost"


class RequestLog:
    """Every request that reached the sandbox to create a refund, to cancel a PaymentIntent, to reverse a transfer or to refund a fee."""

    def __init__(self, state: State) -> None:
        self._state = state

    def received(self, op: str, key: str | None, params: dict[str, Any], payment_intent: str | None) -> int:
        cursor = self._state.db.execute(
            "INSERT INTO requests (op, time_ms, idempotency_key, params, payment_intent, scope) VALUES (?, ?, ?, ?, ?, ?)",
            (op, self._state.clock.now_ms(), key, dumps(params), payment_intent, self._state.scope),
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
            "SELECT time_ms, idempotency_key, params, payment_intent, answered, made, replayed, scope FROM requests "
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
                "account": account_of(row[7]),
            }
            for row in rows
        ]


def report(state: State, log: RequestLog, payment_intent: str | None) -> dict[str, Any]:
    """`refunds`, `transfers`, `reversals` and `fee_refunds` are those really made, of every account, hidden ones too; a released authorisation is not
    among them, nor is what a reversal does on the connected account. `payment_intent` narrows it to one payment: a charge where it has no PaymentIntent."""
    by = "charge" if payment_intent is not None and payment_intent.startswith(("ch_", "py_")) else "payment_intent"
    links = {} if payment_intent is None else {by: payment_intent}
    return {
        "create_requests": log.read("refund.create", payment_intent),
        "cancel_requests": log.read("payment_intent.cancel", payment_intent),
        "refunds": [body for body in state.everywhere("refund", **links) if body["source_transfer_reversal"] is None],
        "reversal_requests": log.read("transfer_reversal.create", payment_intent),
        "fee_refund_requests": log.read("fee_refund.create", payment_intent),
        "transfers": state.everywhere("transfer", **links),
        "reversals": state.everywhere("transfer_reversal", **links),
        "fee_refunds": state.everywhere("fee_refund", **links),
    }
