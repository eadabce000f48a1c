"""Every path of a refund's run, in the words of the design (section 4)."""

from datetime import timedelta

import pytest

from refunds.messages import QUEUE_REFUNDS, Outcome, Step
from tests.workflows.memory import DAY, Plan
from tests.workflows.running import NO_CACHE, Runs, count, message

QUEUES = pytest.mark.parametrize("queue", [QUEUE_REFUNDS, NO_CACHE], ids=["cached", "never cached"])


@QUEUES
async def test_automatic(runs: Runs, queue: str) -> None:
    run = await runs.start(queue=queue)

    assert await run.result() == Outcome(run.row.id, "succeeded", revision=1)

    assert run.row.calls == {Step.PREPARE: 1, Step.SUBMIT: 1}


@QUEUES
async def test_text_is_classified_and_the_payment_read_before_it_is_quoted(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(text=True, reading=True), queue=queue)

    assert (await run.result()).status == "succeeded"

    assert run.row.calls == {Step.PREPARE: 3, Step.CLASSIFY: 1, Step.READ_PAYMENT: 1, Step.SUBMIT: 1}


@QUEUES
async def test_field_72_a_text_that_cannot_be_read_goes_to_a_person_after_a_few_tries(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(text=True, unreadable=True, reading=True), queue=queue)
    await run.until("awaiting_review")

    assert run.row.calls == {Step.PREPARE: 3, Step.CLASSIFY: 5, Step.READ_PAYMENT: 1}
    await run.ask("decide", message(runs.store.decide(run.row, "approve")))
    assert (await run.result()).status == "succeeded"


@QUEUES
async def test_consent_then_review(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(consent=True, people=1), queue=queue)
    await run.until("awaiting_consent")

    await run.handle.signal("consent", message(runs.store.consent(run.row)))
    await run.until("awaiting_review")
    answer = await run.ask("decide", message(runs.store.decide(run.row, "approve"), run))

    assert answer in ("approved", "submitting", "succeeded")
    assert (await run.result()).status == "succeeded"


async def test_consent_declined(runs: Runs) -> None:
    run = await runs.start(Plan(consent=True))
    await run.until("awaiting_consent")

    await run.handle.signal("consent", message(runs.store.consent(run.row, agreed=False)))

    assert (await run.result()).status == "withdrawn"
    assert run.row.calls[Step.SUBMIT] == 0


@QUEUES
@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_decision_by_signal(runs: Runs, verdict: str, queue: str) -> None:
    run = await runs.start(Plan(people=1), queue=queue)
    await run.until("awaiting_review")

    await run.handle.signal(verdict, message(runs.store.decide(run.row, verdict)))

    ended, submits = {"approve": ("succeeded", 1), "deny": ("denied", 0)}[verdict]
    assert (await run.result()).status == ended
    assert run.row.calls[Step.SUBMIT] == submits


async def test_denied_by_update(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    assert await run.ask("decide", message(runs.store.decide(run.row, "deny"), run)) == "denied"

    assert (await run.result()).status == "denied"


@QUEUES
async def test_two_people(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(people=2), queue=queue)
    await run.until("awaiting_review")

    assert await run.ask("decide", message(runs.store.decide(run.row, "approve", "ann"), run)) == "awaiting_review"
    assert run.row.calls[Step.SUBMIT] == 0
    await run.ask("decide", message(runs.store.decide(run.row, "approve", "bob"), run))

    assert (await run.result()).status == "succeeded"


@QUEUES
async def test_revised_terms_need_their_own_decision(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(people=1, reading=True), queue=queue)
    await run.until("awaiting_review")
    run.row.read = False

    assert await run.ask("revise", message(runs.store.revise(run.row, 2000))) == "awaiting_review"
    seen = await run.view()
    assert (seen.revision, seen.amount, run.row.calls[Step.READ_PAYMENT]) == (2, 2000, 2)
    await run.ask("decide", message(runs.store.decide(run.row, "approve"), run))

    assert await run.result() == Outcome(run.row.id, "succeeded", revision=2)


async def test_revised_by_signal(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal("revise", message(runs.store.revise(run.row, 2000)))
    await run.entry("awaiting_review", 2)
    await run.handle.signal("approve", message(runs.store.decide(run.row, "approve")))

    assert await run.result() == Outcome(run.row.id, "succeeded", revision=2)


@QUEUES
async def test_field_65_silence_reminds_escalates_once_and_expires(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(people=1), queue=queue)
    await run.until("awaiting_review")

    await run.pass_time(timedelta(hours=4, seconds=5))
    await run.entry("reminded", 1)
    await run.pass_time(timedelta(hours=20))
    await run.entry("escalated", 1)
    assert (await run.heard(run.row.version)).queue == "managers"
    await run.pass_time(timedelta(hours=4, seconds=5))
    await run.entry("reminded", 2)
    await run.pass_time(timedelta(hours=20))

    assert (await run.result()).status == "expired"
    assert (run.row.entries("reminded"), run.row.entries("escalated"), run.row.calls[Step.SUBMIT]) == (2, 1, 0)


async def test_consent_expires(runs: Runs) -> None:
    run = await runs.start(Plan(consent=True))
    await run.until("awaiting_consent")

    await run.pass_time(DAY + timedelta(seconds=1))

    assert (await run.result()).status == "expired"


async def test_a_decision_recorded_and_never_delivered_counts_at_the_deadline(runs: Runs) -> None:
    run = await runs.start(Plan(people=1, remind_after=DAY))
    await run.until("awaiting_review")

    runs.store.decide(run.row, "approve")  # the API dies before it delivers this
    await run.pass_time(DAY + timedelta(seconds=1))

    assert (await run.result()).status == "succeeded"


async def test_withdrawn_while_waiting(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal("withdraw", message(runs.store.withdraw(run.row)))

    assert (await run.result()).status == "withdrawn"
    assert run.row.calls[Step.SUBMIT] == 0


@QUEUES
@pytest.mark.parametrize("by", ["hint", "timer"])
async def test_held_and_resumed(runs: Runs, by: str, queue: str) -> None:
    row = runs.store.add()
    row.stopped = True
    run = await runs.start_row(row, queue=queue)
    await run.until("held")
    await run.handle.signal("resume")  # while it is still stopped: nothing moves
    await run.handle.signal("resume")

    row.stopped = False
    if by == "hint":
        await run.handle.signal("resume")
    else:
        await run.pass_time(timedelta(minutes=2))

    assert (await run.result()).status == "succeeded"
    assert row.entries("held") == 1


@QUEUES
@pytest.mark.parametrize(("last", "ended"), [("succeeded", "succeeded"), ("failed", "failed")])
async def test_pending_is_asked_again_until_it_is_final(runs: Runs, last: str, ended: str, queue: str) -> None:
    run = await runs.start(Plan(answers=["pending"], polls=["pending", "pending", last]), queue=queue)
    await run.until("pending")

    for _ in range(3):
        await run.pass_time(timedelta(hours=13))

    assert (await run.result()).status == ended
    assert run.row.calls == {Step.PREPARE: 1, Step.SUBMIT: 1, Step.RECONCILE: 3}


async def test_pending_is_asked_at_once_when_an_event_hints(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["pending"], polls=["succeeded"]))
    await run.until("pending")

    await run.handle.signal("payment_event", {"any": "content"})

    assert (await run.result()).status == "succeeded"


async def test_pending_too_long_is_parked_and_then_settled(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["pending"], polls=["park"]))
    await run.until("pending")
    await run.pass_time(timedelta(days=45))
    await run.until("parked")

    assert await run.ask("settle", message(runs.store.settle(run.row, "succeeded"))) == "succeeded"

    assert (await run.result()).status == "succeeded"


@QUEUES
async def test_parked_reminds_and_is_settled_by_signal(runs: Runs, queue: str) -> None:
    run = await runs.start(Plan(answers=["unknown", "unknown", "park"]), queue=queue)
    await run.until("parked")
    await run.pass_time(DAY + timedelta(seconds=5))
    await run.entry("reminded", 1)

    await run.handle.signal("settle", message(runs.store.settle(run.row, "failed")))

    assert (await run.result()).status == "failed"
    assert run.row.calls[Step.SUBMIT] == 3


async def test_a_settlement_that_the_processor_does_not_confirm_changes_nothing(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["park"]))
    await run.until("parked")

    assert await run.ask("settle", message(runs.store.settle(run.row, "not_there"))) == "SETTLEMENT_NOT_FOUND"
    assert (await run.view()).status == "parked"
    assert await run.ask("settle", message(runs.store.settle(run.row, "pending"))) == "pending"

    run.row.plan.polls = ["succeeded"]
    await run.handle.signal("payment_event")
    assert (await run.result()).status == "succeeded"


async def test_released_authorisation(runs: Runs) -> None:
    run = await runs.start(Plan(answers=["released"]))

    assert (await run.result()).status == "released"


@pytest.mark.parametrize("plan", [Plan(people=1), Plan(answers=["park"]), Plan(consent=True)])
async def test_a_run_resumes_from_the_stored_status(runs: Runs, plan: Plan) -> None:
    first = await runs.start(plan)
    waiting = {1: "awaiting_review"}.get(plan.people, "parked" if plan.answers == ["park"] else "awaiting_consent")
    await first.until(waiting)
    deadline = first.row.wake_at
    await first.handle.terminate("by an operator")

    again = await runs.start_row(first.row)

    seen = await again.until(waiting)
    assert (seen.wake_at, first.row.calls[Step.SUBMIT]) == (deadline, len(plan.answers) == 0)


async def test_a_run_of_a_final_refund_ends_at_once(runs: Runs) -> None:
    row = runs.store.add(Plan(people=1))
    first = await runs.start_row(row)
    await first.until("awaiting_review")
    await first.handle.terminate("by an operator")
    runs.store.withdraw(row)

    again = await runs.start_row(row)

    assert (await again.result()).status == "withdrawn"
    assert count(await again.history(), "ACTIVITY_TASK_SCHEDULED") == 0
