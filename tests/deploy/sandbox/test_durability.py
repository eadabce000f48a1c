"""What was answered survives `kill -9`; stopping is clean; one file has one sandbox."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

AUTH = {"Authorization": "Bearer sk_test_x"}


async def _refund_until_killed(url: str, worker: int, answered: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=url, headers=AUTH, trust_env=False) as http:
        for number in range(1000):
            key = f"key-{worker}-{number}"
            form = {"payment_intent": f"pi_{worker}", "amount": "1", "metadata[key]": key}
            try:
                answer = await http.post("/v1/refunds", data=form, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                return
            answered[key] = answer.json()["id"]


@pytest.mark.parametrize("enough", [1, 40, 137])
async def test_nothing_answered_is_lost_by_kill_9(enough: int, own_sandbox: Callable[..., Any], until: Any):
    sandbox = own_sandbox()
    url = sandbox.start()
    wanted = [{"id": f"pi_{worker}", "amount": 100_000, "currency": "usd"} for worker in range(4)]
    sandbox.control("POST", "/payments", wanted)
    answered: dict[str, str] = {}
    workers = [asyncio.create_task(_refund_until_killed(url, worker, answered)) for worker in range(4)]
    await until(lambda: len(answered) >= enough)
    assert sandbox.stop(signal.SIGKILL) == -signal.SIGKILL
    await asyncio.gather(*workers)

    again = sandbox.start()
    truth = sandbox.control("GET", "/truth")
    kept = {refund["metadata"]["key"]: refund["id"] for refund in truth["refunds"]}
    assert {key: kept.get(key) for key in answered} == answered
    assert len(truth["create_requests"]) == len(truth["refunds"]) == len(kept)
    async with httpx.AsyncClient(base_url=again, headers=AUTH, trust_env=False) as http:
        totals = 0
        for worker in range(4):
            totals += (await http.get(f"/v1/charges/ch_{worker}")).json()["amount_refunded"]
        key, first = next(iter(answered.items()))
        form = {"payment_intent": f"pi_{key.split('-')[1]}", "amount": "1", "metadata[key]": key}
        replay = await http.post("/v1/refunds", data=form, headers={"Idempotency-Key": key})
    assert (totals, replay.json()["id"], replay.headers["idempotent-replayed"]) == (len(kept), first, "true")


async def test_faults_clock_and_keys_outlive_a_restart(own_sandbox: Callable[..., Any]):
    sandbox = own_sandbox("--account", "acct_own")
    sandbox.start()
    [ordered] = sandbox.control("POST", "/faults", {"on": "any", "times": None, "fault": {"kind": "rate_limit"}})
    sandbox.control("POST", "/clock", {"advance_seconds": 86400})
    sandbox.control("PUT", "/keys", {"key": "rk_test_r", "permissions": {"account": "read"}})
    sandbox.stop(signal.SIGKILL)
    url = sandbox.start()
    assert sandbox.control("GET", "/faults") == [ordered]
    assert sandbox.control("GET", "/clock")["shifted_seconds"] == 86400
    sandbox.control("DELETE", "/faults")
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer rk_test_r"}, trust_env=False) as http:
        account = (await http.get("/v1/account")).json()
    assert (account["id"], account["livemode"]) == ("acct_own", False)


async def test_sigterm_stops_cleanly_even_with_a_call_in_the_air(own_sandbox: Callable[..., Any], until: Any):
    sandbox = own_sandbox()
    url = sandbox.start()
    sandbox.control("POST", "/payments", {"id": "pi_s", "amount": 100, "currency": "usd"})
    sandbox.control("POST", "/faults", {"on": "refund.create", "fault": {"kind": "hang", "ms": 600_000}})
    async with httpx.AsyncClient(base_url=url, headers=AUTH, trust_env=False, timeout=30) as http:
        call = asyncio.create_task(http.post("/v1/refunds", data={"payment_intent": "pi_s"}))
        await until(lambda: bool(sandbox.control("GET", "/truth")["refunds"]))
        code = await asyncio.to_thread(sandbox.stop, signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            await call
    assert code == 0


async def test_a_second_sandbox_on_the_same_file_says_so(own_sandbox: Callable[..., Any], tmp_path: Any):
    own_sandbox().start()
    argv = [sys.executable, "-m", "deploy.sandbox", "--data", str(tmp_path / "sandbox-0.sqlite")]
    second = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=30)
    assert (second.returncode, "database is locked" in second.stderr, second.stdout) == (1, True, "")


async def test_a_taken_port_says_so(own_sandbox: Callable[..., Any], tmp_path: Any):
    port = own_sandbox().start().rpartition(":")[2]
    argv = [sys.executable, "-m", "deploy.sandbox", "--port", port, "--data", str(tmp_path / "other.sqlite")]
    second = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=30)
    assert (second.returncode, f"127.0.0.1:{port}" in second.stderr, second.stdout) == (1, True, "")
