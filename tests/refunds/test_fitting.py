"""Whether customer and payment fit is told without a name, an address or a number."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from refunds.fitting import country_matches, country_of, customer_matches, payer_of, payment_facts
from refunds.orders import Order
from refunds.processor import DisputeState, PaymentState, PaymentStatus

STATE = PaymentState(
    processor_payment="pi_1",
    status=PaymentStatus.CAPTURED,
    currency="USD",
    captured=5_000,
    capturable=0,
    refunds=(),
    dispute=DisputeState.NONE,
    risk_level="normal",
    read_at=datetime(2026, 9, 10, tzinfo=UTC),
    charge="ch_1",
    payer=payer_of("cus_right"),
    country="DE",
    failed_checks=("cvc",),
)


def order(named: str | None = None, geography: str | None = None, payment: str = "pi_1") -> Order:
    paid = {"id": payment, "amount": 5_000, "currency": "USD"} | ({"processor_customer": named} if named else {})
    return Order.model_validate({"customer_id": "c", "currency": "USD", "payments": [paid], "geography": geography})


@pytest.mark.parametrize(
    ("named", "payment", "fits"),
    [
        ("cus_right", "pi_1", True),
        ("cus_wrong", "pi_1", False),
        ("cus_right", "ch_1", True),
        (None, "pi_1", None),
        ("cus_right", "pi_2", None),
    ],
)
def test_the_processors_customer_is_compared_with_the_one_the_order_names(named: str | None, payment: str, fits: bool | None) -> None:
    assert customer_matches(order(named, payment=payment), STATE) is fits


def test_a_guest_at_the_processor_is_no_mismatch() -> None:
    assert customer_matches(order("cus_right"), replace(STATE, payer="")) is None


@pytest.mark.parametrize(
    ("geography", "country"),
    [("DE", "DE"), ("US-CA", "US"), ("US_FL", "US"), ("EU", None), ("Germany", None), ("de", None), ("DEU", None), (None, None)],
)
def test_a_geography_says_its_country_only_where_it_plainly_does(geography: str | None, country: str | None) -> None:
    assert country_of(geography) == country


def test_the_country_of_the_card_is_compared_with_the_orders() -> None:
    assert [country_matches(order(geography=place), STATE) for place in ("DE", "DE-BY", "US", "EU", None)] == [
        True,
        True,
        False,
        None,
        None,
    ]
    assert country_matches(order(geography="US"), replace(STATE, country="")) is None


def test_no_identifier_is_among_the_facts() -> None:
    facts = payment_facts(order("cus_wrong", "US"), STATE, remaining=4_000)
    assert (facts.customer_matches, facts.country_matches, facts.country, facts.failed_checks) == (False, False, "DE", ("cvc",))
    assert "cus_" not in repr(facts)
    assert payer_of("cus_wrong") not in repr(facts)


def test_an_order_says_no_more_of_a_place_or_kind_than_a_word() -> None:
    for field in ("geography", "customer_type"):
        with pytest.raises(ValueError, match=field):
            Order.model_validate({"customer_id": "c", "currency": "USD", field: "12 High Street, Springfield"})
    plain = Order.model_validate({"customer_id": "c", "currency": "USD"})
    assert not {"geography", "customer_type", "legal_entity"} & set(plain.model_dump())
