"""``python -m tests.replay.replaying``: replay the whole corpus inside the SDK's import sandbox; prints one line a history that does not replay.

A program of its own, because the order in which Python walks a set is decided by PYTHONHASHSEED when a process starts (field report 69).
"""

import asyncio
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from workflows.refund import RefundWorkflow

HISTORIES = Path(__file__).parent / "histories"


def corpus() -> dict[str, WorkflowHistory]:
    """All recorded histories by the name of their path."""
    return {file.stem: WorkflowHistory.from_json(f"refund-{file.stem}", file.read_text()) for file in sorted(HISTORIES.glob("*.json"))}


async def replay(histories: dict[str, WorkflowHistory]) -> dict[str, str]:
    """Replay each; returns what went wrong by name. The default runner of a Replayer is the sandboxed one."""
    replayer = Replayer(workflows=[RefundWorkflow])
    wrong: dict[str, str] = {}
    for name, history in histories.items():
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure is not None:
            wrong[name] = str(result.replay_failure)
    return wrong


def main() -> int:
    """Replay and say what went wrong; the last line counts what went well."""
    histories = corpus()
    wrong = asyncio.run(replay(histories))
    for name, why in wrong.items():
        print(f"{name}: {why}")
    print(f"replayed {len(histories) - len(wrong)} of {len(histories)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
