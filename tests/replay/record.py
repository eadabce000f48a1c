"""``python -m tests.replay.record [NAME ...]``: record completed histories into ``tests/replay/histories``, of every path or of the named ones.

A recorded history is never edited and never replaced to make a test pass: see docs/replay.md. Existing files are left alone unless they are named.
"""

import asyncio
import contextlib
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from deploy.local import temporal
from tests.replay.paths import PATHS
from tests.workflows.memory import MemoryStore
from tests.workflows.running import Run, Runs, failures, hosting

HISTORIES = Path(__file__).parent / "histories"


async def environment(*dynamic: str) -> WorkflowEnvironment:
    """A time-skipping server with our search attributes, and with more of its dynamic configuration: ``name=value``."""
    settings = ("frontend.WorkflowTimeSkippingEnabled=true", *dynamic)
    return await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(temporal.executable()),
        dev_server_log_level="error",
        identity="recorder",
        dev_server_extra_args=[*temporal.server_arguments(), *(part for given in settings for part in ("--dynamic-config-value", given))],
    )


async def completed(run: Run) -> WorkflowHistory:
    """Wait for a run's end, whichever it is, and return its history."""
    with contextlib.suppress(WorkflowFailureError):  # a cancelled run is a path, too
        await run.result()
    history = await run.history()
    assert failures(history) == []
    return history


def written(history: WorkflowHistory) -> str:
    """The file's content: an event a line, without stack traces, which name directories of this machine and mean nothing to a replay."""
    events = _without_stack_traces(json.loads(history.to_json()))["events"]
    return '{"events": [\n' + ",\n".join(json.dumps(event, ensure_ascii=False) for event in events) + "\n]}\n"


def _without_stack_traces(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_stack_traces(item) for key, item in value.items() if key != "stackTrace"}
    return [_without_stack_traces(item) for item in value] if isinstance(value, list) else value


async def record(names: list[str]) -> None:
    """Drive the paths one after the other and write what happened."""
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        env = await stack.enter_async_context(await environment())
        await stack.enter_async_context(hosting(env.client, store))
        for name in names:
            history = await completed(await PATHS[name](Runs(env.client, env, store)))
            (HISTORIES / f"{name}.json").write_text(written(history))
            print(f"{name}: {len(history.events)} events")


def main(arguments: list[str]) -> int:
    """Record the named paths, or all that have no history yet."""
    unknown = sorted(set(arguments) - set(PATHS))
    if unknown:
        print(f"No such path: {', '.join(unknown)}. There are: {', '.join(sorted(PATHS))}", file=sys.stderr)
        return 2
    HISTORIES.mkdir(exist_ok=True)
    names = arguments or [name for name in PATHS if not (HISTORIES / f"{name}.json").exists()]
    asyncio.run(record(names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
