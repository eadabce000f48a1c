"""``python -m tests.replay.pulls [NAME ...]``: record completed histories of pulls of orders into ``tests/replay/pulls``; see docs/replay.md.

Existing files are left alone unless they are named.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from refunds.messages import PULL_WORKFLOW, QUEUE_REFUNDS, PullInput, PullProgress
from tests.replay.record import environment, written
from tests.workflows.pulled import PullSteps, hosting
from tests.workflows.running import eventually, failures

HISTORIES = Path(__file__).parent / "pulls"
PULL = "pull_06f2wq1s8h9k3m5n7p9r2t4v6x"


async def start(client: Client) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(PULL_WORKFLOW, PullInput(PULL), id=f"orders-{PULL}", task_queue=QUEUE_REFUNDS)


async def carried_to_its_end(client: Client, steps: PullSteps) -> WorkflowHandle[Any, Any]:
    steps.gate.set()
    return await start(client)


async def tried_again(client: Client, steps: PullSteps) -> WorkflowHandle[Any, Any]:
    steps.failing = 2
    steps.gate.set()
    return await start(client)


async def cancelled(client: Client, steps: PullSteps) -> WorkflowHandle[Any, Any]:
    handle = await start(client)
    await eventually(lambda: handle.query("progress", result_type=PullProgress), lambda seen: seen.pull == PULL)
    await handle.cancel()
    return handle


PATHS: dict[str, Callable[[Client, PullSteps], Awaitable[WorkflowHandle[Any, Any]]]] = {
    path.__name__: path for path in (carried_to_its_end, tried_again, cancelled)
}


async def ended(handle: WorkflowHandle[Any, Any]) -> None:
    """Wait for its end, of whatever kind."""
    try:
        await handle.result()
    except WorkflowFailureError as error:
        assert handle.id and type(error.cause).__name__ == "CancelledError", error.cause


async def record(names: list[str]) -> None:
    """Drive the paths one after the other and write what happened."""
    HISTORIES.mkdir(exist_ok=True)
    async with await environment() as env:
        for name in names:
            steps = PullSteps()
            async with hosting(env.client, steps):
                handle = await PATHS[name](env.client, steps)
                await ended(handle)
            history = await handle.fetch_history()
            assert failures(history) == []
            (HISTORIES / f"{name}.json").write_text(written(history))
            print(f"{name}: {len(history.events)} events")
    await asyncio.sleep(0.2)  # the SDK's core must finish closing its last client before the interpreter goes (sdk-python#300)


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or [name for name in PATHS if not (HISTORIES / f"{name}.json").exists()]))
