"""``python -m tests.replay.sweeps [NAME ...]``: record completed histories of reconciliations into ``tests/replay/sweeps``; see docs/replay.md.

Existing files are left alone unless they are named.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHandle

from refunds.messages import QUEUE_REFUNDS, RECONCILIATION_WORKFLOW, ReconciliationInput, ReconciliationProgress
from tests.replay.record import environment, written
from tests.workflows.running import eventually, failures
from tests.workflows.swept import Steps, hosting

HISTORIES = Path(__file__).parent / "sweeps"
RUN = "rec_06f2wq1s8h9k3m5n7p9r2t4v6x"


async def start(client: Client, request: ReconciliationInput) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(RECONCILIATION_WORKFLOW, request, id=f"reconciliation-{RUN}", task_queue=QUEUE_REFUNDS)


async def asked_for(client: Client, steps: Steps) -> WorkflowHandle[Any, Any]:
    steps.gate.set()
    return await start(client, ReconciliationInput(run=RUN))


async def begun_by_its_schedule_and_tried_again(client: Client, steps: Steps) -> WorkflowHandle[Any, Any]:
    steps.failing = 2
    steps.gate.set()
    return await start(client, ReconciliationInput(window_s=172_800))


async def cancelled(client: Client, steps: Steps) -> WorkflowHandle[Any, Any]:
    handle = await start(client, ReconciliationInput(run=RUN))
    await eventually(lambda: handle.query("progress", result_type=ReconciliationProgress), lambda seen: seen.run == RUN)
    await handle.cancel()
    return handle


PATHS: dict[str, Callable[[Client, Steps], Awaitable[WorkflowHandle[Any, Any]]]] = {
    path.__name__: path for path in (asked_for, begun_by_its_schedule_and_tried_again, cancelled)
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
            steps = Steps()
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
