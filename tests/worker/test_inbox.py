"""The inbox of events: nothing is lost, nothing is worked on twice for nothing, and one that nobody can get done keeps no other waiting."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.observe import Observer
from refunds.errors import RefundError
from refunds.events import ProcessorEvent
from refunds.ids import Prefix, new_id
from refunds.processor import RefundState
from refunds.settings import Settings
from refunds.status import Status
from store import events
from store.observing import Observing
from tests.activities.shop import Shop, Tampered, settings_for
from tests.worker.site import Site, until
from worker.inbox import Inbox, watch_id

_numbers = itertools.count(1)


@pytest.fixture
async def shop(site: Site) -> Shop:
    """The shop at the present time, with no event and no notice in its database."""
    site.shop.clock.shift = timedelta(0)
    await site.shop.query_nothing("DELETE FROM events")
    await site.shop.query_nothing("DELETE FROM outbox")
    return site.shop


@pytest.fixture
def inbox(site: Site, shop: Shop) -> Inbox:
    return Inbox(site.client, shop.payments.database, shop.settings)


async def deliver(shop: Shop, payment: str | None, **changed: Any) -> str:
    """Store an event as the API does; returns its id."""
    number = next(_numbers)
    facts = {"object": "refund", "status": "succeeded", "amount": 3_000, "currency": "USD", "charge": None}
    given: dict[str, Any] = {
        "id": f"evt_{number}",
        "type": "refund.created",
        "livemode": False,
        "created_at": shop.clock.now(),
        "object_id": f"re_of_event{number}",
        "processor_payment": payment,
        "facts": facts | changed.pop("facts", {}),
    }
    event = ProcessorEvent(**(given | changed))
    async with shop.api.begin() as connection:
        assert await events.keep(connection, shop.clock.now(), event, processor="stripe", ignored=None)
    return event.id


async def seen(shop: Shop, event: str) -> dict[str, Any]:
    [row] = await shop.query("SELECT * FROM events WHERE id = :e", e=event)
    return row


async def state_of(shop: Shop, event: str) -> tuple[str, str | None, int]:
    row = await seen(shop, event)
    return row["state"], row["outcome"], row["tries"]


async def notices(shop: Shop) -> list[tuple[str, str]]:
    rows = await shop.query("SELECT body FROM outbox WHERE kind = 'notice' AND body->>'processor_event' IS NOT NULL ORDER BY id")
    return [(row["body"]["kind"], row["body"]["processor_event"]) for row in rows]


async def bundles(shop: Shop) -> list[tuple[int, list[str]]]:
    rows = await shop.query("SELECT body FROM outbox WHERE kind = 'notice' AND body->>'kind' = 'events_unmatched' ORDER BY id")
    assert {row["body"]["runbook"] for row in rows} <= {"docs/runbooks/webhooks.md"}
    return [(row["body"]["events"], row["body"]["some"]) for row in rows]


async def payment_of(shop: Shop, intent: str) -> str:
    [row] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    return row["id"]


async def hints(site: Site, intent: str) -> int:
    """How many hints the watch over a payment was sent; 0 without one."""
    handle = site.client.get_workflow_handle(watch_id(await payment_of(site.shop, intent)))
    try:
        history = await handle.fetch_history()
    except RPCError as error:
        assert error.status is RPCStatusCode.NOT_FOUND
        return 0
    return sum(1 for event in history.events if event.HasField("workflow_execution_signaled_event_attributes"))


async def submitted(shop: Shop, **payment: Any) -> tuple[str, str, dict[str, Any]]:
    """A refund of ours that was sent; returns its payment, its id, and the processor's refund."""
    intent = await shop.paid(**payment)
    refund_id = await shop.approved(intent)
    await shop.submit(refund_id)
    [made] = (await shop.truth(intent))["refunds"]
    return intent, refund_id, made


def of(made: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """What an event says of a refund of the processor's."""
    return {"object_id": made["id"], "operation": made["metadata"].get("refunds_operation"), "facts": {"status": made["status"]}} | changed


async def test_what_the_record_says_already_is_closed_without_asking_anybody(site: Site, shop: Shop, inbox: Inbox) -> None:
    intent, _, made = await submitted(shop)
    ours = await deliver(shop, intent, **of(made))
    total = await deliver(shop, intent, type="charge.refunded", facts={"amount_refunded": 3_000})

    assert await inbox.once() == 2

    assert await state_of(shop, ours) == ("done", "recorded", 1)
    assert await state_of(shop, total) == ("done", "recorded", 1)
    assert await hints(site, intent) == 0


async def test_what_says_nothing_new_is_closed_at_once_and_nothing_else(shop: Shop) -> None:
    sent = [await submitted(shop) for _ in range(3)]
    same: list[str] = []
    for intent, _, made in sent:
        same.append(await deliver(shop, intent, **of(made)))
        same.append(await deliver(shop, intent, type="charge.refunded", facts={"amount_refunded": 3_000}))
    intent, _, made = sent[-1]
    news = [await deliver(shop, intent, **of(made, **changed)) for changed in NEWS.values()]
    news += [await deliver(shop, "pi_nobody"), await deliver(shop, "pi_nobody", type="charge.refunded", facts={"amount_refunded": 0})]
    shapes: list[str] = []
    for facts in ("[7]", "null", '{"status": {"a": 1}, "amount": "x", "currency": 3}', '{"amount_refunded": 1e400}'):
        for type_ in ("refund.created", "charge.refunded"):
            shapes.append(await deliver(shop, intent, type=type_, object_id=made["id"]))
            await shop.query_nothing("UPDATE events SET facts = CAST(:f AS jsonb) WHERE id = :e", f=facts, e=shapes[-1])

    async with shop.payments.database.begin() as connection:
        closed = await events.close_recorded(connection, shop.clock.now(), limit=100)

    assert closed == len(same)
    rows = await shop.query("SELECT id FROM events WHERE state = 'done' AND outcome = 'recorded' AND tries = 1")
    assert {row["id"] for row in rows} == set(same)
    assert [await state_of(shop, event) for event in news + shapes] == [("waiting", None, 0)] * len(news + shapes)


async def test_many_at_once_are_judged_as_each_by_itself(shop: Shop) -> None:
    intent, refund_id, made = await submitted(shop)
    payment = await payment_of(shop, intent)
    closed: set[tuple[str, str]] = set()
    for raw, status in itertools.product([*RefundState, "some_new_word"], Status):
        await shop.query_nothing("UPDATE processor_refunds SET raw_state = :s WHERE id = :r", s=str(raw), r=made["id"])
        await shop.query_nothing("UPDATE refunds SET status = :s WHERE id = :r", s=status.value, r=refund_id)
        event = await deliver(shop, intent, **of(made, facts={"status": str(raw)}))
        facts = (await seen(shop, event))["facts"]
        taken = events.Taken(event, "stripe", "refund.updated", made["id"], intent, None, facts, 1)
        async with shop.payments.database.begin() as connection:
            alone = await events.says_nothing_new(connection, taken, [payment])
            assert await events.close_recorded(connection, shop.clock.now(), limit=100) == alone, (raw, status)
        await shop.query_nothing("DELETE FROM events")
        if alone:
            closed.add((str(raw), status.value))
    assert closed == {
        *(("pending", "pending"), ("requires_action", "pending"), ("succeeded", "succeeded"), ("failed", "failed"), ("canceled", "failed"))
    }


NEWS: dict[str, dict[str, Any]] = {
    "another state": {"facts": {"status": "failed"}},
    "another amount": {"facts": {"status": "succeeded", "amount": 2_999}},
    "another currency": {"facts": {"status": "succeeded", "currency": "EUR"}},
    "a refund that is not recorded": {"object_id": "re_other", "operation": None},
    "more of the charge than is recorded": {"type": "charge.refunded", "facts": {"amount_refunded": 3_001}},
    "a dispute": {"type": "charge.dispute.created", "facts": {"object": "dispute", "status": "needs_response"}},
}


@pytest.mark.parametrize("kind", NEWS)
async def test_news_of_any_kind_sets_a_watch_over_the_payment(site: Site, shop: Shop, inbox: Inbox, kind: str) -> None:
    intent, _, made = await submitted(shop)
    event = await deliver(shop, intent, **of(made, **NEWS[kind]))

    await inbox.once()

    assert await state_of(shop, event) == ("waiting", None, 1), "done only when a reading was recorded"
    assert await hints(site, intent) == 1
    run = await site.client.get_workflow_handle(watch_id(await payment_of(shop, intent))).describe()
    assert run.status is WorkflowExecutionStatus.RUNNING
    assert [pair.value for pair in run.typed_search_attributes] == [await payment_of(shop, intent)]


async def test_several_hints_at_one_payment_are_one_watch_and_one_hint_a_round(site: Site, shop: Shop, inbox: Inbox) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    for _ in range(3):
        await deliver(shop, intent)
    await inbox.once()
    await deliver(shop, intent)
    await inbox.once()

    assert await hints(site, intent) == 2
    runs = [run.run_id async for run in site.client.list_workflows(f"WorkflowId = '{watch_id(await payment_of(shop, intent))}'")]
    assert len(runs) <= 1


async def test_field_19_an_event_that_overtakes_our_own_answer_waits_for_it_once(site: Site, shop: Shop, inbox: Inbox) -> None:
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    seen_at: list[tuple[tuple[str, str | None, int], int]] = []

    async def event_arrives() -> None:
        [made] = (await shop.truth(intent))["refunds"]
        event = await deliver(shop, intent, **of(made))
        charge = await deliver(shop, intent, type="charge.refunded", facts={"amount_refunded": 3_000})
        for _ in range(2):
            await inbox.once()
            assert await state_of(shop, charge) == await state_of(shop, event)
            seen_at.append((await state_of(shop, event), await hints(site, intent)))
            shop.clock.advance(timedelta(seconds=3))

    step = shop.submitting(payments=Tampered(shop.payments, before={"receipt": event_arrives}))
    assert (await shop.submit(refund_id, step=step)).status == "succeeded"

    assert seen_at == [(("waiting", None, 1), 0), (("waiting", None, 2), 1)]
    await inbox.once()
    shop.clock.advance(timedelta(seconds=10))
    await inbox.once()
    assert [row["outcome"] for row in await shop.query("SELECT outcome FROM events")] == ["recorded"] * 2, "its own answer says the same"


async def test_field_19_a_payment_is_found_by_our_operation_too(site: Site, shop: Shop, inbox: Inbox) -> None:
    intent, _, made = await submitted(shop)
    await deliver(shop, None, **of(made, facts={"status": "failed"}))

    await inbox.once()

    assert await hints(site, intent) == 1


async def test_field_21_a_payment_stored_three_seconds_later_is_linked(site: Site, shop: Shop, inbox: Inbox) -> None:
    intent = await shop.paid()
    event = await deliver(shop, intent)
    await inbox.once()
    assert await state_of(shop, event) == ("waiting", None, 1)
    shop.clock.advance(timedelta(seconds=3))
    await shop.ordered(intent)

    await inbox.once()

    assert (await state_of(shop, event))[0] == "waiting"
    assert await hints(site, intent) == 1


async def test_field_21_one_that_is_never_stored_is_kept_as_unmatched_and_told(site: Site, shop: Shop, inbox: Inbox) -> None:
    event = await deliver(shop, "pi_never")
    waits: list[float] = []
    for _ in range(shop.settings.webhook_unmatched_after):
        assert await inbox.once() == 1
        row = await seen(shop, event)
        waits.append((row["due_at"] - shop.clock.now()).total_seconds())
        shop.clock.advance(row["due_at"] - shop.clock.now())

    assert await state_of(shop, event) == ("unmatched", "no such payment", shop.settings.webhook_unmatched_after)
    assert await bundles(shop) == [(1, [event])]
    assert await notices(shop) == []
    assert [round(wait / 2) for wait in waits[:5]] == [1, 2, 4, 8, 16]
    assert round(max(waits) / 60) == 6 * 60
    assert await inbox.once() == 0, "it is not tried any more"


async def test_field_21_events_of_another_application_are_told_together_and_not_too_often(site: Site, shop: Shop) -> None:
    impatient = settings_for(shop.sandbox.url, webhook_unmatched_after=1, webhook_unmatched_notice_s=3600)
    inboxes = [Inbox(site.client, shop.payments.database, impatient) for _ in range(3)]

    async def given_up(count: int) -> list[str]:
        made = sorted([await deliver(shop, f"pi_theirs{n}") for n in range(count)])
        assert await inboxes[0].once() == count
        rows = await shop.query("SELECT id FROM events WHERE state = 'unmatched' AND id = ANY(:ids)", ids=made)
        assert len(rows) == count
        return made

    first = await given_up(7)
    told = await bundles(shop)
    assert told == [(7, first[:5])]
    more = await given_up(30)
    shop.clock.advance(timedelta(days=3))
    await asyncio.gather(*(inbox.once() for inbox in inboxes))
    assert await bundles(shop) == told, "by the database's clock no hour has passed, whatever a worker's says"
    assert await notices(shop) == [], "none rings by itself"

    await shop.query_nothing("UPDATE events SET told_at = told_at - interval '1 hour'")
    await asyncio.gather(*(inbox.once() for inbox in inboxes))

    assert await bundles(shop) == [*told, (30, more[:5])]
    async with shop.api.begin() as connection:
        assert await events.open_by_state(connection) == {"waiting": 0, "unmatched": 37}


async def test_field_21_an_operation_of_ours_that_nobody_knows_is_told_at_once_and_once(site: Site, shop: Shop, inbox: Inbox) -> None:
    operation = new_id(Prefix.OPERATION)
    ours = await deliver(shop, "pi_lost", operation=operation, object_id="re_lost")
    await deliver(shop, "pi_theirs", operation="order-7")

    await inbox.once()
    shop.clock.advance(timedelta(hours=7))
    await inbox.once()

    assert await notices(shop) == [("event_unmatched", ours)]
    [row] = await shop.query("SELECT body FROM outbox WHERE body->>'processor_event' = :e", e=ours)
    assert (row["body"]["operation"], row["body"]["processor_refund"]) == (operation, "re_lost")
    assert (await state_of(shop, ours))[0] == "waiting", "it is looked for as long as every other"


async def test_field_21_one_that_was_given_up_is_closed_when_its_refund_is_imported_after_all(site: Site, shop: Shop) -> None:
    intent = await shop.paid()
    made = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 700})
    given_up = [await deliver(shop, intent, object_id=made["id"]), await deliver(shop, intent, type="charge.refunded")]
    another = await deliver(shop, "pi_never")
    impatient = settings_for(shop.sandbox.url, webhook_unmatched_after=1)
    await Inbox(site.client, shop.payments.database, impatient).once()
    await shop.ordered(intent)

    observing = Observing(shop.payments.database, shop.settings, "worker")
    await Observer(observing, shop.processor, shop.clock).observe(await payment_of(shop, intent))

    assert [await state_of(shop, event) for event in given_up] == [("done", "observed late", 1)] * 2
    assert (await state_of(shop, another))[0] == "unmatched"


async def test_field_24_what_throws_twice_and_then_works_is_handled_once(site: Site, shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    event = await deliver(shop, intent)
    away = Inbox(await Client.connect("127.0.0.1:1", lazy=True), shop.payments.database, shop.settings)

    for tries in (1, 2):
        await away.once()
        assert await state_of(shop, event) == ("waiting", None, tries)
        assert (await seen(shop, event))["last_error"] is not None
        shop.clock.advance(timedelta(seconds=10))
    await Inbox(site.client, shop.payments.database, shop.settings).once()

    assert await hints(site, intent) == 1


async def test_with_temporal_away_it_is_tried_once_a_round_and_what_needs_none_is_done(shop: Shop) -> None:
    client, tried = await Client.connect("127.0.0.1:1", lazy=True), 0

    class Counting(Inbox):
        async def _watch(self, payment_id: str) -> None:
            nonlocal tried
            tried += 1
            await super()._watch(payment_id)

    known, _, made = await submitted(shop)
    for _ in range(3):
        intent = await shop.paid()
        await shop.ordered(intent)
        await deliver(shop, intent)
    recorded = await deliver(shop, known, **of(made))

    assert await Counting(client, shop.payments.database, shop.settings).once() == 4

    assert tried == 1
    assert (await state_of(shop, recorded))[:2] == ("done", "recorded")
    rows = await shop.query("SELECT state, last_error IS NULL AS fine FROM events WHERE id <> :e", e=recorded)
    assert [(row["state"], row["fine"]) for row in rows] == [("waiting", False)] * 3


async def test_field_24_one_that_cannot_be_worked_on_keeps_no_other_waiting_and_alerts(site: Site, shop: Shop, inbox: Inbox) -> None:
    poison = await deliver(shop, "pi_poison")
    await shop.query_nothing("UPDATE events SET facts = '[7]', due_at = due_at - interval '1 day' WHERE id = :e", e=poison)
    intent = await shop.paid()
    await shop.ordered(intent)
    good = await deliver(shop, intent)

    await inbox.once()
    assert await hints(site, intent) == 1
    assert ((await seen(shop, poison))["last_error"], (await seen(shop, good))["last_error"]) == ("AttributeError", None)

    alerts: list[int] = []
    for tries in range(2, 34):
        shop.clock.advance(timedelta(hours=7))
        await shop.query_nothing("DELETE FROM events WHERE id = :e", e=good)
        await inbox.once()
        if len(await notices(shop)) > len(alerts):
            alerts.append(tries)
    assert alerts == [8, 16, 32]
    assert {kind for kind, _ in await notices(shop)} == {"event_failing"}
    assert (await state_of(shop, poison))[0] == "waiting", "never given up: it may be about money"


async def test_two_inboxes_share_the_work(site: Site, shop: Shop) -> None:
    made = [await deliver(shop, f"pi_nobody{n}") for n in range(60)]

    taken = await asyncio.gather(*(Inbox(site.client, shop.payments.database, shop.settings).once() for _ in range(3)))

    assert sum(taken) == 60
    rows = await shop.query("SELECT tries FROM events WHERE id = ANY(:ids)", ids=made)
    assert [row["tries"] for row in rows] == [1] * 60


async def test_what_a_dead_process_had_taken_is_due_again_by_itself(shop: Shop, inbox: Inbox) -> None:
    event = await deliver(shop, "pi_nobody")
    async with shop.payments.database.begin() as connection:
        first, longest = timedelta(seconds=2), timedelta(hours=1)
        assert [one.id for one in await events.take_due(connection, shop.clock.now(), first=first, longest=longest)] == [event]

    assert await inbox.once() == 0
    shop.clock.advance(timedelta(seconds=3))
    assert await inbox.once() == 1


async def test_with_the_database_away_it_goes_on_when_it_is_back(site: Site, shop: Shop) -> None:
    settings: Settings = settings_for(shop.sandbox.url, webhook_every_s=0.05)
    working = asyncio.create_task(Inbox(site.client, shop.payments.database, settings).run_for_ever())
    name = site.fresh.name
    try:
        with site.fresh.server.connect("postgres", "postgres") as connection:
            connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0'.encode())
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            await asyncio.sleep(0.3)
            connection.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1'.encode())

        async def taken() -> bool:
            try:
                await deliver(shop, "pi_nobody")
                return (await shop.query("SELECT max(tries) AS tries FROM events"))[0]["tries"] >= 1
            except RefundError:  # this process's own old connections
                return False

        await until(taken)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@pytest.fixture
async def at_work(site: Site, shop: Shop) -> AsyncIterator[Site]:
    """Worker processes that look into the inbox often."""
    started = [site.launch(role, WEBHOOK_EVERY_S="0.2", WEBHOOK_RETRY_INITIAL_S="0.3") for role in ("refunds", "payments")]
    for worker in started:

        async def ready() -> bool:
            return "worker_ready" in worker.text  # noqa: B023 - awaited before the next turn

        await until(ready, lambda: worker.text[-3000:])  # noqa: B023 - the same
    yield site
    site.stop()
    site.workers.clear()


async def test_field_21_a_refund_made_without_us_is_linked_with_one_entry_and_its_event_is_done(at_work: Site, shop: Shop) -> None:
    intent = await shop.paid()
    made = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 700})
    event = await deliver(shop, intent, object_id=made["id"], facts={"amount": 700})

    async def tried() -> bool:
        return (await state_of(shop, event))[2] >= 2

    await until(tried)
    await shop.ordered(intent)

    async def done() -> bool:
        return (await state_of(shop, event))[:2] == ("done", "observed")

    await until(done, at_work.logs)
    entries = await shop.query("SELECT * FROM ledger WHERE type = 'external_refund' AND data->>'processor_refund' = :r", r=made["id"])
    assert [entry["actor"] for entry in entries] == ["external"]
    run = at_work.client.get_workflow_handle(watch_id(await payment_of(shop, intent)))
    assert (await run.result())["imported"] == 1


async def test_a_watch_that_somebody_terminates_loses_no_event(at_work: Site, shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    await shop.fault("refund.list", {"kind": "status", "status": 503}, times=None, intent=intent)
    event = await deliver(shop, intent)

    async def watched() -> bool:
        return await hints(at_work, intent) >= 1

    await until(watched)
    await at_work.client.get_workflow_handle(watch_id(await payment_of(shop, intent))).terminate("test")
    await shop.control("DELETE", "/faults")

    async def done() -> bool:
        return (await state_of(shop, event))[:2] == ("done", "observed")

    await until(done, at_work.logs)
