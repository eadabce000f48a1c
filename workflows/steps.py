"""How steps are called: their queues, time-outs and retries. Every step answers from the store and may be repeated, so retries have no end: a bug or an
outage is retried until it is fixed, and the search attribute ``TemporalReportedProblems`` and the activity's pending failure show it."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, UNREAD, Situation, Step, StepInput

_DATABASE = RetryPolicy(initial_interval=timedelta(milliseconds=200), backoff_coefficient=2, maximum_interval=timedelta(seconds=15))
_OUTSIDE = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5))
# Its own waits come with the error; these apply to a worker that died or froze, and to bugs.
_PAYMENT = RetryPolicy(initial_interval=timedelta(milliseconds=500), backoff_coefficient=1.5, maximum_interval=timedelta(seconds=30))
# A failure of the reader is an answer and is stored; what fails here is the step itself. Then a person reads the text.
_READING = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_attempts=5)
_READ_WITHIN = timedelta(minutes=10)
_CALL = timedelta(minutes=3)
HEARTBEAT = timedelta(seconds=3)
"""How soon a step that calls the outside is given up for lost when its worker is silent; every such step beats while it works."""


async def database_step(step: str, given: StepInput) -> Situation:
    """A short database step, inside the workflow task: no round trip through the server."""
    return await workflow.execute_local_activity(
        step,
        given,
        result_type=Situation,
        start_to_close_timeout=timedelta(seconds=30),
        retry_policy=_DATABASE,
        local_retry_threshold=timedelta(seconds=10),
    )


async def classify(refund: str) -> bool:
    """Have the text read; false when it could not be within the time, and a person must read it."""
    try:
        await workflow.execute_activity(
            Step.CLASSIFY,
            StepInput(refund),
            task_queue=QUEUE_CLASSIFY,
            start_to_close_timeout=_CALL,
            schedule_to_close_timeout=_READ_WITHIN,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=_READING,
            summary="Read the customer's text",
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.warning("the text was not read; a person reads it")
        return False
    return True


async def read_payment(refund: str, payment: str, *, detail: str = "") -> None:
    """Have a payment read live by the role that holds the processor's key; ``detail`` says that more than the payment is wanted."""
    await workflow.execute_activity(
        Step.READ_PAYMENT,
        StepInput(refund, message=payment, detail=detail),
        task_queue=QUEUE_PAYMENTS,
        start_to_close_timeout=_CALL,
        heartbeat_timeout=HEARTBEAT,
        retry_policy=_OUTSIDE,
        summary="Read the payment at the processor",
    )


async def payment_step(step: str, given: StepInput, *, summary: str) -> Situation:
    """A step of the payments role.

    Shielded: cancelling the run must not abandon a call that may be moving money. The run waits for its answer and is cancelled then.
    """
    handle = workflow.start_activity(
        step,
        given,
        result_type=Situation,
        task_queue=QUEUE_PAYMENTS,
        start_to_close_timeout=_CALL,
        heartbeat_timeout=HEARTBEAT,
        retry_policy=_PAYMENT,
        cancellation_type=workflow.ActivityCancellationType.ABANDON,
        summary=summary,
    )
    try:
        return await asyncio.shield(handle)
    except asyncio.CancelledError:
        await handle
        raise


async def with_needs(step: str, given: StepInput) -> Situation:
    """A database step that may first need a step of another role: classified text, or a fresh reading of the payment."""
    rounds = 0
    while True:
        found = await database_step(step, given)
        if found.needs == Step.CLASSIFY:
            if not await classify(given.refund):
                given = replace(given, detail=UNREAD)
        elif found.needs == Step.READ_PAYMENT:
            await read_payment(given.refund, found.payment)
        else:
            return found
        rounds += 1
        if rounds > 3:  # readings that are stale on arrival (a clock that is wrong, a very slow processor): no hot loop
            await workflow.sleep(timedelta(seconds=10))
