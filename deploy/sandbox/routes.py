"""Which paths there are, what serves them, and what faults and restricted keys call them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from deploy.sandbox import accounts, charges, connect, disputes, payments, refunds
from deploy.sandbox.errors import no_such
from deploy.sandbox.listing import LIST_PARAMETERS, listed
from deploy.sandbox.objects import Body
from deploy.sandbox.params import items, reject_unknown, text
from deploy.sandbox.work import Call

Handler = Callable[[Call], Body]


@dataclass(frozen=True, slots=True)
class Route:
    """`op` names the operation in faults; `resource` is what a restricted key needs read or write on."""

    op: str
    resource: str
    handler: Handler


def _links(call: Call) -> dict[str, str | list[str]]:
    """What refund, dispute, charge and payment lists are narrowed by."""
    found: dict[str, str | list[str]] = {}
    for name in ("charge", "payment_intent", "customer"):
        value = text(call.params, name)
        if value is not None:
            found[name] = value
    return found


def _list(kind: str, url: str, narrowed_by: frozenset[str], *, counted: bool, call: Call) -> Body:
    reject_unknown(call.params, LIST_PARAMETERS | narrowed_by | {"created"})
    return listed(call, kind, url, _links(call), counted=counted)


def _charge_refunds(call: Call) -> Body:
    """GET /v1/charges/{charge}/refunds carries neither count nor total_count (recorded)."""
    reject_unknown(call.params, LIST_PARAMETERS)
    return listed(call, "refund", f"/v1/charges/{call.args[0]}/refunds", {"charge": call.args[0]})


def _events(call: Call) -> Body:
    reject_unknown(call.params, LIST_PARAMETERS | {"created", "type", "types", "delivery_success"})
    kinds = items(call.params, "types")
    one = text(call.params, "type")
    if one is not None:
        kinds.append(one)
    return listed(call, "event", "/v1/events", {"type": kinds} if kinds else {})


def _balance_transactions(call: Call) -> Body:
    reject_unknown(call.params, LIST_PARAMETERS | {"created", "type", "source"})
    links: dict[str, str | list[str]] = {}
    for name in ("type", "source"):
        value = text(call.params, name)
        if value is not None:
            links[name] = value
    return listed(call, "balance_transaction", "/v1/balance_transactions", links)


def _transfers(call: Call) -> Body:
    reject_unknown(call.params, LIST_PARAMETERS | {"created", "destination", "transfer_group"})
    links = _named(call, {"source": "destination", "type": "transfer_group"})
    return _each_shown(call, listed(call, "transfer", "/v1/transfers", links))


def _fees(call: Call) -> Body:
    reject_unknown(call.params, LIST_PARAMETERS | {"created", "charge"})
    return _each_shown(call, listed(call, "application_fee", "/v1/application_fees", _named(call, {"charge": "charge"})))


def _named(call: Call, parameters: dict[str, str]) -> dict[str, str | list[str]]:
    """The links a list is narrowed by, and the parameter that gives each."""
    given = {link: text(call.params, parameter) for link, parameter in parameters.items()}
    return {link: value for link, value in given.items() if value is not None}


def _each_shown(call: Call, answer: Body) -> Body:
    answer["data"] = [connect.shown(call.state, body) for body in answer["data"]]
    return answer


def _parts(call: Call, kind: str, of: str) -> Body:
    """The reversals of a transfer, or the refunds of a fee."""
    reject_unknown(call.params, LIST_PARAMETERS)
    if call.state.get(of, call.args[0]) is None:
        raise no_such(of, call.args[0], param="id")
    name = "reversals" if of == "transfer" else "refunds"
    return listed(call, kind, f"/v1/{of}s/{call.args[0]}/{name}", {"source": call.args[0]})


def _lister(kind: str, url: str, *narrowed_by: str, counted: bool = False) -> Handler:
    def handler(call: Call) -> Body:
        return _list(kind, url, frozenset(narrowed_by), counted=counted, call=call)

    return handler


_PAYMENT = "payment_intents"
_TABLE: dict[tuple[str, str], Route] = {
    ("POST", "/v1/payment_intents"): Route("payment_intent.create", _PAYMENT, payments.create),
    ("GET", "/v1/payment_intents"): Route("payment_intent.list", _PAYMENT, _lister("payment_intent", "/v1/payment_intents", "customer")),
    ("GET", "/v1/payment_intents/*"): Route("payment_intent.retrieve", _PAYMENT, payments.retrieve),
    ("POST", "/v1/payment_intents/*/confirm"): Route("payment_intent.confirm", _PAYMENT, payments.confirm),
    ("POST", "/v1/payment_intents/*/capture"): Route("payment_intent.capture", _PAYMENT, payments.capture),
    ("POST", "/v1/payment_intents/*/cancel"): Route("payment_intent.cancel", _PAYMENT, payments.cancel),
    ("GET", "/v1/charges"): Route("charge.list", "charges", _lister("charge", "/v1/charges", "customer", "payment_intent")),
    ("GET", "/v1/charges/*"): Route("charge.retrieve", "charges", charges.retrieve),
    ("GET", "/v1/charges/*/dispute"): Route("dispute.retrieve", "disputes", disputes.of_charge),
    ("GET", "/v1/charges/*/refunds"): Route("refund.list", "refunds", _charge_refunds),
    ("GET", "/v1/charges/*/refunds/*"): Route("refund.retrieve", "refunds", refunds.retrieve),
    ("POST", "/v1/charges/*/refund"): Route("refund.create", "refunds", refunds.refund_charge),
    ("POST", "/v1/charges/*/refunds"): Route("refund.create", "refunds", refunds.create_on_charge),
    ("POST", "/v1/refunds"): Route("refund.create", "refunds", refunds.create),
    ("GET", "/v1/refunds"): Route("refund.list", "refunds", _lister("refund", "/v1/refunds", "charge", "payment_intent", counted=True)),
    ("GET", "/v1/refunds/*"): Route("refund.retrieve", "refunds", refunds.retrieve),
    ("POST", "/v1/refunds/*"): Route("refund.update", "refunds", refunds.update),
    ("POST", "/v1/refunds/*/cancel"): Route("refund.cancel", "refunds", refunds.cancel),
    ("GET", "/v1/disputes"): Route(
        "dispute.list", "disputes", _lister("dispute", "/v1/disputes", "charge", "payment_intent", counted=True)
    ),
    ("GET", "/v1/disputes/*"): Route("dispute.retrieve", "disputes", disputes.retrieve),
    ("POST", "/v1/disputes/*"): Route("dispute.update", "disputes", disputes.update),
    ("POST", "/v1/disputes/*/close"): Route("dispute.close", "disputes", disputes.close),
    ("POST", "/v1/transfers"): Route("transfer.create", "transfers", connect.create_transfer),
    ("GET", "/v1/transfers"): Route("transfer.list", "transfers", _transfers),
    ("GET", "/v1/transfers/*"): Route("transfer.retrieve", "transfers", connect.retrieve_transfer),
    ("POST", "/v1/transfers/*/reversals"): Route("transfer_reversal.create", "transfers", connect.reverse),
    ("GET", "/v1/transfers/*/reversals"): Route(
        "transfer_reversal.list", "transfers", partial(_parts, kind="transfer_reversal", of="transfer")
    ),
    ("GET", "/v1/transfers/*/reversals/*"): Route(
        "transfer_reversal.retrieve", "transfers", partial(connect.retrieve_part, kind="transfer_reversal", of="transfer")
    ),
    ("GET", "/v1/application_fees"): Route("application_fee.list", "application_fees", _fees),
    ("GET", "/v1/application_fees/*"): Route("application_fee.retrieve", "application_fees", connect.retrieve_fee),
    ("POST", "/v1/application_fees/*/refunds"): Route("fee_refund.create", "application_fees", connect.refund_fee),
    ("GET", "/v1/application_fees/*/refunds"): Route(
        "fee_refund.list", "application_fees", partial(_parts, kind="fee_refund", of="application_fee")
    ),
    ("GET", "/v1/application_fees/*/refunds/*"): Route(
        "fee_refund.retrieve", "application_fees", partial(connect.retrieve_part, kind="fee_refund", of="fee")
    ),
    ("GET", "/v1/events"): Route("event.list", "events", _events),
    ("GET", "/v1/events/*"): Route("event.retrieve", "events", partial(accounts.retrieve, kind="event", param="id")),
    ("GET", "/v1/balance"): Route("balance.retrieve", "balance", accounts.balance),
    ("GET", "/v1/balance_transactions"): Route("balance_transaction.list", "balance", _balance_transactions),
    ("GET", "/v1/balance_transactions/*"): Route(
        "balance_transaction.retrieve", "balance", partial(accounts.retrieve, kind="balance_transaction", param="id")
    ),
    ("GET", "/v1/account"): Route("account.retrieve", "account", accounts.account),
    ("GET", "/v1/accounts/*"): Route("account.retrieve", "account", accounts.account),
    ("POST", "/v1/customers"): Route("customer.create", "customers", accounts.create_customer),
    ("GET", "/v1/customers"): Route("customer.list", "customers", _lister("customer", "/v1/customers")),
    ("GET", "/v1/customers/*"): Route("customer.retrieve", "customers", partial(accounts.retrieve, kind="customer", param="id")),
}
OPERATIONS = frozenset(route.op for route in _TABLE.values())
RESOURCES = frozenset(route.resource for route in _TABLE.values())


def match(method: str, path: str) -> tuple[Route, tuple[str, ...]] | None:
    """The route of a path and the ids in it. Every second part of a path is an id, with `/refund`-like verbs after it."""
    parts = path.split("/")
    args = tuple(parts[3::2])
    if "" in args:
        return None
    parts[3::2] = ["*"] * len(args)
    route = _TABLE.get((method, "/".join(parts)))
    return None if route is None else (route, args)
