"""The Temporal Schedules of this installation, made and kept by the worker: created when they are missing, otherwise only brought up to date.

What an operator did to one (paused it, noted why) stays through every redeployment.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from refunds.messages import QUEUE_REFUNDS, RECONCILIATION_WORKFLOW, ReconciliationInput
from refunds.settings import Settings

_WITHIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Recurring:
    """A reconciliation that begins by itself every so often and reaches back over a window."""

    id: str
    every: timedelta
    window: timedelta

    def schedule(self, start_at: datetime | None) -> Schedule:
        """As Temporal takes it. Two never overlap: one that is due while the last still works is left out, the next one covers its window as well."""
        return Schedule(
            action=ScheduleActionStartWorkflow(
                RECONCILIATION_WORKFLOW,
                ReconciliationInput(window_s=int(self.window.total_seconds())),
                id=self.id,
                task_queue=QUEUE_REFUNDS,
                static_summary=f"Reconcile the last {self.window} with the processor",
            ),
            # Spread, so that many installations do not ask the processor at the same second.
            spec=ScheduleSpec(
                intervals=[ScheduleIntervalSpec(every=self.every)], start_at=start_at, jitter=min(self.every / 12, timedelta(minutes=5))
            ),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=min(self.every, timedelta(hours=1))),
        )


def recurring(settings: Settings) -> list[Recurring]:
    """The reconciliations that recur: a short one often, and one that sees failures long after success."""
    return [
        Recurring("reconcile-recent", timedelta(seconds=settings.reconcile_every_s), timedelta(seconds=settings.reconcile_window_s)),
        Recurring(
            "reconcile-deep", timedelta(seconds=settings.reconcile_deep_every_s), timedelta(seconds=settings.reconcile_deep_window_s)
        ),
    ]


async def keep(client: Client, settings: Settings, now: datetime) -> None:
    """Make the schedules, or bring those there are up to date. Raises ``RPCError`` when Temporal does not answer."""
    for wanted in recurring(settings):
        # A new installation has nothing to compare yet.
        schedule = wanted.schedule(now + wanted.every / 2)
        try:
            await client.create_schedule(wanted.id, schedule, rpc_timeout=_WITHIN)
        except ScheduleAlreadyRunningError:
            await client.get_schedule_handle(wanted.id).update(_brought_up_to(schedule), rpc_timeout=_WITHIN)


def _brought_up_to(wanted: Schedule) -> Callable[[ScheduleUpdateInput], ScheduleUpdate]:
    def changed(current: ScheduleUpdateInput) -> ScheduleUpdate:
        there = current.description.schedule
        spec = replace(wanted.spec, start_at=there.spec.start_at)
        return ScheduleUpdate(replace(there, action=wanted.action, spec=spec, policy=wanted.policy))

    return changed
