"""How steps are called: their queues, time-outs and retries. Every step answers from the store and may be repeated, so retries have no end: a bug or an
outage is retried until it is fixed, and the search attribute ``TemporalReportedProblems`` and the activity's pending failure show it."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from refunds.messages import QUEUE_CLASSIFY, QUEUE_PAYMENTS, Situation, Step, StepInput

_DATABASE = RetryPolicy(initial_interval=timedelta(milliseconds=200), backoff_coefficient=2, maximum_interval=timedelta(seconds=15))
_OUTSIDE = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=5))
# Reading text is tried twice; then the classifier's own failure is recorded by its step, or a person reads it after all.
_CALL = timedelta(minutes=3)
_HEARTBEAT = timedelta(seconds=6)


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


async def classify(refund: str) -> None:
    """Have the text read. Ends only when a classification, or the failure of one, is stored."""
    await workflow.execute_activity(
        Step.CLASSIFY,
        StepInput(refund),
        task_queue=QUEUE_CLASSIFY,
        start_to_close_timeout=_CALL,
        retry_policy=_OUTSIDE,
        summary="Read the customer's text",
    )


async def read_payment(refund: str, payment: str) -> None:
    """Have a payment read live by the role that holds the processor's key."""
    await workflow.execute_activity(
        Step.READ_PAYMENT,
        StepInput(refund, message=payment),
        task_queue=QUEUE_PAYMENTS,
        start_to_close_timeout=_CALL,
        retry_policy=_OUTSIDE,
        summary="Read the payment at the processor",
    )


async def payment_step(step: str, given: StepInput, *, summary: str, heartbeat: bool = False) -> Situation:
    """A step of the payments role.

    Shielded: cancelling the run must not abandon a call that may be moving money. The run waits for its answer and is cancelled then.
    """
    handle = workflow.start_activity(
        step,
        given,
        result_type=Situation,
        task_queue=QUEUE_PAYMENTS,
        start_to_close_timeout=_CALL,
        heartbeat_timeout=_HEARTBEAT if heartbeat else None,
        retry_policy=_OUTSIDE,
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
            await classify(given.refund)
        elif found.needs == Step.READ_PAYMENT:
            await read_payment(given.refund, found.payment)
        else:
            return found
        rounds += 1
        if rounds > 3:  # readings that are stale on arrival (a clock that is wrong, a very slow processor): no hot loop
            await workflow.sleep(timedelta(seconds=10))
