"""Reconciliations to carry: the real workflow over steps that a test holds, for its tests and for the recorder of its histories."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from refunds.messages import QUEUE_PAYMENTS, QUEUE_REFUNDS, ReconciliationProgress, ReconciliationStep, Step
from workflows.reconciliation import ReconciliationWorkflow


@dataclass
class Steps:
    """Runs of so many steps; ``failing`` tells how often the next step fails before it works."""

    steps: int = 3
    failing: int = 0
    begun: list[ReconciliationStep] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    canceled: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name=Step.RECONCILE_BEGIN)
    async def begin(self, step: ReconciliationStep) -> ReconciliationProgress:
        self.begun.append(step)
        if self.failing:
            self.failing -= 1
            raise ApplicationError("connection_refused", type="NotSent")
        return ReconciliationProgress(step.run, "theirs")

    @activity.defn(name=Step.RECONCILE_PAGES)
    async def pages(self, step: ReconciliationStep) -> ReconciliationProgress:
        if self.failing:
            self.failing -= 1
            raise ApplicationError("connection_refused", type="NotSent")
        await self.gate.wait()
        self.done[step.run] += 1
        over = self.done[step.run] >= self.steps
        return ReconciliationProgress(step.run, "done" if over else "theirs", self.done[step.run], over=over)

    @activity.defn(name=Step.RECONCILE_CANCEL)
    async def cancel(self, step: ReconciliationStep) -> None:
        self.canceled.append(step.run)


@asynccontextmanager
async def hosting(client: Client, steps: Steps) -> AsyncIterator[None]:
    """Workers of both queues, in Temporal of their own: elsewhere others listen on these queues and know nothing of reconciliations."""
    async with (
        Worker(client, task_queue=QUEUE_REFUNDS, workflows=[ReconciliationWorkflow]),
        Worker(client, task_queue=QUEUE_PAYMENTS, activities=[steps.begin, steps.pages, steps.cancel]),
    ):
        yield
