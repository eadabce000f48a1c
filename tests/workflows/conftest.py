"""The real workflow, inside the SDK's import sandbox, on the time-skipping server, over a store in memory."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, QUEUE_REFUNDS
from tests.workflows.memory import MemoryStore
from tests.workflows.running import NO_CACHE, Runs
from workflows.refund import RefundWorkflow


@pytest.fixture(scope="session")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="session")
async def workers(temporal_env: WorkflowEnvironment, store: MemoryStore) -> AsyncIterator[Client]:
    """One worker a role, as in production, and a second one for runs that are never cached. The default runner is the sandboxed one."""
    client = temporal_env.client
    async with AsyncExitStack() as stack:
        for queue, cached in ((QUEUE_REFUNDS, 500), (NO_CACHE, 0)):
            worker = Worker(
                client, task_queue=queue, workflows=[RefundWorkflow], activities=store.database_steps, max_cached_workflows=cached
            )
            await stack.enter_async_context(worker)
        await stack.enter_async_context(Worker(client, task_queue=QUEUE_PAYMENTS, activities=store.payment_steps))
        await stack.enter_async_context(Worker(client, task_queue=QUEUE_CLASSIFY, activities=[store.classify]))
        yield client


@pytest.fixture
async def runs(workers: Client, temporal_env: WorkflowEnvironment, store: MemoryStore) -> AsyncIterator[Runs]:
    """Start runs with ``await runs.start(Plan(...))``. Afterwards no history may show a workflow task that failed."""
    started = Runs(workers, temporal_env, store)
    yield started
    await started.close()
