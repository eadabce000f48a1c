"""Recorded rates and what they make of limits: several currencies are no way around a limit, and yesterday's worth stays what it was."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from refunds.errors import Code, RefundError
from refunds.policy import sample_policy_text
from refunds.rates import Rate
from store import rates
from tests.policies import without_limits
from tests.store.world import World, denied

NAMED = "\nbase_currency: USD\n"


async def record(world: World, currency: str, rate: str, *, base: str = "USD", **more: Any) -> str:
    async with world.api.begin() as connection:
        row, _ = await rates.record(
            connection,
            world.clock,
            rate=Rate(base, currency, rate),
            effective_at=more.get("effective_at"),
            source=more.get("source", "a test"),
            principal_id=world.ann.principal_id,
        )
    return row["id"]


async def paid(world: World, number: int, currency: str, amount: int = 1_000_000) -> str:
    """Another order of the same customer."""
    [payment] = await world.order(ref=f"order-{number}", amounts=(amount,), currency=currency)
    await world.read(payment, amount, currency=currency)
    return payment


async def asked(world: World, number: int, currency: str, amount: int) -> tuple[str, str]:
    await paid(world, number, currency)
    refund, seen = await world.quoted(order_id=f"order-{number}", amount=amount, currency=currency)
    return refund, seen.status


def base(world: World, refund: str) -> dict[str, Any]:
    [row] = world.rows("SELECT facts -> 'base' AS base FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund)
    return row["base"]


def observed(world: World, refund: str, check: str) -> tuple[str, str]:
    [row] = world.rows("SELECT decision FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund)
    [found] = [c for c in row["decision"]["checks"] if c["id"] == check]
    return found["observed"], found["result"]


async def test_field_36_a_customer_who_splits_over_currencies_meets_the_same_limit(world: World) -> None:
    await record(world, "EUR", "1.10")
    await record(world, "CAD", "0.70")

    statuses = [await asked(world, 1, "EUR", 9_000), await asked(world, 2, "CAD", 7_000), await asked(world, 3, "USD", 201)]

    assert [status for _, status in statuses] == ["approved", "approved", "awaiting_review"]
    (euros, _), (dollars, _), (last, _) = statuses
    assert (base(world, euros)["amount"], base(world, euros)["amount_today"]) == (9_900, 0)
    assert (base(world, dollars)["amount"], base(world, dollars)["amount_today"]) == (4_900, 9_900)
    assert observed(world, last, "customer_day") == ("$2.01 with this one, $0.00 before", "pass")
    assert observed(world, last, "customer_day_all") == ("$150.01 with this one, $148.00 before", "require_review")
    assert (await asked(world, 4, "USD", 1))[1] == "awaiting_review", "what a person has still to decide is reserved, and counts"


async def test_field_36_two_currencies_at_once_are_no_way_around_the_limit_either(world: World) -> None:
    await record(world, "EUR", "1.10")
    await record(world, "CAD", "0.70")
    await paid(world, 1, "EUR")
    await paid(world, 2, "CAD")
    euros = await world.accept(world.request(order_id="order-1", amount=8_000, currency="EUR"))
    dollars = await world.accept(world.request(order_id="order-2", amount=10_000, currency="CAD"))

    seen = await asyncio.gather(world.steps.prepare(euros), world.steps.prepare(dollars))

    assert sorted(one.status for one in seen) == ["approved", "awaiting_review"], (
        "$88.00 and $70.00 are above $150.00, whoever comes second"
    )


async def test_field_36_without_a_rate_a_person_looks_at_it_and_at_what_follows(world: World) -> None:
    first, status = await asked(world, 1, "EUR", 500)
    assert (status, base(world, first)["amount"]) == ("awaiting_review", None)
    assert observed(world, first, "exchange_rate") == ("no rate of EUR in USD is recorded", "require_review")

    second, status = await asked(world, 2, "USD", 500)

    assert status == "awaiting_review"
    assert observed(world, second, "customer_day_all") == (
        "$5.00 with this one, $0.00 before; also in EUR, of which no worth is recorded",
        "require_review",
    )
    for refund in (first, second):
        await world.steps.apply_message(refund, "withdraw", (await world.withdraw(refund)).id)
    await record(world, "EUR", "1.10")
    assert (await asked(world, 3, "EUR", 500))[1] == "approved"


async def test_what_was_recorded_counts_and_never_another_days_rate(world: World) -> None:
    rate = await record(world, "EUR", "1.10")
    first, _ = await asked(world, 1, "EUR", 9_000)
    world.clock.advance(minutes=1)
    dearer = await record(world, "EUR", "1.50")

    second, status = await asked(world, 2, "EUR", 1_000)

    assert (base(world, first)["rate_id"], base(world, first)["rate"]) == (rate, "1.1")
    assert base(world, second) == {
        "currency": "USD",
        "amount": 1_500,
        "amount_today": 9_900,
        "not_counted": [],
        "rate": "1.5",
        "rate_id": dearer,
        "rate_at": "2026-06-01T12:01:00.000000Z",
    }
    assert status == "approved"


async def test_an_old_rate_is_a_person_and_a_rate_to_come_holds_no_sooner(world: World) -> None:
    await record(world, "EUR", "1.10")
    world.clock.advance(days=7)
    assert (await asked(world, 1, "EUR", 100))[1] == "approved"
    world.clock.advance(seconds=1)
    late, status = await asked(world, 2, "EUR", 100)
    assert status == "awaiting_review"
    assert observed(world, late, "exchange_rate")[1] == "require_review"

    with pytest.raises(RefundError) as raised:
        await record(world, "EUR", "1.10", effective_at=world.clock.at + timedelta(seconds=1))
    assert (raised.value.code, raised.value.field) == (Code.INVALID_FIELD, "effective_at")


async def made_without_us(world: World, amount: int, currency: str) -> None:
    """A refund in the processor's dashboard, now."""
    payment = await paid(world, 1, currency)
    world.execute(
        "INSERT INTO processor_refunds SELECT 're_1', 'stripe', id, NULL, %s, %s, 'succeeded', 'succeeded', NULL, %s, %s, %s FROM payments WHERE processor_payment = %s",
        *(amount, currency, world.clock.at, world.clock.at, world.clock.at, payment),
    )


@pytest.mark.parametrize(("known", "counted", "not_counted"), [("1.10", 9_900, []), (None, 0, ["EUR"])])
async def test_field_36_a_rate_that_is_dated_back_makes_no_limit_looser(
    world: World, known: str | None, counted: int, not_counted: list[str]
) -> None:
    before = world.clock.at
    if known is not None:
        await record(world, "EUR", known)
    world.clock.advance(minutes=2)
    await made_without_us(world, 9_000, "EUR")
    world.clock.advance(minutes=1)
    await record(world, "EUR", "0.01", effective_at=before + timedelta(minutes=1))

    seen, _ = await asked(world, 2, "USD", 100)
    assert (base(world, seen)["amount_today"], base(world, seen)["not_counted"]) == (counted, not_counted)

    euros, _ = await asked(world, 3, "EUR", 1_000)
    assert base(world, euros)["rate"] == "0.01", "it counts from when it was recorded"


async def test_refunds_made_without_us_count_by_the_rate_of_their_time(world: World) -> None:
    await record(world, "EUR", "1.10")
    await made_without_us(world, 9_000, "EUR")
    world.clock.advance(minutes=1)
    await record(world, "EUR", "3.00")

    seen, _ = await asked(world, 2, "USD", 100)

    assert base(world, seen)["amount_today"] == 9_900
    world.execute("UPDATE processor_refunds SET currency = 'ISK' WHERE id = 're_1'")
    again, status = await asked(world, 3, "USD", 100)
    assert (base(world, again)["not_counted"], base(world, again)["amount_today"], status) == (["ISK"], 100, "awaiting_review")


async def test_without_a_base_currency_the_second_currency_of_a_day_is_a_persons(world: World) -> None:
    await world.policy(without_limits().replace(NAMED, "\n").replace("\nrates_at_most_days_old: 7\n", "\n"))
    assert (await asked(world, 1, "EUR", 500))[1] == "approved"
    assert (await asked(world, 2, "EUR", 500))[1] == "approved"

    other, status = await asked(world, 3, "USD", 500)

    assert (status, base(world, other)["not_counted"]) == ("awaiting_review", ["EUR"])


async def test_another_base_currency_makes_what_was_recorded_unknown(world: World) -> None:
    await record(world, "CAD", "0.70")
    await asked(world, 1, "CAD", 1_000)
    await world.policy(sample_policy_text().replace(NAMED, "\nbase_currency: EUR\n"))

    seen, status = await asked(world, 2, "EUR", 500)

    assert (base(world, seen)["not_counted"], status) == (["CAD"], "awaiting_review")


async def test_a_rate_is_entered_with_who_when_and_where_from_and_never_edited(world: World) -> None:
    rate = await record(world, "JPY", "0.0066", source="bank of the shop")
    assert await record(world, "JPY", "0.00660", source="bank of the shop", effective_at=world.clock.at) == rate, (
        "the same again is the same"
    )

    [entry] = world.rows("SELECT * FROM ledger WHERE type = 'rate_recorded'")
    assert (entry["actor"], entry["data"]) == (
        world.ann.principal_id,
        {
            "rate_id": rate,
            "base": "USD",
            "currency": "JPY",
            "rate": "0.0066",
            "effective_at": "2026-06-01T12:00:00.000000Z",
            "source": "bank of the shop",
        },
    )
    for login in ("refunds_api", "refunds_worker", "refunds_payments"):
        for statement in ("UPDATE exchange_rates SET rate = '1'", "DELETE FROM exchange_rates"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as raised:
                world.execute(statement, login=login)
            assert denied(raised.value)


async def test_the_newest_that_holds_is_listed_and_all_with_history(world: World) -> None:
    first = await record(world, "EUR", "1.10", effective_at=world.clock.at - timedelta(days=3))
    second = await record(world, "EUR", "1.20")
    corrected = await record(world, "EUR", "1.21", source="a correction", effective_at=world.clock.at)
    yen = await record(world, "JPY", "0.0066")

    async def ids(**filters: Any) -> list[str]:
        wanted = {"base": None, "currency": None, "history": False, "after": None, "limit": 10} | filters
        async with world.api.begin() as connection:
            return [row["id"] for row in await rates.listed(connection, **wanted)]

    assert sorted(await ids()) == sorted([corrected, yen])
    assert await ids(currency="EUR", history=True) == [corrected, second, first]
    assert await ids(currency="EUR", history=True, after=(world.clock.at, corrected), limit=1) == [second]
    assert await ids(base="EUR") == []


async def test_an_enormous_rate_makes_a_person_look_and_spoils_no_later_refund(world: World) -> None:
    await record(world, "JPY", "999999999999")

    (yen, first), (dollars, second) = await asked(world, 1, "JPY", 1_000_000), await asked(world, 2, "USD", 100)

    assert (first, second) == ("awaiting_review", "awaiting_review")
    assert (base(world, yen)["amount"], base(world, dollars)["amount_today"]) == (99_999_999_999_900_000_000,) * 2
