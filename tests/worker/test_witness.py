"""The witness outside the database, on a real Temporal server: what it notices, and what is then owed before anything is sent again."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, ScheduleActionStartWorkflow
from temporalio.service import RPCError

from refunds.errors import Code, RefundError
from refunds.identity import Identity
from refunds.messages import RECONCILIATION_WORKFLOW
from refunds.people import Actor, PrincipalKind
from store import grants, halts, restoring, scopes, snapshots
from store.bootstrap import bootstrap
from store.db import Database, connect
from store.reconciling import Reconciling
from tests.conftest import FreshDatabase
from tests.store.world import FixedClock, settings
from worker.keeping import Keeper
from worker.witness import Witness


@dataclass
class Installation:
    """A database that was bound to an account a year ago, and its witness."""

    client: Client
    fresh: FreshDatabase
    clock: FixedClock
    payments: Database
    api: Database

    @property
    def witness(self) -> Witness:
        """One of a process that has just started."""
        return Witness(self.client, self.payments, "stripe")

    @property
    def reconciling(self) -> Reconciling:
        return Reconciling(self.payments, settings(), "stripe")

    @property
    def keeper(self) -> Keeper:
        return Keeper(self.client, self.reconciling, settings())

    async def name(self) -> str:
        async with self.payments.begin() as connection:
            return f"database-witness-{await restoring.lineage(connection, 'stripe')}"

    def execute(self, statement: str) -> None:
        with self.fresh.connect("postgres") as connection:
            connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.fresh.connect("postgres") as connection:
            return connection.execute(query.encode()).fetchall()

    def codes(self) -> list[str]:
        """The halts in force."""
        return [row[0] for row in self.rows("SELECT code FROM halts WHERE lifted_at IS NULL")]

    async def lift(self) -> None:
        """What an operator does."""
        async with self.api.begin() as connection:
            wanted = scopes.Wanted("processor:stripe", stopped=False, mode=None, reason="looked")
            await scopes.change(connection, self.clock, wanted, Actor("pr_1", "olga", "Olga", PrincipalKind.PERSON))

    async def refused(self) -> Code | None:
        """The code a lift is refused with."""
        try:
            await self.lift()
        except RefundError as error:
            return error.code
        return None

    async def begun(self, window: timedelta, number: int = 1) -> str:
        run_id = f"rec_{number:026d}"
        await self.reconciling.begin(run_id, window=window, started_by="somebody")
        return run_id

    def done(self, run_id: str) -> None:
        """Play the worker that has carried a run to its end."""
        self.execute(f"UPDATE reconciliations SET phase = 'done', finished_at = now() WHERE id = '{run_id}'")

    def owed(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT id FROM reconciliations WHERE started_by LIKE 'system%' ORDER BY id")]


@pytest.fixture
async def here(database: FreshDatabase, temporal_client: Client) -> AsyncIterator[Installation]:
    clock = FixedClock()
    pools = {
        login: connect(database.url(login), clock, settings(), name="test") for login in ("refunds_owner", grants.PAYMENTS, grants.API)
    }
    await bootstrap(pools["refunds_owner"])
    # Bound at a moment of its own: databases of other tests with the same Temporal must not be taken for copies of this one.
    clock.advance(days=-365, microseconds=int(database.name.removeprefix("test_")) + 7)
    async with pools[grants.PAYMENTS].begin() as connection:
        await snapshots.bind(connection, processor="stripe", account="acct_1", mode="test", at=clock.now())
    clock.advance(days=365)
    made = Installation(temporal_client, database, clock, pools[grants.PAYMENTS], pools[grants.API])
    yield made
    with contextlib.suppress(RPCError):  # a test has taken it away
        await temporal_client.get_schedule_handle(await made.name()).delete()
    for pool in pools.values():
        await pool.close()


async def test_the_payments_login_may_ask_everything_that_tells_databases_apart(here: Installation) -> None:
    found = await restoring.identity(here.payments)
    [(system, database, last)] = here.rows(
        "SELECT (SELECT system_identifier::text FROM pg_control_system()),"
        " (SELECT oid::int FROM pg_database WHERE datname = current_database()), (SELECT max(id) FROM ledger)"
    )
    assert found == Identity(system, 1, database, last)


async def test_a_new_installation_and_one_that_goes_on_are_not_doubted(here: Installation) -> None:
    assert await here.witness.check() is None
    here.execute("INSERT INTO ledger (at, type, actor, data) VALUES (now(), 'x', 'test', '{}')")
    assert [await here.witness.check() for _ in range(3)] == [None] * 3
    schedule = (await here.client.get_schedule_handle(await here.name()).describe()).schedule
    assert isinstance(schedule.action, ScheduleActionStartWorkflow)
    [kept] = await here.client.data_converter.decode(list(schedule.action.args), [Identity])
    assert kept == await restoring.identity(here.payments)
    assert (schedule.state.paused, schedule.spec.intervals, here.codes()) == (True, [], [])


async def test_a_copy_of_the_files_of_yesterday_is_noticed_by_its_ledger(here: Installation) -> None:
    """The same cluster, timeline and database by every number PostgreSQL has; only the end of the ledger is missing."""
    last = (await restoring.identity(here.payments)).ledger
    here.execute("INSERT INTO ledger (at, type, actor, data) SELECT now(), 'x', 'test', '{}' FROM generate_series(1, 5)")
    await here.witness.check()
    here.execute(f"SET session_replication_role = replica; DELETE FROM ledger WHERE id > {last}")  # past the trigger, as a copy of files is
    why = await here.witness.check()
    assert why is not None and "entries of the ledger are missing" in why
    assert here.codes() == ["DATABASE_RESTORED"]
    assert len(here.owed()) == 1
    assert await here.witness.check() is None, "it is said once; the halt stays"
    assert (here.codes(), len(here.owed())) == (["DATABASE_RESTORED"], 1)


async def test_a_witness_that_is_gone_proves_nothing(here: Installation) -> None:
    await here.witness.check()
    await here.begun(timedelta(days=2))
    await here.client.get_schedule_handle(await here.name()).delete()
    assert "nothing proves" in (await here.witness.check() or "")
    assert here.codes() == ["DATABASE_RESTORED"]


async def test_an_installation_from_before_there_were_witnesses_gets_one(here: Installation) -> None:
    here.execute("INSERT INTO ledger (at, type, actor, data) SELECT now(), 'x', 'test', '{}' FROM generate_series(1, 50)")
    assert await here.witness.check() is None
    assert here.codes() == []


async def test_only_a_full_reconciliation_that_began_afterwards_lets_an_operator_resume(here: Installation) -> None:
    early = await here.begun(timedelta(days=46), 1)
    here.clock.advance(minutes=1)
    async with here.payments.begin() as connection:
        owed = await restoring.doubted(connection, here.clock.now(), processor="stripe", reason="test")
    here.clock.advance(minutes=1)
    short = await here.begun(timedelta(days=2), 2)
    for run_id in (early, short):
        here.done(run_id)
        assert await here.refused() is Code.RECONCILIATION_REQUIRED
    here.execute(f"UPDATE reconciliations SET phase = 'canceled', finished_at = now() WHERE id = '{owed.id}'")
    assert await here.refused() is Code.RECONCILIATION_REQUIRED
    here.clock.advance(minutes=1)
    here.done(await here.begun(timedelta(days=45), 3))
    assert await here.refused() is None
    assert here.codes() == []


async def test_a_halt_for_another_reason_is_not_lifted_past_a_doubt_either(here: Installation) -> None:
    async with here.payments.begin() as connection:
        await halts.open_halt(connection, here.clock.now(), processor="stripe", code=Code.KEY_REFUSED, reason="revoked")
    await here.witness.check()
    here.execute("SET session_replication_role = replica; DELETE FROM ledger")
    assert await here.witness.check() is not None
    assert sorted(here.codes()) == ["DATABASE_RESTORED", "KEY_REFUSED"]
    assert await here.refused() is Code.RECONCILIATION_REQUIRED
    here.done(here.owed()[0])
    assert await here.refused() is None


async def test_a_halt_without_a_doubt_needs_no_reconciliation(here: Installation) -> None:
    async with here.payments.begin() as connection:
        await halts.open_halt(connection, here.clock.now(), processor="stripe", code=Code.KEY_REFUSED, reason="revoked")
    assert await here.refused() is None


async def test_the_keeper_begins_what_a_forgotten_refund_owes_and_starts_what_nobody_carries_on(here: Installation) -> None:
    await here.witness.check()
    async with here.payments.begin() as connection:
        await halts.open_halt(connection, here.clock.now(), processor="stripe", code=Code.DATABASE_FORGOT, reason="re_1")
    abandoned = await here.begun(timedelta(days=2))
    here.clock.advance(minutes=5)
    here.execute("UPDATE reconciliations SET started_by = 'pr_01m8m6y24z0j6aq478jwkx1scx'")
    assert await here.keeper.once() == 2
    assert await here.keeper.once() == 0, "both are at work now"
    [owed] = here.owed()
    for run_id in (abandoned, owed):
        handle = here.client.get_workflow_handle(f"reconciliation-{run_id}")
        assert (await handle.describe()).workflow_type == RECONCILIATION_WORKFLOW
        await handle.terminate("a person did")
    here.clock.advance(minutes=5)
    assert await here.keeper.once() == 2
    for run_id in (abandoned, owed):
        await here.client.get_workflow_handle(f"reconciliation-{run_id}").terminate("the test is over")
    assert here.owed() == [owed]


async def test_without_temporal_nobody_knows_and_nothing_starts(here: Installation) -> None:
    nowhere = await Client.connect("127.0.0.1:1", lazy=True)
    with pytest.raises(RuntimeError, match="connect"):
        await Keeper(nowhere, here.reconciling, settings()).check_database()
    assert (here.codes(), here.owed()) == ([], [])
