"""The catalogue of codes is complete, and every entry helps."""

import re

import pytest

from refunds.errors import CATALOGUE, Code, RefundError


def test_every_code_is_in_the_catalogue_under_its_own_name() -> None:
    assert list(CATALOGUE) == list(Code)
    for code in Code:
        assert code.value == code.name
        assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code.value)


@pytest.mark.parametrize("code", list(Code))
def test_every_entry_says_what_and_what_to_do(code: Code) -> None:
    entry = CATALOGUE[code]
    assert entry.http == 0 or 400 <= entry.http <= 599
    for sentence in (entry.meaning, entry.remedy):
        assert sentence[0].isupper()
        assert sentence.endswith(".")


def test_only_what_may_help_is_called_retryable() -> None:
    for code, entry in CATALOGUE.items():
        if entry.http >= 500:
            assert entry.retryable, code
        if entry.retryable:
            assert entry.http in (409, 429) or entry.http >= 500, code


def test_a_refusal_carries_code_sentence_field_and_ids() -> None:
    plain = RefundError(Code.ORDER_NOT_FOUND)
    assert plain.detail == CATALOGUE[Code.ORDER_NOT_FOUND].meaning
    assert str(plain) == f"ORDER_NOT_FOUND: {plain.detail}"
    full = RefundError(Code.AMBIGUOUS_PAYMENT, "Two payments.", field="payment_id", order="or_1")
    assert (full.detail, full.field, full.ids) == ("Two payments.", "payment_id", {"order": "or_1"})
