"""What an id says of itself."""

import pytest

from refunds.payment_ids import PAYMENT_PREFIXES, NotAPayment, by_its_prefix


@pytest.mark.parametrize("prefix", PAYMENT_PREFIXES)
def test_nothing_is_said_against_what_may_be_a_payment(prefix: str) -> None:
    assert by_its_prefix(f"{prefix}3MabcSandbox") is None


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("re_3Mabc", NotAPayment.REFUND),
        ("pyr_1Mabc", NotAPayment.REFUND),
        ("cs_test_a1", NotAPayment.CHECKOUT_SESSION),
        ("cs_live_a1", NotAPayment.CHECKOUT_SESSION),
        ("in_1Mabc", NotAPayment.INVOICE),
        ("seti_1Mabc", NotAPayment.SETUP_INTENT),
        ("si_1Mabc", NotAPayment.OTHER_OBJECT),
        ("pm_1Mabc", NotAPayment.OTHER_OBJECT),
        ("cus_Mabc", NotAPayment.OTHER_OBJECT),
        ("tr_1Mabc", NotAPayment.OTHER_OBJECT),
        ("du_1Mabc", NotAPayment.DISPUTE),
        ("dp_1Mabc", NotAPayment.DISPUTE),
        ("txn_1Mabc", NotAPayment.BALANCE_TRANSACTION),
    ],
)
def test_an_id_of_another_kind_is_told_by_its_prefix(given: str, kind: NotAPayment) -> None:
    assert by_its_prefix(given) is kind


@pytest.mark.parametrize("given", ["", "order-17", "RE_1", "pix_1", "receipt_1", " re_1"])
def test_what_says_nothing_is_not_guessed_at(given: str) -> None:
    assert by_its_prefix(given) is None
