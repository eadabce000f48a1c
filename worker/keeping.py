"""What the ``payments`` role keeps up beside its steps: the schedules of reconciliations, those and pulls of orders that nobody carries on, and the witness of the
database."""

import asyncio
import time
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from refunds.errors import RefundError
from refunds.ids import Prefix, is_id, pull_workflow_id, reconciliation_workflow_id
from refunds.logs import logger
from refunds.messages import PULL_WORKFLOW, QUEUE_REFUNDS, RECONCILIATION_WORKFLOW, PullInput, ReconciliationInput
from refunds.settings import Settings
from store import restoring
from store.pulling import Pulling
from store.reconciling import Reconciling, Run
from worker import schedules
from worker.witness import Witness

log = logger(__name__)
_WITHIN = timedelta(seconds=5)


class Keeper:
    """Runs beside the ``payments`` role. Several may run at once."""

    def __init__(self, client: Client, reconciling: Reconciling, settings: Settings) -> None:
        self._client = client
        self._reconciling = reconciling
        self._pulling = Pulling(reconciling.database, reconciling.processor)
        self._settings = settings
        self._witness = Witness(client, reconciling.database, reconciling.processor)
        self._scheduled = False
        self._witnessed = 0.0

    async def check_database(self) -> None:
        """Before anything is sent: notice a database that may have forgotten something, and halt. Raises ``RuntimeError`` when that cannot be told."""
        try:
            await self._witness.check()
        except RPCError as error:
            raise RuntimeError(f"Temporal does not say what the database was before: {error.status.name}; nothing is sent") from error
        self._witnessed = time.monotonic()

    async def run_for_ever(self) -> None:
        """Keep up at intervals; an outage is logged and tried again."""
        while True:
            try:
                await self.once()
            except (RefundError, RPCError) as error:
                log.warning("keeping_interrupted", error=str(error)[:300])
            await asyncio.sleep(self._settings.sweep_every_s)

    async def once(self) -> int:
        """One round; returns how many reconciliations were started."""
        if time.monotonic() - self._witnessed >= self._settings.witness_every_s:
            await self._witness.check()
            self._witnessed = time.monotonic()
        now = self._reconciling.database.clock.now()
        if not self._scheduled:
            await schedules.keep(self._client, self._settings, now)
            self._scheduled = True
        async with self._reconciling.database.begin() as connection:
            owed = await restoring.owe_if_forgetful(connection, now, processor=self._reconciling.processor)
        idle = await self._reconciling.unfinished(grace=timedelta(seconds=self._settings.sweep_grace_s))
        started = 0
        for run in [owed, *idle] if owed is not None else idle:
            started += await self._start(run)
        for pull in await self._pulling.unfinished(grace=timedelta(seconds=self._settings.sweep_grace_s)):
            await self._carry_on(pull.id)
        return started

    async def _start(self, run: Run) -> int:
        """Start the workflow that carries a run on, unless it is at work: also after one that was terminated, for the store says that it is not over."""
        scheduled = not is_id(run.started_by, Prefix.PRINCIPAL) and run.started_by != restoring.OWED
        try:
            await self._client.start_workflow(
                RECONCILIATION_WORKFLOW,
                ReconciliationInput(run=run.id),
                id=run.started_by if scheduled else reconciliation_workflow_id(run.id),
                task_queue=QUEUE_REFUNDS,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"Reconcile {run.since:%Y-%m-%d} to {run.until:%Y-%m-%d} with the processor",
                rpc_timeout=_WITHIN,
            )
        except WorkflowAlreadyStartedError:
            return 0
        log.info("reconciliation_started", run=run.id)
        return 1

    async def _carry_on(self, pull_id: str) -> None:
        """The same for a pull of orders."""
        try:
            await self._client.start_workflow(
                PULL_WORKFLOW,
                PullInput(pull_id),
                id=pull_workflow_id(pull_id),
                task_queue=QUEUE_REFUNDS,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary="Pull the merchant's orders from the processor's payments",
                rpc_timeout=_WITHIN,
            )
        except WorkflowAlreadyStartedError:
            return
        log.info("orders_pull_started", pull=pull_id)
