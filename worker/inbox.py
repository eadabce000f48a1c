"""Working off the inbox of events, beside the ``payments`` role: what says nothing new is closed, and for the rest the payment is watched.

An event is done only when the record says what it says, or a reading that began after it was stored has been recorded. Until then it comes up again by itself,
ever less often, so that whoever dies over one has lost nothing (field reports 21 and 24).
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.service import RPCError

from refunds.errors import RefundError
from refunds.ids import Prefix, is_id
from refunds.logs import logger
from refunds.messages import LOOK, QUEUE_REFUNDS, WATCH_WORKFLOW, StepInput
from refunds.settings import Settings
from store import events
from store.db import Database
from workflows.watching import PAYMENT

log = logger(__name__)

BATCH = 100
_WITHIN = timedelta(seconds=5)


def watch_id(payment_id: str) -> str:
    """The Temporal workflow id of the watch over a payment."""
    return f"payment-{payment_id}"


@dataclass
class _Round:
    """One round: the payments it has begun to watch, and what Temporal met; who has not answered once is not waited for by every event in turn."""

    watched: set[str] = field(default_factory=set[str])
    away: RPCError | RuntimeError | None = None


class Inbox:
    """One worker of the inbox. Several may run at once: each takes events the others do not hold."""

    def __init__(self, client: Client, database: Database, settings: Settings) -> None:
        self._client = client
        self._database = database
        self._settings = settings

    async def run_for_ever(self) -> None:
        """Work at intervals, and at once again while there is more; an outage is logged and tried again."""
        while True:
            taken = 0
            try:
                taken = await self.once()
            except RefundError as error:
                log.warning("inbox_interrupted", error=str(error)[:300])
            if taken < BATCH:
                await asyncio.sleep(self._settings.webhook_every_s)

    async def once(self) -> int:
        """One round; returns how many events were closed or taken up."""
        async with self._database.begin() as connection:
            now = self._database.clock.now()
            closed = await events.close_recorded(connection, now, limit=BATCH)
            taken = await events.take_due(
                connection,
                now,
                first=timedelta(seconds=self._settings.webhook_retry_initial_s),
                longest=timedelta(seconds=self._settings.webhook_retry_max_s),
                limit=BATCH,
            )
        this_round = _Round()
        for event in taken:
            # Each by itself: whatever one of them meets must not keep the others, and it is due again anyway.
            [met] = await asyncio.gather(self._work(event, this_round), return_exceptions=True)
            if isinstance(met, Exception):
                await self._went_wrong(event, met)
            elif isinstance(met, BaseException):
                raise met
        async with self._database.one() as connection:
            every = timedelta(seconds=self._settings.webhook_unmatched_notice_s)
            await events.tell_of_unmatched(connection, self._database.clock.now(), every=every)
        return closed + len(taken)

    async def _work(self, event: events.Taken, this_round: _Round) -> None:
        async with self._database.begin() as connection:
            found = await events.payments_of(connection, event)
            now = self._database.clock.now()
            if not found:
                if is_id(event.operation_id, Prefix.OPERATION):
                    await events.tell_of_ours(connection, event, now)
                if event.tries >= self._settings.webhook_unmatched_after:
                    await events.give_up(connection, event, now)
                return
            if await events.says_nothing_new(connection, event, found):
                await events.done(connection, [event.id], now, "recorded")
                return
            if event.tries == 1 and await events.awaits_a_receipt(connection, event, found):
                return
            if event.tries > 2:
                await events.went_wrong(connection, event, now, "no reading that answers it was recorded")
        for payment_id in found:
            if this_round.away is not None:
                raise this_round.away
            if payment_id not in this_round.watched:
                try:
                    await self._watch(payment_id)
                except (RPCError, RuntimeError) as error:
                    this_round.away = error
                    raise
                this_round.watched.add(payment_id)

    async def _watch(self, payment_id: str) -> None:
        await self._client.start_workflow(
            WATCH_WORKFLOW,
            StepInput("", message=payment_id),
            id=watch_id(payment_id),
            task_queue=QUEUE_REFUNDS,
            start_signal=LOOK,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            static_summary=f"Watch over payment {payment_id}",
            search_attributes=TypedSearchAttributes([SearchAttributePair(PAYMENT, payment_id)]),
            rpc_timeout=_WITHIN,
        )

    async def _went_wrong(self, event: events.Taken, error: Exception) -> None:
        # Its kind and place, never what it says: messages of databases repeat rows (promise P9).
        word = (
            error.status.name
            if isinstance(error, RPCError)
            else error.code.value
            if isinstance(error, RefundError)
            else type(error).__name__
        )
        log.warning("event_not_done", processor_event=event.id, type=event.type, error=word, tries=event.tries)
        async with self._database.begin() as connection:
            await events.went_wrong(connection, event, self._database.clock.now(), word)
