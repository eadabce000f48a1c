"""`expand[]`: replaces ids by the objects they name, up to four levels deep."""

from collections.abc import Callable
from typing import Any

from deploy.sandbox.errors import invalid
from deploy.sandbox.objects import Body
from deploy.sandbox.params import items
from deploy.sandbox.state import Page
from deploy.sandbox.work import Call

DEEPEST = 4
EXPANDABLE = {
    "refund": {
        "charge",
        "payment_intent",
        "balance_transaction",
        "failure_balance_transaction",
        "transfer_reversal",
        "source_transfer_reversal",
    },
    "charge": {
        "payment_intent",
        "balance_transaction",
        "failure_balance_transaction",
        "customer",
        "dispute",
        "refunds",
        "transfer",
        "application_fee",
    },
    "payment_intent": {"latest_charge", "customer"},
    "dispute": {"charge", "payment_intent"},
    "balance_transaction": {"source"},
    "transfer": {"balance_transaction", "source_transaction"},
    "transfer_reversal": {"balance_transaction", "source_refund", "transfer"},
    "application_fee": {"balance_transaction", "originating_transaction"},
    "fee_refund": {"balance_transaction", "fee"},
}
"""Fields that Stripe's schema marks expandable and whose objects the sandbox holds."""


def refunds_of_charge(call: Call, charge: Body) -> Body:
    """The list inside an expanded charge: the ten newest, with `total_count` and no `count` (recorded)."""
    data, more = ([], False) if call.hide_refunds else call.state.page("refund", {"charge": charge["id"]}, Page())
    total = len(data) if not more else len(call.state.every("refund", charge=charge["id"]))
    url = f"/v1/charges/{charge['id']}/refunds"
    return {"object": "list", "data": data, "has_more": more, "total_count": total, "url": url}


def expanded(call: Call, answer: Body) -> Body:
    """The answer with every path of the request's `expand[]` filled in. Raises 400 for a path that cannot be."""
    for path in items(call.params, "expand"):
        names = path.split(".")
        if len(names) > DEEPEST:
            raise invalid(f"You cannot expand more than {DEEPEST} levels of a property. Property: {path}", param="expand")
        _follow(call, answer, names, path)
    return answer


def _follow(call: Call, node: Any, names: list[str], path: str) -> None:
    if not names or node is None:
        return
    if isinstance(node, list):
        for item in node:
            _follow(call, item, names, path)
        return
    name, rest = names[0], names[1:]
    kind = node.get("object")
    if kind == "list" and name == "data":
        _follow(call, node["data"], rest, path)
        return
    if name not in EXPANDABLE.get(kind, ()):
        raise invalid(f"This property cannot be expanded ({path}).", param="expand")
    loader = _SPECIAL.get((kind, name))
    if loader is not None and name not in node:
        node[name] = loader(call, node)
    elif isinstance(node.get(name), str):
        node[name] = call.state.by_id(node[name]) or node[name]
    if isinstance(node.get(name), dict):
        _follow(call, node[name], rest, path)


_SPECIAL: dict[tuple[str, str], Callable[[Call, Body], Body]] = {("charge", "refunds"): refunds_of_charge}
