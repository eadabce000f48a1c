"""What is left of an order and of a request without the person: everything that was paid and for how much, and nothing of who and what."""

from typing import Any

from refunds.allocation import weigh
from refunds.erasure import details_without_person, is_reference, order_without_person
from refunds.orders import Order

ORDER: dict[str, Any] = {
    "customer_id": "c-1",
    "currency": "USD",
    "lines": [
        {"id": "blue-mug", "title": "Blue Mug", "category": "household", "quantity": 2, "amount": 2_000, "tax": 100},
        {"id": "card", "title": "Card for Ann", "quantity": 1, "amount": 500, "discount": 50},
    ],
    "shipping": 300,
    "payments": [{"id": "pi_1", "amount": 2_850, "currency": "USD", "processor_customer": "cus_ann"}],
}
DETAILS: dict[str, Any] = {
    "kind": "refund",
    "lines": [{"id": "card", "quantity": 1}, {"id": "gone", "quantity": 1}],
    "shipping": True,
    "part": "pay_1",
    "agent_session_id": "f" * 64,
    "agent_model": "gpt",
    "alike": ["f" * 64],
    "customer_authentication": {"method": "password", "at": "2026-01-01T00:00:00Z"},
}


def test_an_order_keeps_what_its_lines_come_to_and_not_what_they_are() -> None:
    whole = Order.model_validate(ORDER).model_dump(mode="json")

    names: dict[str, str] = {}
    left = order_without_person(whole, "cu_1", names)

    before, after = Order.model_validate(whole), Order.model_validate(left)
    came_to = [[(part.amount, part.tax, part.discount) for part in weigh(order)[0]] for order in (before, after)]
    assert came_to[0] == came_to[1]
    assert weigh(before)[1] == weigh(after)[1]
    assert (after.currency, after.categories, [p.id for p in after.payments]) == ("USD", ("household",), ["pi_1"])
    assert not [word for word in ("c-1", "mug", "Mug", "Ann", "card", "cus_ann") if word in str(left)]
    assert names == {"blue-mug": "1", "card": "2"}
    assert order_without_person(left, "cu_1", {}) == left, "again it stays as it is"


def test_a_line_has_one_name_in_all_versions_of_its_order() -> None:
    names: dict[str, str] = {}
    first, second = ({"lines": [{"id": line} for line in lines], "payments": []} for lines in (("mug", "card"), ("card", "bag")))

    left = [order_without_person(body, "cu_1", names) for body in (first, second)]

    assert [[line["id"] for line in body["lines"]] for body in left] == [["1", "2"], ["2", "3"]]
    again: dict[str, str] = {}
    assert [order_without_person(body, "cu_1", again) for body in left] == left


def test_a_request_keeps_which_lines_by_their_new_names_and_that_the_customer_was_made_sure_of() -> None:
    left = details_without_person(DETAILS, {"card": "2"})

    assert left == {
        "kind": "refund",
        "lines": [{"id": "2", "quantity": 1}, {"id": "asked-2", "quantity": 1}],
        "shipping": True,
        "part": "pay_1",
        "named_agent": True,
        "customer_authentication": {"at": "2026-01-01T00:00:00Z"},
    }
    assert details_without_person(left, {"2": "2"}) == left


def test_a_case_number_is_no_name_and_no_address() -> None:
    assert all(is_reference(text) for text in ("DSR-17", "2026/04#3", "a_b.c:d"))
    assert not any(is_reference(text) for text in ("", "Ann Smith", "ann@example.org", "x" * 61, "ü"))
