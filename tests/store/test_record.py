"""The record: one ledger entry a change, in the same transaction; nothing personal in it; locks in one order (promises P8, P9)."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from refunds.errors import Code, RefundError
from refunds.requests import Ticket
from refunds.status import Event, Status
from store import outbox
from store.changes import Change, lock_refund, plain
from store.db import Database
from tests.store.test_quoting import read_as
from tests.store.world import START, World

PERSONAL = ("order-1", "customer-1", "It broke", "password", "Secret Agent", "support-person", "pi_test")


async def long_way(world: World) -> str:
    """A refund that goes through consent, revision, review and intent."""
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000, message=None, requested_by="support-person")
    await world.revise(refund, world.ann, amount=15_000)
    await world.consent(refund)
    await world.decide(refund, world.bob)
    await world.attempted(refund, 100_000)
    return refund


async def test_versions_are_gapless_and_the_refund_s_version_is_the_last(world: World) -> None:
    refund = await long_way(world)

    versions = [e["refund_version"] for e in world.ledger(refund)]

    assert versions == list(range(1, len(versions) + 1))
    assert world.row(refund)["version"] == len(versions)


async def test_every_change_of_status_has_exactly_one_entry(world: World) -> None:
    refund = await long_way(world)

    moves = [(e["data"]["from"], e["data"]["to"]) for e in world.ledger(refund) if e["type"] == "status_changed"]

    assert moves == [
        ("received", "classified"),
        ("classified", "awaiting_review"),
        ("awaiting_review", "awaiting_consent"),
        ("awaiting_consent", "awaiting_review"),
        ("awaiting_review", "approved"),
        ("approved", "submitting"),
    ]


async def test_entries_name_who_did_it(world: World) -> None:
    refund = await long_way(world)

    actors = {e["type"]: e["actor"] for e in world.ledger(refund)}

    assert actors["refund_received"] == world.desk.principal_id
    assert actors["revise_recorded"] == world.ann.principal_id
    assert actors["intent"] == "system"


@pytest.mark.parametrize("table", ["ledger", "refunds", "decisions", "outbox"])
async def test_a_failure_after_the_change_leaves_neither_state_nor_entry(world: World, table: str) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    before = world.row(refund), world.ledger(refund), world.count("decisions"), world.count("outbox")
    operation = "UPDATE" if table == "refunds" else "INSERT"
    world.execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'injected'; END $$")
    world.execute(
        f"CREATE CONSTRAINT TRIGGER fail AFTER {operation} ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()"
    )

    with pytest.raises(Exception, match="injected"):
        await world.decide(refund, world.ann)

    assert (world.row(refund), world.ledger(refund), world.count("decisions"), world.count("outbox")) == before


async def test_an_illegal_move_writes_nothing(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    before = world.row(refund), world.ledger(refund)

    with pytest.raises(RuntimeError, match="cannot take answer"):
        async with world.api.begin() as connection:
            change = await lock_refund(connection, refund, world.clock.now)
            change.move(Event.WITHDRAW)
            change.move(Event.ANSWER)

    assert (world.row(refund), world.ledger(refund)) == before


async def test_concurrent_changes_keep_versions_gapless(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)

    await asyncio.gather(*(world.steps.refuse_message(refund, "approve", f"number {n}") for n in range(30)))

    versions = [e["refund_version"] for e in world.ledger(refund)]
    assert versions == list(range(1, len(versions) + 1))


async def test_nothing_personal_is_in_the_ledger_nor_in_what_the_workflow_gets(world: World) -> None:
    refund = await long_way(world)
    text = Ticket(customer_id="customer-1", order_id="order-1", message="It broke. I am Secret Agent.", requested_by="support-person")
    ticket = await world.accept(text)
    await world.classifying.save(
        ticket, read_as(rationale="It broke, says Secret Agent", order_reference="order-1", manipulation=["It broke"])
    )
    seen = await world.steps.prepare(ticket)

    record = str(world.rows("SELECT * FROM ledger"))
    situations = str(seen) + str(await world.steps.prepare(refund))

    assert [word for word in PERSONAL if word in record] == []
    assert [word for word in PERSONAL if word in situations] == []
    assert "Secret Agent" not in str(world.rows("SELECT * FROM classifications")) + str(world.rows("SELECT * FROM revisions"))


def test_the_ledger_takes_no_floats() -> None:
    with pytest.raises(TypeError):
        plain({"share": 0.5})
    assert plain({"left": None, "list": (1, "two")}) == {"list": [1, "two"]}


# --- locks -------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to PostgreSQL, whoever wrote it: taken where the driver sends it."""
    statements: list[str] = []
    execute = psycopg.AsyncCursor.execute

    async def noting(cursor: Any, query: Any, *arguments: Any, **more: Any) -> Any:
        statements.append(" ".join((query.decode() if isinstance(query, bytes) else str(query)).split()))
        return await execute(cursor, query, *arguments, **more)

    monkeypatch.setattr(psycopg.AsyncCursor, "execute", noting)
    return statements


def locks(sent: list[str]) -> Iterator[str]:
    """Which locks were taken, in their order."""
    for statement in sent:
        if "pg_advisory_xact_lock_shared" in statement:
            yield "stop"
        elif "pg_advisory_xact_lock" in statement:
            yield "breakers" if "FROM breakers" in statement else "limits"
        elif "FOR NO KEY UPDATE" in statement:
            yield statement.split(" FROM ")[1].split()[0]


async def test_quoting_locks_payment_then_refund_then_customer_then_limits(world: World, sent: list[str]) -> None:
    await world.ready()
    refund = await world.accept()
    sent.clear()

    await world.steps.prepare(refund)

    assert list(locks(sent)) == ["payments", "refunds", "customers", "limits"]


async def test_submitting_locks_stop_then_payment_then_refund_then_limits(world: World, sent: list[str]) -> None:
    payment = await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    seen = await world.submitting.standing(refund)
    state = await world.read(payment)
    sent.clear()

    await world.submitting.open_attempt(seen, state)

    assert list(locks(sent)) == ["stop", "payments", "refunds", "limits", "breakers"]
    # What counts everybody is locked when all else is written, and until the commit that is sent with the next statement.
    limited = next(i for i, s in enumerate(sent) if "pg_advisory_xact_lock(" in s)
    assert [s.split("(")[0].strip() for s in sent[limited:] if "INSERT" in s or "UPDATE" in s] == ["INSERT INTO limit_uses"]
    # The flag is read in a statement of its own after the lock: one statement would read the flag of its beginning.
    lock, flag = (next(i for i, s in enumerate(sent) if words in s) for words in ("pg_advisory_xact_lock_shared", "FROM controls"))
    assert lock < flag


async def test_a_revision_locks_all_its_payments_by_id_before_the_refund(world: World, sent: list[str]) -> None:
    first, second = await world.order(amounts=(50_000, 50_000))
    for payment in (first, second):
        await world.read(payment, captured=50_000)
    refund, _ = await world.quoted(payment_id=second, amount=20_000)
    sent.clear()

    await world.revise(refund, world.ann, payment_id=first)

    assert list(locks(sent)) == ["payments", "payments", "refunds", "payments", "payments", "refunds", "customers", "limits"]


async def test_a_lock_that_is_not_had_in_time_is_an_answer(world: World) -> None:
    await world.ready()
    refund = await world.accept()
    impatient = Database(world.api.engine, world.clock, world.api.url)
    with world.database.connect("postgres") as holder, holder.transaction():
        holder.execute("SELECT 1 FROM refunds FOR UPDATE")
        with pytest.raises(RefundError) as refusal:
            async with impatient.begin() as connection:
                await _hurry(connection)
                await lock_refund(connection, refund, world.clock.now)

    assert (refusal.value.code, refusal.value.meaning.retryable) == (Code.STORE_UNAVAILABLE, True)


async def _hurry(connection: AsyncConnection) -> None:
    await connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")


async def test_a_refund_that_is_not_there(world: World) -> None:
    with pytest.raises(RefundError) as refusal:
        async with world.api.begin() as connection:
            await lock_refund(connection, "rf_none", world.clock.now)

    assert refusal.value.code is Code.REFUND_NOT_FOUND


# --- what must reach the outside ---------------------------------------------------------------------------------------------------------


async def due(world: World) -> list[outbox.Due]:
    async with world.steps.database.begin() as connection:
        return await outbox.take_due(connection, world.clock.now())


async def test_a_signal_is_delivered_once_and_later_when_that_fails(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    decision = await world.decide(refund, world.ann)
    assert await due(world) == []  # whoever recorded it delivers it first
    world.clock.advance(seconds=3)

    [taken] = await due(world)
    assert (taken.refund_id, taken.body, await due(world)) == (refund, {"name": "approve", "message": decision.id}, [])
    async with world.steps.database.begin() as connection:
        await outbox.failed(connection, taken, world.clock.now(), "UNAVAILABLE")
    assert await due(world) == []
    world.clock.advance(seconds=1)
    [again] = await due(world)
    assert (again.id, again.tries) == (taken.id, 2)
    async with world.steps.database.begin() as connection:
        await outbox.done(connection, [again.id], world.clock.now())
    world.clock.advance(days=1)
    assert await due(world) == []


async def test_a_signal_is_sent_also_when_an_update_was_heard(world: World) -> None:
    """Temporal forgets an update whose task is lost after its step was done, and the run would never go on."""
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    decision = await world.decide(refund, world.ann)
    await world.steps.apply_message(refund, "decide", decision.id)
    world.clock.advance(seconds=3)

    [taken] = await due(world)
    entries = len(world.ledger(refund))
    await world.steps.apply_message(refund, taken.body["name"], taken.body["message"])

    assert (taken.body, len(world.ledger(refund))) == ({"name": "approve", "message": decision.id}, entries), (
        "hearing twice changes nothing"
    )


async def test_what_was_asked_and_not_carried_out_is_said_again_to_a_new_run(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    revision = await world.record_revision(refund, world.ann, amount=15_000)
    world.execute("UPDATE outbox SET done_at = now()")  # the signal came to a run that was gone

    async with world.steps.database.begin() as connection:
        await outbox.say_again(connection, [refund], world.clock.now())

    [again] = await due(world)
    assert (again.refund_id, again.body) == (refund, {"name": "revise", "message": revision.id})
    await world.steps.apply_message(refund, "revise", revision.id)
    async with world.steps.database.begin() as connection:
        await outbox.done(connection, [again.id], world.clock.now())
        await outbox.say_again(connection, [refund], world.clock.now())
    assert await due(world) == []


async def test_two_sweeps_share_what_is_due(world: World) -> None:
    await world.ready(captured=100_000)
    for amount in range(20_000, 20_004):
        refund, _ = await world.quoted(amount=amount)
        await world.decide(refund, world.ann)
    world.clock.advance(seconds=3)

    batches = await asyncio.gather(*(due(world) for _ in range(4)))
    taken = [d.id for batch in batches for d in batch if d.kind == "signal"]  # beside the notice that a limit is nearly used up

    assert (len(taken), len(set(taken))) == (4, 4)


async def test_missing_runs_are_found_once_a_round_and_final_ones_never(world: World) -> None:
    await world.ready()
    waiting, over = await world.accept(), await world.accept()
    await world.withdraw(over)

    async def missing() -> list[str]:
        async with world.steps.database.begin() as connection:
            return [s.refund for s in await outbox.missing_runs(connection, world.clock.now(), grace=timedelta(seconds=5))]

    assert await missing() == []
    world.clock.advance(seconds=6)
    assert await missing() == [waiting]
    assert await missing() == []
    world.clock.advance(seconds=61)
    assert await missing() == [waiting]


async def test_what_a_malformed_message_says_can_always_be_entered(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)

    await world.steps.refuse_message(refund, "name\x00", "half a character \ud800, a NUL \x00, 30 €")

    assert world.ledger(refund)[-1]["data"] == {
        "kind": "name\\x00",
        "code": "MESSAGE_MALFORMED",
        "detail": "half a character \\ud800, a NUL \\x00, 30 \\u20ac",
    }


async def test_messages_count_only_as_recorded(world: World) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=20_000)
    other, _ = await world.quoted(amount=21_000)
    decision = await world.decide(refund, world.ann)

    for kind, message, on in (
        ("approve", "dec_forged", refund),
        ("deny", decision.id, refund),
        ("consent", decision.id, refund),
        ("withdraw", decision.id, refund),
        ("approve", decision.id, other),
        ("revise", decision.id, other),
    ):
        seen = await world.steps.apply_message(on, kind, message)
        assert (seen.refused, seen.status) == ("MESSAGE_UNBACKED", world.row(on)["status"]), (kind, message)
        assert world.ledger(on)[-1]["type"] == "message_refused"

    assert (await world.steps.apply_message(refund, "approve", decision.id)).refused == ""
    assert world.rows("SELECT delivered_at FROM decisions WHERE id = %s", decision.id)[0]["delivered_at"] == world.clock.at


def test_a_change_shows_what_is_not_yet_saved() -> None:
    change = Change({"id": "rf_1", "status": "approved", "version": 3}, START)  # pyright: ignore[reportArgumentType]
    change.put(detail="why")
    change.note("x")

    assert (change["detail"], change["version"], change.status, change.row["version"]) == ("why", 4, Status.APPROVED, 4)
