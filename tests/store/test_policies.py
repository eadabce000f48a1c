"""Policy versions: published once, one a date, by one publisher at a time; which of them judge an order; and simulations that can write nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from refunds.errors import Code, RefundError
from refunds.policy import PolicyError, sample_policy_text
from store import policies
from store.policies import Published
from store.simulating import Extent, Period, extent, page, reading_only
from tests.store.world import START, World

SAMPLE = sample_policy_text()
SHORT = SAMPLE.replace("default_days: 30", "default_days: 3")


def numbered(number: int) -> str:
    return SAMPLE.replace("refunds_per_week: 3", f"refunds_per_week: {number}")


async def publish(world: World, source: str, **after: float) -> Published:
    """Publish for so long from now, or at once."""
    async with world.api.begin() as connection:
        return await policies.publish(
            connection,
            world.clock,
            source=source,
            effective_from=world.clock.now() + timedelta(**after) if after else None,
            author_id=None,
            note="test",
        )


def tables(world: World) -> dict[str, Any]:
    return {table: world.rows(f"SELECT * FROM {table} ORDER BY 1") for table in ("policy_versions", "ledger", "outbox")}


# --- versions ----------------------------------------------------------------------------------------------------------------------------


async def test_a_version_has_one_ledger_entry_and_is_never_edited(world: World) -> None:
    published = await publish(world, numbered(2), days=1)

    [entry] = world.rows("SELECT data FROM ledger WHERE type = 'policy_published' ORDER BY id DESC LIMIT 1")
    assert (published.new, published.row["version"]) == (True, 2)
    assert entry["data"]["version"] == 2
    assert entry["data"]["hash"] == published.row["hash"]
    for login in ("refunds_api", "refunds_worker"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            world.execute("UPDATE policy_versions SET note = 'other'", login=login)


async def test_an_effective_date_in_the_past_is_refused_and_nothing_changes(world: World) -> None:
    before = tables(world)
    for seconds in (-1, 0):
        with pytest.raises(RefundError) as refused:
            async with world.api.begin() as connection:
                at = world.clock.now() + timedelta(seconds=seconds)
                await policies.publish(connection, world.clock, source=numbered(2), effective_from=at, author_id=None, note="x")
        assert (refused.value.code, refused.value.field) == (Code.INVALID_FIELD, "effective_from")
        assert "leave it out" in refused.value.detail
    assert tables(world) == before


async def test_two_versions_with_one_date_are_refused_and_nothing_changes(world: World) -> None:
    first = await publish(world, numbered(2), days=1)
    before = tables(world)

    with pytest.raises(RefundError) as refused:
        await publish(world, numbered(4), days=1)

    assert refused.value.code is Code.POLICY_DATE_TAKEN
    assert f"Version {first.row['version']}" in refused.value.detail
    assert "Name another time" in refused.value.detail
    assert tables(world) == before


async def test_the_content_that_is_in_force_then_anyway_is_not_published_again(world: World) -> None:
    tomorrow = await publish(world, numbered(2), days=1)
    before = tables(world)

    at_once = await publish(world, SAMPLE + "\n# another comment\n")
    after_it = await publish(world, numbered(2), days=2)
    repeated = await publish(world, numbered(2), days=1)

    assert [(p.new, p.row["version"]) for p in (at_once, after_it, repeated)] == [(False, 1), (False, 2), (False, 2)]
    assert tomorrow.new
    assert tables(world) == before
    assert (await publish(world, SAMPLE, days=3)).new  # back to what it was, after the other


async def test_two_publishers_at_once_wait_for_each_other(world: World) -> None:
    """Ten want the same date: one gets it, the others are told, and the lock leaves no doubt which."""
    answers = await asyncio.gather(*(publish(world, numbered(number), days=1) for number in range(4, 14)), return_exceptions=True)

    made = [answer for answer in answers if isinstance(answer, Published)]
    refused = [answer.code for answer in answers if isinstance(answer, RefundError)]
    assert (len(made), refused) == (1, [Code.POLICY_DATE_TAKEN] * 9)
    assert world.count("policy_versions") == 2


async def test_two_publishers_of_the_same_content_make_one_version(world: World) -> None:
    answers = await asyncio.gather(*(publish(world, numbered(2), days=1) for _ in range(5)))

    assert sorted(answer.new for answer in answers) == [False] * 4 + [True]
    assert {answer.row["version"] for answer in answers} == {2}


async def test_the_database_itself_takes_no_second_version_with_one_date(world: World) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.execute(
            "INSERT INTO policy_versions (hash, source, effective_from, note, created_at)"
            " SELECT 'h', source, effective_from, 'n', created_at FROM policy_versions"
        )


async def test_what_was_in_force_at_a_past_date_never_changes(world: World) -> None:
    for number in (2, 4):
        world.clock.advance(days=1)
        await publish(world, numbered(number))

    async def at(moment: Any) -> int:
        async with world.api.begin() as connection:
            return (await policies.version_in_force(connection, moment))["version"]

    assert [await at(START + timedelta(days=days)) for days in (0, 0.5, 1, 1.5, 2, 9)] == [1, 1, 2, 2, 3, 3]
    with pytest.raises(RefundError) as before_all:
        await at(START - timedelta(seconds=1))
    assert before_all.value.code is Code.NOT_FOUND


# --- which version judges ----------------------------------------------------------------------------------------------------------------


def judged(world: World, refund_id: str) -> dict[str, Any]:
    [row] = world.rows("SELECT policy_version, decision, terms FROM revisions WHERE refund_id = %s", refund_id)
    versions = row["decision"]["versions"]
    assert versions["version"] == row["policy_version"]
    if row["terms"] is not None:
        assert row["terms"]["policy_version"] == row["policy_version"], "terms carry the version that judged them"
    return versions | {"outcome": row["decision"]["outcome"], "code": row["decision"]["code"]}


async def order_placed(world: World, ref: str, placed: Any) -> str:
    """An order of five days' way, delivered on the sixth day after the start; returns the processor's id of its payment."""
    placed_at = None if placed is None else placed.isoformat()
    [payment] = await world.order(ref, placed_at=placed_at, delivered_at=(START + timedelta(days=5)).isoformat())
    return payment


async def quoted(world: World, ref: str, payment: str, amount: int = 3_000) -> str:
    """Ask and quote, on a payment that was just read."""
    await world.read(payment)
    refund_id, _ = await world.quoted(order_id=ref, amount=amount)
    return refund_id


async def test_an_order_keeps_the_return_rules_it_was_placed_under(world: World) -> None:
    """Stricter windows come on the third day. Who bought before has the old ones, who buys after has the new ones, on the same day of the same version."""
    before = await order_placed(world, "before", START + timedelta(hours=1))
    after = await order_placed(world, "after", START + timedelta(days=3))
    world.clock.at = START + timedelta(days=2)
    await publish(world, SHORT)
    world.clock.at = START + timedelta(days=10)

    kept, new = await quoted(world, "before", before), await quoted(world, "after", after, 2_900)

    assert (world.row(kept)["status"], world.row(new)["code"]) == ("approved", "OUTSIDE_WINDOW")
    old, today = judged(world, kept), judged(world, new)
    assert (old["version"], old["return_rules"]["version"], old["return_rules"]["because"]) == (2, 1, "placed")
    assert (today["version"], today["return_rules"]["version"], today["return_rules"]["because"]) == (2, 2, "placed")
    hashes = {row["version"]: row["hash"] for row in world.rows("SELECT version, hash FROM policy_versions")}
    assert (old["hash"], old["return_rules"]["hash"]) == (hashes[2], hashes[1])
    [entry] = [row["data"] for row in world.ledger(kept) if row["type"] == "quoted"]
    assert (entry["policy_version"], entry["return_rules_version"], entry["return_rules_hash"]) == (2, 1, hashes[1])


async def test_a_lower_ceiling_holds_at_once_for_every_order(world: World) -> None:
    payment = await order_placed(world, "before", START + timedelta(hours=1))
    world.clock.at = START + timedelta(days=2)
    await publish(world, SAMPLE.replace("consent_only_up_to: 100.00", "consent_only_up_to: 10.00", 1))
    world.clock.at = START + timedelta(days=6)

    refund = await quoted(world, "before", payment)

    assert (world.row(refund)["status"], judged(world, refund)["return_rules"]["version"]) == ("awaiting_review", 1)


async def test_without_a_date_and_before_the_first_version_todays_return_rules_hold(world: World) -> None:
    payments = {"unknown": await order_placed(world, "unknown", None), "old": await order_placed(world, "old", START - timedelta(days=9))}
    world.clock.at = START + timedelta(days=2)
    await publish(world, SHORT)
    world.clock.at = START + timedelta(days=6)

    found = [judged(world, await quoted(world, ref, payment))["return_rules"] for ref, payment in payments.items()]

    assert [(one["version"], one["because"]) for one in found] == [(2, "not_known"), (2, "older_than_the_first")]


async def test_terms_keep_the_version_they_were_quoted_under(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=10_000)
    await publish(world, SHORT, seconds=1)
    world.clock.advance(minutes=1)

    await world.attempted(refund)

    assert judged(world, refund)["version"] == 1


# --- simulations -------------------------------------------------------------------------------------------------------------------------


async def test_a_simulation_reads_the_first_judgement_of_each_request_of_its_time(world: World) -> None:
    await world.ready(captured=50_000)
    made = [(await world.quoted(amount=1_000 + number))[0] for number in range(3)]
    await world.accept(world.request(amount=20_000))  # not judged yet
    await world.revise((await world.quoted(amount=12_000))[0], world.ann, amount=11_000)
    period = Period(None, world.clock.now() + timedelta(seconds=1))

    async with reading_only(world.api) as connection:
        found = await extent(connection, period)
        first = await page(connection, period, after="", limit=2)
        rest = await page(connection, period, after=first[-1][0], limit=9)
        empty = await page(connection, Period(world.clock.now() + timedelta(seconds=1), period.until), after="", limit=9)

    assert found == Extent(requests=4, never_judged=1, parts=0)
    assert [identifier for identifier, _ in first + rest][:3] == made
    assert '"amount": 12000' in rest[-1][1], "not what the reviewer made of it"
    assert empty == []


async def test_what_no_policy_denied_is_left_out_because_no_policy_would_let_it_pass(world: World) -> None:
    [payment] = await world.order(amounts=(3_000,), lines=[{"id": "mug", "quantity": 1, "amount": 3_000}])
    await world.read(payment, 3_000)
    mug = {"lines": [{"id": "mug", "quantity": 1}], "amount": None, "currency": None}
    asked = [await world.accept(world.request(**mug, reason=reason)) for reason in ("product_issue", "wrong_item")]
    assert [(await world.steps.prepare(refund)).status for refund in asked] == ["awaiting_consent", "denied"]
    period = Period(None, world.clock.now() + timedelta(seconds=1))

    async with reading_only(world.api) as connection:
        found, judged = await extent(connection, period), await page(connection, period, after="", limit=9)

    assert found == Extent(requests=1, never_judged=0, parts=0, denied_otherwise=1)
    assert [identifier for identifier, _ in judged] == asked[:1]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE refunds SET detail = 'x'",
        "INSERT INTO outbox (kind, body, created_at, due_at) VALUES ('notice', '{}', now(), now())",
        "INSERT INTO ledger (at, type, actor, data) VALUES (now(), 'x', 'x', '{}')",
        "SELECT nextval(pg_get_serial_sequence('ledger', 'id'))",
    ],
)
async def test_postgresql_itself_refuses_a_simulation_every_write(world: World, statement: str) -> None:
    with pytest.raises(DBAPIError) as refused:
        async with reading_only(world.api) as connection:
            await connection.execute(text(statement))
    assert isinstance(refused.value.orig, psycopg.errors.ReadOnlySqlTransaction | psycopg.errors.InsufficientPrivilege)


async def test_a_version_that_would_no_longer_be_published_still_judges(world: World) -> None:
    """A later program may ask more of a new policy; what was published by an earlier one is not asked again."""
    contradicting = SAMPLE.replace("consent_only_up_to: 100.00", "consent_only_up_to: 600.00", 1)
    with pytest.raises(PolicyError):
        await publish(world, contradicting)
    world.execute(
        "INSERT INTO policy_versions (hash, source, effective_from, note, created_at) VALUES ('of an earlier program', %s, %s, 'n', %s)",
        contradicting,
        world.clock.now() + timedelta(seconds=1),
        world.clock.now(),
    )
    world.clock.advance(minutes=1)

    await world.ready()
    refund, _ = await world.quoted(amount=3_000)

    assert judged(world, refund)["version"] == 2
