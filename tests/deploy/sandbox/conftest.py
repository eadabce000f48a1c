"""What the sandbox's tests share: clients, a sandbox of one's own to kill, and Stripe's schema where it is given.

REFUNDS_STRIPE_SCHEMA names Stripe's OpenAPI document (trimmed to refunds, API version 2026-08-26.dahlia); when it is set,
every JSON answer from /v1 that a test receives, through `http` or through the SDK, is held against it.
REFUNDS_STRIPE_RECORDED names the whole recording; when it is set, test_recording.py replays it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import stripe

SCHEMA, RECORDING = "REFUNDS_STRIPE_SCHEMA", "REFUNDS_STRIPE_RECORDED"
API_VERSION = "2026-08-26.dahlia"
KEY = "sk_test_sandbox"
ROOT = Path(__file__).parents[3]
collect_ignore = [] if os.environ.get(RECORDING) else ["test_recording.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, what in (
        (SCHEMA, "the sandbox's answers were not held against Stripe's schema"),
        (RECORDING, "the whole recording of Stripe's behaviour was not replayed (our own table of its facts was)"),
    ):
        if not os.environ.get(name):
            terminalreporter.write_line(f"not run: {what}; set {name}")


def _honour_nullable(node: Any) -> Any:
    """OpenAPI 3.0's `nullable` as JSON Schema understands it."""
    if isinstance(node, list):
        return [_honour_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    converted = {name: _honour_nullable(value) for name, value in node.items() if name != "nullable"}
    if node.get("nullable") is True:
        return {"anyOf": [{"type": "null"}, converted]}
    return converted


class StripeSchema:
    """Stripe's own description of its objects; without the document it accepts everything."""

    def __init__(self, path: str | None) -> None:
        self._document = _honour_nullable(json.loads(Path(path).read_text())) if path else None
        self.checked = 0
        self.wrong: list[str] = []

    def answered(self, path: str, content: bytes) -> None:
        """Checks one answer; what is wrong is kept until the test ends, because the SDK would swallow it here."""
        try:
            body = json.loads(content)
        except json.JSONDecodeError:
            return
        try:
            self.check(path, body)
        except jsonschema.ValidationError as error:
            self.wrong.append(f"{path}: {error.json_path}: {error.message}")

    def settle(self) -> None:
        wrong, self.wrong = self.wrong, []
        assert wrong == []

    def _hold(self, body: Any, schema: dict[str, Any]) -> None:
        assert self._document is not None
        whole = {**schema, "components": self._document["components"]}
        jsonschema.Draft202012Validator(whole).validate(body)
        self.checked += 1

    def check(self, path: str, body: dict[str, Any]) -> None:
        """Raises jsonschema.ValidationError where the answer is not what Stripe's schema says."""
        if self._document is None:
            return
        kind = "error" if "error" in body else body["object"]
        if kind == "list":
            self._hold_list(path, body)
        elif kind in self._document["components"]["schemas"]:
            self._hold(body, {"$ref": f"#/components/schemas/{kind}"})

    def _hold_list(self, path: str, body: dict[str, Any]) -> None:
        assert self._document is not None
        parts = path.split("/")
        if len(parts) > 3:
            parts[3] = "{charge}"
        described = self._document["paths"].get("/".join(parts))
        if described is not None:
            content = described["get"]["responses"]["200"]["content"]
            self._hold(body, content["application/json"]["schema"])


@pytest.fixture(scope="session")
def stripe_schema() -> StripeSchema:
    return StripeSchema(os.environ.get(SCHEMA))


@contextlib.asynccontextmanager
async def _http(url: str, schema: StripeSchema) -> AsyncIterator[httpx.AsyncClient]:
    async def check(answer: httpx.Response) -> None:
        await answer.aread()
        if answer.request.url.path.startswith("/v1/"):
            assert answer.headers["request-id"].startswith("req_")
            schema.answered(answer.request.url.path, answer.content)

    headers = {"Authorization": f"Bearer {KEY}", "Stripe-Version": API_VERSION}
    async with httpx.AsyncClient(base_url=url, headers=headers, event_hooks={"response": [check]}, trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture
async def http(sandbox: Any, stripe_schema: StripeSchema) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP to the sandbox, with a key; every answer is held against the schema where there is one."""
    async with _http(sandbox.url, stripe_schema) as client:
        yield client
    stripe_schema.settle()


class CheckedTransport(stripe.HTTPXClient):
    """The SDK's own transport, which also shows each answer to the schema."""

    def __init__(self, schema: StripeSchema) -> None:
        super().__init__()
        self._schema = schema

    async def request_async(self, method: str, url: str, headers: Any, post_data: Any = None) -> Any:
        content, status, answered = await super().request_async(method, url, headers, post_data)
        self._schema.answered(httpx.URL(url).path, content)
        return content, status, answered


@contextlib.asynccontextmanager
async def _sdk(url: str, schema: StripeSchema, key: str = KEY) -> AsyncIterator[stripe.StripeClient]:
    transport = CheckedTransport(schema)
    try:
        yield stripe.StripeClient(
            key,
            base_addresses={"api": url},
            http_client=transport,
            stripe_version=API_VERSION,
            max_network_retries=0,
        )
    finally:
        await transport.close_async()
    schema.settle()


@pytest.fixture
async def client(sandbox: Any, stripe_schema: StripeSchema) -> AsyncIterator[stripe.StripeClient]:
    """The official SDK, set up as the application sets it up."""
    async with _sdk(sandbox.url, stripe_schema) as client:
        yield client


@pytest.fixture
def sdk(stripe_schema: StripeSchema) -> Callable[..., contextlib.AbstractAsyncContextManager[stripe.StripeClient]]:
    """The SDK for another sandbox or another key: `sdk(url, key)`."""
    return lambda url, key: _sdk(url, stripe_schema, key)


@pytest.fixture
def pay(sandbox: Any) -> Callable[..., dict[str, Any]]:
    """Places a payment through the control API: `pay(id="pi_x", amount=5000)` -> {payment_intent, charge}."""

    def place(**wanted: Any) -> dict[str, Any]:
        return sandbox.control("POST", "/payments", {"amount": 5000, "currency": "usd", **wanted})

    return place


class OwnSandbox:
    """A sandbox process of one's own, to be killed and started again on the same file."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self._argv = [sys.executable, "-m", "deploy.sandbox", "--data", str(data), *arguments]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> str:
        self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("sandbox ready http://"), line
        self.url = line.split()[-1]
        return self.url

    def stop(self, how: signal.Signals) -> int:
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(how)
        code = self._process.wait(timeout=20)
        self._process.stdout.close()
        self._process = None
        return code

    def control(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(method, f"{self.url}/_sandbox{path}", json=body, timeout=10, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)


@pytest.fixture
def own_sandbox(tmp_path: Path) -> Iterator[Callable[..., OwnSandbox]]:
    """Makes sandboxes of one's own (not started): `own_sandbox("--key-seconds", "60")`."""
    made: list[OwnSandbox] = []

    def make(*arguments: str) -> OwnSandbox:
        made.append(OwnSandbox(tmp_path / f"sandbox-{len(made)}.sqlite", *arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The SDK hands form bytes to httpx in a way that httpx has deprecated; nothing of ours can change it.
    ignore = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(ignore)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    """Waits for a condition: `await until(lambda: ...)`; fails after ten seconds."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
                await asyncio.sleep(0.02)

    return wait
