"""The database is restored to yesterday, for real: it starts stopped, imports what the processor did since, and pays nothing twice (promises P1, P2)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client

from refunds.discrepancies import Standing
from refunds.ids import workflow_id
from refunds.messages import Message
from refunds.people import Actor, PrincipalKind
from store import judging, scopes
from tests.activities.shop import Shop, opening
from tests.activities.test_manual import gift_card
from tests.conftest import FreshDatabase, Sandbox, TemporalServer, open_directory
from tests.worker.site import Site, Worker, until

LINGERS = {"SWEEP_EVERY_S": "0.3", "WITNESS_EVERY_S": "1", "HELD_RECHECK_S": "1"}


@dataclass
class Day:
    """A shop with its database, of which there is a copy of yesterday."""

    site: Site
    fresh: FreshDatabase

    @property
    def shop(self) -> Shop:
        return self.site.shop

    @property
    def _copy(self) -> str:
        return f"{self.fresh.name}_yesterday"

    async def _let_go(self) -> None:
        """Close every connection of the test: a database that is copied or replaced must be left alone meanwhile."""
        for pool in (self.shop.owner, self.shop.api, self.shop.payments.database, self.shop.steps.database):
            await pool.engine.dispose()

    async def back_up(self) -> None:
        await self._let_go()
        self.fresh.server.create_database(self._copy, self.fresh.name)

    async def restore(self) -> None:
        """Put yesterday's copy in the database's place."""
        await self._let_go()
        self.fresh.server.drop_database(self.fresh.name)
        self.fresh.server.create_database(self.fresh.name, self._copy)

    async def at_work(self) -> Worker:
        worker = self.site.launch("all", **LINGERS)
        await until(lambda: _true("worker_ready" in worker.text), lambda: worker.text[-3000:])
        return worker

    async def resume(self) -> None:
        """What an operator does: PUT /v1/controls."""
        async with self.shop.api.begin() as connection:
            wanted = scopes.Wanted("processor:stripe", stopped=False, mode=None, reason="compared")
            await scopes.change(connection, self.shop.clock, wanted, Actor("pr_operator", "olga", "Olga", PrincipalKind.PERSON))

    async def goes_on(self, refund_id: str) -> None:
        """Wake a held refund, as a resume does, and wait until it has been looked at again."""
        before = await self.shop.row(refund_id)
        await self.site.client.get_workflow_handle(workflow_id(refund_id)).signal("resume", Message(id="resume"))

        async def tried() -> bool:
            now = await self.shop.row(refund_id)
            return now["wake_at"] != before["wake_at"]

        await until(tried, self.site.logs)

    async def close(self, intent: str) -> None:
        """What an operator does: POST /v1/reconciliation/discrepancies/{id}."""
        [row] = await self.shop.query(
            "SELECT d.id FROM discrepancies d JOIN payments p ON p.id = d.payment_id WHERE p.processor_payment = :p AND d.state = 'open'",
            p=intent,
        )
        operator = self.shop.people["rita"]
        async with self.shop.api.begin() as connection:
            await judging.change(
                connection, self.shop.clock, operator, row["id"], owner=None, standing=Standing.CLOSED, note="another wish, asked for today"
            )

    async def halted(self) -> str | None:
        rows = await self.shop.query("SELECT code FROM halts WHERE lifted_at IS NULL")
        return rows[0]["code"] if rows else None

    async def found(self) -> list[tuple[str, str]]:
        rows = await self.shop.query("SELECT kind, processor_refund FROM discrepancies ORDER BY kind, processor_refund")
        return [(row["kind"], row["processor_refund"]) for row in rows]

    async def reconciled(self) -> dict[str, Any]:
        """The reconciliation that the program owes, once it is done."""

        async def done() -> bool:
            rows = await self.shop.query("SELECT phase FROM reconciliations WHERE started_by LIKE 'system%'")
            return bool(rows) and all(row["phase"] == "done" for row in rows)

        await until(done, self.site.logs)
        [row] = await self.shop.query("SELECT * FROM reconciliations WHERE started_by LIKE 'system%'")
        return row


async def _true(value: bool) -> bool:
    return value


@pytest.fixture
async def day(database: FreshDatabase, sandbox: Sandbox, temporal_server: TemporalServer, temporal_client: Client) -> AsyncIterator[Day]:
    async with opening(database, sandbox) as open_shop:
        with open_directory() as home:
            made = Day(Site(await open_shop(), temporal_client, database, temporal_server, home), database)
            try:
                yield made
            finally:
                made.site.stop()
                database.server.drop_database(made._copy)


async def carried(day: Day, intent: str, amount: int = 3_000) -> str:
    """A refund that was asked for, approved and paid, its run started by the sweep; returns its id."""
    refund_id = await day.shop.received(intent, amount)
    await day.site.reaches(refund_id, "awaiting_consent", "awaiting_review", "succeeded")
    if (await day.shop.row(refund_id))["status"] != "succeeded":
        await day.shop.agreed(refund_id)
    assert await day.site.reaches(refund_id, "succeeded", "parked", "failed", "held") == "succeeded"
    return refund_id


async def settled_or_held(day: Day, refund_id: str) -> str:
    """Where a refund comes to rest that was asked for again."""
    status = await day.site.reaches(refund_id, "held", "succeeded", "denied", "parked", "failed", "awaiting_review", "awaiting_consent")
    if status in ("awaiting_review", "awaiting_consent"):
        await day.shop.agreed(refund_id)
        status = await day.site.reaches(refund_id, "held", "succeeded", "denied", "parked", "failed")
    return status


async def test_yesterdays_database_starts_stopped_imports_and_pays_nothing_twice(day: Day) -> None:
    shop = day.shop
    worker = await day.at_work()
    old = await shop.paid()
    await carried(day, old, 1_000)
    known, unknown = await shop.paid(), await shop.paid()
    await shop.ordered(known)
    worker.kill()
    await day.back_up()
    assert await day.halted() is None

    worker = await day.at_work()  # today: two refunds more, one of them of a payment that yesterday had not seen
    await carried(day, old, 2_000)
    await carried(day, known)
    await carried(day, unknown)
    worker.kill()
    await day.restore()
    before = {intent: await shop.asked_and_made(intent) for intent in (old, known, unknown)}
    assert before == {old: (2, 2), known: (1, 1), unknown: (1, 1)}

    await day.at_work()
    assert await day.halted() == "DATABASE_RESTORED"
    run = await day.reconciled()
    kinds = sorted(kind for kind, _ in await day.found())
    assert kinds == ["unknown_operation", "unknown_operation", "unknown_payment"]
    assert (run["imported"], run["differences"]) == (2, 3)
    rows = await shop.query("SELECT count(*) AS n FROM processor_refunds WHERE operation_id IS NULL")
    assert rows == [{"n": 2}]
    assert {intent: await shop.asked_and_made(intent) for intent in before} == before

    again = [await shop.received(old, 2_000), await shop.received(known), await shop.received(unknown)]
    assert [await settled_or_held(day, refund_id) for refund_id in again] == ["held"] * 3
    await day.resume()
    assert await day.halted() is None
    for refund_id in again:  # an operator has compared and resumed: each is tried again, and held for what its payment shows
        await day.goes_on(refund_id)
        assert (await shop.row(refund_id))["status"] == "held"
    assert await day.halted() is None
    assert {intent: await shop.asked_and_made(intent) for intent in before} == before
    await carried(day, fresh := await shop.paid())  # and the rest of the business goes on
    assert await shop.asked_and_made(fresh) == (1, 1)

    # The operator sees that one of them is another wish, and closes its discrepancy; the others were denied meanwhile.
    await day.close(known)
    assert await day.site.reaches(again[1], "succeeded") == "succeeded"
    assert await shop.asked_and_made(known) == (2, 2)
    assert {intent: await shop.asked_and_made(intent) for intent in (old, unknown)} == {old: (2, 2), unknown: (1, 1)}


async def test_yesterdays_database_tells_nobody_to_give_a_gift_card_back_again(day: Day) -> None:
    shop = day.shop
    worker = await day.at_work()
    await carried(day, await shop.paid())
    worker.kill()
    refund_id = await gift_card(shop, "yesterday")
    await day.back_up()

    worker = await day.at_work()  # today it is approved, handed over, given back and settled
    await handed_over(day, refund_id, "parked")
    said = await shop.says(refund_id, "sam", "refunded")
    await day.site.client.get_workflow_handle(workflow_id(refund_id)).signal("settle", Message(said, 1))
    assert await day.site.reaches(refund_id, "succeeded") == "succeeded"
    worker.kill()
    await day.restore()

    await day.at_work()
    assert await day.halted() == "DATABASE_RESTORED"
    await handed_over(day, refund_id, "held")
    assert (await shop.row(refund_id))["code"] == "PROCESSOR_HALTED"
    assert await shop.query("SELECT id FROM operations WHERE refund_id = :r", r=refund_id) == []
    await day.reconciled()
    await day.goes_on(refund_id)
    assert (await shop.row(refund_id))["status"] == "held", "compared with the processor, which knows nothing of it"
    await day.resume()
    await day.goes_on(refund_id)
    assert await day.site.reaches(refund_id, "parked") == "parked"


async def handed_over(day: Day, refund_id: str, to: str) -> None:
    """Bring a manual part to where it comes to rest, with whatever it needs said."""
    if await day.site.reaches(refund_id, to, "awaiting_consent", "awaiting_review") != to:
        await day.shop.agreed(refund_id)
    assert await day.site.reaches(refund_id, to) == to
