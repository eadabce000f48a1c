"""What is read of the customer and the card of a payment: a hash, a country and failed checks, and nothing that is anybody's name or number."""

from typing import Any

import pytest

from activities.processors import answers
from activities.processors.stripe import StripeProcessor
from refunds.fitting import payer_of
from tests.conftest import Sandbox


def charge(**changed: Any) -> dict[str, Any]:
    return {
        "object": "charge",
        "id": "ch_1",
        "status": "succeeded",
        "captured": True,
        "amount_captured": 5_000,
        "currency": "usd",
        "customer": "cus_1",
        "outcome": {"risk_level": "normal"},
        "payment_method_details": {
            "type": "card",
            "card": {"country": "DE", "checks": {"cvc_check": "fail", "address_line1_check": "pass"}},
        },
    } | changed


def fitting(found: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    read = answers.charge(found, "ch_1")
    return read["payer"], read["country"], read["failed_checks"]


def test_the_customer_is_kept_as_a_hash_and_only_failed_checks_are_told() -> None:
    assert fitting(charge()) == (payer_of("cus_1"), "DE", ("cvc",))


@pytest.mark.parametrize(
    "changed",
    [
        {"customer": None, "payment_method_details": None},
        {"customer": None, "payment_method_details": {"type": "sepa_debit", "sepa_debit": {}}},
        {"customer": None, "payment_method_details": {"type": "card", "card": {"country": None, "checks": None}}},
    ],
)
def test_a_guest_or_another_way_to_pay_says_nothing(changed: dict[str, Any]) -> None:
    assert fitting(charge(**changed)) == ("", "", ())


@pytest.mark.parametrize(
    "changed", [{"customer": 5}, {"payment_method_details": "card"}, {"payment_method_details": {"card": {"checks": ["fail"]}}}]
)
def test_what_is_not_of_the_expected_shape_is_no_reading(changed: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        fitting(charge(**changed))


async def test_it_is_read_of_a_payment_as_it_is_at_the_processor(processor: StripeProcessor, sandbox: Sandbox) -> None:
    sandbox.control("POST", "/payments", {"id": "pi_1", "amount": 5_000, "currency": "usd", "customer": "cus_sandbox"})

    state = await processor.read_payment("pi_1")

    assert state is not None
    assert (state.payer, state.country, state.failed_checks) == (payer_of("cus_sandbox"), "US", ())
    assert "cus_" not in repr(state)
