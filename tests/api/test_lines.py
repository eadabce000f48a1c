"""Asking by line: what is answered at the door, and the breakdown that people see."""

from typing import Any

from tests.api.conftest import Api

LINES = [
    {"id": "shirt", "quantity": 3, "amount": 24_000, "tax": 2_400, "discount": 1_000, "shipped": 3, "returned": 0},
    {"id": "mug", "amount": 3_000, "tax": 600},
]


async def ordered(api: Api) -> dict[str, Any]:
    """Shirts and a mug for $300.00 with tax and shipping."""
    return await api.order(lines=LINES, tax=3_100, shipping=900, discount=1_000)


def by_lines(api: Api, order: dict[str, Any], *lines: tuple[str, int], **changed: Any) -> dict[str, Any]:
    body = api.asked(order, lines=[{"id": line, "quantity": quantity} for line, quantity in lines])
    return {name: value for name, value in body.items() if name not in ("amount", "currency")} | changed


async def test_the_breakdown_is_shown_part_by_part_and_sums_up(api: Api) -> None:
    answer = await api.ask(by_lines(api, await ordered(api), ("shirt", 1), ("mug", 1), shipping=True))
    assert answer.status_code == 202, answer.text
    refund_id = answer.json()["id"]
    assert (answer.json()["amount"], answer.json()["breakdown"]) == (None, None)
    await api.quote(refund_id)

    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()

    assert view["breakdown"] == {
        "amount": 8_467 + 3_600 + 1_000,
        "currency": "USD",
        "amount_text": "$130.67",
        "captured": 30_000,
        "order_total": 30_000,
        "order_currency": "USD",
        "lines": [
            {"id": "shirt", "quantity": 1, "ordered": 3, "earlier": 0, "amount": 8_467, "amount_text": "$84.67"}
            | {"tax": 800, "discount": 334, "left": 16_933},
            {"id": "mug", "quantity": 1, "ordered": 1, "earlier": 0, "amount": 3_600, "amount_text": "$36.00"}
            | {"tax": 600, "discount": 0, "left": 0},
        ],
        "shipping": {"amount": 1_000, "tax": 100, "discount": 0},
    }
    assert view["terms"]["amount"] == view["amount"] == view["breakdown"]["amount"]
    assert (view["request"]["amount"], view["request"]["full"]) == (None, False)
    assert (view["request"]["lines"], view["request"]["shipping"]) == (
        [{"id": "shirt", "quantity": 1}, {"id": "mug", "quantity": 1}],
        True,
    )
    assert (view["sources"]["amount"], view["sources"]["lines"], view["sources"]["shipping"]) == (
        "system_of_record",
        "customer",
        "customer",
    )


async def test_a_refund_by_amount_has_no_breakdown(api: Api) -> None:
    assert (await api.in_review(await ordered(api)))["breakdown"] is None


async def test_what_lines_cannot_be_refunded_is_answered_at_the_door(api: Api) -> None:
    order = await ordered(api)
    two = await api.order(lines=LINES, payments=[{"id": f"pi_two_{n}", "amount": 15_000, "currency": "USD"} for n in range(2)])
    refused = [
        (by_lines(api, order, ("hat", 1)), 404, "LINE_NOT_FOUND", "lines.0.id"),
        (by_lines(api, order, ("mug", 1), ("shirt", 4)), 422, "LINE_NOT_LEFT", "lines.1.quantity"),
        (by_lines(api, order, ("mug", 1), ("mug", 1)), 422, "LINE_TWICE", "lines.1.id"),
        (by_lines(api, order, ("mug", 1), full=True), 422, "LINES_AND_FULL", "lines"),
        (by_lines(api, order, ("mug", 0)), 422, "INVALID_FIELD", "lines.0.quantity"),
        (by_lines(api, order), 422, "AMOUNT_REQUIRED", "amount"),
        (by_lines(api, two, ("mug", 1)), 409, "LINES_OF_SEVERAL_PAYMENTS", "lines"),
        (by_lines(api, two, ("mug", 1), payment_id="pi_two_1"), 409, "LINES_OF_SEVERAL_PAYMENTS", "lines"),
    ]
    for body, status, code, field in refused:
        for path in ("/v1/refunds", "/v1/quotes"):
            answer = await api.call("POST", path, await api.shop(), body, Idempotency_Key="bad")
            assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (status, code, field), (path, body)
    assert await api.count("refunds") == 0


async def test_a_quote_shows_what_lines_come_to_and_keeps_nothing(api: Api) -> None:
    order = await ordered(api)
    await api.reading(await api.received(order))

    answer = await api.call("POST", "/v1/quotes", await api.shop(), by_lines(api, order, ("mug", 1)))

    assert answer.status_code == 200, answer.text
    assert (answer.json()["outcome"], answer.json()["terms"]["amount"], answer.json()["needs"]["consent"]) == ("proceed", 3_600, True)
    assert [(line["id"], line["amount"]) for line in answer.json()["breakdown"]["lines"]] == [("mug", 3_600)]
    assert await api.count("refunds") == 1


async def test_an_order_keeps_what_was_said_of_its_lines_and_contradictions_are_named(api: Api) -> None:
    order = await ordered(api)
    stored = (await api.call("GET", f"/v1/orders/{order['order_id']}", await api.shop())).json()["order"]
    assert stored["discount"] == 1_000
    assert {name: stored["lines"][0][name] for name in LINES[0]} == LINES[0]
    assert "shipped" not in stored["lines"][1]
    for wrong in (
        {"lines": [LINES[0] | {"discount": 24_001}]},
        {"lines": [LINES[0] | {"shipped": 4}]},
        {"lines": [LINES[0] | {"shipped": 1, "returned": 2}]},
        {"lines": [LINES[0] | {"tax": -1}]},
        {"lines": LINES, "tax": 2_999},
        {"lines": LINES, "discount": 30_000},
    ):
        body = {name: value for name, value in order.items() if name != "order_id"} | wrong
        answer = await api.call("PUT", f"/v1/orders/{order['order_id']}", await api.shop(), body)
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_FIELD"), wrong
