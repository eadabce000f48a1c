"""The commands against the real API on the local stack: that both sides mean the same, and that a person can do the whole work in a terminal."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.demo.run import SETTINGS
from cli.demo.setup import Sandbox
from deploy.local import ports
from deploy.local.stack import LocalStack
from refunds.clock import SystemClock, rfc3339
from tests.cli.conftest import Ran, Runner

PATIENCE_SECONDS = 30
HASTY = {"SUBMIT_SEND_WITHIN_S": "1", "STRIPE_CONNECT_TIMEOUT_S": "1", "STRIPE_READ_TIMEOUT_S": "2"}
"""How soon a request that nobody has heard of cannot arrive any more."""


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """The whole local stack, with short pauses, on ports of its own."""
    directory = Path(tempfile.mkdtemp(prefix="refunds-cli-"))
    directory.chmod(0o711)  # when root runs the tests, the database's account has to get through
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    numbers = dict(zip(ports.DEFAULTS, ports.unused(len(ports.DEFAULTS)), strict=True))
    try:
        with LocalStack(directory / "home", ports=numbers, environment=environment, overrides=SETTINGS | HASTY) as started:
            yield started
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Desk:
    """Somebody at a terminal, who can take the key of anybody."""

    stack: LocalStack
    refunds: Runner
    monkeypatch: pytest.MonkeyPatch
    sandbox: Sandbox
    keys: dict[str, str]

    def run(self, *arguments: str, by: str = "") -> Ran:
        """Run a command as somebody; as the first administrator by default, whose key the command finds by itself."""
        self.monkeypatch.setenv("REFUNDS_API_KEY", self.keys[by] if by else "")
        return self.refunds(*arguments)

    def json(self, *arguments: str, by: str = "") -> Any:
        """The same, for a program."""
        ran = self.run(*arguments, "--json", by=by)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)

    def hire(self, handle: str, *roles: str, kind: str = "person") -> None:
        """Make somebody and their key, by the commands."""
        assert self.run("people", "add", handle, "--name", handle.title(), "--kind", kind).code == 0
        made = self.json("keys", "add", handle.upper(), *(word for role in roles for word in ("--role", role)))
        self.keys[handle] = made["key"]

    def paid(self, order: str, amount: int, currency: str, file: Path) -> None:
        """A payment in the sandbox, and its order sent by the command."""
        intent = f"pi_{order.replace('-', '')}"
        self.sandbox.post("/payments", {"id": intent, "amount": amount, "currency": currency.lower()})
        now = rfc3339(SystemClock().now())
        sent = {
            "order_id": order,
            "customer_id": f"customer of {order}",
            "customer_since": "2020-01-01T00:00:00Z",
            "delivered_at": now,
            "currency": currency,
            "payments": [{"id": intent, "amount": amount, "currency": currency}],
        }
        file.write_text(json.dumps(sent))
        assert self.run("orders", "put", str(file)).code == 0

    def ask(self, order: str, amount: int, currency: str) -> str:
        """What the support system does; there is no command for it, because people do not ask for refunds in a terminal."""
        body = {
            "order_id": order,
            "customer_id": f"customer of {order}",
            "amount": amount,
            "currency": currency,
            "requested_by": "sam",
            "customer_authentication": {"method": "password", "at": rfc3339(SystemClock().now())},
        }
        headers = {"Authorization": f"Bearer {self.keys['shop']}", "Idempotency-Key": f"{order} {amount}"}
        answer = httpx.post(f"{self.stack.addresses['api']}/v1/refunds", json=body, headers=headers, trust_env=False)
        return str(answer.raise_for_status().json()["id"])

    def until(self, refund: str, status: str) -> dict[str, Any]:
        """Wait until ``show`` says so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (now := self.json("show", refund))["status"] != status:
            assert time.monotonic() < deadline, f"{refund} is {now['status']}, not {status}: {now['next_step']}"
            time.sleep(0.1)
        return now


@pytest.fixture(scope="module")
def sandbox(stack: LocalStack) -> Iterator[Sandbox]:
    """Its control address."""
    control = Sandbox(stack.addresses["sandbox"])
    yield control
    control.close()


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """Everybody's key, by handle."""
    return {}


@pytest.fixture
def desk(stack: LocalStack, sandbox: Sandbox, keys: dict[str, str], refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The desk, with its people hired once."""
    monkeypatch.delenv("REFUNDS_API_URL", raising=False)
    monkeypatch.setenv("REFUNDS_HOME", str(stack.home))
    seat = Desk(stack, refunds, monkeypatch, sandbox, keys)
    if not keys:
        seat.hire("shop", "requester", kind="service")
        for handle, role in (("rita", "reviewer"), ("ravi", "reviewer"), ("sven", "settler"), ("sara", "settler")):
            seat.hire(handle, role)
        assert seat.run("rates", "set", "EUR", "1.10", "--source", "a test", "--yes").code == 0
    return seat


def test_revised_in_german_consented_approved_and_paid_to_the_cent(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-1", 200_00, "EUR", tmp_path / "o.json")
    refund = desk.ask("C-1", 180_00, "EUR")
    desk.until(refund, "awaiting_review")

    revised = desk.run(
        "revise", refund, "--amount", "120,50", "--currency", "EUR", "--locale", "de_DE", "--note", "half", "--yes", by="rita"
    )
    consented = desk.run("consent", refund, "--agree", "--yes", by="shop")
    approved = desk.run("approve", refund, "--note", "fine", "--yes", by="ravi")

    assert (revised.code, consented.code, approved.code) == (0, 0, 0)
    assert "120,50 €" in revised.err and "€120.50 (12050 EUR in the processor's unit)" in approved.out
    ended = desk.until(refund, "succeeded")
    assert (ended["amount"], ended["revision"]) == (120_50, 2)
    assert [made["amount"] for made in desk.sandbox.refunds_of("pi_C1")] == [120_50]
    listed = desk.run("list", "--order", "C-1")
    assert f"{refund}  C-1    €120.50  succeeded" in listed.out and len(listed.out.splitlines()) == 2


def test_who_asked_for_more_cannot_approve_it_and_a_no_ends_it(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-2", 300_00, "USD", tmp_path / "o.json")
    refund = desk.ask("C-2", 110_00, "USD")
    desk.until(refund, "awaiting_review")

    desk.run("revise", refund, "--amount", "$250.00", "--currency", "USD", "--yes", by="rita")
    desk.run("consent", refund, "--agree", "--yes", by="shop")
    own = desk.run("approve", refund, "--yes", by="rita")
    denied = desk.run("deny", refund, "--yes", "--signal", by="ravi")

    assert own.code == 1 and own.err.startswith("SELF_APPROVAL: ")
    assert denied.code == 0 and desk.until(refund, "denied")["code"] == "REVIEWER_DENIED"
    assert desk.run("approve", refund, "--yes", by="ravi").err.startswith("ALREADY_DECIDED: ")
    assert desk.sandbox.refunds_of("pi_C2") == []


def test_withdrawn_while_waiting(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-3", 300_00, "USD", tmp_path / "o.json")
    refund = desk.ask("C-3", 200_00, "USD")

    assert desk.run("withdraw", refund, "--yes", by="shop").code == 0
    assert desk.until(refund, "withdrawn")["final"]
    assert desk.run("withdraw", refund, "--yes", by="rita").err.startswith("FORBIDDEN: ")


def test_stopped_held_and_resumed(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-4", 50_00, "USD", tmp_path / "o.json")

    stopped = desk.run("stop", "--reason", "a test")
    refund = desk.ask("C-4", 50_00, "USD")
    held = desk.until(refund, "held")
    shown = desk.run("controls")
    alone = desk.run("resume", "--reason", "over", "--yes")
    desk.hire("omar", "operator")
    resumed = desk.run("resume", "--reason", "over", "--yes", by="omar")

    assert alone.code == 1 and alone.err.startswith("RESUME_NEEDS_ANOTHER_PERSON: ")
    assert (stopped.code, shown.code, resumed.code, held["code"]) == (0, 0, 0, "EMERGENCY_STOP")
    assert "stopped" in shown.out and "a test" in shown.out and "running" in resumed.out
    desk.until(refund, "succeeded")


def test_parked_and_settled_as_refunded_by_one_person(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-5", 45_00, "USD", tmp_path / "o.json")
    desk.sandbox.disturb("pi_C5", "lose_answer", "hide", times=None)
    refund = desk.ask("C-5", 45_00, "USD")
    desk.until(refund, "parked")
    (made,) = desk.sandbox.refunds_of("pi_C5")

    wrong = desk.run("settle", refund, "--refunded", "re_nowhere", "--yes", by="sven")
    right = desk.run("settle", refund, "--refunded", made["id"], "--yes", by="sven")

    assert wrong.code == 1 and wrong.err.startswith("SETTLEMENT_NOT_FOUND: ")
    assert right.code == 0 and f"{refund} is succeeded." in right.err


def test_parked_and_settled_as_not_refunded_by_two(desk: Desk, tmp_path: Path) -> None:
    desk.paid("C-6", 45_00, "USD", tmp_path / "o.json")
    desk.sandbox.disturb("pi_C6", "lose_request", times=None)
    refund = desk.ask("C-6", 45_00, "USD")
    desk.until(refund, "parked")

    settle = ("settle", refund, "--not-refunded", "--evidence", "not in the dashboard", "--yes")
    first = desk.run(*settle, by="sven")
    again = desk.run(*settle, by="sven")
    until = time.monotonic() + PATIENCE_SECONDS
    # A request that nobody has heard of may still arrive.
    while (second := desk.run(*settle, by="sara")).err.startswith("ATTEMPT_OPEN: ") and time.monotonic() < until:
        time.sleep(1)

    assert [first.code, again.code] == [0, 0]
    assert "a second person" in first.err and "a second person" in again.err and "a second person" not in second.err
    # What she said before may have been heard in the meantime.
    assert second.code == 0 or second.err.startswith("NOT_PARKED: ")
    assert desk.until(refund, "failed")["code"] == "SETTLED_NOT_REFUNDED"


def test_the_policy_goes_round(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    source = desk.run("policy", "show").out
    file.write_text(source)
    same = desk.json("policy", "publish", str(file), "--note", "the same again", "--yes")
    file.write_text(source.replace("terms_valid_for: 24h", "terms_valid_for: 12h"))

    published = desk.json("policy", "publish", str(file), "--note", "approvals hold for half a day", "--yes")

    assert (same["published"], same["version"]) == (False, 1)
    assert published["version"] == 2 and desk.json("policy", "show")["version"] == 2


def test_a_revoked_key_is_out(desk: Desk) -> None:
    desk.hire("guest", "reviewer")
    guest = next(one["id"] for one in desk.json("people", "list")["people"] if one["handle"] == "guest")
    (key,) = [one["id"] for one in desk.json("keys", "list")["keys"] if one["principal_id"] == guest]

    before = desk.run("list", by="guest")
    desk.run("keys", "revoke", key, "--yes")
    after = desk.run("list", by="guest")

    assert before.code == 0 and after.code == 1 and after.err.startswith("UNAUTHENTICATED: ")


def test_up_beside_a_stack_that_runs_shows_how_to_use_it_and_starts_nothing(desk: Desk) -> None:
    before = (desk.stack.home / "stack.json").read_text()

    ran = desk.run("up")

    (ready,) = [line for line in ran.out.splitlines() if line.startswith("export PATH=")]
    at = desk.stack.addresses
    assert ran.code == 0 and f"API={at['api']} SANDBOX={at['sandbox']} REFUNDS_HOME={desk.stack.home}" in ready
    assert (desk.stack.home / "stack.json").read_text() == before


def test_the_record_of_all_that_was_done_is_taken_away_and_verified(desk: Desk, tmp_path: Path) -> None:
    """After everything above: from a file with the key alone, one entry by itself, and from the database over the auditor's login."""
    kept, later = tmp_path / "kept.checkpoint", tmp_path / "later.checkpoint"
    assert desk.run("ledger", "checkpoint", "--new", "--out", str(kept)).code == 0
    desk.paid("order-of-the-ledger", 5_000, "USD", tmp_path / "order.json")
    first = desk.json("ledger", "checkpoint", "--new", "--out", str(later))
    [key] = first["keys"]

    exported = desk.run("ledger", "export", "-o", str(tmp_path / "ledger.jsonl"))
    assert exported.code == 0, exported.err
    verified = desk.run(
        "ledger", "verify", str(tmp_path / "ledger.jsonl"), "--key", key, "--checkpoint", str(kept), "--checkpoint", str(later)
    )
    assert (verified.code, " entries, all of them as signed by refunds.local/ledger+" in verified.err) == (0, True), verified.err

    assert desk.run("ledger", "prove", "3", "-o", str(tmp_path / "3.json")).code == 0
    assert desk.run("ledger", "verify", str(tmp_path / "3.json"), "--key", key, "--seq", "3").code == 0
    wrong = desk.run("ledger", "verify", str(tmp_path / "3.json"), "--key", key, "--seq", "4")
    assert (wrong.code, wrong.err.strip()) == (1, "This is the proof of entry 3, and not of entry 4.")

    older = json.loads((tmp_path / "3.json").read_text())["checkpoint"].splitlines()[1]
    assert desk.run("ledger", "consistency", older, "-o", str(tmp_path / "continues.json")).code == 0
    assert desk.run("ledger", "verify", str(tmp_path / "continues.json"), "--key", key).code == 0

    live = desk.run("ledger", "verify", "--key", key, "--checkpoint", str(kept))
    assert live.code == 0, "what it says is on the terminal itself"
    copies = sorted((desk.stack.home / "checkpoints").iterdir())
    assert copies and desk.run("ledger", "verify", "--key", key, "--checkpoint", str(copies[-1])).code == 0
