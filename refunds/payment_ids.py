"""Why an id is not that of a payment: what its own beginning says, and what only the processor can say.

Stripe's ids tell their kind by their prefix (https://docs.stripe.com/api); they tell neither their mode nor their account.
"""

from enum import StrEnum


class NotAPayment(StrEnum):
    """What is wrong with an id that was given as a payment's. Each has an answer of its own."""

    REFUND = "refund"
    CHECKOUT_SESSION = "checkout_session"
    INVOICE = "invoice"
    SETUP_INTENT = "setup_intent"
    OTHER_OBJECT = "other_object"
    """The id of something else at the processor: a customer, a payment method, a transfer."""
    OTHER_MODE = "other_mode"
    """The processor knows it, in test mode where the key is live, or the other way round."""
    UNKNOWN = "unknown"
    """The processor does not know it, or it is another account's: it answers both alike, and so do we."""


PAYMENT_PREFIXES = ("pi_", "ch_", "py_")
"""A PaymentIntent, a charge, and a payment that is not by card (also what a transfer makes at a connected account)."""

_BY_PREFIX = {
    "re_": NotAPayment.REFUND,
    "pyr_": NotAPayment.REFUND,
    "cs_": NotAPayment.CHECKOUT_SESSION,
    "in_": NotAPayment.INVOICE,
    "seti_": NotAPayment.SETUP_INTENT,
}
_OTHERS = (
    *("acct_", "card_", "cus_", "dp_", "du_", "evt_", "fee_", "fr_", "il_", "ii_", "link_", "plink_", "pm_", "po_", "price_", "prod_"),
    *("si_", "src_", "sub_", "tok_", "tr_", "trr_", "txn_"),
)


def by_its_prefix(processor_payment: str) -> NotAPayment | None:
    """What the beginning of an id says it is instead of a payment; ``None`` when it says nothing against it."""
    found = next((kind for prefix, kind in _BY_PREFIX.items() if processor_payment.startswith(prefix)), None)
    if found is None and processor_payment.startswith(_OTHERS):
        return NotAPayment.OTHER_OBJECT
    return found
