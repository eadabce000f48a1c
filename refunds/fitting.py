"""Whether a payment and its customer fit, as far as that can be told without a name, an address or a number (promise P9).

Compared are: the processor's customer of the payment with the one that the order names for it, both as a hash; the country that issued the card with the
country that the order's ``geography`` begins with; and what the issuer itself checked when it was paid.
"""

import hashlib
import re

from refunds.facts import PaymentFacts
from refunds.orders import Order
from refunds.processor import PaymentState


def payer_of(processor_customer: str) -> str:
    """The hash by which a processor's customer (``cus_...``) is compared and kept: its id is random, so nobody can try all."""
    return hashlib.sha256(processor_customer.encode()).hexdigest()[:32]


def country_of(geography: str | None) -> str | None:
    """The country that a geography begins with: two capital letters that stand alone (``DE``, ``US-CA``); ``None`` for any other."""
    found = re.match(r"([A-Z]{2})(?![A-Za-z])", geography or "")
    return None if found is None or found[1] in ("EU", "UN") else found[1]


def customer_matches(order: Order, state: PaymentState) -> bool | None:
    """Whether the processor's customer of the payment is the one that the order names for it; ``None`` where either is not known."""
    named = next((p.processor_customer for p in order.payments if p.id in (state.processor_payment, state.charge)), None)
    return None if named is None or not state.payer else payer_of(named) == state.payer


def country_matches(order: Order, state: PaymentState) -> bool | None:
    """Whether the card was issued in the order's country; ``None`` where either is not known."""
    country = country_of(order.geography)
    return None if country is None or not state.country else country == state.country


def payment_facts(order: Order, state: PaymentState, *, remaining: int) -> PaymentFacts:
    """The facts of a payment as it was read, of which ``remaining`` is still refundable."""
    return PaymentFacts(
        status=state.status,
        currency=state.currency,
        captured=state.captured,
        capturable=state.capturable,
        remaining=remaining,
        dispute=state.dispute,
        risk_level=state.risk_level,
        refunds_made=sum(1 for r in state.refunds if r.state.counts),
        customer_matches=customer_matches(order, state),
        country=state.country or None,
        country_matches=country_matches(order, state),
        failed_checks=state.failed_checks,
    )
