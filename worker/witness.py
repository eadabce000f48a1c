"""A witness outside the database: what it last said of itself, kept in Temporal, so that a restored or copied database is noticed (design, "Databases can forget").

Kept as the argument of a schedule that is paused and never runs: that is read and written without a worker, has no retention, and outlives every run. See
docs/decisions/0013-databases-can-forget.md.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from refunds.identity import Identity, doubt
from refunds.logs import logger
from refunds.messages import QUEUE_PAYMENTS
from store import halts, restoring
from store.db import Database

log = logger(__name__)
_WITHIN = timedelta(seconds=10)
_NOTE = "What the database last said of itself. Never runs; do not delete: without it refunds are halted until a reconciliation."


class Witness:
    """Compares the database with what it was before, and halts the processor when it may have forgotten something."""

    def __init__(self, client: Client, database: Database, processor: str) -> None:
        self._client = client
        self._database = database
        self._processor = processor
        self._known: Identity | None = None

    async def check(self) -> str | None:
        """Compare, and remember what the database says now. Returns the doubt, if there is one: then the processor is halted when this returns.

        Raises ``RPCError`` when Temporal does not answer, and ``STORE_UNAVAILABLE``.
        """
        async with self._database.begin() as connection:
            name = f"database-witness-{await restoring.lineage(connection, self._processor)}"
            used = await restoring.was_used(connection)
        before = await self._read(name)
        now = await restoring.identity(self._database)
        why = doubt(before, now, used=used)
        if why is not None:
            await self._halt(why)
        if before is None:
            await self._make(name, now)
        elif before != now:
            await self._write(name, now)
        return why

    async def _halt(self, why: str) -> None:
        log.error("database_doubted", why=why)
        at = self._database.clock.now()
        async with self._database.begin() as connection:
            await restoring.doubted(connection, at, processor=self._processor, reason=why)
        async with self._database.begin() as connection:
            if await halts.in_force(connection, self._processor) is None:  # another halt was lifted just then
                await restoring.doubted(connection, at, processor=self._processor, reason=why)

    async def _read(self, name: str) -> Identity | None:
        try:
            found = await self._client.get_schedule_handle(name).describe(rpc_timeout=_WITHIN)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        action = found.schedule.action
        assert isinstance(action, ScheduleActionStartWorkflow)
        [value] = await self._client.data_converter.decode([_payload(argument) for argument in action.args], [Identity])
        return value

    async def _make(self, name: str, now: Identity) -> None:
        schedule = Schedule(
            action=ScheduleActionStartWorkflow("NeverRuns", now, id=name, task_queue=QUEUE_PAYMENTS),
            spec=ScheduleSpec(),
            state=ScheduleState(paused=True, note=_NOTE),
        )
        try:
            await self._client.create_schedule(name, schedule, rpc_timeout=_WITHIN)
        except ScheduleAlreadyRunningError:
            await self._write(name, now)

    async def _write(self, name: str, now: Identity) -> None:
        def changed(current: ScheduleUpdateInput) -> ScheduleUpdate:
            schedule = current.description.schedule
            assert isinstance(schedule.action, ScheduleActionStartWorkflow)
            return ScheduleUpdate(replace(schedule, action=replace_arguments(schedule.action, now)))

        await self._client.get_schedule_handle(name).update(changed, rpc_timeout=_WITHIN)


def replace_arguments(action: ScheduleActionStartWorkflow, *arguments: Any) -> ScheduleActionStartWorkflow:
    """The action with other arguments."""
    action.args = list(arguments)
    return action


def _payload(argument: Any) -> Payload:
    assert isinstance(argument, Payload)
    return argument
