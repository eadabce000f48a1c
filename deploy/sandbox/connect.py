"""Stripe Connect: connected accounts, transfers and their reversals, application fees and their refunds.

Nothing of it was recorded. Rules from https://docs.stripe.com/connect/destination-charges, https://docs.stripe.com/connect/separate-charges-and-transfers and
the API reference; error texts from public threads where one is named beside it, else an informed guess. docs/sandbox.md says which is which.
"""

from typing import Any

from deploy.sandbox import connect_objects, objects
from deploy.sandbox.currency import check_currency, printed
from deploy.sandbox.errors import StripeError, invalid, missing_parameter, no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import integer, metadata, reject_unknown, required_text, text
from deploy.sandbox.scopes import account_of, same_mode
from deploy.sandbox.state import Page, State
from deploy.sandbox.words import words
from deploy.sandbox.work import Call, Work

_TRANSFER = words("amount currency description destination expand metadata source_transaction source_type transfer_group")
_SHOWN = Page(limit=10)

# --- accounts ------------------------------------------------------------------------------------------------------------------------------


def accounts(state: State) -> list[str]:
    """The connected accounts that the control API registered."""
    return state.setting("connected", [])


def require_account(state: State, account: str, param: str) -> None:
    if account not in accounts(state):
        raise StripeError(400, f"No such destination: '{account}'", code="resource_missing", param=param)


# --- what a captured charge sets in motion -------------------------------------------------------------------------------------------------


def settle_capture(work: Work, intent: Body, charge: Body) -> None:
    """The transfer of a destination charge and the application fee, made when the charge is captured, both capped at what was captured."""
    data, fee = intent["transfer_data"], intent["application_fee_amount"]
    taken = charge["amount_captured"]
    payer, origin = charge["id"], None
    account = account_of(work.state.scope)
    if data is not None:
        amount = min(data.get("amount") or taken, taken)
        charge["transfer_group"] = charge["transfer_group"] or f"group_{intent['id']}"
        made = send(work, amount, charge["currency"], data["destination"], charge["transfer_group"], charge["id"], {})
        charge["transfer"], account = made["id"], data["destination"]
        payer, origin = made["destination_payment"], charge["id"]
    if fee and account is not None:
        _take_fee(work, charge, account, min(fee, taken), payer, origin)


def _take_fee(work: Work, charge: Body, account: str, amount: int, payer: str, origin: str | None) -> None:
    state = work.state
    with state.acting_for(same_mode(state.scope, None)):
        body = connect_objects.application_fee(
            account=account, amount=amount, currency=charge["currency"], charge=payer, originating=origin, now=work.now
        )
        body["balance_transaction"] = _row(work, body, amount, "application_fee", "platform_earning")
        state.insert(body, charge=payer, payment_intent=charge["payment_intent"], source=account)
        work.emit("application_fee.created", shown(state, body))
    _move(work, account, charge["currency"], -amount)
    charge.update(application_fee=body["id"], application_fee_amount=amount)


def send(work: Work, amount: int, code: str, destination: str, group: str | None, source: str | None, tags: dict[str, str]) -> Body:
    """Makes a transfer and the payment that arrives at its destination."""
    state = work.state
    payment = connect_objects.arrived(amount=amount, currency=code, transfer_id=None, description=None, now=work.now)
    body = connect_objects.transfer(
        amount=amount,
        currency=code,
        destination=destination,
        group=group,
        source=source,
        payment=payment["id"],
        metadata=tags,
        transaction=None,
        now=work.now,
    )
    payment["source_transfer"] = body["id"]
    body["balance_transaction"] = _row(work, body, -amount, "transfer", "transfer")
    intent = None if source is None else state.expect("charge", source)["payment_intent"]
    state.insert(body, charge=source, payment_intent=intent, type=group, source=destination)
    with state.acting_for(same_mode(state.scope, destination)):
        state.insert(payment)
    _move(work, destination, code, amount)
    work.emit("transfer.created", shown(state, body))
    return body


def _row(work: Work, body: Body, amount: int, kind: str, category: str) -> str:
    """Books an amount (negative leaves) with the account that is acted for; the id of its balance transaction."""
    work.book(body["currency"], amount)
    value, settlement = objects.settled(amount, body["currency"])
    row = objects.balance_transaction(
        kind=kind,
        category=category,
        amount=value,
        fee=0,
        currency=settlement,
        source=body["id"],
        description="",
        now=work.now,
        status="available",
    )
    work.state.insert(row, type=kind, source=body["id"])
    return row["id"]


def _move(work: Work, account: str, code: str, amount: int) -> None:
    with work.state.acting_for(same_mode(work.state.scope, account)):
        work.book(code, amount)


# --- reversals and fee refunds -------------------------------------------------------------------------------------------------------------


def check_legs(work: Work, charge: Body, *, reverse: bool, give_fee: bool) -> None:
    """Refuses a parameter that does not apply to this charge; nothing is refunded then."""
    if reverse and charge.get("transfer") is None:
        # Public threads report this text, among them one that measured it in test mode.
        raise StripeError(400, f"Cannot reverse transfer on charge {charge['id']} because it does not have an associated transfer.")
    if give_fee and charge["application_fee"] is None:
        # alfio-event/alf.io#739
        raise StripeError(400, f"Attempting to refund_application_fee on {charge['id']}, but it has no application fee")


def refund_legs(work: Work, charge: Body, extra: dict[str, Any], refund: Body, *, reverse: bool, give_fee: bool) -> None:
    """What a refund with `reverse_transfer` and `refund_application_fee` returns besides: in proportion to the part of the captured amount it returns.

    "If a full charge refund is given, the full application fee will be refunded. Otherwise ... in an amount proportional to the amount of the charge refunded"
    (Stripe's schema; the transfer likewise). How parts are rounded is not said: here to the nearest, of the running total, so that parts end at exactly the whole.
    """
    whole = charge["amount_captured"]
    if reverse:
        sent = work.state.expect("transfer", charge["transfer"])
        amount = _share(extra, "reversed_for", sent["amount"], refund["amount"], whole)
        if amount:
            made = undo(work, sent, amount, {}, refund)
            refund["transfer_reversal"] = made["id"]
            work.state.save(refund)
    if give_fee:
        with work.state.acting_for(same_mode(work.state.scope, None)):
            fee = work.state.expect("application_fee", charge["application_fee"])
            amount = _share(extra, "fee_for", fee["amount"], refund["amount"], whole)
            if amount:
                give_back(work, fee, amount, {})
    work.state.save_extra(charge["id"], extra)


def _share(extra: dict[str, Any], name: str, of: int, amount: int, whole: int) -> int:
    before = extra.get(name, 0)
    extra[name] = before + amount
    return _nearest(of * (before + amount), whole) - _nearest(of * before, whole)


def _nearest(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def undo(work: Work, sent: Body, amount: int, tags: dict[str, str], refund: Body | None = None) -> Body:
    """Reverses a part of a transfer: the platform has it again, the payment at the destination shows a refund. Raises 400 for more than is left.

    A transfer of a destination charge may leave its account below zero; any other needs the balance (https://docs.stripe.com/api/transfer_reversals).
    """
    left = sent["amount"] - sent["amount_reversed"]
    if amount > left:
        asked, rest = printed(amount, sent["currency"]), printed(left, sent["currency"])
        raise StripeError(400, f"Transfer reversal amount ({asked}) is greater than unreversed amount on transfer ({rest})", param="amount")
    with work.state.acting_for(same_mode(work.state.scope, sent["destination"])):
        available = work.balances().get(sent["currency"])
        if available is not None and available < amount and not _is_destination(work, sent):
            raise StripeError(400, "Insufficient funds in the connected account to reverse this transfer.", code="balance_insufficient")
        returned = _refund_of_arrived(work, sent, amount)
        work.book(sent["currency"], -amount)
    body = connect_objects.reversal(
        of=sent,
        amount=amount,
        payment_refund=returned["id"],
        source_refund=None if refund is None else refund["id"],
        metadata=tags,
        now=work.now,
    )
    body["balance_transaction"] = _row(work, body, amount, "transfer_refund", "transfer_reversal")
    returned["source_transfer_reversal"] = body["id"]
    with work.state.acting_for(same_mode(work.state.scope, sent["destination"])):
        work.state.save(returned)
    work.state.insert(body, charge=sent["source_transaction"], payment_intent=work.state.intent_of(sent["id"]), source=sent["id"])
    sent["amount_reversed"] += amount
    sent["reversed"] = sent["amount_reversed"] >= sent["amount"]
    work.state.save(sent)
    work.emit("transfer.reversed", shown(work.state, dict(sent)))
    return body


def _is_destination(work: Work, sent: Body) -> bool:
    with work.state.acting_for(same_mode(work.state.scope, None)):
        charge = None if sent["source_transaction"] is None else work.state.get("charge", sent["source_transaction"])
    return charge is not None and charge.get("transfer") == sent["id"]


def _refund_of_arrived(work: Work, sent: Body, amount: int) -> Body:
    payment = work.state.expect("charge", sent["destination_payment"])
    body = objects.refund(charge=payment, amount=amount, reason=None, metadata={}, status="succeeded", transaction=None, now=work.now)
    body["id"] = objects.new_id("pyr_")
    work.state.insert(body, charge=payment["id"])
    payment["amount_refunded"] += amount
    payment["refunded"] = payment["amount_refunded"] >= payment["amount_captured"]
    work.state.save(payment)
    return body


def give_back(work: Work, fee: Body, amount: int, tags: dict[str, str]) -> Body:
    """Returns a part of an application fee to the account it was taken from. Raises 400 for more than is left (text: Shopify/active_merchant's remote tests)."""
    left = fee["amount"] - fee["amount_refunded"]
    if amount > left:
        asked, rest = printed(amount, fee["currency"]), printed(left, fee["currency"])
        message = f"Refund amount ({asked}) is greater than unrefunded amount on fee ({rest})"
        raise StripeError(400, f"Application fee could not be refunded: {message}", param="amount")
    body = connect_objects.fee_refund(of=fee, amount=amount, metadata=tags, now=work.now)
    body["balance_transaction"] = _row(work, body, -amount, "application_fee_refund", "platform_earning_refund")
    work.state.insert(
        body, charge=fee["originating_transaction"] or fee["charge"], payment_intent=work.state.intent_of(fee["id"]), source=fee["id"]
    )
    _move(work, fee["account"], fee["currency"], amount)
    fee["amount_refunded"] += amount
    fee["refunded"] = fee["amount_refunded"] >= fee["amount"]
    work.state.save(fee)
    work.emit("application_fee.refunded", shown(work.state, dict(fee)))
    return body


# --- the API ---------------------------------------------------------------------------------------------------------------------------------


def shown(state: State, body: Body) -> Body:
    """A transfer or an application fee with the list of what was returned of it: the ten newest, and how many there are."""
    name, kind, path = (
        ("reversals", "transfer_reversal", "transfers") if body["object"] == "transfer" else ("refunds", "fee_refund", "application_fees")
    )
    data, more = state.page(kind, {"source": body["id"]}, _SHOWN)
    total = len(state.every(kind, source=body["id"])) if more else len(data)
    url = f"/v1/{path}/{body['id']}/{name}"
    return {**body, name: {"object": "list", "data": data, "has_more": more, "total_count": total, "url": url}}


def create_transfer(call: Call) -> Body:
    """POST /v1/transfers: a separate transfer, out of the balance or out of a charge (`source_transaction`)."""
    reject_unknown(call.params, _TRANSFER)
    amount, code = integer(call.params, "amount", least=1), check_currency(required_text(call.params, "currency"))
    destination, source = required_text(call.params, "destination"), text(call.params, "source_transaction")
    require_account(call.state, destination, "destination")
    group = text(call.params, "transfer_group")
    if source is not None:
        charge = call.state.get("charge", source)
        if charge is None:
            raise no_such("charge", source, param="source_transaction", status=400)
        moved = sum(one["amount"] - one["amount_reversed"] for one in call.state.every("transfer", charge=source))
        left = charge["amount_captured"] - charge["amount_refunded"] - moved
        amount = left if amount is None else amount
        if amount > left:
            raise StripeError(400, "The transfer amount cannot be greater than what is left of the source transaction.", param="amount")
        group = group or charge["transfer_group"] or f"group_{source}"
        charge["transfer_group"] = group
        call.state.save(charge)
    if amount is None:
        raise missing_parameter("amount")
    available = call.balances().get(code)
    if source is None and available is not None and available < amount:
        raise StripeError(400, "You have insufficient funds in your Stripe account for this transfer.", code="balance_insufficient")
    return shown(call.state, send(call, amount, code, destination, group, source, metadata(call.params, {})))


def _by_path(call: Call, kind: str, param: str) -> Body:
    body = call.state.get(kind, call.args[0])
    if body is None:
        raise no_such(kind.replace("_", " ") if kind == "application_fee" else kind, call.args[0], param=param)
    return body


def retrieve_transfer(call: Call) -> Body:
    reject_unknown(call.params, ("expand",))
    return shown(call.state, _by_path(call, "transfer", "transfer"))


def retrieve_fee(call: Call) -> Body:
    reject_unknown(call.params, ("expand",))
    return shown(call.state, _by_path(call, "application_fee", "id"))


def reverse(call: Call) -> Body:
    """POST /v1/transfers/{transfer}/reversals. Without an amount the rest is reversed."""
    reject_unknown(call.params, ("amount", "description", "expand", "metadata", "refund_application_fee"))
    if call.params.get("refund_application_fee") == "true":
        raise invalid("The sandbox does not model refund_application_fee on a reversal.", param="refund_application_fee")
    sent = _by_path(call, "transfer", "id")
    amount = integer(call.params, "amount", least=1)
    left = sent["amount"] - sent["amount_reversed"]
    if left <= 0:
        raise StripeError(400, f"Transfer {sent['id']} has already been fully reversed.")
    return undo(call, sent, left if amount is None else amount, metadata(call.params, {}))


def refund_fee(call: Call) -> Body:
    """POST /v1/application_fees/{fee}/refunds. Without an amount the rest is refunded."""
    reject_unknown(call.params, ("amount", "expand", "metadata"))
    fee = _by_path(call, "application_fee", "id")
    amount = integer(call.params, "amount", least=1)
    return give_back(call, fee, max(fee["amount"] - fee["amount_refunded"], 1) if amount is None else amount, metadata(call.params, {}))


def retrieve_part(call: Call, kind: str, of: str) -> Body:
    """One reversal or one refund of a fee, which only its own transfer or fee knows."""
    reject_unknown(call.params, ("expand",))
    body = call.state.get(kind, call.args[1])
    if body is None or body[of] != call.args[0]:
        raise no_such(kind, call.args[1], param="id")
    return body
