"""The strict shapes of the outside contract, as far as the call alone can be judged."""

from typing import Any

import pytest
from pydantic import ValidationError

from refunds.errors import Code, RefundError
from refunds.orders import Order
from refunds.requests import RefundRequest, RevisionRequest, Ticket

ASKED: dict[str, Any] = {"customer_id": "c1", "order_id": "o1", "amount": 3_000, "currency": "usd"}


def without(*names: str, **changed: Any) -> dict[str, Any]:
    return {name: value for name, value in (ASKED | changed).items() if name not in names}


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (without(amount=349.48), Code.AMOUNT_NOT_INTEGER, "amount"),
        (without(amount=True), Code.AMOUNT_NOT_INTEGER, "amount"),
        (without(amount="3000"), Code.AMOUNT_NOT_INTEGER, "amount"),
        (without(amount=""), Code.AMOUNT_NOT_INTEGER, "amount"),
        (without(amount=1e3), Code.AMOUNT_NOT_INTEGER, "amount"),
        (without(amount=0), Code.AMOUNT_NOT_POSITIVE, "amount"),
        (without(amount=-1), Code.AMOUNT_NOT_POSITIVE, "amount"),
        (without(amount=10**20), Code.AMOUNT_TOO_LARGE, "amount"),
        (without(amount=None), Code.AMOUNT_REQUIRED, "amount"),
        (without("amount"), Code.AMOUNT_REQUIRED, "amount"),
        (without(full=True), Code.AMOUNT_AND_FULL, "full"),
        (without("currency"), Code.UNKNOWN_CURRENCY, "currency"),
        (without(currency="XXX"), Code.UNKNOWN_CURRENCY, "currency"),
        (without(amount=5_124, currency="KWD"), Code.AMOUNT_NOT_SENDABLE, "amount"),
        (without(reason="payout"), Code.OUT_OF_SCOPE, "reason"),
        (without("order_id"), Code.INVALID_FIELD, "order_id"),
        (without("amount", lines=[]), Code.AMOUNT_REQUIRED, "amount"),
        (without("amount", shipping=False), Code.AMOUNT_REQUIRED, "amount"),
        (without("amount", full=True, lines=[{"id": "1"}]), Code.LINES_AND_FULL, "lines"),
        (without("amount", full=True, shipping=True), Code.LINES_AND_FULL, "shipping"),
        (without(lines=[{"id": "1"}, {"id": " 1 ", "quantity": 2}]), Code.LINE_TWICE, "lines.1.id"),
    ],
)
def test_field_43_field_45_what_is_no_amount_is_refused_by_its_own_code(body: dict[str, Any], code: Code, field: str) -> None:
    with pytest.raises(RefundError) as raised:
        RefundRequest.model_validate(body)
    assert (raised.value.code, raised.value.field) == (code, field)


def test_field_34_the_currency_is_read_in_any_case() -> None:
    money = RefundRequest.model_validate(ASKED).money
    assert money is not None
    assert (money.amount, money.currency) == (3_000, "USD")


def test_field_45_full_is_asked_for_explicitly() -> None:
    assert RefundRequest.model_validate(without("amount", "currency", full=True)).money is None


def test_lines_and_shipping_stand_for_an_amount() -> None:
    asked = RefundRequest.model_validate(without("amount", "currency", lines=[{"id": "1", "quantity": 2}, {"id": "2"}], shipping=True))
    assert (asked.money, asked.units.lines, asked.units.shipping) == (None, {"1": 2, "2": 1}, True)
    assert not RefundRequest.model_validate(ASKED).units
    assert (
        RefundRequest.model_validate(ASKED | {"shipping": False, "lines": []}).body_hash()
        == RefundRequest.model_validate(ASKED).body_hash()
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lines": [{"id": "1", "quantity": 0}]}, "quantity"),
        ({"shipping": 1}, "shipping"),
        ({"approver": "me"}, "approver"),
        ({"message": "a\x00b"}, "NUL"),
        ({"message": "x" * 200_001}, "message"),
        ({"customer_id": ""}, "customer_id"),
        ({"metadata": {f"k{n}": "v" for n in range(31)}}, "metadata"),
        ({"metadata": {"refunds_operation": "op"}}, "which is ours"),
        ({"reason": "because"}, "reason"),
    ],
)
def test_field_53_unknown_fields_and_unclean_text_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RefundRequest.model_validate(ASKED | changed)


def test_the_body_hash_is_of_the_meaning() -> None:
    one, same = RefundRequest.model_validate(ASKED), RefundRequest.model_validate(dict(reversed(ASKED.items())))
    assert one.body_hash() == same.body_hash()
    assert RefundRequest.model_validate(without(amount=3_001)).body_hash() != one.body_hash()


def test_a_revision_changes_something() -> None:
    with pytest.raises(RefundError) as raised:
        RevisionRequest.model_validate({"note": "hm"})
    assert raised.value.code is Code.TERMS_UNCHANGED
    assert RevisionRequest.model_validate({"full": True}).full
    with pytest.raises(RefundError) as raised:
        RevisionRequest.model_validate({"amount": 5})
    assert raised.value.field == "currency"


def test_a_ticket_needs_words() -> None:
    assert Ticket.model_validate({"customer_id": "c1", "message": "Where is my refund?"}).order_id is None
    with pytest.raises(ValidationError, match="message"):
        Ticket.model_validate({"customer_id": "c1", "message": ""})


ORDER: dict[str, Any] = {"customer_id": "c1", "currency": "usd", "payments": [{"id": "pi_1", "amount": 100, "currency": "USD"}]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"payments": ORDER["payments"] * 2}, "may be named once"),
        ({"lines": [{"id": "1", "amount": 5}, {"id": "1", "amount": 6}]}, "each line id"),
        ({"placed_at": "2026-09-02T00:00:00Z", "delivered_at": "2026-09-01T00:00:00Z"}, "before placed_at"),
        ({"placed_at": "2026-09-02T00:00:00"}, "timezone"),
        ({"placed_at": "45352"}, "write it like"),
        ({"placed_at": "20260301"}, "write it like"),
        ({"placed_at": 1_772_323_200}, "write it as text"),
        ({"placed_at": True}, "write it as text"),
        ({"payments": [{"id": "4242424242424242", "amount": 1, "currency": "USD"}]}, "payments"),
        ({"tax": 1.5}, "tax"),
        ({"tax": True}, "tax"),
        ({"surprise": 1}, "surprise"),
        ({"lines": [{"id": "1", "amount": 5, "discount": 6}]}, "at most its amount"),
        ({"lines": [{"id": "1", "amount": 5, "discount": None}]}, "discount"),
        ({"lines": [{"id": "1", "amount": 5, "tax": 1.0}]}, "tax"),
        ({"lines": [{"id": "1", "amount": 5, "shipped": 2}]}, "at most the line's quantity"),
        ({"lines": [{"id": "1", "amount": 5, "quantity": 2, "returned": 3}]}, "at most what was shipped"),
        ({"lines": [{"id": "1", "amount": 5, "quantity": 2, "shipped": 1, "returned": 2}]}, "at most what was shipped"),
        ({"lines": [{"id": "1", "amount": 5, "shipped": -1}]}, "shipped"),
        ({"lines": [{"id": "1", "amount": 5, "tax": 2}], "tax": 1}, "tax: the lines' come to 2"),
        ({"lines": [{"id": "1", "amount": 5, "discount": 2}], "discount": 1}, "discount: the lines' come to 2"),
        ({"lines": [{"id": "1", "amount": 5}], "shipping": 2, "discount": 8}, "at most what lines and shipping come to, 7"),
    ],
)
def test_an_order_that_contradicts_itself_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Order.model_validate(ORDER | changed)


def test_categories_are_of_the_lines_each_once() -> None:
    lines = [{"id": str(n), "amount": 1, "category": c} for n, c in enumerate(["shoes", "books", "shoes", ""])]
    assert Order.model_validate(ORDER | {"lines": lines}).categories == ("books", "shoes")
    assert Order.model_validate(ORDER).currency == "USD"


def test_what_an_order_does_not_say_of_its_lines_is_not_stored() -> None:
    line = {"id": "1", "title": "", "category": "", "quantity": 1, "amount": 5}
    plain = Order.model_validate(ORDER | {"lines": [{"id": "1", "amount": 5}]}).model_dump(mode="json")
    assert (plain["lines"], "discount" in plain) == ([line], False)
    said = {"tax": 0, "discount": 1, "shipped": 0, "returned": 0}
    full = Order.model_validate(ORDER | {"lines": [{"id": "1", "amount": 5} | said], "discount": 2}).model_dump(mode="json")
    assert (full["lines"], full["discount"]) == ([line | said], 2)
    assert Order.model_validate(full).model_dump(mode="json") == full
