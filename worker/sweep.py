"""The sweep: delivers what must reach the outside, and starts the runs of accepted refunds that have none (promise P6)."""

import asyncio
import time
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from refunds.errors import RefundError
from refunds.ids import workflow_id
from refunds.logs import logger
from refunds.messages import QUEUE_REFUNDS, WORKFLOW_TYPE, Message, RefundInput, Situation
from refunds.settings import Settings
from refunds.status import Status
from store import breakers, outbox, pacing
from store.changes import lock_refund
from store.db import Database

log = logger(__name__)

_LOOK_AGAIN = "resume"


class Sweep:
    """Runs beside the ``refunds`` role. Several may run at once: each takes rows the others do not hold."""

    def __init__(self, client: Client, database: Database, settings: Settings) -> None:
        self._client = client
        self._database = database
        self._settings = settings
        self._judged = float("-inf")

    async def run_for_ever(self) -> None:
        """Sweep at intervals; an outage is logged and tried again."""
        while True:
            try:
                await self.once()
            except (RefundError, RPCError) as error:
                log.warning("sweep_interrupted", error=str(error)[:300])
            await asyncio.sleep(self._settings.sweep_every_s)

    async def once(self) -> int:
        """One round; returns how many things were delivered or started."""
        done = await self._deliver() + await self._start_missing() + await self._wake_stranded()
        return done + await self._judge_breakers()

    async def _deliver(self) -> int:
        now = self._database.clock.now()
        async with self._database.begin() as connection:
            taken = await outbox.take_due(connection, now)
        delivered: list[int] = []
        failures: list[tuple[outbox.Due, str]] = []
        for due in taken:
            try:
                await self._deliver_one(due)
            except RPCError as error:
                failures.append((due, f"{error.status.name}: {error.message}"))
            else:
                delivered.append(due.id)
        if taken:
            async with self._database.begin() as connection:
                await outbox.done(connection, delivered, now)
                for due, why in failures:
                    await outbox.failed(connection, due, now, why)
        return len(delivered)

    async def _deliver_one(self, due: outbox.Due) -> None:
        if due.kind == "notice":
            log.info("notice", refund=due.refund_id, **due.body)
            return
        assert due.refund_id is not None
        handle = self._client.get_workflow_handle(workflow_id(due.refund_id))
        try:
            await handle.signal(due.body["name"], Message(id=due.body["message"]), rpc_timeout=timedelta(seconds=5))
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # a run that is over, or not begun, reads the store by itself
                raise

    async def _start_missing(self) -> int:
        async with self._database.begin() as connection:
            missing = await outbox.missing_runs(
                connection, self._database.clock.now(), grace=timedelta(seconds=self._settings.sweep_grace_s)
            )
        started = [found.refund for found in missing if await self._start(found)]
        if started:
            async with self._database.begin() as connection:
                await outbox.say_again(connection, started, self._database.clock.now())
        return len(started)

    async def _wake_stranded(self) -> int:
        """Have held refunds looked at that a worker whose clock was ahead has put off too far: by whoever has the right time."""
        async with self._database.begin() as connection:
            found = await pacing.stranded(connection, self._settings)
        for refund in found:
            async with self._database.begin() as connection:
                change = await lock_refund(connection, refund, self._database.clock.now)
                if change.status is Status.HELD:
                    change.put(wake_at=change.at, slot_at=None)
                    change.signal(_LOOK_AGAIN, "", after=timedelta(0))
                    await change.save(connection)
        return len(found)

    async def _judge_breakers(self) -> int:
        """Open, half-open and close breakers by what was seen: once in a while, for it looks at a week of refunds."""
        if time.monotonic() - self._judged < self._settings.breakers_every_s:
            return 0
        self._judged = time.monotonic()
        moved = await breakers.judge(self._database)
        for one in moved:
            log.warning("breaker_moved", name=one.name, scope=one.scope, to=one.to.value, why=one.why)
        return len(moved)

    async def _start(self, found: Situation) -> bool:
        """Start a run if none is running.

        Also after one that completed: the store has just said that the refund is not final, and the store is believed. The run of a refund that has become final
        meanwhile ends at once.
        """
        try:
            await self._client.start_workflow(
                WORKFLOW_TYPE,
                RefundInput(found.refund),
                id=workflow_id(found.refund),
                task_queue=QUEUE_REFUNDS,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"Refund {found.refund}",
                rpc_timeout=timedelta(seconds=5),
            )
        except WorkflowAlreadyStartedError:
            return False
        log.info("run_started_by_sweep", refund=found.refund, status=found.status)
        return True
