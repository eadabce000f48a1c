"""The real workflow, inside the SDK's import sandbox, on the time-skipping server, over a store in memory."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.workflows.memory import MemoryStore
from tests.workflows.running import Runs, hosting


@pytest.fixture(scope="session")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="session")
async def workers(temporal_env: WorkflowEnvironment, store: MemoryStore) -> AsyncIterator[Client]:
    async with hosting(temporal_env.client, store):
        yield temporal_env.client


@pytest.fixture
async def runs(workers: Client, temporal_env: WorkflowEnvironment, store: MemoryStore) -> AsyncIterator[Runs]:
    """Start runs with ``await runs.start(Plan(...))``. Afterwards no history may show a workflow task that failed."""
    started = Runs(workers, temporal_env, store)
    yield started
    await started.close()
