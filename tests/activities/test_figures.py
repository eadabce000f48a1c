"""What refunds took from the balance: read when it is worth a call, kept beside what the customer receives (field report 36). The sandbox settles USD in CAD."""

from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.figures import Figures
from activities.observe import Observer
from refunds.messages import StepInput
from refunds.processor import NotSent, Settlement
from refunds.rates import Rate
from store import rates
from store.observing import Observing
from store.settlements import Settlements
from tests.activities.shop import Shop


class Counting:
    """The processor's figures, and how often they were asked for."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.asked: list[str] = []
        self.away = False

    async def settlement_of(self, processor_refund: str) -> Settlement | None:
        self.asked.append(processor_refund)
        if self.away:
            raise NotSent("connection_failed")
        return await self._shop.processor.settlement_of(processor_refund)

    async def why_missing(self, processor_payment: str) -> Any:
        raise AssertionError("nobody asks that here")


def figures(shop: Shop, processor: Any = None) -> Figures:
    return Figures(Settlements(shop.payments.database, "stripe"), processor or Counting(shop))


async def payment_of(shop: Shop, intent: str) -> str:
    [row] = await shop.query("SELECT id FROM payments WHERE processor_payment = :p", p=intent)
    return row["id"]


async def imported(shop: Shop, intent: str) -> None:
    """What somebody made at the processor is recorded, as any event leads to."""
    observer = Observer(Observing(shop.payments.database, shop.settings, "worker-2"), shop.processor, shop.clock)
    await ActivityEnvironment().run(observer.observe_payment, StepInput("", message=await payment_of(shop, intent)))


async def kept(shop: Shop, intent: str) -> list[tuple[Any, ...]]:
    rows = await shop.query(
        "SELECT s.* FROM settlements s JOIN processor_refunds r ON r.id = processor_refund_id JOIN payments y ON y.id = payment_id"
        " WHERE processor_payment = :p ORDER BY first_read_at, r.id",
        p=intent,
    )
    names = ("presentment_amount", "presentment_currency", "settlement_amount", "settlement_currency", "rate", "fee", "returned")
    return [tuple(row[name] for name in names) for row in rows]


async def entered(shop: Shop, intent: str) -> list[dict[str, Any]]:
    return await shop.query(
        "SELECT actor, data FROM ledger WHERE type = 'settlement_figures' AND data->>'payment' = :p ORDER BY id",
        p=await payment_of(shop, intent),
    )


async def receipts(shop: Shop, intent: str) -> list[str]:
    rows = await shop.query(
        "SELECT r.id FROM processor_refunds r JOIN payments y ON y.id = payment_id WHERE processor_payment = :p ORDER BY r.id", p=intent
    )
    return [row["id"] for row in rows]


async def refunded(shop: Shop, amount: int = 6_000, **paid: Any) -> tuple[str, str]:
    """A payment with a refund of ours that succeeded; the intent and our refund's id."""
    intent = await shop.paid(**paid)
    currency = str(paid.get("currency", "usd")).upper()
    refund = await shop.approved(intent, amount, currency=currency)
    assert (await shop.submitted(refund)).status == "succeeded"
    return intent, refund


async def test_field_36_presentment_settlement_and_rate_are_kept_apart_and_entered(shop: Shop) -> None:
    intent, refund = await refunded(shop)
    assert await kept(shop, intent) == [], "nothing is asked on the way of a refund"

    await figures(shop).lately()

    assert await kept(shop, intent) == [(6_000, "USD", 8_391, "CAD", "1.3985", 0, 0)]
    [entry] = await entered(shop, intent)
    [operation] = await shop.query("SELECT id FROM operations WHERE refund_id = :r", r=refund)
    [receipt] = await receipts(shop, intent)
    assert (entry["actor"], entry["data"]) == (
        "processor",
        {
            "refund": refund,
            "operation": operation["id"],
            "payment": await payment_of(shop, intent),
            "processor_refund": receipt,
            "presentment_amount": 6_000,
            "presentment_currency": "USD",
            "settlement_amount": 8_391,
            "settlement_currency": "CAD",
            "rate": "1.3985",
            "fee": 0,
            "returned": 0,
        },
    )


async def test_field_36_a_refund_made_without_us_takes_the_same_path(shop: Shop) -> None:
    intent = await shop.paid()
    await shop.ordered(intent)
    await shop.control("POST", "/refunds", {"payment_intent": intent, "amount": 2_600})
    await imported(shop, intent)

    await figures(shop).lately()

    assert await kept(shop, intent) == [(2_600, "USD", 3_636, "CAD", "1.3985", 0, 0)]
    assert [(row["data"]["presentment_amount"], row["data"]["settlement_amount"]) for row in await entered(shop, intent)] == [
        (2_600, 3_636)
    ]


async def test_looking_again_asks_and_enters_nothing_more(shop: Shop) -> None:
    intent, _ = await refunded(shop)
    processor = Counting(shop)
    for _ in range(3):
        await figures(shop, processor).lately()

    assert len(processor.asked) == 1
    assert len(await entered(shop, intent)) == 1


async def test_an_ordinary_refund_costs_no_call_once_its_currency_is_known(shop: Shop) -> None:
    processor = Counting(shop)
    async with shop.api.begin() as connection:  # what one person approves in a day is counted in dollars
        euro, by = Rate("USD", "EUR", "1.10"), shop.people["rita"].principal_id
        await rates.record(connection, shop.clock, rate=euro, effective_at=None, source="a test", principal_id=by)
    first, _ = await refunded(shop, currency="eur")
    await figures(shop, processor).lately()
    assert [found[2:5] for found in await kept(shop, first)] == [(6_000, "EUR", None)]

    since = shop.clock.now()
    second, _ = await refunded(shop, currency="eur")
    await figures(shop, processor).lately()
    assert len(processor.asked) == 1, "euros settle as euros here, which one refund has shown"

    assert await figures(shop, processor).of_window(since, shop.clock.now()) == 1
    assert (len(processor.asked), len(await kept(shop, second))) == (2, 1), "the reconciliation reads the rest"
    assert await figures(shop, processor).of_window(since, shop.clock.now()) == 0


async def test_what_failed_later_has_come_back(shop: Shop) -> None:
    intent, _ = await refunded(shop)
    await figures(shop).lately()
    [receipt] = await receipts(shop, intent)
    await shop.control("POST", f"/refunds/{receipt}", {"status": "failed"})
    await imported(shop, intent)

    await figures(shop).lately()
    await figures(shop).lately()

    assert await kept(shop, intent) == [(6_000, "USD", 8_391, "CAD", "1.3985", 0, 8_391)]
    assert len(await entered(shop, intent)) == 2


async def test_figures_that_cannot_be_read_keep_nothing_from_going_on(shop: Shop) -> None:
    intent, refund = await refunded(shop)
    processor = Counting(shop)
    processor.away = True

    await figures(shop, processor).lately()
    assert (await kept(shop, intent), await shop.ended(refund)) == ([], ("succeeded", None))

    processor.away = False
    await figures(shop, processor).lately()
    assert len(await kept(shop, intent)) == 1


async def test_figures_of_another_amount_than_recorded_are_not_kept(shop: Shop) -> None:
    intent, _ = await refunded(shop)
    [receipt] = await receipts(shop, intent)
    await shop.query_nothing("UPDATE processor_refunds SET amount = 6001 WHERE id = :r", r=receipt)

    assert await figures(shop).lately() == 0
    assert await kept(shop, intent) == []
