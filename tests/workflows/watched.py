"""Payments to watch: the real workflow over a processor that a test holds, for the tests of the watch and for the recorder of its histories."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from refunds.messages import LOOK, QUEUE_PAYMENTS, WATCH_WORKFLOW, Observed, Step, StepInput
from tests.workflows.running import eventually
from workflows.watching import PaymentWatchWorkflow

QUEUE = "watches"
LONG_SOON = "limit.historyCount.suggestContinueAsNew=20"
"""Of a server: a history of so many events is long enough."""
A_CROWD = 30
_numbers = itertools.count(1)


@dataclass
class Processor:
    """Payments to look at: a look waits for its gate, and fails as often as was ordered."""

    looks: list[str] = field(default_factory=list[str])
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    fails: int = 0

    @activity.defn(name=Step.OBSERVE)
    async def observe_payment(self, step: StepInput) -> Observed:
        self.looks.append(step.message)
        await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise ApplicationError("connection_refused", type="NotSent")
        return Observed(step.message, imported=len(self.looks))


@asynccontextmanager
async def hosting(client: Client, processor: Processor, *, cached: int = 100) -> AsyncIterator[None]:
    async with (
        Worker(client, task_queue=QUEUE, workflows=[PaymentWatchWorkflow], max_cached_workflows=cached),
        Worker(client, task_queue=QUEUE_PAYMENTS, activities=[processor.observe_payment]),
    ):
        yield


async def hint(client: Client, payment: str, name: str = LOOK, *arguments: Any) -> WorkflowHandle[Any, Any]:
    """What the inbox does."""
    return await client.start_workflow(
        WATCH_WORKFLOW,
        StepInput("", message=payment),
        id=f"payment-{payment}",
        task_queue=QUEUE,
        start_signal=name,
        start_signal_args=arguments,
    )


async def ended(handle: WorkflowHandle[Any, Any], within_s: float = 30) -> Any:
    """What the watch came to. Raises ``TimeoutError`` for one that never ends."""
    async with asyncio.timeout(within_s):
        return await handle.result()


async def crowded(client: Client, payment: str) -> None:
    """More hints than a history should hold."""
    for _ in range(A_CROWD):
        await hint(client, payment)


def a_payment() -> str:
    return f"pay_watched{next(_numbers)}"


async def looked(processor: Processor, times: int) -> None:
    async def looks() -> int:
        return len(processor.looks)

    await eventually(looks, lambda found: found >= times)
