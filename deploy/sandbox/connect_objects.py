"""The objects of Stripe Connect as plain dictionaries.

Not recorded, and not in the schema that the tests hold answers against: fields and types follow Stripe's pages on
https://docs.stripe.com/api/transfers/object, https://docs.stripe.com/api/transfer_reversals/object, https://docs.stripe.com/api/application_fees/object and
https://docs.stripe.com/api/fee_refunds/object.
"""

from deploy.sandbox import objects
from deploy.sandbox.objects import Body, new_id


def transfer(
    *,
    amount: int,
    currency: str,
    destination: str,
    group: str | None,
    source: str | None,
    payment: str,
    metadata: dict[str, str],
    transaction: str | None,
    now: int,
) -> Body:
    """Money on its way to a connected account. `source` is the charge it comes from, `payment` what arrives there. Its `reversals` are added when it is shown."""
    return {
        "id": new_id("tr_"),
        "object": "transfer",
        "amount": amount,
        "amount_reversed": 0,
        "balance_transaction": transaction,
        "created": now,
        "currency": currency,
        "description": None,
        "destination": destination,
        "destination_payment": payment,
        "livemode": False,
        "metadata": metadata,
        "reversed": False,
        "source_transaction": source,
        "source_type": "card",
        "transfer_group": group,
    }


def reversal(*, of: Body, amount: int, payment_refund: str | None, source_refund: str | None, metadata: dict[str, str], now: int) -> Body:
    return {
        "id": new_id("trr_"),
        "object": "transfer_reversal",
        "amount": amount,
        "balance_transaction": None,
        "created": now,
        "currency": of["currency"],
        "destination_payment_refund": payment_refund,
        "metadata": metadata,
        "source_refund": source_refund,
        "transfer": of["id"],
    }


def application_fee(*, account: str, amount: int, currency: str, charge: str, originating: str | None, now: int) -> Body:
    """What the platform keeps. `charge` is on the connected account, `originating` the platform's own one behind a destination charge."""
    return {
        "id": new_id("fee_"),
        "object": "application_fee",
        "account": account,
        "amount": amount,
        "amount_refunded": 0,
        "application": "ca_sandbox",
        "balance_transaction": None,
        "charge": charge,
        "created": now,
        "currency": currency,
        "fee_source": {"charge": charge, "payout": None, "type": "charge"},
        "livemode": False,
        "originating_transaction": originating,
        "refunded": False,
    }


def fee_refund(*, of: Body, amount: int, metadata: dict[str, str], now: int) -> Body:
    return {
        "id": new_id("fr_"),
        "object": "fee_refund",
        "amount": amount,
        "balance_transaction": None,
        "created": now,
        "currency": of["currency"],
        "fee": of["id"],
        "metadata": metadata,
    }


def arrived(*, amount: int, currency: str, transfer_id: str | None, description: str | None, now: int) -> Body:
    """The payment (`py_`) that a transfer makes on the connected account."""
    payer = {
        "id": None,
        "amount": amount,
        "created": now,
        "currency": currency,
        "customer": None,
        "description": description,
        "metadata": {},
        "payment_method": None,
        "receipt_email": None,
    }
    body = objects.charge(
        charge_id=new_id("py_"),
        intent=payer,
        captured=True,
        method="stripe_account",
        risk_level="not_assessed",
        risk_score=0,
        transaction=None,
    )
    body.update(outcome=None, source_transfer=transfer_id)
    return body
