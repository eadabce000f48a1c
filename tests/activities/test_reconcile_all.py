"""The sweep against the sandbox, with the same look at payments that any hint leads to: what it imports, adopts, records late, and leaves to a person."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.observe import Observer
from activities.reconcile_all import ReconcileAll
from refunds.ids import Prefix, new_id
from refunds.messages import ReconciliationStep
from store.observing import Observing
from store.reconciling import Reconciling, Run
from tests.activities.shop import Shop, opening
from tests.conftest import FreshDatabase, Sandbox


@dataclass
class Books:
    """A shop, and the sweep over its processor."""

    shop: Shop

    @property
    def store(self) -> Reconciling:
        return Reconciling(self.shop.payments.database, self.shop.settings, "stripe")

    @property
    def step(self) -> ReconcileAll:
        observing = Observing(self.shop.payments.database, self.shop.settings, "sweep")
        return ReconcileAll(self.store, self.shop.processor, Observer(observing, self.shop.processor, self.shop.clock))

    async def begun(self, days: float = 2) -> Run:
        return await self.store.begin(new_id(Prefix.RECONCILIATION), window=timedelta(days=days), started_by="test")

    async def carried(self, run: Run) -> Run:
        await ActivityEnvironment().run(self.step.pages, ReconciliationStep(run.id))
        return await self.store.read(run.id)

    async def reconciled(self, days: float = 2) -> Run:
        """A whole run, two minutes later: nothing is young any more."""
        self.shop.clock.advance(timedelta(minutes=2))
        run = await self.carried(await self.begun(days))
        assert run.is_over
        return run

    async def found(self) -> list[tuple[str, str, str | None]]:
        rows = await self.shop.query("SELECT kind, state, refund_id FROM discrepancies ORDER BY kind, id")
        return [(row["kind"], row["state"], row["refund_id"]) for row in rows]


@pytest.fixture
async def books(database: FreshDatabase, sandbox: Sandbox) -> AsyncIterator[Books]:
    async with opening(database, sandbox) as open_shop:
        yield Books(await open_shop())


def figures(run: Run) -> tuple[int, int, int, int]:
    """Compared, elsewhere, differences, imported."""
    return run.compared, run.place.elsewhere, run.differences, run.imported


async def succeeded(shop: Shop, intent: str, amount: int = 3_000) -> str:
    refund_id = await shop.approved(intent, amount)
    assert (await shop.submitted(refund_id)).status == "succeeded"
    return refund_id


async def theirs(shop: Shop, intent: str) -> str:
    """The processor's id of the only refund of a payment."""
    [refund] = (await shop.truth(intent))["refunds"]
    return refund["id"]


async def test_field_33_a_refund_made_in_the_dashboard_is_imported_once_and_counts(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid(5_000)
    await shop.ordered(intent, 5_000)
    made = await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})

    first = await books.reconciled()
    second = await books.reconciled()

    assert (figures(first), figures(second)) == ((1, 0, 1, 1), (1, 0, 0, 0))
    assert await books.found() == [("external", "explained", None)]
    [row] = await shop.query("SELECT id, operation_id, amount, raw_state FROM processor_refunds")
    assert row == {"id": made["id"], "operation_id": None, "amount": 2_000, "raw_state": "succeeded"}
    entries = await shop.query("SELECT actor, data->>'refund' AS r FROM ledger WHERE type = 'external_refund'")
    assert [entry["actor"] for entry in entries] == ["external"]
    assert await shop.remaining(intent) == 3_000
    assert len((await shop.truth(intent))["refunds"]) == 1


async def test_field_15_what_the_sweep_imports_is_counted_once_wherever_it_is_asked(books: Books) -> None:
    """Captured 100.00, 40.00 by us, 30.00 past us: 30.00 is left for everybody, before and after the import, and never less than nothing."""
    shop = books.shop
    intent = await shop.paid(10_000)
    await succeeded(shop, intent, 4_000)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000})
    assert await shop.remaining(intent) == 3_000
    await books.reconciled()
    assert await shop.remaining(intent) == 3_000
    await books.reconciled()
    assert await shop.remaining(intent) == 3_000


async def test_field_17_a_failure_after_success_is_seen_without_its_event(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid()
    refund_id = await succeeded(shop, intent)
    assert await shop.remaining(intent) == 7_000
    failed = {"status": "failed", "failure_reason": "expired_or_canceled_card"}
    await shop.control("POST", f"/refunds/{await theirs(shop, intent)}", failed)

    run = await books.reconciled(days=46)

    assert (figures(run), await books.found()) == ((1, 0, 1, 0), [])
    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")
    assert (await shop.moves(refund_id))[-2:] == ["succeeded", "failed"]
    assert await shop.remaining(intent) == 10_000
    assert await shop.asked_and_made(intent) == (1, 1), "nothing is sent again by itself"
    assert figures(await books.reconciled(days=46)) == (1, 0, 0, 0)


async def test_field_17_what_was_parked_for_months_is_read_for_45_days_after_it_was_settled(books: Books) -> None:
    """Pending until it was parked, finished there after months, settled by a person, and failed 40 days later without an event."""
    shop = books.shop
    intent = await shop.paid(refund_outcome={"initial": "pending"})
    refund_id = await shop.approved(intent)
    assert (await shop.submitted(refund_id)).status == "pending"
    shop.clock.advance(timedelta(days=46))
    assert (await shop.reconciled(refund_id)).status == "parked"
    shop.clock.advance(timedelta(days=90))
    made = await theirs(shop, intent)
    await shop.control("POST", f"/refunds/{made}", {"status": "succeeded"})
    assert (await shop.settled(refund_id, await shop.says(refund_id, "sam", "refunded", made))).status == "succeeded"
    shop.clock.advance(timedelta(days=40))
    await shop.control("POST", f"/refunds/{made}", {"status": "failed", "failure_reason": "expired_or_canceled_card"})

    run = await books.reconciled(days=46)

    assert (figures(run), await books.found()) == ((1, 0, 1, 0), [])
    assert await shop.ended(refund_id) == ("failed", "PROCESSOR_FAILED")


async def test_field_8_a_pending_refund_ends_as_the_processor_says_and_only_so(books: Books) -> None:
    shop = books.shop
    ends: dict[str, tuple[str, str | None]] = {}
    for status in ("succeeded", "failed", "pending"):
        intent = await shop.paid(refund_outcome={"initial": "pending"})
        refund_id = await shop.approved(intent)
        assert (await shop.submitted(refund_id)).status == "pending"
        if status != "pending":
            await shop.control("POST", f"/refunds/{await theirs(shop, intent)}", {"status": status})
        ends[refund_id] = (status, "PROCESSOR_FAILED" if status == "failed" else None)
    run = await books.reconciled()
    assert (run.differences, await books.found()) == (2, [])
    assert {refund_id: await shop.ended(refund_id) for refund_id in ends} == ends


async def test_field_7_a_refund_whose_answer_was_lost_is_adopted_by_its_operation(books: Books) -> None:
    """Parked, because the processor's list did not show it when it was looked for; the sweep finds it, and there is still one."""
    shop = books.shop
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "hide"}, {"kind": "lose_answer"}, intent=intent)
    await shop.fault("refund.create", {"kind": "lose_request"}, times=None, intent=intent)
    assert (await shop.submitted(refund_id)).status == "parked"
    await shop.control("DELETE", "/faults")

    run = await books.reconciled()

    assert (figures(run), await books.found()) == ((1, 0, 1, 0), [])
    assert (await shop.row(refund_id))["status"] == "succeeded"
    assert (await shop.asked_and_made(intent))[1] == 1
    assert "adopted" in await shop.entries(refund_id)


@pytest.mark.parametrize("first", ["sweep", "look"])
async def test_one_refund_is_one_open_discrepancy_whoever_notices_it(books: Books, first: str) -> None:
    """Made in the dashboard on another payment, with the metadata of a refund that there is: it is that refund's double, and of the wrong payment."""
    shop = books.shop
    intent, other = await shop.paid(), await shop.paid()
    await shop.ordered(other)
    refund_id = await succeeded(shop, intent)
    [made] = (await shop.truth(intent))["refunds"]
    await shop.control("POST", "/refunds", {"payment_intent": other, "amount": 3_000, "metadata": made["metadata"]})
    [payment] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=other)
    if first == "look":
        state = await shop.processor.read_payment(other)
        assert state is not None
        await shop.observing.observe(payment["id"], state)

    for _ in range(2):
        await books.reconciled()
        assert await books.found() == [("payment", "open", refund_id)]


async def test_a_forgotten_refund_is_one_open_discrepancy_once_its_payment_is_known(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid()
    forgotten = {"refunds_operation": "op_0000000000000000000000000g"}
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 3_000, "metadata": forgotten})
    await books.reconciled()
    assert await books.found() == [("unknown_payment", "open", None)]

    await shop.ordered(intent)
    for _ in range(2):
        await books.reconciled()
        assert await books.found() == [("unknown_operation", "open", None), ("unknown_payment", "closed", None)]


async def test_field_29_a_refund_of_another_amount_stays_a_persons_and_is_said_once(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid()
    refund_id = await shop.approved(intent)
    await shop.fault("refund.create", {"kind": "alter", "fields": {"amount": 10_000}}, intent=intent)
    assert (await shop.submitted(refund_id)).status == "parked"
    for _ in range(2):
        run = await books.reconciled()
        assert run.differences == 1
        assert await books.found() == [("amount", "open", refund_id)]
    assert await shop.ended(refund_id) == ("parked", "RESPONSE_MISMATCH")
    [row] = await shop.query("SELECT evidence FROM discrepancies")
    assert (row["evidence"]["ours"]["amount"], row["evidence"]["theirs"]["amount"]) == (3_000, 10_000)


async def test_a_recorded_refund_that_is_nowhere_there_is_a_discrepancy_and_no_change(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid()
    refund_id = await succeeded(shop, intent)
    await shop.control("POST", "/reset")  # as if the account were another one
    before = await shop.row(refund_id)
    run = await books.reconciled()
    assert (figures(run), await books.found()) == ((1, 0, 1, 0), [("ours_missing", "open", refund_id)])
    assert await shop.row(refund_id) == before


async def test_refunds_of_payments_that_are_not_ours_are_counted_and_not_stored(books: Books) -> None:
    shop = books.shop
    for _ in range(3):
        await shop.control("POST", "/refunds", {"payment_intent": await shop.paid(), "amount": 100})
    run = await books.reconciled()
    assert (figures(run), await books.found()) == ((0, 3, 0, 0), [])
    assert await shop.query("SELECT count(*) AS n FROM processor_refunds") == [{"n": 0}]


async def test_a_payment_that_is_known_by_its_charge_is_found_by_it(books: Books) -> None:
    shop = books.shop
    intent = await shop.paid()
    charge = f"ch_{intent.removeprefix('pi_')}"
    await shop.ordered(charge)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_000})
    assert figures(await books.reconciled()) == (1, 0, 1, 1)
    assert figures(await books.reconciled()) == (1, 0, 0, 0)
    assert await books.found() == [("external", "explained", None)]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lose_request"},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 401},
        {"kind": "malformed"},
        {"kind": "rate_limit"},
    ],
)
async def test_field_8_while_the_processor_cannot_be_asked_nothing_is_concluded(books: Books, fault: dict[str, Any]) -> None:
    shop = books.shop
    intent = await shop.paid()
    refund_id = await succeeded(shop, intent)
    await shop.control("POST", f"/refunds/{await theirs(shop, intent)}", {"status": "failed"})
    before = await shop.row(refund_id)
    shop.clock.advance(timedelta(minutes=2))
    run = await books.begun()
    await shop.fault("refund.list", fault)

    with pytest.raises(ApplicationError) as raised:
        await books.carried(run)

    assert (raised.value.type, raised.value.non_retryable) == ("NotSent", False)
    stands = await books.store.read(run.id)
    assert stands.last_error is not None and "cannot be asked" in stands.last_error
    assert (stands.compared, await shop.row(refund_id), await books.found()) == (0, before, [])
    assert (await books.carried(run)).differences == 1
    assert (await shop.row(refund_id))["status"] == "failed"


async def test_a_place_the_processor_has_forgotten_is_no_end(books: Books) -> None:
    """The refund that the last page ended with is not there any more: the window is read from its beginning, and nothing is found twice."""
    shop = books.shop
    intent = await shop.paid()
    refund_id = await succeeded(shop, intent)
    shop.clock.advance(timedelta(minutes=2))
    run = await books.begun()
    await shop.query_nothing("UPDATE reconciliations SET cursor = :c WHERE id = :r", c='{"after": "re_gone", "elsewhere": 3}', r=run.id)
    ended = await books.carried(run)
    assert (ended.is_over, figures(ended)) == (True, (1, 3, 0, 0))
    assert (await shop.row(refund_id))["status"] == "succeeded"


async def test_sweeps_beside_refunds_that_are_being_submitted_find_nothing_that_is_not_so(
    database: FreshDatabase, sandbox: Sandbox
) -> None:
    """Without any grace: what a sweep sees before its receipt is stored is adopted, the receipt that comes second changes nothing."""
    async with opening(database, sandbox) as open_shop:
        shop = await open_shop(reconcile_grace_s=0.001)
        books = Books(shop)
        intents = [await shop.paid() for _ in range(10)]
        refunds = [await shop.approved(intent) for intent in intents]
        for intent in intents[::2]:
            await shop.fault("refund.create", {"kind": "hang", "ms": 400}, intent=intent)
        submitting = asyncio.gather(*(shop.submitted(refund_id) for refund_id in refunds))
        sweeps = 0
        while not submitting.done() or sweeps < 3:
            assert (await books.carried(await books.begun())).is_over
            sweeps += 1
        assert {found.status for found in await submitting} == {"succeeded"}

        assert await books.found() == []
        assert [await shop.asked_and_made(intent) for intent in intents] == [(1, 1)] * 10
        assert [(await shop.moves(refund_id)).count("succeeded") for refund_id in refunds] == [1] * 10
        last = await books.carried(await books.begun())
        assert figures(last) == (10, 0, 0, 0)


async def test_a_run_waits_for_the_one_that_began_before(books: Books) -> None:
    """Each marks what it has seen: two at once would wipe out each other's marks, and count and read everything again."""
    await succeeded(books.shop, await books.shop.paid())
    books.shop.clock.advance(timedelta(minutes=2))
    first = await books.begun()
    books.shop.clock.advance(timedelta(seconds=1))
    second = await books.begun()

    with pytest.raises(ApplicationError, match="another_is_under_way") as waits:
        await books.carried(second)

    assert waits.value.next_retry_delay == timedelta(seconds=5)
    assert (await books.store.read(second.id)).compared == 0
    assert (await books.carried(first)).compared == 1
    assert (await books.carried(second)).compared == 1
