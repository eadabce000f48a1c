"""Why an id is not that of a payment: what its own beginning says, and what only the processor can say.

Stripe's ids tell their kind by their prefix (https://docs.stripe.com/api); they tell neither their mode nor their account.
"""

import re
from enum import StrEnum

from refunds.errors import CATALOGUE, Code, RefundError
from refunds.ids import Prefix
from refunds.people import readable_name


class NotAPayment(StrEnum):
    """What is wrong with an id that was given as a payment's. Each has an answer of its own."""

    REFUND = "refund"
    CHECKOUT_SESSION = "checkout_session"
    INVOICE = "invoice"
    SETUP_INTENT = "setup_intent"
    CLIENT_SECRET = "client_secret"
    """What a browser is given for a PaymentIntent or SetupIntent: the id and a secret."""
    DISPUTE = "dispute"
    BALANCE_TRANSACTION = "balance_transaction"
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
    "dp_": NotAPayment.DISPUTE,
    "du_": NotAPayment.DISPUTE,
    "txn_": NotAPayment.BALANCE_TRANSACTION,
}
_OTHERS = (
    *("acct_", "card_", "cus_", "evt_", "fee_", "fr_", "il_", "ii_", "link_", "plink_", "pm_", "po_", "price_", "prod_"),
    *("si_", "src_", "sub_", "tok_", "tr_", "trr_"),
)


def by_its_prefix(processor_payment: str) -> NotAPayment | None:
    """What the beginning of an id says it is instead of a payment; ``None`` when it says nothing against it."""
    if "_secret_" in processor_payment:
        return NotAPayment.CLIENT_SECRET
    found = next((kind for prefix, kind in _BY_PREFIX.items() if processor_payment.startswith(prefix)), None)
    if found is None and processor_payment.startswith(_OTHERS):
        return NotAPayment.OTHER_OBJECT
    return found


CODES: dict[NotAPayment, Code] = {
    NotAPayment.REFUND: Code.PAYMENT_IS_REFUND,
    NotAPayment.CHECKOUT_SESSION: Code.PAYMENT_IS_CHECKOUT_SESSION,
    NotAPayment.INVOICE: Code.PAYMENT_IS_INVOICE,
    NotAPayment.SETUP_INTENT: Code.PAYMENT_IS_SETUP_INTENT,
    NotAPayment.CLIENT_SECRET: Code.PAYMENT_IS_CLIENT_SECRET,
    NotAPayment.DISPUTE: Code.PAYMENT_IS_DISPUTE,
    NotAPayment.BALANCE_TRANSACTION: Code.PAYMENT_IS_BALANCE_TRANSACTION,
    NotAPayment.OTHER_OBJECT: Code.PAYMENT_IS_OTHER_OBJECT,
    NotAPayment.OTHER_MODE: Code.PAYMENT_OTHER_MODE,
    NotAPayment.UNKNOWN: Code.PAYMENT_MISSING,
}
"""The answer for each. Without a live reading only the kinds that an id tells by itself can be met."""

TOLD_BY_ITSELF = tuple(CODES[kind] for kind in NotAPayment if kind not in (NotAPayment.OTHER_MODE, NotAPayment.UNKNOWN))
"""The codes of those."""

_CARD_NUMBER = re.compile(r"(?:[0-9][ -]?){13,19}")


def unfit_for_manual(own_id: str) -> str | None:
    """Why an id is not one for a manual payment, without repeating it; ``None`` when it is. People read it to find what to give money back on."""
    if own_id.startswith((*PAYMENT_PREFIXES, *(f"{prefix}_" for prefix in Prefix))) or by_its_prefix(own_id) is not None:
        return "A manual payment's id must not look like one of the processor's, or of ours."
    try:
        plain = readable_name(own_id) == own_id
    except ValueError:
        plain = False
    if not plain:
        return "A manual payment's id is written in plain characters of one alphabet, so that it can only be read as what it is."
    if _CARD_NUMBER.fullmatch(own_id) and _checks_as_card(own_id):
        return "That is a card's number. A manual payment has an id of your own, such as the booking's."
    return None


def _checks_as_card(number: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    digits = [int(digit) for digit in number if digit.isdigit()][::-1]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) % 10


def answer_for(kind: NotAPayment) -> tuple[Code, str]:
    """The code of an id that is no payment's, and what it means in a sentence."""
    return CODES[kind], CATALOGUE[CODES[kind]].meaning


def check_kind(processor_payment: str, field: str) -> None:
    """Raise the code of what an id says that it is, naming ``field``; nothing for one that may be a payment's, or says nothing."""
    kind = by_its_prefix(processor_payment)
    if kind is not None:
        raise RefundError(CODES[kind], field=field)


def names_a_charge(processor_payment: str) -> bool | None:
    """Whether an id is a charge's (true) or a PaymentIntent's (false); ``None`` when it is neither."""
    if processor_payment.startswith("pi_"):
        return False
    return True if processor_payment.startswith(("ch_", "py_")) else None
