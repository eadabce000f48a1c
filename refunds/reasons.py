"""Why money is returned: our own words, and their translation to the processor's.

Our vocabulary and Stripe's are kept apart on purpose: theirs has three values, and ``fraudulent`` puts the card and the e-mail address on
block lists (https://docs.stripe.com/api/refunds/create, "reason"), so only a person with the fraud role may cause it.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Reasons a request may name."""

    PRODUCT_NOT_RECEIVED = "product_not_received"
    PRODUCT_ISSUE = "product_issue"
    NOT_AS_DESCRIBED = "not_as_described"
    WRONG_ITEM = "wrong_item"
    CUSTOMER_REQUEST = "customer_request"
    DUPLICATE = "duplicate"
    FRAUDULENT = "fraudulent"
    SERVICE_ISSUE = "service_issue"
    OTHER = "other"


def processor_reason(reason: Reason | None, *, set_by_fraud_role: bool = False) -> str | None:
    """Translate a reason for the processor, or ``None`` to leave the parameter out (an empty string is refused there).

    ``set_by_fraud_role`` is true only when a person who holds that role chose the reason; a customer, a model or an agent that names fraud
    causes ``requested_by_customer``.
    """
    if reason is None:
        return None
    if reason is Reason.DUPLICATE:
        return "duplicate"
    if reason is Reason.FRAUDULENT and set_by_fraud_role:
        return "fraudulent"
    return "requested_by_customer"
