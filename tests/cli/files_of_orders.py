"""What the tests of `refunds orders import` share: a record that keeps what is sent, and files to send."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.conftest import FakeApi, Ran

HEAD = "order_id,customer_id,currency,payment_id,payment_amount,line_id,line_amount,line_quantity,line_title\n"
IMPORT = ("POST", "/v1/orders/import")


@dataclass
class Shop:
    """Stands for the record behind the API: what was sent in which parts, and orders by their ids. ``before`` is called with each part's number first."""

    api: FakeApi
    parts: list[list[str]] = field(default_factory=list)
    orders: dict[str, Any] = field(default_factory=dict)
    refuses: dict[str, dict[str, str]] = field(default_factory=dict)
    before: Callable[[int], tuple[int, Any] | None] = lambda number: None

    def take(self, method: str, path: str) -> tuple[int, Any]:
        if (method, path) != IMPORT:
            return 404, {"code": "NOT_FOUND", "detail": "There is nothing at this address."}
        sent = self.api.calls[-1][2]["orders"]
        self.parts.append([one["order_id"] for one in sent])
        return self.before(len(self.parts)) or (200, {"orders": [self._one(one["order_id"], one["order"]) for one in sent]})

    def _one(self, order_id: str, order: Any) -> dict[str, Any]:
        if order_id in self.refuses:
            return {"order_id": order_id, "outcome": "refused", "errors": [self.refuses[order_id]]}
        known = self.orders.get(order_id)
        self.orders[order_id] = order
        return {"order_id": order_id, "outcome": "created" if known is None else "unchanged" if known == order else "new_version"}


def write(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def report(name: str) -> list[tuple[int, str, str, str]]:
    """Line, order, code and field of each problem; each says what is wrong and what to do."""
    rows = list(csv.DictReader(io.StringIO(Path(f"{name}.report.csv").read_text())))
    assert all(row["what"] and row["remedy"] for row in rows)
    return [(int(row["line"]), row["order"], row["code"], row["field"]) for row in rows]


def said(ran: Ran) -> dict[str, int]:
    plain = json.loads(ran.out)
    return {name: plain[name] for name in ("created", "new_version", "unchanged", "failed")}


def jsonl(*orders: dict[str, Any] | str) -> str:
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in orders)


def order(number: int, **changed: Any) -> dict[str, Any]:
    paid = {"id": f"pi_{number}", "amount": 3_000, "currency": "USD"}
    return {"order_id": f"o-{number}", "customer_id": f"c-{number}", "currency": "USD", "payments": [paid]} | changed
