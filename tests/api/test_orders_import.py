"""Many orders in one call: of each it is said what became of it, and a bad one is nobody else's trouble."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.importing import MOST_ORDERS
from refunds.orders import Order
from refunds.people import Role
from tests.api.conftest import Api, running
from tests.api.test_contract import ANYTHING, bodies
from tests.conftest import FreshDatabase


def order(number: int, **changed: Any) -> dict[str, Any]:
    """One entry of an import: an order of $30.00, paid by one payment."""
    paid = {"id": f"pi_import{number}", "amount": 3_000, "currency": "USD"}
    return {"order_id": f"i-{number}", "order": {"customer_id": f"c-{number}", "currency": "USD", "payments": [paid]} | changed}


async def send(api: Api, *orders: Any) -> Any:
    # Escaped, because half a surrogate pair cannot be sent otherwise.
    answer = await api.call("POST", "/v1/orders/import", await api.shop(), json.dumps({"orders": orders}).encode())
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(answer: Any) -> list[tuple[str, str | None, str | None]]:
    return [(one["outcome"], one["code"], one["field"]) for one in answer["orders"]]


async def test_of_each_order_it_is_said_what_became_of_it(api: Api) -> None:
    first = await send(api, order(1), order(2))
    again = await send(api, order(1), order(2, shipping=500), order(3))

    assert {name: first[name] for name in ("created", "new_version", "unchanged", "refused")} == {
        "created": 2,
        "new_version": 0,
        "unchanged": 0,
        "refused": 0,
    }
    assert [(one["order_id"], one["outcome"], one["version"]) for one in again["orders"]] == [
        ("i-1", "unchanged", 1),
        ("i-2", "new_version", 2),
        ("i-3", "created", 1),
    ]
    seen = await api.call("GET", "/v1/orders/i-2", await api.shop())
    assert (seen.json()["version"], seen.json()["order"]["shipping"]) == (2, 500)


async def test_a_put_order_and_an_imported_one_are_the_same(api: Api) -> None:
    one = order(1)
    assert (await api.call("PUT", "/v1/orders/i-1", await api.shop(), one["order"])).status_code == 201

    assert said(await send(api, one)) == [("unchanged", None, None)]
    assert (await api.call("PUT", "/v1/orders/i-1", await api.shop(), one["order"])).json()["version"] == 1


BAD: list[tuple[Any, str, str | None]] = [
    ("text", "INVALID_FIELD", None),
    ({"order": order(2)["order"]}, "INVALID_FIELD", "order_id"),
    ({"order_id": " ", "order": order(2)["order"]}, "INVALID_FIELD", "order_id"),
    ({"order_id": "i-2"}, "INVALID_FIELD", "order"),
    (order(2) | {"more": 1}, "UNKNOWN_FIELD", "more"),
    (order(2, customer="c"), "UNKNOWN_FIELD", "customer"),
    (order(2, currency="ZZZ"), "UNKNOWN_CURRENCY", "currency"),
    (order(2, tax=1.5), "INVALID_FIELD", "tax"),
    (order(2, tax=-1), "INVALID_FIELD", "tax"),
    (order(2, tax=True), "INVALID_FIELD", "tax"),
    (order(2, customer_id="a\0b"), "INVALID_FIELD", "customer_id"),
    (order(2, customer_id="a\ud800b"), "INVALID_FIELD", "customer_id"),
    (order(2, placed_at="2026-03-01 09:00:00"), "INVALID_FIELD", "placed_at"),
    (order(2, payments=[{"id": "re_1", "amount": 1, "currency": "USD"}]), "PAYMENT_IS_REFUND", "payments.0.id"),
    (order(2, payments=[{"id": "pi_1", "amount": 1, "currency": "USD"}] * 2), "INVALID_FIELD", "payments"),
    (order(1), "INVALID_FIELD", "order_id"),
    (order(2, payments=order(1)["order"]["payments"]), "ORDER_CONFLICT", "payments.0.id"),
]


@pytest.mark.parametrize(("bad", "code", "field"), BAD, ids=range(len(BAD)))
async def test_a_bad_order_is_refused_alone(api: Api, bad: Any, code: str, field: str | None) -> None:
    orders, entries = await api.count("orders"), await api.count("ledger")

    answer = await send(api, order(1), bad, order(3))

    assert said(answer) == [("created", None, None), ("refused", code, field), ("created", None, None)]
    refused = answer["orders"][1]
    assert refused["detail"] and refused["remedy"] and refused["errors"][0]["code"] == code and answer["refused"] == 1
    assert (await api.count("orders") - orders, await api.count("order_versions"), await api.count("customers")) == (2, 2, 2)
    # The only other entry is that of the key which was just made.
    assert [row["type"] for row in await api.rows("SELECT type FROM ledger ORDER BY id")][entries:].count("order_recorded") == 2


async def test_every_problem_of_an_order_is_named(shared_api: Api) -> None:
    answer = await send(shared_api, order(1, tax="1", shipping=None, colour="red"))

    assert {(one["field"], one["code"]) for one in answer["orders"][0]["errors"]} == {
        ("tax", "INVALID_FIELD"),
        ("shipping", "INVALID_FIELD"),
        ("colour", "UNKNOWN_FIELD"),
    }


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "MALFORMED_JSON"),
        (b"[]", 400, "MALFORMED_JSON"),
        (b'{"orders": [{"order_id": "x", "order": {"tax": NaN}}]}', 400, "MALFORMED_JSON"),
        (b'{"orders": [{"order_id": "x", "order_id": "y", "order": {}}]}', 422, "INVALID_FIELD"),
        (b'{"orders": "no"}', 422, "INVALID_FIELD"),
        (b'{"orders": []}', 422, "INVALID_FIELD"),
        (b'{"orders": [1], "more": 1}', 422, "UNKNOWN_FIELD"),
        (json.dumps({"orders": [1] * (MOST_ORDERS + 1)}).encode(), 422, "INVALID_FIELD"),
        (b'{"orders": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", 400, "MALFORMED_JSON"),
    ],
    ids=range(9),
)
async def test_what_is_no_list_of_orders_is_refused_as_a_whole(shared_api: Api, body: bytes, status: int, code: str) -> None:
    orders = await shared_api.count("orders")

    answer = await shared_api.call("POST", "/v1/orders/import", await shared_api.shop(), body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await shared_api.count("orders") == orders


async def test_only_integrators_import(shared_api: Api) -> None:
    operator = await shared_api.caller("otto", Role.OPERATOR)

    answer = await shared_api.call("POST", "/v1/orders/import", operator, {"orders": [order(9)]})

    assert (answer.status_code, answer.json()["roles"]) == (403, ["integrator"])


async def test_the_most_orders_of_a_call_are_stored_in_one_go(database: FreshDatabase) -> None:
    async with running(database) as api:
        answer = await send(api, *(order(number) for number in range(MOST_ORDERS)))

        assert (answer["created"], await api.count("orders"), await api.count("payments")) == (MOST_ORDERS,) * 3


ENTRY = st.fixed_dictionaries({"order_id": st.sampled_from(["f-1", "f-2"]) | ANYTHING, "order": bodies(Order) | ANYTHING}) | ANYTHING


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(orders=st.lists(ENTRY, min_size=1, max_size=4))
async def test_whatever_is_sent_is_answered_order_by_order(shared_api: Api, orders: list[Any]) -> None:
    sent = json.dumps({"orders": orders}).encode()

    answer = await shared_api.call("POST", "/v1/orders/import", await shared_api.shop(), sent)

    assert answer.status_code in (200, 400, 422), answer.text
    if answer.status_code == 200:
        assert len(answer.json()["orders"]) == len(orders)
