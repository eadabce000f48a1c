"""Runs of the real workflow over a store in memory: started, asked, waited for, and at the end held to what must be true of every run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from refunds.ids import workflow_id
from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, QUEUE_REFUNDS, WORKFLOW_TYPE, Message, Outcome, RefundInput, Situation, Step
from tests.workflows.memory import MemoryStore, Plan, Row
from workflows.refund import RefundWorkflow

NO_CACHE = "refunds-no-cache"
"""A queue whose worker remembers nothing: every workflow task replays the run from its beginning."""


@dataclass
class Run:
    """One refund with its run: what a test reads and sends."""

    row: Row
    handle: WorkflowHandle[Any, Any]
    env: WorkflowEnvironment

    async def view(self) -> Situation:
        return await self.handle.query("view", result_type=Situation)

    async def until(self, status: str) -> Situation:
        """Wait until the run itself has heard of a status."""
        return await self._seen(lambda seen: seen.status == status)

    async def heard(self, version: int) -> Situation:
        """Wait until the run has heard of everything up to a version of the refund."""
        return await self._seen(lambda seen: seen.version >= version)

    async def _seen(self, condition: Callable[[Situation], bool]) -> Situation:
        return await eventually(self.view, condition)

    async def entry(self, type_: str, count: int = 1) -> None:
        """Wait until the store holds that many entries of a type."""

        async def entries() -> int:
            return self.row.entries(type_)

        await eventually(entries, lambda found: found >= count)

    async def settlements(self) -> int:
        """How many settlements have begun to be checked."""
        return self.row.calls[Step.SETTLE]

    async def pass_time(self, by: timedelta) -> None:
        """Let time pass for the store and for the run."""
        self.row.shift += by
        await self.env.fast_forward(self.handle, by)

    async def ask(self, name: str, *arguments: Any, id: str | None = None) -> str:
        """Send an update and return what its caller learns: the code it was refused with, or the status of the refund."""
        try:
            answer = await self.handle.execute_update(name, args=list(arguments), id=id, result_type=Outcome)
        except WorkflowUpdateFailedError as error:
            assert isinstance(error.cause, ApplicationError), error.cause
            return error.cause.type or "untyped"
        except RPCError as error:
            assert error.status is RPCStatusCode.NOT_FOUND, error
            return "run is over"
        return answer.refused or answer.status

    async def result(self) -> Outcome:
        async with asyncio.timeout(30):
            return await self.handle.result()

    async def history(self) -> WorkflowHistory:
        return await self.handle.fetch_history()


def count(history: WorkflowHistory, *kinds: str) -> int:
    """How many events of these kinds a history holds."""
    wanted = {EventType.Value(f"EVENT_TYPE_{kind}") for kind in kinds}
    return sum(1 for event in history.events if event.event_type in wanted)


def failures(history: WorkflowHistory) -> list[str]:
    """Why workflow tasks failed in a history. A task that ended the run while something new arrived is only done again, so it is left out."""
    causes = [e.workflow_task_failed_event_attributes for e in history.events if e.HasField("workflow_task_failed_event_attributes")]
    return [f"{WorkflowTaskFailedCause.Name(c.cause)}: {c.failure.message}" for c in causes if c.cause not in _DONE_AGAIN]


_DONE_AGAIN = (WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,)
T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], condition: Callable[[T], bool], within_s: float = 20) -> T:
    """Look until what is seen meets the condition, and return it; raises ``TimeoutError`` with nothing seen in time."""
    async with asyncio.timeout(within_s):
        while True:
            if condition(seen := await look()):
                return seen
            await asyncio.sleep(0.01)


@asynccontextmanager
async def hosting(client: Client, store: MemoryStore) -> AsyncIterator[None]:
    """One worker a role, as in production, and a second one for runs that are never cached.

    Production runs workflows without the sandbox of the SDK; here it watches for what does not repeat itself. A run that is never cached is
    built anew for each of its tasks: there our declarations are not imported again each time, which is twenty times the work of the task.
    """
    whole, declared = SandboxRestrictions.default, SandboxRestrictions.default.with_passthrough_modules("refunds")
    async with AsyncExitStack() as stack:
        for queue, cached, restrictions in ((QUEUE_REFUNDS, 500, whole), (NO_CACHE, 0, declared)):
            worker = Worker(
                client,
                task_queue=queue,
                workflows=[RefundWorkflow],
                activities=store.database_steps,
                max_cached_workflows=cached,
                workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
            )
            await stack.enter_async_context(worker)
        await stack.enter_async_context(Worker(client, task_queue=QUEUE_PAYMENTS, activities=store.payment_steps))
        await stack.enter_async_context(Worker(client, task_queue=QUEUE_CLASSIFY, activities=[store.classify]))
        yield


class Runs:
    """Starts runs, and at the end holds every one of them to what must be true of all."""

    def __init__(self, client: Client, env: WorkflowEnvironment, store: MemoryStore) -> None:
        self._client, self._env, self.store = client, env, store
        self.started: list[Run] = []

    async def start(self, plan: Plan | None = None, *, queue: str = QUEUE_REFUNDS) -> Run:
        return await self.start_row(self.store.add(plan), queue=queue)

    async def start_row(self, row: Row, *, queue: str = QUEUE_REFUNDS) -> Run:
        with self._env.with_time_skipping_disabled():
            handle = await self._client.start_workflow(
                WORKFLOW_TYPE,
                RefundInput(row.id),
                id=workflow_id(row.id),
                task_queue=queue,
                static_summary=f"Refund {row.id}",
                result_type=Outcome,
            )
        run = Run(row, handle, self._env)
        self.started.append(run)
        return run

    async def close(self) -> None:
        for run in self.started:
            exactly = self._client.get_workflow_handle(run.handle.id, run_id=run.handle.result_run_id)
            if (await exactly.describe()).status is WorkflowExecutionStatus.RUNNING:
                await exactly.terminate("the test is over")
            assert failures(await exactly.fetch_history()) == [], run.row.id


def message(message_id: str, run: Run | None = None) -> Message:
    """The message that carries a recorded id."""
    return Message(message_id, revision=run.row.revision if run else 0)
