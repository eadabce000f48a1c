"""``python -m tests.replay.watches [NAME ...]``: record completed histories of the watch over a payment into ``tests/replay/watches``; see docs/replay.md.

Existing files are left alone unless they are named.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.replay.record import environment, written
from tests.workflows.running import failures
from tests.workflows.watched import LONG_SOON, Processor, crowded, hint, hosting, looked

HISTORIES = Path(__file__).parent / "watches"
PAYMENT = "pay_06f2wq1s8h9k3m5n7p9r2t4v6x"


async def one_look(client: Client, processor: Processor) -> WorkflowHandle[Any, Any]:
    processor.gate.set()
    return await hint(client, PAYMENT)


async def hinted_during_a_look(client: Client, processor: Processor) -> WorkflowHandle[Any, Any]:
    handle = await hint(client, PAYMENT)
    await looked(processor, 1)
    await hint(client, PAYMENT)
    await handle.signal("nonsense", "?")
    processor.gate.set()
    return handle


async def carried_on(client: Client, processor: Processor) -> WorkflowHandle[Any, Any]:
    """So many hints that the history is long enough: the run that saw them, which goes on as a new one."""
    handle = await hint(client, PAYMENT)
    await looked(processor, 1)
    await crowded(client, PAYMENT)
    processor.gate.set()
    return client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)


async def tried_again(client: Client, processor: Processor) -> WorkflowHandle[Any, Any]:
    processor.fails = 2
    return await one_look(client, processor)


PATHS: dict[str, Callable[[Client, Processor], Awaitable[WorkflowHandle[Any, Any]]]] = {
    path.__name__: path for path in (one_look, hinted_during_a_look, carried_on, tried_again)
}


async def record(names: list[str]) -> None:
    """Drive the paths one after the other and write what happened."""
    HISTORIES.mkdir(exist_ok=True)
    async with await environment(LONG_SOON) as env:
        for name in names:
            processor = Processor()
            async with hosting(env.client, processor):
                handle = await PATHS[name](env.client, processor)
                await handle.result()
            history = await handle.fetch_history()
            assert failures(history) == []
            (HISTORIES / f"{name}.json").write_text(written(history))
            print(f"{name}: {len(history.events)} events")
    await asyncio.sleep(0.2)  # the SDK's core must finish closing its last client before the interpreter goes (sdk-python#300)


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or [name for name in PATHS if not (HISTORIES / f"{name}.json").exists()]))
