"""The exact request of an operation, and the key it carries for ever.

The key depends on the operation's id, what it does, and the mode, and on nothing else: not on amounts (two honest partial refunds of the same size are two
operations, field report 1), not on the run (a reset repeats the same operation), and two kinds of call never share one (field report 3).
"""

from typing import Any

from refunds.marketplace import LegKind, LegRequest
from refunds.processor import FrozenRequest
from refunds.terms import OperationKind, Terms

METADATA_OPERATION = "refunds_operation"
METADATA_REFUND = "refunds_refund"
METADATA_TERMS = "refunds_terms"


def idempotency_key(kind: OperationKind | LegKind | str, mode: str, operation_id: str) -> str:
    """The processor's idempotency key of one operation: printable ASCII, well below 255 characters."""
    return f"refunds-{kind}-{mode}-{operation_id}"


def freeze(terms: Terms, operation_id: str) -> FrozenRequest:
    """Write the processor's request for these terms, once; every attempt repeats it byte for byte.

    Metadata carries our ids and the digest of the terms only, never text (field report 53). Optional parameters are sent only when they apply: an absent
    reason is left out, not sent empty (field report 38). ``reverse_transfer`` and ``refund_application_fee`` are never sent with it: each is a
    leg of its own (:func:`freeze_leg`, decision 0016).
    """
    params: dict[str, Any] = {}
    if terms.operation is OperationKind.REFUND:
        target = "charge" if terms.processor_payment.startswith(("ch_", "py_")) else "payment_intent"
        params = {
            target: terms.processor_payment,
            "amount": terms.amount,
            "metadata": {METADATA_OPERATION: operation_id, METADATA_REFUND: terms.refund, METADATA_TERMS: terms.hash},
        }
        if terms.processor_reason is not None:
            params["reason"] = terms.processor_reason
    return FrozenRequest(
        operation=operation_id,
        kind=terms.operation.value,
        processor_payment=terms.processor_payment,
        amount=terms.amount,
        currency=terms.currency,
        idempotency_key=idempotency_key(terms.operation, terms.mode, operation_id),
        params=params,
    )


def freeze_leg(
    kind: LegKind,
    *,
    operation_id: str,
    refund: str,
    terms_hash: str,
    mode: str,
    processor_payment: str,
    target: str,
    amount: int,
    currency: str,
) -> LegRequest:
    """Write the request of one leg, once: reverse ``amount`` of the transfer ``target``, or refund it of the fee ``target``.

    ``operation_id`` is this leg's own and no other leg's, so that two transfers of one refund have two keys. The amount is always said: without one the
    processor would return the rest, which may have changed. ``currency`` is upper case; the processor takes it from the target.
    """
    return LegRequest(
        operation=operation_id,
        kind=kind,
        processor_payment=processor_payment,
        target=target,
        amount=amount,
        currency=currency,
        idempotency_key=idempotency_key(kind, mode, operation_id),
        params={
            "amount": amount,
            "metadata": {METADATA_OPERATION: operation_id, METADATA_REFUND: refund, METADATA_TERMS: terms_hash},
        },
    )
