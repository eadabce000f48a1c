"""Idempotency keys: what is replayed, what is refused, what is forgotten."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe

REFUND = {"payment_intent": "pi_key", "amount": "700", "metadata[op]": "op_1"}


def made(sandbox: Any) -> list[int]:
    return [refund["amount"] for refund in sandbox.control("GET", "/truth?payment_intent=pi_key")["refunds"]]


async def refund(http: httpx.AsyncClient, key: str, path: str = "/v1/refunds", **changed: str) -> httpx.Response:
    form = {**REFUND, **changed} if path == "/v1/refunds" else changed
    return await http.post(path, data=form, headers={"Idempotency-Key": key})


async def test_the_first_result_is_replayed_byte_for_byte(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    first, again = await refund(http, "k"), await refund(http, "k")
    assert (again.status_code, again.content) == (200, first.content)
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert again.headers["original-request"] == first.headers["request-id"] != again.headers["request-id"]
    assert made(sandbox) == [700]


async def test_a_definite_refusal_is_kept_though_the_cause_has_gone(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    dispute = sandbox.control("POST", "/disputes", {"payment_intent": "pi_key", "status": "needs_response"})
    first = await refund(http, "k")
    sandbox.control("POST", f"/disputes/{dispute['id']}", {"status": "won"})
    again = await refund(http, "k")
    assert first.json()["error"]["code"] == again.json()["error"]["code"] == "charge_disputed"
    assert (made(sandbox), (await refund(http, "other")).status_code) == ([], 200)


async def test_failed_validation_is_not_kept(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    assert (await refund(http, "k", amount="seven")).json()["error"]["code"] == "parameter_invalid_integer"
    assert (await refund(http, "k")).status_code == 200
    assert made(sandbox) == [700]


@pytest.mark.parametrize(
    ("path", "changed", "rule"),
    [
        ("/v1/refunds", {"amount": "701"}, "with the same parameters they were first used with"),
        ("/v1/refunds", {"metadata[op]": "op_2"}, "with the same parameters they were first used with"),
        ("/v1/payment_intents/pi_key/cancel", {}, "for the same endpoint they were first used for ('/v1/refunds')"),
    ],
)
async def test_a_key_belongs_to_one_request(
    path: str, changed: dict[str, str], rule: str, http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_key")
    await refund(http, "k")
    answer = await refund(http, "k", path, **changed)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], rule in error["message"]) == (400, "idempotency_error", True)
    assert ("code" in error, made(sandbox)) == (False, [700])


async def test_the_order_of_parameters_does_not_matter(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    await refund(http, "k")
    turned = dict(reversed(REFUND.items()))
    again = await http.post("/v1/refunds", data=turned, headers={"Idempotency-Key": "k"})
    assert (again.headers["idempotent-replayed"], made(sandbox)) == ("true", [700])


async def test_a_key_in_use_is_409_and_one_refund_is_made(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    sandbox.control("POST", "/faults", {"on": "refund.create", "fault": {"kind": "delay", "ms": 400}})

    async def one() -> str:
        try:
            await client.v1.refunds.create_async({"payment_intent": "pi_key", "amount": 700}, {"idempotency_key": "k"})
        except stripe.StripeError as error:
            assert error.error is not None
            return f"{error.http_status} {error.error.code}"
        return "made"

    outcomes = await asyncio.gather(*(one() for _ in range(8)))
    assert sorted(outcomes) == ["409 idempotency_key_in_use"] * 7 + ["made"]
    truth = sandbox.control("GET", "/truth?payment_intent=pi_key")
    assert sorted(request["answered"] for request in truth["create_requests"]) == [200] + [409] * 7
    assert (made(sandbox), await one()) == ([700], "made")
    assert made(sandbox) == [700]


async def test_many_at_once_with_one_key_make_one_refund(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    answers = await asyncio.gather(*(refund(http, "k") for _ in range(20)))
    assert ({answer.json()["id"] for answer in answers}, made(sandbox)) == ({answers[0].json()["id"]}, [700])


async def test_keys_are_forgotten_after_a_day(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    await refund(http, "k")
    sandbox.control("POST", "/clock", {"advance_seconds": 24 * 3600 - 60})
    await refund(http, "k")
    assert made(sandbox) == [700]
    sandbox.control("POST", "/clock", {"advance_seconds": 61})
    late = await refund(http, "k")
    assert ("idempotent-replayed" in late.headers, made(sandbox)) == (False, [700, 700])


async def test_the_age_of_keys_can_be_set(own_sandbox: Callable[..., Any]):
    sandbox = own_sandbox("--key-seconds", "60")
    url = sandbox.start()
    sandbox.control("POST", "/payments", {"id": "pi_key", "amount": 5000, "currency": "usd"})
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk_test_x"}, trust_env=False) as http:
        await refund(http, "k")
        sandbox.control("POST", "/clock", {"advance_seconds": 61})
        await refund(http, "k")
    assert made(sandbox) == [700, 700]


async def test_a_500_is_kept_and_replayed(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_key")
    sandbox.control("POST", "/faults", {"on": "refund.create", "fault": {"kind": "status", "status": 500}})
    first, again = await refund(http, "k"), await refund(http, "k")
    assert (first.status_code, again.status_code, again.headers["idempotent-replayed"]) == (500, 500, "true")
    assert (first.json()["error"]["type"], made(sandbox)) == ("api_error", [])
