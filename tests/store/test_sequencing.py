"""The sequencer on real PostgreSQL: every row gets one place in one chain, in an order that holds each refund's versions together (promise P8)."""

import asyncio
import json
from collections.abc import AsyncIterator

import psycopg
import pytest

from refunds import points
from refunds.ledger import verifier
from store import chain, grants
from store.changes import Change
from store.sequencing import BATCH, LOCK, WINDOW, Batch, Gap, Inconsistent
from tests.conftest import FreshDatabase
from tests.store.chained import KEY, Chained
from tests.store.test_record import long_way
from tests.store.world import World

HEX = "ab" * 32


@pytest.fixture
async def ledger(database: FreshDatabase) -> AsyncIterator[Chained]:
    made = Chained(database)
    yield made
    await made.close()


@pytest.fixture
async def of_world(world: World) -> AsyncIterator[Chained]:
    made = Chained(world.database, world.clock)
    yield made
    await made.close()


def chained(ledger: Chained) -> list[tuple[object, ...]]:
    return ledger.rows("SELECT seq, ledger_id FROM ledger_entries ORDER BY seq")


async def test_field_75_fifty_writers_on_an_empty_chain_make_one_chain_without_a_fork(ledger: Chained) -> None:
    await ledger.enter(0)  # what a new database enters about its keys is gone before anybody numbers
    stop = asyncio.Event()

    async def writing(writer: int) -> None:
        for turn in range(20):
            await ledger.enter(writer=writer, turn=turn)

    async def numbering() -> int:
        done, sequencer = 0, ledger.sequencer()
        while not stop.is_set():
            done += (await sequencer.once(everywhere=False)).numbered
            await asyncio.sleep(0)
        return done

    sequencers = [asyncio.create_task(numbering()) for _ in range(3)]
    await asyncio.gather(*(writing(writer) for writer in range(50)))
    stop.set()
    by_them = sum(await asyncio.gather(*sequencers))
    left = await ledger.numbered()

    assert by_them + left == 1_000
    assert [seq for seq, _ in chained(ledger)] == list(range(1, 1_001))
    assert len({row for _, row in chained(ledger)}) == 1_000
    assert ledger.rows("SELECT count(DISTINCT previous), count(DISTINCT hash) FROM ledger_entries") == [(1_000, 1_000)]
    assert await ledger.signed() == 1_000
    assert (await ledger.judged()).checkpoint.size == 1_000


async def test_field_75_what_was_written_verifies_over_a_new_connection(ledger: Chained) -> None:
    ledger.clock.advance(microseconds=123_457)
    await ledger.enter(7, text="größer als ASCII 😀", number=2**60, small=-3, many=[1, {"b": 2, "a": 1}])
    await ledger.numbered()
    await ledger.signed()
    await ledger.close()
    again = Chained(ledger.fresh, ledger.clock)
    try:
        assert (await again.judged()).said.startswith("7 entries, all of them as signed by shop.example/refunds+")
        [[entry]] = again.rows("SELECT entry FROM ledger_entries WHERE seq = 1")
    finally:
        await again.close()
    read = json.loads(str(entry))
    assert read["at"] == "2026-06-01T12:00:00.123457Z"
    assert read["data"] == {"text": "größer als ASCII 😀", "number": "1152921504606846976", "small": -3, "many": [1, {"a": 1, "b": 2}]}


async def test_field_75_one_character_changed_by_sql_is_named(ledger: Chained) -> None:
    await ledger.enter(20, text="plain")
    await ledger.numbered()
    await ledger.signed()
    assert ledger.spoil("UPDATE ledger_entries SET entry = replace(entry, 'plain', 'plaim') WHERE seq = 7") == 1

    with pytest.raises(verifier.Wrong, match="Entry 7 was changed") as caught:
        await ledger.judged()
    assert (caught.value.kind, caught.value.seq) == ("changed", 7)


async def test_a_clock_that_goes_backwards_changes_nothing_in_the_order(ledger: Chained) -> None:
    for hours in (0, -3, 5, -5):
        ledger.clock.advance(hours=hours)
        await ledger.enter(2)
        await ledger.numbered()
    ledger.clock.advance(hours=9)
    await ledger.signed()

    assert [row for _, row in chained(ledger)] == sorted(row for _, row in chained(ledger))
    assert (await ledger.judged()).checkpoint.size == 8


async def test_a_row_that_commits_late_is_numbered_though_later_ones_are(ledger: Chained) -> None:
    sequencer = ledger.sequencer()
    with ledger.fresh.connect(grants.API) as late, late.transaction():
        late.execute("INSERT INTO ledger (at, type, actor, data) VALUES (now(), 'late', 'test', '{}')")
        await ledger.enter(3)
        assert await ledger.numbered(sequencer, everywhere=False) == 3
    assert await ledger.numbered(sequencer, everywhere=False) == 1

    [(_, last)] = [row for row in chained(ledger) if row[0] == 4]
    assert ledger.rows("SELECT type FROM ledger WHERE id = %s", last) == [("late",)]


async def test_a_row_that_is_thousands_of_ids_late_is_found_by_the_look_at_everything(ledger: Chained) -> None:
    sequencer = ledger.sequencer()
    with ledger.fresh.connect(grants.API) as late, late.transaction():
        late.execute("INSERT INTO ledger (at, type, actor, data) VALUES (now(), 'late', 'test', '{}')")
        ledger.spoil("INSERT INTO ledger (at, type, actor, data) SELECT now(), 'x', 'test', '{}' FROM generate_series(1, %s)", WINDOW + 10)
        assert await ledger.numbered(sequencer) == WINDOW + 10
    assert await ledger.numbered(sequencer, everywhere=False) == 0
    assert await ledger.numbered(sequencer, everywhere=True) == 1


async def test_ids_may_be_as_far_apart_as_they_like(ledger: Chained) -> None:
    """A sequence that was set far ahead, as after a restore: a look at everything looks at what there is, not at what lies between."""
    await ledger.enter()
    ledger.spoil("INSERT INTO ledger (id, at, type, actor, data) OVERRIDING SYSTEM VALUE VALUES (%s, now(), 'far', 'test', '{}')", 10**15)
    assert await ledger.numbered() == 2
    ledger.spoil("INSERT INTO ledger (id, at, type, actor, data) OVERRIDING SYSTEM VALUE VALUES (%s, now(), 'late', 'test', '{}')", 10**14)
    assert await asyncio.wait_for(ledger.numbered(), 30) == 1


async def test_each_refund_s_versions_keep_their_order_also_when_their_ids_do_not(ledger: Chained) -> None:
    for version in (2, 1, 3):
        ledger.spoil(
            "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (now(), 'x', 'rf_1', %s, 'test', '{}')", version
        )
    assert await ledger.numbered() == 3
    assert ledger.rows("SELECT l.refund_version FROM ledger_entries e JOIN ledger l ON l.id = e.ledger_id ORDER BY seq") == [
        (1,),
        (2,),
        (3,),
    ]


async def test_nothing_after_a_version_that_is_missing_is_numbered_and_that_is_said(ledger: Chained) -> None:
    for refund, versions in (("rf_1", (1, 2, 4, 5)), ("rf_2", (1, 2))):
        for version in versions:
            ledger.spoil(
                "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (now(), 'x', %s, %s, 'test', '{}')",
                refund,
                version,
            )
    assert await ledger.numbered() == 4
    assert await ledger.gaps() == [Gap("rf_1", 3)]
    assert await ledger.numbered() == 0

    ledger.spoil("INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (now(), 'x', 'rf_1', 3, 'test', '{}')")
    assert await ledger.numbered() == 3
    assert await ledger.gaps() == []
    assert ledger.rows(
        "SELECT l.refund_version FROM ledger_entries e JOIN ledger l ON l.id = e.ledger_id WHERE l.refund_id = 'rf_1' ORDER BY seq"
    ) == [(1,), (2,), (3,), (4,), (5,)]


async def test_more_rows_that_cannot_be_numbered_than_a_batch_hold_up_nobody(ledger: Chained) -> None:
    ledger.spoil(
        "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data)"
        " SELECT now(), 'x', 'rf_1', n, 'test', '{}' FROM generate_series(2, %s) AS n",
        2 * BATCH,
    )
    await ledger.enter(3)
    assert await ledger.numbered() == 3


async def test_one_works_at_a_time(ledger: Chained) -> None:
    await ledger.enter(2)
    with ledger.fresh.connect(grants.LEDGER) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        assert await ledger.sequencer().once(everywhere=True) == Batch(busy=True)
        assert await ledger.signed() == 0
    assert await ledger.numbered() == 2


async def test_a_number_a_row_and_a_parent_are_each_used_once(ledger: Chained) -> None:
    await ledger.enter(3)
    await ledger.numbered()
    await ledger.enter()
    for values in (
        "SELECT 2, max(id), 'x', '\\x00'::bytea, '\\x01'::bytea FROM ledger",
        "SELECT 4, min(id), 'x', '\\x00'::bytea, '\\x01'::bytea FROM ledger",
        "SELECT 4, max(id), 'x', '\\x00'::bytea, (SELECT previous FROM ledger_entries WHERE seq = 3) FROM ledger",
    ):
        with ledger.fresh.connect(grants.LEDGER) as connection, pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(f"INSERT INTO ledger_entries (seq, ledger_id, entry, hash, previous) {values}".encode())


async def test_a_batch_that_fails_at_its_commit_has_numbered_nothing_and_is_numbered_after(ledger: Chained) -> None:
    await ledger.enter(5)
    sequencer = ledger.sequencer()

    async def failing(point: str) -> None:
        if point == "before:sequenced":
            raise points.Crashed(point)

    with points.watched_by(failing), pytest.raises(points.Crashed):
        await sequencer.once(everywhere=True)
    assert chained(ledger) == []
    assert await ledger.numbered(sequencer) == 5
    await ledger.signed()
    assert (await ledger.judged()).checkpoint.size == 5


async def test_a_second_sequencer_goes_on_where_the_first_one_was(ledger: Chained) -> None:
    first, second = ledger.sequencer(), ledger.sequencer()
    for turn in range(1, 8):
        await ledger.enter(turn)
        assert await ledger.numbered(first if turn % 2 else second) == turn
    await ledger.signed()
    assert (await ledger.judged()).checkpoint.size == 28


async def test_a_sequencer_that_lives_on_while_the_database_is_put_back_forgets_what_it_knew(ledger: Chained) -> None:
    first, second = ledger.sequencer(), ledger.sequencer()
    await ledger.enter(20)
    await ledger.numbered(first)
    ledger.spoil("DELETE FROM ledger WHERE id IN (SELECT ledger_id FROM ledger_entries WHERE seq > 16)")
    ledger.spoil("DELETE FROM ledger_entries WHERE seq > 16")
    await ledger.enter(4, text="other")
    await ledger.numbered(second)
    await ledger.enter(12)
    assert await ledger.numbered(first) == 12

    await ledger.signed()
    for seq in range(1, 33):
        await ledger.judged_proof(seq)


async def test_a_tree_that_has_lost_a_node_is_not_added_to(ledger: Chained) -> None:
    await ledger.enter(40)
    await ledger.numbered()
    ledger.spoil("DELETE FROM ledger_nodes WHERE level = 4 AND position = 1")
    await ledger.enter()
    with pytest.raises(Inconsistent, match=r"no node \(4, 1\), although 40 entries"):
        await ledger.sequencer().once(everywhere=True)
    assert len(chained(ledger)) == 40


async def test_proofs_from_what_is_stored_hold_for_every_entry(ledger: Chained) -> None:
    await ledger.enter(90)
    await ledger.numbered()
    await ledger.signed()
    for seq in range(1, 91):
        assert f"Entry {seq} is one of the 90" in (await ledger.judged_proof(seq)).said


async def test_commitments_are_in_the_entry(world: World, of_world: Chained) -> None:
    await world.ready()
    refund, _ = await world.quoted()
    async with world.api.begin() as connection:
        change = Change(world.row(refund), world.clock.now())
        change.note("noted", commitments={"message": HEX}, size=3)
        await change.save(connection)
    await of_world.numbered()
    [(entry,)] = of_world.rows("SELECT e.entry FROM ledger_entries e JOIN ledger l ON l.id = e.ledger_id WHERE l.type = 'noted'")
    read = json.loads(str(entry))
    assert (read["commitments"], read["data"], read["refund"]) == ({"message": HEX}, {"size": 3}, refund)


async def test_a_whole_refund_s_record_verifies(world: World, of_world: Chained) -> None:
    refund = await long_way(world)
    numbered = await of_world.numbered()
    await of_world.signed()
    assert numbered == world.count("ledger") - 1, "the one that names the log's keys was entered with the checkpoint"
    assert (await of_world.judged()).checkpoint.size == numbered
    async with world.api.read() as connection:
        rows = await chain.of_refund(connection, refund, proofs=True)
    assert [row["refund_version"] for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        verifier.verify_proof(
            json.dumps(row["proof"]).encode(), [verifier.read_key(KEY.vkey)], verifier.Kept([]), world.clock.now(), row["seq"]
        )


@pytest.mark.parametrize("table", ["ledger", "ledger_entries", "ledger_nodes", "ledger_checkpoints"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"])
def test_not_even_the_owner_changes_the_record_by_a_slip(database: FreshDatabase, table: str, statement: str) -> None:
    column = {"ledger": "actor", "ledger_entries": "entry", "ledger_nodes": "hash", "ledger_checkpoints": "note"}[table]
    with (
        database.connect("refunds_owner") as connection,
        pytest.raises(psycopg.errors.RaiseException, match="the record is only ever added to"),
    ):
        connection.execute(statement.format(table, column, column).encode())
