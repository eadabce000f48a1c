"""What is wrong with a call is told by code and field, and leaves no refund behind: the real server, to the byte."""

import asyncio
import json
from typing import Any

import pytest

from tests.end_to_end.whole import Goods, Whole, only, order_of


@pytest.fixture(scope="module")
async def goods(whole: Whole) -> Goods:
    return await whole.goods(3_000)


async def refunds_of(whole: Whole, goods: Goods) -> list[dict[str, Any]]:
    answer = await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}")
    return answer.json()["refunds"]


@pytest.mark.parametrize("body", [b"", b"{", b'{"amount": 1}}', b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"amount": NaN}'])
async def test_malformed_json(whole: Whole, body: bytes) -> None:
    only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), 400, "MALFORMED_JSON")


@pytest.mark.parametrize(
    ("amount", "code"),
    [
        *[("30.0", "AMOUNT_NOT_INTEGER"), ("3e3", "AMOUNT_NOT_INTEGER"), ("true", "AMOUNT_NOT_INTEGER"), ('"3000"', "AMOUNT_NOT_INTEGER")],
        *[("[3000]", "AMOUNT_NOT_INTEGER"), ("{}", "AMOUNT_NOT_INTEGER"), ("null", "AMOUNT_REQUIRED")],
        *[("0", "AMOUNT_NOT_POSITIVE"), ("-0", "AMOUNT_NOT_POSITIVE"), ("-1", "AMOUNT_NOT_POSITIVE"), ("1" + "0" * 20, "AMOUNT_TOO_LARGE")],
    ],
)
async def test_wrong_amounts(whole: Whole, goods: Goods, amount: str, code: str) -> None:
    body = json.dumps(whole.asked(goods) | {"amount": "HERE"}).replace('"HERE"', amount).encode()

    only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), 422, code, "amount")

    assert await refunds_of(whole, goods) == []


@pytest.mark.parametrize(
    ("changed", "status", "code", "field"),
    [
        ({"colour": "red"}, 422, "UNKNOWN_FIELD", "colour"),
        ({"customer_authentication": {"method": "password", "at": "yesterday"}}, 422, "INVALID_FIELD", "customer_authentication.at"),
        ({"currency": "ABC"}, 422, "UNKNOWN_CURRENCY", "currency"),
        ({"currency": None}, 422, "UNKNOWN_CURRENCY", "currency"),
        ({"currency": "EUR"}, 422, "CURRENCY_MISMATCH", "currency"),
        ({"full": True}, 422, "AMOUNT_AND_FULL", "full"),
        ({"full": "true", "amount": None}, 422, "INVALID_FIELD", "full"),
        ({"reason": "because"}, 422, "INVALID_FIELD", "reason"),
        ({"reason": "payout"}, 422, "OUT_OF_SCOPE", "reason"),
        ({"order_id": "order-unknown"}, 404, "ORDER_NOT_FOUND", "order_id"),
        ({"payment_id": "pi_unknown"}, 404, "PAYMENT_NOT_FOUND", "payment_id"),
        ({"message": "a\0b"}, 422, "INVALID_FIELD", "message"),
        ({"message": "half \ud800 a character"}, 422, "INVALID_FIELD", "message"),
        ({"order_id": None}, 422, "INVALID_FIELD", "order_id"),
    ],
)
async def test_wrong_fields(whole: Whole, goods: Goods, changed: dict[str, Any], status: int, code: str, field: str) -> None:
    body = json.dumps(whole.asked(goods) | changed).encode()

    only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), status, code, field)

    assert await refunds_of(whole, goods) == []


async def test_three_megabytes(whole: Whole, goods: Goods) -> None:
    answer = await whole.ask(goods, message="x" * 3_000_000)

    only(answer, 413, "BODY_TOO_LARGE")
    assert await refunds_of(whole, goods) == []


async def test_somebody_elses_order(whole: Whole, goods: Goods) -> None:
    other = await whole.goods(3_000)

    answer = only(await whole.ask(goods, customer_id=other.customer), 404, "ORDER_NOT_FOUND", "order_id")

    unknown = only(await whole.ask(goods, order_id="order-nowhere"), 404, "ORDER_NOT_FOUND", "order_id")
    assert {name: answer[name] for name in ("title", "detail", "remedy")} == {name: unknown[name] for name in ("title", "detail", "remedy")}
    assert await refunds_of(whole, goods) == await refunds_of(whole, other) == []


async def test_an_order_with_several_payments_and_none_named(whole: Whole) -> None:
    goods = await whole.goods(6_000)
    second = f"pi_{whole.number()}"
    await whole.control("POST", "/payments", {"id": second, "amount": 2_000, "currency": "usd"})
    payments = [{"id": goods.intent, "amount": 4_000, "currency": "USD"}, {"id": second, "amount": 2_000, "currency": "USD"}]
    assert (await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, payments=payments))).status_code == 200

    told = only(await whole.ask(goods, 2_000), 409, "AMBIGUOUS_PAYMENT", "payment_id")

    assert goods.intent in json.dumps(told)
    assert second in json.dumps(told)
    assert await refunds_of(whole, goods) == []


@pytest.mark.parametrize("key", [None, "rfk_wrong", "rfk_" + "x" * 43, "Bearer"])
async def test_a_wrong_or_missing_key(whole: Whole, goods: Goods, key: str | None) -> None:
    answer = await whole.call(key, "POST", "/v1/refunds", whole.asked(goods), Idempotency_Key=whole.number())

    only(answer, 401, "UNAUTHENTICATED")
    assert await refunds_of(whole, goods) == []


async def test_a_key_without_the_role(whole: Whole, goods: Goods) -> None:
    only(await whole.ask(goods, who="rita"), 403, "FORBIDDEN")
    assert await refunds_of(whole, goods) == []


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\tb"])
async def test_a_wrong_idempotency_key(whole: Whole, goods: Goods, key: str) -> None:
    headers = {"Authorization": f"Bearer {whole.keys['shop']}", "Idempotency-Key": key.encode()}
    answer = await whole.http.post("/v1/refunds", json=whole.asked(goods), headers=headers)

    only(answer, 400, "IDEMPOTENCY_KEY_REQUIRED", "Idempotency-Key")
    assert await refunds_of(whole, goods) == []


async def test_the_same_key_with_another_body(whole: Whole) -> None:
    goods, key = await whole.goods(3_000), whole.number()
    refund = await whole.asked_for(goods, 1_000, key=key)

    only(await whole.ask(goods, 1_001, key=key), 422, "IDEMPOTENCY_KEY_REUSED", "Idempotency-Key")

    assert [found["id"] for found in await refunds_of(whole, goods)] == [refund]


async def test_a_caller_that_hangs_up_in_the_middle_of_its_body_leaves_nothing(whole: Whole, goods: Goods) -> None:
    address = whole.stack.addresses["api"].removeprefix("http://")
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/refunds HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {whole.keys['shop']}\r\nIdempotency-Key: {whole.number()}\r\n"
    writer.write(f'{head}Content-Length: 5000\r\n\r\n{{"order_id": "{goods.order}"'.encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    assert (await whole.call(None, "GET", "/healthz")).status_code == 200
    assert await refunds_of(whole, goods) == []
