"""Real services for the tests, started once a session and shared. Nothing is mocked below the network.

Fixtures (a test asks for what it needs; a service nobody asks for is not started):

postgres_server   session   deploy.local.postgres.PostgresServer, running; not durable, because its data is thrown away
template_database session   name of a database with all migrations applied; never connect to it, clone it
watched_database  session   the same with the witness of tests/witness.py in it
database          function  FreshDatabase: a clone of the watched one for this test alone: `.url(role)`, `.connect(role)`, `.name`
module_database   module    the same, one for all tests of a module
empty_database    function  FreshDatabase with roles and no migrations, for tests of the migrations themselves
temporal_server   session   TemporalServer: `.address`, `.ui`, `.namespace`; our settings and search attributes, real time
temporal_client   session   temporalio.client.Client of that server (async)
temporal_env      session   temporalio.testing.WorkflowEnvironment with time skipping (async): start workflows under
                            `temporal_env.with_time_skipping_disabled()`, then `temporal_env.fast_forward(handle, delta)`
sandbox_server    session   Sandbox: the payment sandbox as a program of its own: `.url`, `.control(method, path, json)`
sandbox           function  the same, emptied for this test
open_home         function  a new directory that other accounts can enter (pytest's tmp_path is closed to them, and a database started by root
                            must get there), in memory where there is room, else under the system's temporary one; removed afterwards
figures          function  takes a line that is shown at the end of the run, whichever process the test ran in
"""

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import psycopg
import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from deploy.local import ports, processes, temporal
from deploy.local.postgres import OWNER, PostgresServer
from deploy.local.processes import Command, Identity, wait_until
from tests import witness
from tests.thrown_away import clear_leftovers, open_directory

ROOT = Path(__file__).parents[1]
START_SECONDS = 60
T = TypeVar("T")
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes that share a run's work leave it to the one that shares it out
        clear_leftovers()


def pytest_collection_finish() -> None:
    """What thousands of collected tests are made of stays to the end of the session, so no collection of garbage need look at it again.

    Each look took about a second; one that fell into a workflow's thread was taken for a deadlock of that workflow, which has two.
    """
    gc.collect()
    gc.freeze()


_FIGURE = "figure"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    return lambda line: request.node.user_properties.append((_FIGURE, line))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports if isinstance(report, pytest.TestReport)]
    lines = [line for report in reports if report.when == "call" for name, line in report.user_properties if name == _FIGURE]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


@dataclass(frozen=True)
class FreshDatabase:
    """A database of one test or module. The roles are the server's: refunds_owner, refunds_api, refunds_worker, ..."""

    server: PostgresServer
    name: str

    def url(self, role: str = OWNER) -> str:
        return self.server.url(role, self.name)

    def connect(self, role: str = OWNER) -> contextlib.AbstractContextManager[psycopg.Connection]:
        """A connection in autocommit mode; as `postgres` it may do anything."""
        return self.server.connect(role, self.name)


@dataclass(frozen=True)
class TemporalServer:
    address: str
    ui: str
    namespace: str = temporal.NAMESPACE


@dataclass(frozen=True)
class Sandbox:
    """The payment sandbox; `url` is what STRIPE_API_BASE takes."""

    url: str

    def control(self, method: str, path: str, json: Any = None) -> Any:
        """Call the sandbox's own address (path without /_sandbox) and return its JSON; an error status raises."""
        answer = httpx.request(method, f"{self.url}/_sandbox{path}", json=json, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None


@contextlib.contextmanager
def running(command: Command, log: Path, stop_signal: signal.Signals = signal.SIGTERM) -> Iterator[subprocess.Popen[bytes]]:
    process = processes.spawn(command, log)
    identity = Identity.of(psutil.Process(process.pid))
    try:
        yield process
    finally:
        processes.stop(identity, stop_signal, grace_seconds=20)
        process.wait(timeout=10)


def ready(condition: Any, what: str, log: Path) -> None:
    if not wait_until(condition, START_SECONDS):
        pytest.fail(f"{what} did not become ready:\n{log.read_text()[-4000:]}")


@contextlib.contextmanager
def serving(what: str, build: Callable[[], tuple[Command, Callable[[], bool], T]], log: Path) -> Iterator[T]:
    """Run a server on ports that were free a moment ago, until it is ready.

    One that ends instead, because somebody took such a port in that moment, is built again with others: that is nothing the tests are about.
    """
    for _ in range(3):
        command, is_ready, server = build()
        with running(command, log) as process:
            wait_until(lambda: process.poll() is not None or is_ready(), START_SECONDS)  # noqa: B023 - called before the next turn
            if process.poll() is None:
                ready(is_ready, what, log)
                yield server
                return
    pytest.fail(f"{what} ended each time it was started:\n{log.read_text()[-4000:]}")


@pytest.fixture
def open_home() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with open_directory() as home:
        [port] = ports.unused(1)
        server = PostgresServer(home, port, durable=False)
        server.prepare()
        log = home / "postgres.log"
        with running(server.command(), log, signal.SIGINT):
            ready(server.is_ready, "PostgreSQL", log)
            server.create_roles()
            yield server


@pytest.fixture(scope="session")
def template_database(postgres_server: PostgresServer) -> str:
    name = "template_refunds"
    postgres_server.create_database(name)
    migrated = subprocess.run(
        [sys.executable, "-m", "store.migrate"],
        cwd=ROOT,
        env={**_plain_environment(), "DATABASE_URL": postgres_server.url(OWNER, name)},
        capture_output=True,
        text=True,
        check=False,
    )
    if migrated.returncode != 0:
        pytest.fail(f"python -m store.migrate failed:\n{migrated.stdout}{migrated.stderr}")
    return name


@pytest.fixture(scope="session")
def watched_database(postgres_server: PostgresServer, template_database: str) -> str:
    name = "template_watched"
    postgres_server.create_database(name, template_database)
    with postgres_server.connect("postgres", name) as connection:
        witness.watch(connection)
    return name


@contextlib.contextmanager
def cloned(server: PostgresServer, template: str | None, module: object = None) -> Iterator[FreshDatabase]:
    """A database of its own, dropped at the end; fails the test when something was changed in it without an entry of the ledger."""
    name = f"test_{next(_numbers)}"
    server.create_database(name, template)
    try:
        yield FreshDatabase(server, name)
        with server.connect("postgres", name) as connection:
            found = [one for one in witness.unentered(connection) if one not in getattr(module, witness.BROUGHT_ABOUT, ())]
        if found:
            pytest.fail("changed without an entry of the ledger in the same transaction: " + "; ".join(found), pytrace=False)
    finally:
        server.drop_database(name)


@pytest.fixture
def database(postgres_server: PostgresServer, watched_database: str, request: pytest.FixtureRequest) -> Iterator[FreshDatabase]:
    with cloned(postgres_server, watched_database, request.module) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def module_database(postgres_server: PostgresServer, watched_database: str, request: pytest.FixtureRequest) -> Iterator[FreshDatabase]:
    with cloned(postgres_server, watched_database, request.module) as fresh:
        yield fresh


@pytest.fixture
def empty_database(postgres_server: PostgresServer) -> Iterator[FreshDatabase]:
    with cloned(postgres_server, None) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def temporal_server() -> Iterator[TemporalServer]:
    with open_directory() as home:

        def build() -> tuple[Command, Callable[[], bool], TemporalServer]:
            port, ui_port = ports.unused(2)
            server = TemporalServer(f"{temporal.HOST}:{port}", f"http://{temporal.HOST}:{ui_port}")
            return temporal.command(home / "temporal", port, ui_port), lambda: temporal.is_ready(port), server

        with serving("Temporal", build, home / "temporal.log") as server:
            yield server


@pytest.fixture(scope="session")
async def temporal_client(temporal_server: TemporalServer) -> Client:
    return await Client.connect(temporal_server.address, namespace=temporal_server.namespace)


@pytest.fixture(scope="session")
async def temporal_env() -> AsyncIterator[WorkflowEnvironment]:
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(temporal.executable()),
        dev_server_log_level="error",
        dev_server_extra_args=[
            *temporal.server_arguments(),
            "--dynamic-config-value",
            "frontend.WorkflowTimeSkippingEnabled=true",
        ],
    )
    async with environment:
        yield environment


@pytest.fixture(scope="session")
def sandbox_server() -> Iterator[Sandbox]:
    with open_directory() as home:
        log = home / "sandbox.log"

        def build() -> tuple[Command, Callable[[], bool], Sandbox]:
            [port] = ports.unused(1)
            url = f"http://{ports.HOST}:{port}"
            argv = (sys.executable, "-m", "deploy.sandbox", "--host", ports.HOST, "--port", str(port))
            command = Command((*argv, "--data", str(home / "sandbox.sqlite")), env=_plain_environment(), cwd=ROOT)
            return command, lambda: f"sandbox ready {url}" in log.read_text(), Sandbox(url)

        with serving("The sandbox", build, log) as server:
            yield server


@pytest.fixture
def sandbox(sandbox_server: Sandbox) -> Sandbox:
    sandbox_server.control("POST", "/reset")
    return sandbox_server


def _plain_environment() -> dict[str, str]:
    """What a program needs to run at all; no setting of the person who runs the tests leaks into them."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
