"""Reading the orders of an import: each is judged by itself, so that one bad order keeps no other from being stored."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from api.bodies import parse, read_object
from api.problems import InvalidBody, invalid
from refunds.errors import Code, RefundError
from refunds.orders import ExternalId, Order, Strict
from store.importing import Imported

MOST_ORDERS = 500
"""Orders in one call: well within a second or two, and within the largest body."""


class ImportedOrder(Strict):
    """An order under the merchant's id."""

    order_id: ExternalId
    order: Order


class OrderImport(Strict):
    """A part of the merchant's orders."""

    orders: Annotated[list[ImportedOrder], Field(min_length=1, max_length=MOST_ORDERS)]


class _Envelope(Strict):
    orders: Annotated[list[Any], Field(min_length=1, max_length=MOST_ORDERS)]


class _Head(Strict):
    order_id: ExternalId


@dataclass
class Judged:
    """One of the orders: its id, unless that cannot be read, and either the order or why it is refused."""

    order_id: str | None = None
    order: Order | None = None
    refusal: RefundError | None = None

    @property
    def fit(self) -> tuple[str, Order] | None:
        """What can be stored."""
        return (self.order_id, self.order) if self.order_id is not None and self.order is not None else None


def read_import(raw: bytes) -> list[Judged]:
    """Read the body of an import, and judge each order as if it had been sent alone.

    Raises ``MALFORMED_JSON``, or :class:`api.problems.InvalidBody` for what is wrong with the whole: no list of orders, too many, a field that stands twice.
    """
    _, plain = read_object(raw)
    try:
        items = _Envelope.model_validate(plain).orders
    except ValidationError as error:
        raise invalid(error) from None
    seen: set[str] = set()
    return [_judge(item, seen) for item in items]


def _judge(item: Any, seen: set[str]) -> Judged:
    judged = Judged()
    try:
        if not isinstance(item, dict):
            raise RefundError(Code.INVALID_FIELD, "Each of the orders is an object with order_id and order.")
        judged.order_id = parse(_Head, _again({name: value for name, value in item.items() if name != "order"})).order_id
        if judged.order_id in seen:
            # Which of the two is newer cannot be told, and a repeated call would turn them round for ever.
            raise RefundError(Code.INVALID_FIELD, "This order is in the call twice; the first one counts.", field="order_id")
        seen.add(judged.order_id)
        if not isinstance(item.get("order"), dict):
            raise RefundError(Code.INVALID_FIELD, "An order is an object.", field="order")
        judged.order = parse(Order, _again(item["order"]))
    except RefundError as refusal:
        judged.refusal = refusal
    return judged


def _again(plain: dict[str, Any]) -> bytes:
    try:
        return json.dumps(plain).encode()
    except RecursionError:
        raise RefundError(Code.MALFORMED_JSON, "The order is nested too deeply.") from None


def import_view(judged: Sequence[Judged], stored: Sequence[Imported]) -> dict[str, Any]:
    """The answer: of each order, in the order in which they were sent, what became of it. ``stored`` are the outcomes of those that were fit."""
    outcomes = iter(stored)
    shown = [_shown(one.order_id, Imported(None, error=one.refusal) if one.refusal else next(outcomes)) for one in judged]
    counts = {name: sum(one["outcome"] == name for one in shown) for name in ("created", "new_version", "unchanged", "refused")}
    return counts | {"orders": shown}


def _shown(order_id: str | None, result: Imported) -> dict[str, Any]:
    refusal = result.error
    view: dict[str, Any] = {"order_id": order_id, "outcome": result.put.value if result.put else "refused", "version": result.version}
    if refusal is None:
        return view | {"code": None, "field": None, "detail": None, "remedy": None, "errors": []}
    only = [{"field": refusal.field or "", "code": refusal.code.value, "detail": refusal.detail}]
    found = refusal.found if isinstance(refusal, InvalidBody) else only
    reason = {"code": refusal.code.value, "field": refusal.field, "detail": refusal.detail, "remedy": refusal.meaning.remedy}
    return view | reason | {"errors": found}
