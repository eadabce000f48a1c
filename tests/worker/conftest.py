"""``site``: a shop on a real Temporal server, to start worker processes for (see ``site.py``). Each module has its own database."""

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from tests.activities.shop import opening
from tests.conftest import FreshDatabase, Sandbox, TemporalServer, open_directory
from tests.worker.site import Site


async def _end_open_runs(client: Client) -> None:
    async for run in client.list_workflows('ExecutionStatus="Running"'):
        await client.get_workflow_handle(run.id, run_id=run.run_id).terminate("the test is over")


@pytest.fixture(scope="module")
async def site(
    module_database: FreshDatabase, sandbox_server: Sandbox, temporal_server: TemporalServer, temporal_client: Client
) -> AsyncIterator[Site]:
    """No worker runs yet; every one that a test starts is ended with the module."""
    await _end_open_runs(temporal_client)  # of other modules: their refunds are in another database
    async with opening(module_database, sandbox_server) as open_shop:
        with open_directory() as home:
            made = Site(await open_shop(), temporal_client, module_database, temporal_server, home)
            try:
                yield made
            finally:
                made.stop()
                await _end_open_runs(temporal_client)
