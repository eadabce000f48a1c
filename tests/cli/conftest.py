"""The `refunds` command run as a person runs it, with a small HTTP server in the API's place that says what a test needs it to say.

Everything that the real API could add is tested end to end; here it is about what the terminal sends, shows and ends with.
"""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli import main

TERMS = {
    "operation": "refund",
    "processor": "stripe",
    "processor_account": "acct_1",
    "mode": "test",
    "processor_payment": "pi_1",
    "amount": 12000,
    "amount_text": "$120.00",
    "currency": "USD",
    "destination": "original_payment_method",
    "reason": "product_issue",
    "processor_reason": "requested_by_customer",
    "policy_version": 1,
    "expires_at": "2026-03-02T10:00:00.000000Z",
}


def refund(number: int = 1, **changed: Any) -> dict[str, Any]:
    """A refund as the API answers it."""
    plain: dict[str, Any] = {
        "id": f"rf_{number:026d}",
        "status": "awaiting_review",
        "final": False,
        "amount": 12000,
        "currency": "USD",
        "amount_text": "$120.00",
        "order_id": f"order-{number}",
        "customer_id": "customer-1",
        "revision": 1,
        "terms_hash": "ab" * 32,
        "terms": TERMS,
        "queue": "team",
        "code": None,
        "next_step": "a decision on $120.00 in queue team",
        "created_at": "2026-03-01T10:00:00.000000Z",
    }
    return plain | changed


@dataclass
class FakeApi:
    """Answers by method and path; keeps what was sent. An answer is ``(status, body)``, or several to be given one after another."""

    answers: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    calls: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def on(self, method: str, path: str, *answers: tuple[int, Any]) -> None:
        """Say what is answered; the last answer stays."""
        self.answers[method, path] = list(answers)

    def sent(self, method: str) -> list[tuple[str, Any]]:
        """The paths and bodies of the calls with a method."""
        return [(path, body) for verb, path, body, _ in self.calls if verb == method]

    def take(self, method: str, path: str) -> tuple[int, Any]:
        known = self.answers.get((method, path.partition("?")[0]))
        if known is None:
            return 404, {"code": "NOT_FOUND", "detail": "There is nothing at this address.", "status": 404}
        return known.pop(0) if len(known) > 1 else known[0]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeApi]:
    """The fake API, and an environment in which the command finds it."""
    fake = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.calls.append((self.command, self.path, body, dict(self.headers)))
            status, answer = fake.take(self.command, self.path)
            raw = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            kind = "text/html" if isinstance(answer, str) else "application/problem+json" if status >= 400 else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("REFUNDS_API_URL", fake.url)
    monkeypatch.setenv("REFUNDS_API_KEY", "rfk_test")
    monkeypatch.chdir(tmp_path)
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(frozen=True)
class Ran:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str


class Runner:
    """Runs the command in this process, through the entry point that the shell calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str) -> Ran:
        self._monkeypatch.setattr("sys.argv", ["refunds", *arguments])
        code = 0
        try:
            main.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = self._capsys.readouterr()
        return Ran(code, printed.out, printed.err)


@pytest.fixture
def refunds(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """The `refunds` command."""
    return Runner(monkeypatch, capsys)
