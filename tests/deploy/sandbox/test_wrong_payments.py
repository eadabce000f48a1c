"""What Stripe answers to an id that is no payment of this account and mode, and to a payment that is too old."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

LIVE = {"Authorization": "Bearer sk_live_sandbox"}


def error(answer: httpx.Response) -> tuple[int, str | None, str]:
    found = answer.json()["error"]
    return answer.status_code, found.get("code"), found["message"]


@pytest.mark.parametrize("given", ["re_1", "cs_test_1", "in_1", "seti_1", "cus_1", "pi_nobody"])
async def test_an_id_of_another_kind_is_a_missing_payment(http: httpx.AsyncClient, sandbox: Any, given: str):
    missing = (404, "resource_missing", f"No such payment_intent: '{given}'")
    assert error(await http.get(f"/v1/payment_intents/{given}")) == missing
    assert error(await http.post("/v1/refunds", data={"payment_intent": given})) == missing


async def test_the_other_mode_is_named(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    sandbox.control("PUT", "/keys", {"key": "sk_live_sandbox"})
    pay(id="pi_live", livemode=True)
    pay(id="pi_test")
    asked = {
        "test": await http.get("/v1/payment_intents/pi_live"),
        "live": await http.get("/v1/payment_intents/pi_test", headers=LIVE),
        "neither": await http.get("/v1/payment_intents/pi_nobody", headers=LIVE),
        "refund": await http.post("/v1/refunds", data={"payment_intent": "pi_test"}, headers=LIVE),
    }
    hint = "a similar object exists in {} mode, but a {} mode key was used to make this request."

    assert error(asked["test"])[2] == f"No such payment_intent: 'pi_live'; {hint.format('live', 'test')}"
    assert error(asked["live"]) == (404, "resource_missing", f"No such payment_intent: 'pi_test'; {hint.format('test', 'live')}")
    assert error(asked["neither"])[2] == "No such payment_intent: 'pi_nobody'"
    assert error(asked["refund"])[2].endswith(hint.format("test", "live"))
    found = await http.get("/v1/payment_intents/pi_live", headers=LIVE)
    assert (found.status_code, found.json()["livemode"]) == (200, True)
    assert sandbox.control("GET", "/truth")["refunds"] == []


async def test_a_live_key_is_accepted_only_once_it_is_registered(http: httpx.AsyncClient, sandbox: Any):
    assert (await http.get("/v1/refunds", headers=LIVE)).status_code == 401


async def test_a_payment_of_another_account_is_not_said_to_exist(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    sandbox.control("POST", "/accounts", {"id": "acct_seller"})
    pay(id="pi_theirs", account="acct_seller")
    assert error(await http.get("/v1/payment_intents/pi_theirs"))[2] == "No such payment_intent: 'pi_theirs'"
    assert (await http.get("/v1/payment_intents/pi_theirs", headers={"Stripe-Account": "acct_seller"})).status_code == 200


@pytest.mark.parametrize(("days", "status"), [(89, 200), (91, 400)])
async def test_a_payment_method_has_a_window(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any], days: int, status: int):
    pay(id="pi_w", refund_window_days=90)
    sandbox.control("POST", "/clock", {"advance_seconds": days * 86_400})
    answer = await http.post("/v1/refunds", data={"payment_intent": "pi_w"})
    assert answer.status_code == status
    if status == 400:
        assert error(answer) == (400, None, "This payment is too old to be refunded. It has passed its 90-day refund window.")


async def test_a_file_from_before_there_were_accounts_is_taken_over(own_sandbox: Any, tmp_path: Path):
    """Columns that were added since are added to it; what it holds is the platform's."""
    one = own_sandbox()
    one.start()
    one.control("POST", "/payments", {"id": "pi_1", "amount": 100, "currency": "usd"})
    one.close()
    with sqlite3.connect(tmp_path / "sandbox-0.sqlite") as file:
        for table in ("objects", "requests"):
            file.execute(f"ALTER TABLE {table} DROP COLUMN scope")
    file.close()
    one.start()
    assert one.control("POST", "/refunds", {"payment_intent": "pi_1"})["amount"] == 100
