"""A shop whose refunds are carried by real worker processes, each with only its role's secrets, on a real Temporal server."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from temporalio.client import Client, WorkflowHandle

from deploy.local.processes import Command, Identity, spawn, stop, wait_until
from refunds.ids import workflow_id
from refunds.messages import QUEUE_REFUNDS, WORKFLOW_TYPE, RefundInput
from tests.activities.shop import API_KEY, TEXT_KEY, Shop
from tests.conftest import ROOT, FreshDatabase, Sandbox, TemporalServer

READY_S = 60
PATIENCE_S = 60


def environment(role: str, fresh: FreshDatabase, temporal: TemporalServer, sandbox: Sandbox, home: Path) -> dict[str, str]:
    """What a worker of that role is given: nothing of the tester's, and no secret of another role."""
    (home / "temporal.toml").touch()
    common = {
        "PATH": os.environ["PATH"],
        "TEMPORAL_ADDRESS": temporal.address,
        "TEMPORAL_NAMESPACE": temporal.namespace,
        "TEMPORAL_CONFIG_FILE": str(home / "temporal.toml"),
        "STRIPE_READ_TIMEOUT_S": "8",
        "SWEEP_EVERY_S": "0.3",
        "SWEEP_GRACE_S": "0.3",
        "SUBMIT_RETRY_INITIAL_S": "0.3",
    }
    secrets = {
        "refunds": {"DATABASE_URL_REFUNDS": fresh.url("refunds_worker")},
        "classify": {"DATABASE_URL_CLASSIFY": fresh.url("refunds_classify"), "REFUNDS_TEXT_KEY": TEXT_KEY},
        "payments": {"DATABASE_URL_PAYMENTS": fresh.url("refunds_payments"), "STRIPE_API_KEY": API_KEY, "STRIPE_API_BASE": sandbox.url},
    }
    given = secrets[role] if role != "all" else {name: value for part in secrets.values() for name, value in part.items()}
    return common | given


@dataclass
class Worker:
    """One worker process."""

    role: str
    log: Path
    process: subprocess.Popen[bytes]
    identity: Identity

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.send(signal.SIGKILL)
        self.process.wait(timeout=10)

    @property
    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text()


@dataclass
class Site:
    """The shop, its Temporal client, and the worker processes that were started for it."""

    shop: Shop
    client: Client
    fresh: FreshDatabase
    temporal: TemporalServer
    home: Path
    workers: list[Worker] = field(default_factory=list)

    def launch(self, role: str, **changed: str) -> Worker:
        """Start a worker process without waiting for it."""
        env = environment(role, self.fresh, self.temporal, self.shop.sandbox, self.home) | changed
        log = self.home / f"{len(self.workers)}-{role}.log"
        process = spawn(Command((sys.executable, "-m", "worker", "--role", role), env=env, cwd=ROOT), log)
        worker = Worker(role, log, process, Identity.of(psutil.Process(process.pid)))
        self.workers.append(worker)
        return worker

    def start(self, *roles: str) -> list[Worker]:
        """Start a worker process for each role and wait until all are at work."""
        started = [self.launch(role) for role in roles]
        for worker in started:
            assert wait_until(lambda: "worker_ready" in worker.text, READY_S), worker.text[-3000:]  # noqa: B023 - called before the next turn
        return started

    def stop(self) -> None:
        """End every worker process that is left."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGCONT)
            stop(worker.identity, signal.SIGTERM, grace_seconds=2)
            worker.process.wait(timeout=10)

    async def run(self, refund_id: str) -> WorkflowHandle[Any, Any]:
        """Start its run, as the API does."""
        return await self.client.start_workflow(WORKFLOW_TYPE, RefundInput(refund_id), id=workflow_id(refund_id), task_queue=QUEUE_REFUNDS)

    async def reaches(self, refund_id: str, *statuses: str) -> str:
        """The status, once it is one of these."""

        async def there() -> bool:
            return (await self.shop.row(refund_id))["status"] in statuses

        await until(there, lambda: "\n".join(worker.text[-1500:] for worker in self.workers))
        return (await self.shop.row(refund_id))["status"]

    async def asks(self, intent: str, requests: int = 1) -> None:
        """Wait until the sandbox has got so many requests to refund or release this payment."""

        async def got() -> bool:
            truth = await self.shop.truth(intent)
            return len(truth["create_requests"]) + len(truth["cancel_requests"]) >= requests

        await until(got)

    def logs(self) -> str:
        """Everything that all workers have logged."""
        return "\n".join(worker.text for worker in self.workers)


async def until(condition: Callable[[], Awaitable[bool]], what: Callable[[], str] = lambda: "it did not come true") -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.05)
