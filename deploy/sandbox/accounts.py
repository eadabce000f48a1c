"""The account around the payments: balance, balance transactions, events, customers."""

from deploy.sandbox import connect, objects
from deploy.sandbox.errors import no_such
from deploy.sandbox.objects import Body
from deploy.sandbox.params import metadata, reject_unknown
from deploy.sandbox.scopes import account_of, is_live
from deploy.sandbox.words import words
from deploy.sandbox.work import Call

DEFAULT_ACCOUNT = "acct_1SandboxRefunds00"
AMPLE = 10_000_000_00
"""What GET /v1/balance shows in the settlement currency while the control API has set nothing: there is always enough."""
_CUSTOMER = words("address description email expand invoice_settings metadata name phone shipping tax_exempt")
_INVOICE_SETTINGS = frozenset({"custom_fields", "default_payment_method", "footer", "rendering_options"})


def balance(call: Call) -> Body:
    reject_unknown(call.params, ("expand",))
    amounts = {objects.SETTLEMENT_CURRENCY: AMPLE, **call.balances()}
    rows = [{"amount": value, "currency": code, "source_types": {"card": value}} for code, value in amounts.items()]
    none = [{"amount": 0, "currency": code, "source_types": {"card": 0}} for code in amounts]
    return {"object": "balance", "available": rows, "livemode": is_live(call.state.scope), "pending": none}


def account(call: Call) -> Body:
    """GET /v1/account and /v1/accounts/{account}: who is acted for, or a connected account."""
    reject_unknown(call.params, ("expand",))
    account_id = account_of(call.state.scope) or call.state.setting("account", DEFAULT_ACCOUNT)
    if call.args and call.args[0] in connect.accounts(call.state):
        account_id = call.args[0]
    elif call.args and call.args[0] != account_id:
        raise no_such("account", call.args[0], param="account")
    return {
        "id": account_id,
        "object": "account",
        "business_type": "company",
        "charges_enabled": True,
        "country": "CA",
        "created": 1_700_000_000,
        "default_currency": objects.SETTLEMENT_CURRENCY,
        "details_submitted": True,
        "email": None,
        "livemode": is_live(call.state.scope),
        "metadata": {},
        "payouts_enabled": True,
        "type": "standard",
    }


def retrieve(call: Call, kind: str, param: str) -> Body:
    """One object of a kind that needs nothing special."""
    reject_unknown(call.params, ("expand",))
    body = call.state.get(kind, call.args[0])
    if body is None:
        raise no_such(kind, call.args[0], param=param)
    return body


def create_customer(call: Call) -> Body:
    reject_unknown(call.params, _CUSTOMER)
    nested = call.params.get("invoice_settings")
    if isinstance(nested, dict):
        reject_unknown(nested, _INVOICE_SETTINGS, "invoice_settings")
    body = objects.customer(given=call.params, metadata=metadata(call.params, {}), now=call.now)
    call.state.insert(body)
    return body
