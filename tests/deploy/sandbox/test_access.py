"""Keys, permissions, versions, paths: who is let in, and what everybody is told."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "You did not provide an API key."),
        ("Bearer", "You did not provide an API key."),
        ("Bearer sk_live_123456789", "Invalid API Key provided: sk_live_*****6789"),
        ("Bearer rk_test_unknown", "Invalid API Key provided: rk_test_***nown"),
        ("Bearer sk_test_", "Invalid API Key provided: sk_test_"),
    ],
)
async def test_a_wrong_key_is_401(header: str | None, message: str, sandbox: Any):
    headers = {} if header is None else {"Authorization": header}
    async with httpx.AsyncClient(base_url=sandbox.url, headers=headers, trust_env=False) as http:
        answer = await http.get("/v1/refunds")
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["message"].startswith(message)) == (401, "invalid_request_error", True)
    assert ("code" in error, "request-id" in answer.headers) == (False, True)


@pytest.mark.parametrize(
    ("permissions", "revoked", "read", "write"),
    [
        ({"refunds": "write"}, False, None, None),
        ({"refunds": "read"}, False, None, stripe.PermissionError),
        ({"refunds": "none"}, False, stripe.PermissionError, stripe.PermissionError),
        ({}, False, stripe.PermissionError, stripe.PermissionError),
        (None, True, stripe.AuthenticationError, stripe.AuthenticationError),
    ],
)
async def test_restricted_keys(
    permissions: dict[str, str] | None,
    revoked: bool,
    read: type[Exception] | None,
    write: type[Exception] | None,
    sandbox: Any,
    sdk: Callable[..., Any],
    pay: Callable[..., Any],
):
    pay(id="pi_k")
    sandbox.control("PUT", "/keys", {"key": "rk_test_1", "permissions": permissions, "revoked": revoked})
    async with sdk(sandbox.url, "rk_test_1") as client:
        for call, expected in (
            (lambda: client.v1.refunds.list_async(), read),
            (lambda: client.v1.refunds.create_async({"payment_intent": "pi_k"}), write),
        ):
            if expected is None:
                await call()
            else:
                with pytest.raises(expected):
                    await call()
    assert len(sandbox.control("GET", "/truth")["refunds"]) == (1 if write is None else 0)


async def test_another_api_version_is_refused_by_name(http: httpx.AsyncClient):
    answer = await http.get("/v1/balance", headers={"Stripe-Version": "2020-08-27"})
    assert (answer.status_code, "2020-08-27" in answer.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/refundz"), ("DELETE", "/v1/refunds/re_1"), ("GET", "/v1/refunds/"), ("GET", "/"), ("PUT", "/v1/refunds")],
)
async def test_an_unknown_path_is_404(method: str, path: str, http: httpx.AsyncClient):
    answer = await http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["message"].startswith(f"Unrecognized request URL ({method}: ")) == (404, True)


async def test_too_large_a_body_is_413_and_does_nothing(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_k")
    answer = await http.post("/v1/refunds", data={"payment_intent": "pi_k", "metadata[x]": "y" * 1_100_000})
    assert (answer.status_code, sandbox.control("GET", "/truth")["refunds"]) == (413, [])


def test_health_needs_no_key(sandbox: Any):
    assert httpx.get(f"{sandbox.url}/healthz", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/payments", {"amount": 100}, 400),
        ("POST", "/payments", {"amount": 100, "currency": "xyz"}, 400),
        ("POST", "/payments", {"amount": 0, "currency": "usd"}, 400),
        ("POST", "/payments", {"amount": 100, "currency": "usd", "captured": 101}, 400),
        ("POST", "/payments", {"amount": 100, "currency": "usd", "colour": "red"}, 400),
        ("POST", "/payments", {"id": "pi_k", "amount": 100, "currency": "usd"}, 409),
        ("POST", "/payments", {"amount": 100, "currency": "usd", "refund_outcome": {"initial": "lost"}}, 400),
        ("POST", "/disputes", {"payment_intent": "pi_none"}, 404),
        ("POST", "/disputes", {"payment_intent": "pi_k", "status": "angry"}, 400),
        ("POST", "/refunds/re_none", {"status": "failed"}, 404),
        ("POST", "/refunds", {"payment_intent": "pi_k", "amount": 5001}, 400),
        ("POST", "/clock", {"advance_seconds": -1}, 400),
        ("PUT", "/keys", {"key": "rk_test_1", "permissions": {"refunds": "own"}}, 400),
    ],
)
async def test_the_control_api_refuses_in_words(
    method: str, path: str, body: dict[str, Any], status: int, http: httpx.AsyncClient, pay: Callable[..., Any]
):
    pay(id="pi_k")
    answer = await http.request(method, f"/_sandbox{path}", json=body)
    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
