"""Reasons: our words, the processor's three, and who may name fraud."""

import pytest

from refunds.reasons import Reason, processor_reason

PROCESSORS_WORDS = {"duplicate", "fraudulent", "requested_by_customer"}


def test_field_38_no_reason_is_left_out_and_never_empty() -> None:
    assert processor_reason(None) is None
    assert processor_reason(None, set_by_fraud_role=True) is None


@pytest.mark.parametrize("by_fraud_role", [False, True])
def test_field_38_only_the_processors_words_are_sent(by_fraud_role: bool) -> None:
    sent = {reason: processor_reason(reason, set_by_fraud_role=by_fraud_role) for reason in Reason}
    assert set(sent.values()) <= PROCESSORS_WORDS
    assert sent[Reason.DUPLICATE] == "duplicate"
    assert sent[Reason.PRODUCT_ISSUE] == "requested_by_customer"


def test_field_38_only_a_person_with_the_fraud_role_causes_fraudulent() -> None:
    assert processor_reason(Reason.FRAUDULENT) == "requested_by_customer"
    assert processor_reason(Reason.FRAUDULENT, set_by_fraud_role=True) == "fraudulent"
    others = [processor_reason(reason, set_by_fraud_role=True) for reason in Reason if reason is not Reason.FRAUDULENT]
    assert "fraudulent" not in others
