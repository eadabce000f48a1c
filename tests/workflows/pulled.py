"""Pulls of orders to carry: the real workflow over steps that a test holds, for its tests and for the recorder of its histories."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from refunds.messages import QUEUE_PAYMENTS, QUEUE_REFUNDS, PullInput, PullProgress, Step
from workflows.pulling import OrdersPullWorkflow


@dataclass
class PullSteps:
    """Pulls of so many steps; ``failing`` tells how often the next step fails before it works."""

    steps: int = 3
    failing: int = 0
    done: Counter[str] = field(default_factory=Counter)
    canceled: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name=Step.PULL)
    async def pull(self, given: PullInput) -> PullProgress:
        if self.failing:
            self.failing -= 1
            raise ApplicationError("no_connection", type="NotSent")
        await self.gate.wait()
        self.done[given.pull] += 1
        over = self.done[given.pull] >= self.steps
        return PullProgress(given.pull, "done" if over else "reading", self.done[given.pull], 100 * self.done[given.pull], over=over)

    @activity.defn(name=Step.PULL_CANCEL)
    async def cancel(self, given: PullInput) -> None:
        self.canceled.append(given.pull)


@asynccontextmanager
async def hosting(client: Client, steps: PullSteps) -> AsyncIterator[None]:
    """Workers of both queues, in Temporal of their own: elsewhere others listen on these queues and know nothing of pulls."""
    async with (
        Worker(client, task_queue=QUEUE_REFUNDS, workflows=[OrdersPullWorkflow]),
        Worker(client, task_queue=QUEUE_PAYMENTS, activities=[steps.pull, steps.cancel]),
    ):
        yield
