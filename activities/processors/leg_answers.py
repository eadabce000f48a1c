"""Stripe's JSON of transfers, reversals, application fees and their refunds, in our words; as strict as ``answers.py``.

Shapes: https://docs.stripe.com/api/transfers/object, https://docs.stripe.com/api/transfer_reversals/object, https://docs.stripe.com/api/application_fees/object,
https://docs.stripe.com/api/fee_refunds/object.
"""

from datetime import UTC, datetime
from typing import cast

from activities.processors.answers import Json, amount, an_object, free_text, text, text_or_none, whole
from refunds.marketplace import FeeState, LegKind, LegReceipt, TransferState
from refunds.submission import METADATA_OPERATION


def reversal(value: object, transfer: str) -> LegReceipt:
    """A reversal of this transfer. Raises ``ValueError`` for one of another."""
    return _receipt(an_object(value, "transfer_reversal"), LegKind.REVERSE_TRANSFER, "transfer", transfer)


def fee_refund(value: object, fee: str) -> LegReceipt:
    """A refund of this application fee. Raises ``ValueError`` for one of another."""
    return _receipt(an_object(value, "fee_refund"), LegKind.REFUND_FEE, "fee", fee)


def transfer(value: object, reversals: list[Json]) -> TransferState:
    """A transfer with all its reversals."""
    found = an_object(value, "transfer")
    transfer_id = text(found, "id")
    return TransferState(
        id=transfer_id,
        destination=text(found, "destination"),
        amount=amount(found, "amount"),
        reversed=amount(found, "amount_reversed"),
        currency=text(found, "currency").upper(),
        charge=text_or_none(found, "source_transaction"),
        reversals=tuple(reversal(one, transfer_id) for one in reversals),
    )


def fee(value: object, refunds: list[Json]) -> FeeState:
    """An application fee with all its refunds."""
    found = an_object(value, "application_fee")
    fee_id = text(found, "id")
    return FeeState(
        id=fee_id,
        account=text(found, "account"),
        amount=amount(found, "amount"),
        refunded=amount(found, "amount_refunded"),
        currency=text(found, "currency").upper(),
        refunds=tuple(fee_refund(one, fee_id) for one in refunds),
    )


def _receipt(found: Json, kind: LegKind, field: str, target: str) -> LegReceipt:
    if text(found, field) != target:
        raise ValueError("of another object than the one asked for")
    metadata = found["metadata"]
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError("metadata is not an object")
    return LegReceipt(
        id=text(found, "id"),
        kind=kind,
        target=target,
        amount=amount(found, "amount"),
        currency=text(found, "currency").upper(),
        created_at=datetime.fromtimestamp(whole(found, "created"), UTC),
        operation=free_text(cast(Json, metadata or {}), METADATA_OPERATION),
        source_refund=text_or_none(found, "source_refund"),
    )
