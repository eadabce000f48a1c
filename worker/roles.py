"""The roles: their queues, their activities, and the secrets and logins each one needs and no other gets."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.classifiers import make_classifier
from activities.classify import Classify
from activities.database_steps import DatabaseSteps
from activities.figures import Figures
from activities.legs import SendLegs
from activities.observe import Observer
from activities.prepare import Prepare
from activities.processors.stripe import StripeProcessor
from activities.pull import PullOrders
from activities.read_payment import PaymentReader
from activities.reconcile import Reconcile
from activities.reconcile_all import ReconcileAll
from activities.settle import Settle
from activities.settle_legs import SettleLegs
from activities.submit import Submit
from refunds.clock import Clock
from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, QUEUE_REFUNDS
from refunds.settings import Settings
from store import snapshots
from store.classifying import Classifying
from store.db import Database, connect
from store.leg_settling import LegSettling
from store.master_keys import KeysMissing
from store.observing import Observing
from store.progress import Steps
from store.pulling import Pulling
from store.reconciling import Reconciling
from store.settlements import Settlements
from store.settling import Settling
from store.texts import Texts
from worker.copying import Copier
from worker.discretion import Discretion
from worker.keeping import Keeper
from worker.ledger import Keeper as LedgerKeeper
from workflows.pulling import OrdersPullWorkflow
from workflows.reading import PaymentReadingWorkflow
from workflows.reconciliation import ReconciliationWorkflow
from workflows.refund import RefundWorkflow
from workflows.watching import PaymentWatchWorkflow


class WorkerRole(StrEnum):
    """What a worker process hosts."""

    REFUNDS = "refunds"
    CLASSIFY = "classify"
    PAYMENTS = "payments"
    LEDGER = "ledger"


QUEUES = (WorkerRole.REFUNDS, WorkerRole.CLASSIFY, WorkerRole.PAYMENTS)
"""The roles that work off a queue of Temporal's. The other one asks PostgreSQL alone."""


WORKFLOWS: Sequence[type] = (RefundWorkflow, PaymentReadingWorkflow, PaymentWatchWorkflow, ReconciliationWorkflow, OrdersPullWorkflow)


@dataclass
class Parts:
    """What one process has opened: closed in reverse order by the stack."""

    settings: Settings
    clock: Clock
    stack: AsyncExitStack
    refunds: Database | None = None
    payments: Database | None = None
    keeper: Keeper | None = None
    figures: Figures | None = None
    ledger: LedgerKeeper | None = None

    async def database(self, role: WorkerRole) -> Database:
        """The pool of a role's own login, at the right schema revision."""
        url = getattr(self.settings, f"database_url_{role}") or self.settings.database_url
        database = connect(url.get_secret_value(), self.clock, self.settings, name=role)
        self.stack.push_async_callback(database.close)
        await database.check_revision()
        return database


async def make_workers(client: Client | None, parts: Parts, roles: Sequence[WorkerRole]) -> list[Worker]:
    """Build one worker a role of :data:`QUEUES`, for which it takes a client, and the keeper of the ledger.

    Raises when a secret, the schema revision or the processor account is not what it must be.
    """
    workers: list[Worker] = []
    if WorkerRole.LEDGER in roles:
        parts.ledger = await _ledger(parts)
    if client is None:
        return workers
    reader: PaymentReader | None = None
    grace = timedelta(seconds=parts.settings.stripe_read_timeout_s + 10)
    if WorkerRole.PAYMENTS in roles:
        reader, activities = await _payments(client, parts)
        workers.append(_worker(client, QUEUE_PAYMENTS, grace, activities=activities))
    if WorkerRole.CLASSIFY in roles:
        database = await parts.database(WorkerRole.CLASSIFY)
        if database.vault is None:
            raise KeysMissing("the classify role needs a master key, because it reads what customers write: set REFUNDS_TEXT_KEY")
        classifier = make_classifier(parts.settings)
        parts.stack.push_async_callback(classifier.aclose)
        step = Classify(Classifying(database, Texts(parts.clock)), classifier)
        workers.append(_worker(client, QUEUE_CLASSIFY, grace, activities=[step.classify]))
    if WorkerRole.REFUNDS in roles:
        parts.refunds = await parts.database(WorkerRole.REFUNDS)
        steps = Steps(parts.refunds, parts.settings)
        database_steps = DatabaseSteps(steps)
        workers.append(
            _worker(
                client,
                QUEUE_REFUNDS,
                grace,
                workflows=WORKFLOWS,
                activities=[
                    Prepare(steps, reader).prepare,
                    database_steps.apply_message,
                    database_steps.refuse_message,
                    database_steps.pass_deadline,
                    database_steps.resume_held,
                ],
            )
        )
    return workers


async def _ledger(parts: Parts) -> LedgerKeeper:
    copying = Copier(timedelta(seconds=parts.settings.ledger_copy_timeout_s))
    parts.stack.push_async_callback(copying.close)
    return LedgerKeeper(await parts.database(WorkerRole.LEDGER), parts.settings, copying)


async def _payments(client: Client, parts: Parts) -> tuple[PaymentReader, list[Callable[..., Any]]]:
    parts.payments = database = await parts.database(WorkerRole.PAYMENTS)
    processor = StripeProcessor(parts.settings, parts.clock)
    parts.stack.push_async_callback(processor.close)
    account = await processor.account()
    async with database.begin() as connection:
        await snapshots.bind(connection, processor=processor.name, account=account, mode=parts.settings.refunds_mode, at=parts.clock.now())
    name = f"{socket.gethostname()}/{os.getpid()}"
    settling = Settling(database, parts.settings, name)
    leg_settling = LegSettling(database, parts.settings, name)
    observing = Observing(database, parts.settings, name)
    observer = Observer(observing, processor, parts.clock)
    reconciling = Reconciling(database, parts.settings, processor.name)
    parts.keeper = Keeper(client, reconciling, parts.settings)
    await parts.keeper.check_database()  # before the first step: nothing is sent from a database that may have forgotten something
    pulling = Pulling(database, processor.name)
    pull = PullOrders(pulling, processor)
    parts.figures = Figures(Settlements(database, processor.name), processor)
    sweep = ReconcileAll(reconciling, processor, observer, parts.figures)
    reader = PaymentReader(settling, processor, parts.clock, observing, processor)
    activities: list[Callable[..., Any]] = [
        reader.read_payment,
        Submit(settling, observing, processor, parts.settings, processor).submit,
        Reconcile(settling, processor).reconcile,
        Settle(settling, processor, SettleLegs(leg_settling, processor)).settle,
        SendLegs(leg_settling, processor).send_legs,
        observer.observe_payment,
        sweep.begin,
        sweep.pages,
        sweep.cancel,
        pull.pull,
        pull.cancel,
    ]
    return reader, activities


def _worker(
    client: Client,
    queue: str,
    grace: timedelta,
    *,
    workflows: Sequence[type] = (),
    activities: Sequence[Callable[..., Any]] = (),
) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        # Our own reviewed code, replayed inside the import sandbox by the tests; outside it here, because the sandbox costs tens of milliseconds a run.
        workflow_runner=UnsandboxedWorkflowRunner(),
        interceptors=[Discretion()],
        # Longer than a call to the processor: a worker that is cut off leaves an answer nobody recorded.
        graceful_shutdown_timeout=grace,
        # Few open polls: the server hands a task to an open poll even of a frozen process, and each task lost so costs a time-out.
        max_concurrent_activity_task_polls=2,
        # Every beat is sent: the SDK would hold them back until just before the time-out, where a busy moment looks like a death.
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        max_concurrent_workflow_tasks=50,
        max_concurrent_activities=50,
        max_concurrent_local_activities=50,
    )
