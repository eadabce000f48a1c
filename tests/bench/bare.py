"""The yardstick: six regular activities that do nothing, one after the other. ``python -m tests.bench.bare`` hosts them until SIGTERM.

Same server, same settings of the worker and outside the import sandbox, as the product's own; a task queue and a process of its own.
"""

import asyncio
import signal
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from worker.__main__ import connect_temporal

QUEUE = "bench-bare"
WORKFLOW = "BareRun"
STEPS = 6


@activity.defn
async def nothing(step: int) -> int:
    """Do nothing."""
    return step


@workflow.defn(name=WORKFLOW)
class BareRun:
    """Six steps, each scheduled through the server."""

    @workflow.run
    async def run(self) -> int:
        """Return the number of steps done."""
        done = 0
        for step in range(STEPS):
            await workflow.execute_activity(nothing, step, start_to_close_timeout=timedelta(minutes=3))
            done += 1
        return done


async def serve() -> None:
    """Host the workflow until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    worker = Worker(
        await connect_temporal(),
        task_queue=QUEUE,
        workflows=[BareRun],
        activities=[nothing],
        # As in worker.roles, so that the difference is the work and not the host.
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_tasks=50,
        max_concurrent_activities=50,
        max_concurrent_local_activities=50,
    )
    async with worker:
        await stop.wait()
    await asyncio.sleep(0.2)  # the SDK's core must finish closing its last client before the interpreter goes (sdk-python#300)


if __name__ == "__main__":
    asyncio.run(serve())
