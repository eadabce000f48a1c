"""What the stack consists of: one table, in starting order. Stopping goes the other way round."""

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.local import environment, temporal
from deploy.local.ports import HOST
from deploy.local.postgres import OWNER, PostgresServer
from deploy.local.processes import Command
from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, QUEUE_REFUNDS

# The sandbox takes any test key. It is no secret, and it is in the form the programs check for.
SANDBOX_KEY = "sk_test_local_sandbox"


@dataclass
class Context:
    """What the parts know of each other. `settings` are the caller's environment with the stack's overrides on top."""

    home: Path
    settings: Mapping[str, str]
    ports: dict[str, int] = field(default_factory=dict)
    postgres: PostgresServer | None = None

    def url(self, part: str) -> str:
        return f"http://{HOST}:{self.ports[part]}"

    def move(self, ports: Mapping[str, int]) -> None:
        """Take note of new ports. What was started with the old ones must be started again: its command differs now."""
        self.ports.update(ports)
        if self.postgres is not None:
            self.postgres.port = self.ports["postgres"]

    def database_url(self, role: str, setting: str = "DATABASE_URL") -> str:
        """The address for a role: ours, or of a database of the person's own (`setting`, else DATABASE_URL)."""
        if self.postgres is not None:
            return self.postgres.url(role)
        return self.settings.get(setting) or self.settings["DATABASE_URL"]

    def wired(self) -> dict[str, str]:
        """All settings, with those that tell one part where the others of this stack are. Holds every secret."""
        wired = dict(self.settings)
        wired.setdefault("REFUNDS_TEXT_KEY", environment.text_key(self.home))
        wired.setdefault("REFUNDS_LEDGER_KEY", environment.ledger_key(self.home))
        wired.setdefault("ERASURE_LIST", str(self.home / "erasures.jsonl"))
        wired.setdefault("LEDGER_COPIES", f"{environment.checkpoints(self.home)}/")
        wired.setdefault("LEDGER_CHECKPOINT_EVERY_S", "10")
        if "temporal" in self.ports:
            # The person's configuration of Temporal (file, profile, TLS, key) is for another server than ours.
            wired = {name: value for name, value in wired.items() if not name.startswith(environment.TEMPORAL_PREFIX)}
            wired["TEMPORAL_CONFIG_FILE"] = str(temporal.empty_client_configuration(self.home / "temporal"))
            wired["TEMPORAL_ADDRESS"] = f"{HOST}:{self.ports['temporal']}"
            wired["TEMPORAL_NAMESPACE"] = temporal.NAMESPACE
            wired["TEMPORAL_UI_URL"] = self.url("ui")
        if "sandbox" in self.ports:
            wired["STRIPE_API_KEY"] = SANDBOX_KEY
            wired["STRIPE_API_BASE"] = self.url("sandbox")
            wired["STRIPE_WEBHOOK_SECRETS"] = environment.webhook_secret(self.home)
            wired["REFUNDS_MODE"] = "test"
        return wired

    def program(self, module: str, *arguments: str, env: Mapping[str, str]) -> Command:
        """A Python program of ours. Never imports from the directory it runs in (-P)."""
        return Command((sys.executable, "-P", "-m", module, *arguments), env=env, cwd=self.home)


@dataclass(frozen=True)
class Part:
    """One row of the table.

    `command` builds the process, the same each time as long as no port moves. `is_ready` is asked until true (with its
    pid) once that very process listens at all its `ports`; `prepare` comes before and `complete` after it is ready. A
    `once` part is a task: it runs to its end at each start unless the file named by `once` exists; "" means always, and
    what a task prints goes to the file. With the setting `instead` present the person uses their own and nothing is
    started. `stop_signal` and `grace_seconds` say how it is asked to end and how long it may take.
    """

    name: str
    command: Callable[[Context], Command]
    is_ready: Callable[[Context, int], bool] = lambda context, pid: True
    prepare: Callable[[Context], list[str]] = lambda context: []
    complete: Callable[[Context], None] = lambda context: None
    ports: tuple[str, ...] = ()
    once: str | None = None
    instead: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10


def _prepare_postgres(context: Context) -> list[str]:
    context.postgres = PostgresServer(context.home, context.ports["postgres"])
    context.postgres.prepare()
    return context.postgres.notes


def _postgres(context: Context) -> PostgresServer:
    assert context.postgres is not None, "prepared before it is started"
    return context.postgres


def _owner_program(module: str, *secrets: str) -> Callable[[Context], Command]:
    """A program that works as the owner of the database and knows no other secrets than those it is given."""

    def command(context: Context) -> Command:
        env = environment.program(context.wired(), secrets) | {"DATABASE_URL": context.database_url(OWNER, "DATABASE_URL_OWNER")}
        return context.program(module, env=env)

    return command


def _temporal(context: Context) -> Command:
    return temporal.command(context.home / "temporal", context.ports["temporal"], context.ports["ui"])


def _sandbox(context: Context) -> Command:
    arguments = ["--host", HOST, "--port", str(context.ports["sandbox"]), "--data", str(context.home / "sandbox.sqlite")]
    env = environment.runtime(context.settings)
    if "api" in context.ports:
        # The address is part of the command: when the API moves, the sandbox is started again and sends there what it has not delivered.
        arguments += ["--webhook-lanes", "4", "--webhook-url", context.url("api") + "/webhooks/stripe"]
        env["SANDBOX_WEBHOOK_SECRET"] = environment.webhook_secret(context.home)
    return context.program("deploy.sandbox", *arguments, env=env)


def _api(context: Context) -> Command:
    source = {**context.wired(), "DATABASE_URL": context.database_url("refunds_api")}
    env = environment.program(source, environment.API_SECRETS)
    return context.program("api", env=env | {"API_HOST": HOST, "API_PORT": str(context.ports["api"])})


def _worker(context: Context) -> Command:
    roles = {"REFUNDS": "refunds_worker", "CLASSIFY": "refunds_classify", "PAYMENTS": "refunds_payments", "LEDGER": "refunds_ledger"}
    urls = {f"DATABASE_URL_{name}": context.database_url(role, f"DATABASE_URL_{name}") for name, role in roles.items()}
    source = {**context.wired(), **urls, "DATABASE_URL": urls["DATABASE_URL_REFUNDS"]}
    return context.program("worker", "--role", "all", env=environment.program(source, environment.WORKER_SECRETS))


def _answers(part: str, path: str) -> Callable[[Context, int], bool]:
    def is_ready(context: Context, pid: int) -> bool:
        try:
            return httpx.get(context.url(part) + path, timeout=2, trust_env=False).is_success
        except httpx.TransportError:
            return False

    return is_ready


def _polls(context: Context, pid: int) -> bool:
    """Whether this very worker process polls all its queues; one killed a moment ago is still listed, so the pid counts.

    Asked of a Temporal of ours only: the person's own may need credentials, and then running is taken for ready.
    """
    if "temporal" not in context.ports:
        return True
    address = f"{HOST}:{context.ports['temporal']}"
    return asyncio.run(all_polled(address, temporal.NAMESPACE, pid))


async def all_polled(address: str, namespace: str, pid: int) -> bool:
    """Whether the process with this pid polls all queues of the product there."""
    kinds = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    wanted = [(QUEUE_REFUNDS, kinds[0]), *((queue, kinds[1]) for queue in (QUEUE_CLASSIFY, QUEUE_PAYMENTS))]
    try:
        service = (await Client.connect(address, namespace=namespace)).workflow_service
        for queue, kind in wanted:
            request = DescribeTaskQueueRequest(namespace=namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind)
            answer = await service.describe_task_queue(request, timeout=timedelta(seconds=3))
            if not any(poller.identity.startswith(f"{pid}@") for poller in answer.pollers):
                return False
    except (RPCError, RuntimeError):
        return False
    return True


PARTS = (
    Part(
        "postgres",
        command=lambda context: _postgres(context).command(),
        is_ready=lambda context, pid: _postgres(context).is_ready(),
        prepare=_prepare_postgres,
        complete=lambda context: _postgres(context).create_roles(),
        ports=("postgres",),
        instead="DATABASE_URL",
        stop_signal=signal.SIGINT,
        grace_seconds=30,
    ),
    Part("migrations", command=_owner_program("store.migrate", *environment.MASTER_KEYS), once=""),
    # Before the API, because it also makes the controls and the first policy, which every request needs.
    Part("administrator", command=_owner_program("store.bootstrap"), once="admin-key"),
    Part(
        "temporal",
        command=_temporal,
        is_ready=lambda context, pid: temporal.is_ready(context.ports["temporal"]),
        ports=("temporal", "ui"),
        instead="TEMPORAL_ADDRESS",
    ),
    Part("sandbox", command=_sandbox, is_ready=_answers("sandbox", "/_sandbox/clock"), ports=("sandbox",), instead="STRIPE_API_KEY"),
    Part("api", command=_api, is_ready=_answers("api", "/readyz"), ports=("api",)),
    # Longer than the time-out of a call to the processor: a worker that is cut off leaves an answer nobody recorded.
    Part("worker", command=_worker, is_ready=_polls, grace_seconds=35),
)
