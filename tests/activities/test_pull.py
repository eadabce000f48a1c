"""Orders pulled from the sandbox's payments, by the step as a worker runs it: what is made, what is left out and why, and that nothing is half done."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.processors.stripe import StripeProcessor
from activities.pull import PullOrders
from refunds.erasure import Because, Erasure
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, new_id
from refunds.messages import PullInput
from refunds.orders import Order
from refunds.people import Actor
from refunds.pulls import ListedPayment, PaymentPage
from refunds.settings import Settings
from store import forgetting, orders, pulling
from store.db import connect
from store.pulling import Pull, Pulling
from tests.activities.shop import Shop, Tampered, opening
from tests.conftest import FreshDatabase, Sandbox

Said = dict[str, tuple[str, str | None]]


@dataclass
class Puller:
    """A shop whose payments carry metadata, and the pull over its processor."""

    shop: Shop
    owner: Actor

    @property
    def store(self) -> Pulling:
        return Pulling(self.shop.payments.database)

    async def asked(self, *, since: Any = None, dry_run: bool = False, **settings: Any) -> Pull:
        async with self.shop.api.begin() as connection:
            changed = self.shop.settings.model_copy(update=settings)
            return await pulling.request(connection, self.shop.clock, changed, self.owner, since=since, dry_run=dry_run)

    async def carried(self, pull: Pull, processor: Any = None, *, steps: int = 100) -> Pull:
        step = PullOrders(self.store, processor or self.shop.processor, steps_at_once=steps)
        await ActivityEnvironment().run(step.pull, PullInput(pull.id))
        return await self.store.read(pull.id)

    async def pulled(self, **wanted: Any) -> tuple[Pull, Said]:
        """A whole pull, a moment later: what was just paid is in its window."""
        self.shop.clock.advance(timedelta(seconds=2))
        pull = await self.carried(await self.asked(**wanted))
        assert pull.is_over
        return pull, await self.said(pull)

    async def said(self, pull: Pull) -> Said:
        rows = await self.shop.query("SELECT processor_payment, outcome, code FROM pulled_payments WHERE pull_id = :p", p=pull.id)
        return {row["processor_payment"]: (row["outcome"], row["code"]) for row in rows}

    async def paid(self, order: str | None, customer: str | None, amount: int = 3_000, **more: Any) -> str:
        metadata = {name: value for name, value in (("order_id", order), ("customer_id", customer)) if value is not None}
        return await self.shop.paid(amount, metadata=metadata, **more)

    async def order(self, ref: str) -> tuple[int, dict[str, Any]]:
        async with self.shop.owner.begin() as connection:
            row, _ = await orders.get_order(connection, ref)
        return row["version"], row["body"]

    async def put(self, ref: str, **body: Any) -> None:
        async with self.shop.owner.begin() as connection:
            order = Order.model_validate_json(json.dumps(body))
            await orders.put_order(connection, self.shop.clock, external_ref=ref, order=order, actor="test")

    async def everything(self) -> list[Any]:
        """All that a pull may write of orders."""
        tables = ("orders", "order_versions", "payments", "customers")
        stored = [await self.shop.query(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]
        return [*stored, await self.shop.query("SELECT id FROM ledger WHERE type = 'order_recorded' ORDER BY id")]


@pytest.fixture
async def puller(database: FreshDatabase, sandbox: Sandbox) -> AsyncIterator[Puller]:
    async with opening(database, sandbox) as open_shop:
        shop = await open_shop()
        yield Puller(shop, shop.people["rita"])


async def test_payments_that_name_one_order_make_one_order_of_what_was_captured(puller: Puller) -> None:
    first = await puller.paid("order-1", "anna", 3_000)
    second = await puller.paid("order-1", "anna", 2_000, captured=1_500)
    other = await puller.paid("order-2", "bert", 5_800, currency="jpy")

    pull, said = await puller.pulled()

    assert said == {first: ("created", None), second: ("created", None), other: ("created", None)}
    assert (pull.payments, pull.judged, pull.phase) == (3, 3, "done")
    version, body = await puller.order("order-1")
    assert version == 1
    assert [(paid["id"], paid["amount"], paid["currency"]) for paid in body["payments"]] == [(first, 3_000, "USD"), (second, 1_500, "USD")]
    assert (body["customer_id"], body["currency"], body["lines"]) == ("anna", "USD", [])
    # What Stripe does not know is not made up: it is left open, and a person looks at what hangs on it.
    assert (body["placed_at"], body["delivered_at"], body["customer_since"]) == (None, None, None)
    assert (await puller.order("order-2"))[1]["payments"][0]["amount"] == 5_800


async def test_pulled_again_nothing_changes_and_a_new_payment_is_added_once(puller: Puller) -> None:
    first = await puller.paid("order-1", "anna")
    await puller.pulled()
    stored = await puller.everything()
    assert (await puller.pulled())[1] == {first: ("unchanged", None)}
    assert await puller.everything() == stored

    second = await puller.paid("order-1", "anna", 700)
    assert (await puller.pulled())[1] == {first: ("unchanged", None), second: ("new_version", None)}
    version, body = await puller.order("order-1")
    assert (version, [paid["id"] for paid in body["payments"]]) == (2, [first, second])
    versions = await puller.shop.query("SELECT version, body->'payments'->0->>'id' AS first FROM order_versions ORDER BY version")
    assert versions == [{"version": 1, "first": first}, {"version": 2, "first": first}]
    assert (await puller.pulled())[1] == {first: ("unchanged", None), second: ("unchanged", None)}


async def test_an_order_that_the_merchant_sent_keeps_everything_it_says(puller: Puller) -> None:
    named, unnamed = await puller.paid("order-1", "anna", 3_000), await puller.paid("order-1", "anna", 700)
    sent = {
        "customer_id": "anna",
        "placed_at": "2026-08-01T00:00:00Z",
        "delivered_at": "2026-08-03T00:00:00Z",
        "currency": "USD",
        "shipping": 500,
        "lines": [{"id": "mug", "amount": 2_500}],
        "payments": [{"id": named, "amount": 2_900, "currency": "USD"}],
    }
    await puller.put("order-1", **sent)
    before = (await puller.order("order-1"))[1]

    assert (await puller.pulled())[1] == {named: ("unchanged", None), unnamed: ("new_version", None)}

    version, body = await puller.order("order-1")
    assert version == 2
    assert body == before | {"payments": [*before["payments"], body["payments"][-1]]}, "what it believed was taken stays, too"
    assert (body["payments"][-1]["id"], body["payments"][-1]["amount"]) == (unnamed, 700)
    # The merchant may send it without the payment again; it stays its own, and no pull goes back and forth about it.
    await puller.put("order-1", **sent)
    assert (await puller.pulled())[1] == {named: ("unchanged", None), unnamed: ("unchanged", None)}
    assert (await puller.order("order-1"))[0] == 3


async def test_what_makes_no_order_says_why(puller: Puller) -> None:
    await puller.put("taken", customer_id="anna", currency="USD", payments=[])
    elsewhere = await puller.paid("order-9", "anna")
    await puller.put("order-8", customer_id="anna", currency="USD", payments=[{"id": elsewhere, "amount": 3_000, "currency": "USD"}])
    wanted = {
        await puller.paid(None, "anna"): ("skipped", "NO_ORDER_ID"),
        await puller.paid("  ", "anna"): ("skipped", "NO_ORDER_ID"),
        await puller.paid("order-1", None): ("skipped", "NO_CUSTOMER_ID"),
        await puller.paid("order-1", "anna", status="requires_capture"): ("skipped", "PAYMENT_NOT_CAPTURED"),
        await puller.paid("order-1", "anna", status="processing"): ("skipped", "PAYMENT_PROCESSING"),
        await puller.paid("order-1", "anna", status="canceled"): ("skipped", "PAYMENT_CANCELED"),
        await puller.paid("order-1", "anna", status="requires_payment_method"): ("skipped", "PAYMENT_INCOMPLETE"),
        await puller.paid("x" * 201, "anna"): ("skipped", "INVALID_FIELD"),
        await puller.paid("a\x01b", "anna"): ("skipped", "INVALID_FIELD"),
        # of another customer than the order that is there, or than each other
        await puller.paid("taken", "bert"): ("skipped", "CUSTOMERS_DIFFER"),
        await puller.paid("order-2", "anna"): ("skipped", "CUSTOMERS_DIFFER"),
        await puller.paid("order-2", "bert"): ("skipped", "CUSTOMERS_DIFFER"),
        # in another currency
        await puller.paid("taken", "anna", currency="eur"): ("skipped", "CURRENCIES_DIFFER"),
        await puller.paid("order-3", "anna"): ("skipped", "CURRENCIES_DIFFER"),
        await puller.paid("order-3", "anna", currency="eur"): ("skipped", "CURRENCIES_DIFFER"),
        elsewhere: ("error", "ORDER_CONFLICT"),
    }
    stored = await puller.everything()

    pull, said = await puller.pulled()

    assert said == wanted
    assert (pull.payments, pull.judged) == (16, 16)
    assert await puller.everything() == stored
    left = await puller.shop.query("SELECT customer_sealed FROM pulled_payments WHERE customer_sealed IS NOT NULL")
    assert left == [], "whose a payment is, is kept no longer than it takes to judge it"
    details = await puller.shop.query("SELECT DISTINCT detail FROM pulled_payments")
    assert not any("anna" in row["detail"] or "bert" in row["detail"] for row in details)


async def test_a_dry_run_says_the_same_and_stores_no_order(puller: Puller) -> None:
    first = await puller.paid("order-1", "anna")
    await puller.put("order-2", customer_id="bert", currency="USD", payments=[])
    second = await puller.paid("order-2", "bert")
    third = await puller.paid("order-3", None)
    stored = await puller.everything()

    dry, said = await puller.pulled(dry_run=True)
    assert said == {first: ("created", None), second: ("new_version", None), third: ("skipped", "NO_CUSTOMER_ID")}
    assert await puller.everything() == stored

    wet, really = await puller.pulled()
    assert really == said
    assert (dry.dry_run, wet.dry_run) == (True, False)


async def test_other_names_in_the_metadata_and_a_window(puller: Puller) -> None:
    old = await puller.shop.paid(1_000, metadata={"bestellung": "b-1", "kunde": "k-1"}, created=1_700_000_000)
    new = await puller.shop.paid(1_000, metadata={"bestellung": "b-2", "kunde": "k-1", "order_id": "not this"})
    named = {"orders_pull_order_field": "bestellung", "orders_pull_customer_field": "kunde"}

    since = puller.shop.clock.now() - timedelta(days=1)
    assert (await puller.pulled(since=since, **named))[1] == {new: ("created", None)}
    assert (await puller.pulled(**named))[1] == {old: ("created", None), new: ("unchanged", None)}
    assert (await puller.order("b-2"))[1]["customer_id"] == "k-1"
    with pytest.raises(RefundError) as refused:
        await puller.asked(since=puller.shop.clock.now() + timedelta(days=1))
    assert (refused.value.code, refused.value.field) == (Code.INVALID_FIELD, "since")


async def many(puller: Puller, count: int) -> list[str]:
    """Payments for more than one page and more than one batch: each order has two, far apart in the list."""
    wanted = [
        {
            "id": f"pi_many{number}",
            "amount": 100 + number,
            "currency": "usd",
            "metadata": {"order_id": f"m-{number % (count // 2)}", "customer_id": "c"},
        }
        for number in range(count)
    ]
    await puller.shop.control("POST", "/payments", wanted)
    return [one["id"] for one in wanted]


async def test_a_pull_that_is_cut_off_anywhere_goes_on_where_it_stands(puller: Puller) -> None:
    """After every step the process is gone; the next one finds the place. Every page is read once and every order made once, whole."""
    ids = await many(puller, 240)
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.asked()
    asked: list[str | None] = []

    class Counting:
        async def list_payments(self, **given: Any) -> Any:
            asked.append(given["after"])
            return await puller.shop.processor.list_payments(**given)

    steps = 0
    while not pull.is_over:
        pull = await puller.carried(pull, Counting(), steps=1)
        steps += 1
        [half] = await puller.shop.query("SELECT count(*) AS n FROM orders WHERE jsonb_array_length(body->'payments') <> 2")
        assert half["n"] == 0, "no order is ever there with a part of its payments"

    assert (len(asked), steps) == (3, 6), "three pages, two batches of orders, and the end"
    assert asked[0] is None
    assert len(set(asked)) == 3
    assert (pull.pages, pull.payments, pull.judged) == (3, 240, 240)
    assert await puller.said(pull) == dict.fromkeys(ids, ("created", None))
    [versions] = await puller.shop.query("SELECT count(*) AS n, max(version) AS newest FROM order_versions")
    assert versions == {"n": 120, "newest": 1}
    entries = await puller.shop.query("SELECT data FROM ledger WHERE type = 'orders_pull_finished'")
    assert [entry["data"]["created"] for entry in entries] == [240]


async def test_a_step_that_dies_before_its_commit_leaves_nothing_and_is_done_again(puller: Puller) -> None:
    await puller.paid("order-1", "anna")
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.carried(await puller.asked(), steps=1)
    assert pull.phase == "making"
    stored = await puller.everything()
    # The order can be written and its report cannot: as a crash between the two would leave it, if there were a between.
    await puller.shop.query_nothing("ALTER TABLE pulled_payments ADD CONSTRAINT crash CHECK (outcome IS NULL)")
    with pytest.raises(Exception, match="crash"):
        await puller.carried(pull)
    assert await puller.everything() == stored
    await puller.shop.query_nothing("ALTER TABLE pulled_payments DROP CONSTRAINT crash")
    assert (await puller.carried(pull)).is_over
    assert (await puller.order("order-1"))[0] == 1


async def test_two_workers_at_one_pull_do_each_step_once(puller: Puller) -> None:
    """One that froze behind a page, and its heir: what the frozen one brings is not kept twice."""
    await many(puller, 120)
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.asked()

    async def meanwhile() -> None:
        await puller.carried(pull)

    frozen = Tampered(puller.shop.processor, after={"list_payments": meanwhile})
    done = await puller.carried(pull, frozen)

    assert (done.is_over, done.pages, done.payments, done.judged) == (True, 2, 120, 120)
    [versions] = await puller.shop.query("SELECT count(*) AS n FROM order_versions")
    assert versions["n"] == 60


async def test_a_newer_version_that_comes_in_between_is_not_overwritten(puller: Puller) -> None:
    """The merchant sends the order just when the pull has found that there is none."""
    paid = await puller.paid("order-1", "anna", 700)
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.carried(await puller.asked(), steps=1)
    found = pulling._known  # pyright: ignore[reportPrivateUsage]

    async def late(*arguments: Any) -> Any:
        answer = await found(*arguments)
        if answer[0] is None:
            await puller.put("order-1", customer_id="anna", currency="USD", lines=[{"id": "mug", "amount": 700}], payments=[])
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pulling, "_known", late)
        await puller.carried(pull)

    assert await puller.said(pull) == {paid: ("new_version", None)}
    version, body = await puller.order("order-1")
    assert (version, [line["id"] for line in body["lines"]], [one["id"] for one in body["payments"]]) == (2, ["mug"], [paid])


async def test_a_processor_that_is_away_is_said_and_waited_for(puller: Puller) -> None:
    await puller.paid("order-1", "anna")
    await puller.shop.fault("payment_intent.list", {"kind": "status", "status": 503})
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.asked()
    with pytest.raises(ApplicationError) as waits:
        await puller.carried(pull)
    assert waits.value.type == "NotSent"
    assert "cannot be asked" in ((await puller.store.read(pull.id)).last_error or "")
    done = await puller.carried(pull)
    assert (done.is_over, done.last_error) == (True, None)


async def test_a_place_that_the_processor_does_not_know_any_more_is_read_anew(puller: Puller) -> None:
    await many(puller, 120)
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.carried(await puller.asked(), steps=1)
    await puller.shop.query_nothing("UPDATE order_pulls SET cursor = :c WHERE id = :p", c='{"after": "pi_gone"}', p=pull.id)
    done = await puller.carried(pull)
    assert (done.payments, done.judged, len(await puller.said(done))) == (120, 120, 120)


async def test_an_operator_who_cancels_ends_it_and_what_was_made_stays(puller: Puller) -> None:
    await many(puller, 240)
    puller.shop.clock.advance(timedelta(seconds=2))
    pull = await puller.carried(await puller.asked(), steps=4)
    await ActivityEnvironment().run(PullOrders(puller.store, puller.shop.processor).cancel, PullInput(pull.id))
    ended = await puller.carried(pull)
    assert (ended.phase, ended.payments, ended.judged) == ("canceled", 240, 200)
    assert (await puller.shop.query("SELECT count(*) AS n FROM orders")) == [{"n": 100}]
    assert await puller.shop.query("SELECT customer_sealed FROM pulled_payments WHERE customer_sealed IS NOT NULL") == []


async def test_a_payment_that_cannot_be_read_or_stored_keeps_no_other_from_being_made(puller: Puller) -> None:
    """Half a surrogate pair, NUL, a status that is none, more money than there is: each is said of its own payment, and the page goes on."""
    fine, half, nul, status, rich = [await puller.paid(f"order-{number}", "anna") for number in range(5)]
    odd: dict[str, dict[str, Any]] = {
        half: {"metadata": {"order_id": "a\ud800b", "customer_id": "anna"}},
        nul: {"metadata": {"order_id": "\x00", "customer_id": "anna"}},
        status: {"status": "suc\x00eeded"},
        rich: {"amount_received": 2**70},
    }

    class Odd(StripeProcessor):
        async def _get(self, path: str, **params: Any) -> Any:
            listed: Any = await super()._get(path, **params)
            return listed | {"data": [found | odd.get(found["id"], {}) for found in listed["data"]]}

    puller.shop.clock.advance(timedelta(seconds=2))
    processor = Odd(puller.shop.settings, puller.shop.clock)
    try:
        pull = await puller.carried(await puller.asked(), processor)
    finally:
        await processor.close()

    assert pull.is_over
    assert await puller.said(pull) == {
        fine: ("created", None),
        half: ("skipped", "INVALID_FIELD"),
        nul: ("skipped", "INVALID_FIELD"),
        status: ("error", "PAYMENT_UNREADABLE"),
        rich: ("error", "PAYMENT_UNREADABLE"),
    }


@pytest.mark.parametrize("odd", ["\x00", "suc\x00eeded", "\ud800", "US\udfff"])
@pytest.mark.parametrize("word", ["raw_status", "currency"])
async def test_a_word_that_no_column_takes_makes_its_payment_unreadable_and_not_its_page(puller: Puller, word: str, odd: str) -> None:
    fine = ListedPayment("pi_fine", "succeeded", 3_000, "USD", puller.shop.clock.now(), "order-1", "anna")
    page = PaymentPage((replace(fine, id="pi_odd", **{word: odd}), fine), None)

    pull = await puller.store.keep(await puller.asked(), page)

    assert (pull.phase, pull.payments) == ("making", 2)
    await puller.store.make(pull)
    assert await puller.said(pull) == {"pi_odd": ("error", "PAYMENT_UNREADABLE"), "pi_fine": ("created", None)}


async def test_without_a_master_key_a_pull_waits_and_says_which_setting_is_missing(puller: Puller, database: FreshDatabase) -> None:
    await puller.paid("order-1", "anna")
    pull = await puller.asked()
    without = connect(database.url("refunds_payments"), puller.shop.clock, Settings(), name="no-key")

    with pytest.raises(ApplicationError, match="no master key") as told:
        await ActivityEnvironment().run(PullOrders(Pulling(without), puller.shop.processor).pull, PullInput(pull.id))

    assert told.value.next_retry_delay is not None
    stands = await puller.store.read(pull.id)
    assert (stands.pages, stands.is_over) == (0, False)
    assert "set REFUNDS_TEXT_KEY" in (stands.last_error or "")
    await without.close()
    assert (await puller.carried(await puller.store.read(pull.id))).is_over


async def test_what_is_pulled_stands_nowhere_in_the_clear(puller: Puller) -> None:
    await puller.paid("zqorder-1", "zqcustomer")
    await puller.paid("zqorder-2", None)

    pull, _ = await puller.pulled()

    for table in ("pulled_payments", "orders", "order_versions", "customers", "ledger"):
        stored = str(await puller.shop.query(f"SELECT t::text FROM {table} t"))
        assert "zqorder" not in stored and "zqcustomer" not in stored and b"zqorder".hex() not in stored, table
    async with puller.shop.api.begin() as connection:
        shown = await pulling.report(connection, pull.id, outcome=None, after=None, limit=9)
    assert sorted(row["order_ref"] for row in shown) == ["zqorder-1", "zqorder-2"]


async def test_who_was_forgotten_is_not_known_again_by_a_pull(puller: Puller) -> None:
    theirs, other = await puller.paid("zqorder-1", "zqcustomer"), await puller.paid("order-2", "bert")
    before, _ = await puller.pulled()
    async with puller.shop.api.begin() as connection:
        customer = await orders.find_customer(connection, "zqcustomer")
        assert customer is not None
        erasure = Erasure(new_id(Prefix.ERASURE), customer, puller.shop.clock.now(), puller.owner.principal_id, Because.CUSTOMER_ASKED)
        await forgetting.forget(connection, puller.shop.clock, erasure, actor=puller.owner.principal_id, mark=None)

    pull, said = await puller.pulled()

    assert said == {theirs: ("error", "ORDER_CONFLICT"), other: ("unchanged", None)}
    for each in (before, pull):
        async with puller.shop.api.begin() as connection:
            shown = await pulling.report(connection, each.id, outcome=None, after=None, limit=9)
        assert {row["processor_payment"]: row["order_ref"] for row in shown} == {theirs: None, other: "order-2"}
    assert await puller.shop.query("SELECT id FROM orders WHERE ref_lookup IS NULL") == await puller.shop.query(
        "SELECT order_id AS id FROM payments WHERE processor_payment = :p", p=theirs
    )
