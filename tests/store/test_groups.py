"""Groups on real PostgreSQL: stored whole or not at all, allocated over what the payments hold, judged as one wish, decided together."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from refunds.clock import rfc3339
from refunds.errors import Code, RefundError
from refunds.groups import LeftOut
from refunds.messages import Situation
from refunds.policy import sample_policy_text
from refunds.processor import DisputeState, PaymentState, PaymentStatus, ProcessorRefund, RefundState
from refunds.requests import GroupRequest
from refunds.retention import Kept
from refunds.status import Status
from store import deciding_groups, group_views, groups, views
from store.groups import AcceptedGroup
from store.retention import Retention
from store.situations import waits_for
from tests.store.test_limits import stop
from tests.store.test_rates import record as rates_of
from tests.store.world import World

CARD = {"processor": "manual", "tender": "gift_card", "id": "card-1", "amount": 2_000, "currency": "USD"}
AUTHENTICATED = {"method": "password", "at": "2026-06-01T11:59:00Z"}


async def ordered(world: World, *amounts: int, gift: int = 0, **more: Any) -> list[str]:
    """An order paid with cards for these amounts, each just read, and with a gift card; returns the names of the cards' payments."""
    ids = [f"pi_{world.database.name}{n}" for n in range(len(amounts))]
    paid = [{"id": i, "amount": a, "currency": "USD"} for i, a in zip(ids, amounts, strict=True)]
    await world.order(amounts=(), payments=paid + ([CARD | {"amount": gift}] if gift else []), **more)
    for name, amount in zip(ids, amounts, strict=True):
        await world.read(name, amount)
    return ids


def wish(**fields: Any) -> GroupRequest:
    body = {"order_id": "order-1", "customer_id": "customer-1", "customer_authentication": AUTHENTICATED, "reason": "product_issue"}
    if fields.get("amount"):
        body |= {"currency": "USD"}
    return GroupRequest.model_validate(body | fields)


async def read_again(world: World, name: str, captured: int, **reading: Any) -> None:
    """A later reading of a payment."""
    world.clock.advance(seconds=1)
    await world.read(name, captured, **reading)


async def asked(world: World, request: GroupRequest, key: str = "key", readings: dict[str, PaymentState] | None = None) -> AcceptedGroup:
    async with world.api.begin() as connection:
        return await groups.accept(
            connection, world.clock, world.texts, actor=world.desk, key=key, request=request, readings=readings or {}
        )


async def quoted(world: World, request: GroupRequest, key: str = "key") -> tuple[AcceptedGroup, dict[str, Situation]]:
    """A group with all its parts quoted, by the names of their payments."""
    group = await asked(world, request, key)
    found: dict[str, Situation] = {}
    for part in group.parts:
        situation = await world.steps.prepare(part.refund_id)
        assert not situation.needs, situation
        found[name_of(world, part.refund_id)] = situation
    return group, found


def name_of(world: World, refund_id: str) -> str:
    query = "SELECT p.processor_payment FROM payments p JOIN refunds r ON r.payment_id = p.id WHERE r.id = %s"
    return world.rows(query, refund_id)[0]["processor_payment"]


def shares(world: World, group: AcceptedGroup) -> dict[str, int | None]:
    return {name_of(world, part.refund_id): world.row(part.refund_id)["amount"] for part in group.parts}


def terms(world: World, group: AcceptedGroup) -> dict[str, str | None]:
    return {part.refund_id: world.row(part.refund_id)["terms_hash"] for part in group.parts}


def statuses(world: World, group: AcceptedGroup) -> set[str]:
    return {world.row(part.refund_id)["status"] for part in group.parts}


def left_out(world: World, group: AcceptedGroup) -> dict[str, str]:
    [row] = world.rows("SELECT allocation FROM refund_groups WHERE id = %s", group.id)
    names = {p["id"]: p["processor_payment"] for p in world.rows("SELECT id, processor_payment FROM payments")}
    return {names[one["payment"]]: one["why"] for one in row["allocation"]["left_out"]}


async def refused(world: World, request: GroupRequest) -> RefundError:
    """Have a group refused, with nothing at all stored."""
    before = [world.count(table) for table in ("refunds", "refund_groups", "ledger", "texts")]
    with pytest.raises(RefundError) as raised:
        await asked(world, request)
    assert [world.count(table) for table in ("refunds", "refund_groups", "ledger", "texts")] == before
    return raised.value


async def decide(
    world: World, group: AcceptedGroup, actor: Any, verdict: str = "approve", named: dict[str, str | None] | None = None
) -> list[bool]:
    async with world.api.begin() as connection:
        seen = terms(world, group) if named is None else named
        given = {"group_id": group.id, "actor": actor, "verdict": verdict, "terms": seen, "reason": "looked at it"}
        recorded = await deciding_groups.record_reviews(connection, world.clock, **given)
    return [one.replayed for one in recorded]


async def undecided(world: World, group: AcceptedGroup, actor: Any, named: dict[str, str | None] | None = None) -> RefundError:
    """Have a decision refused, and hold that nothing was recorded of any part."""
    before = [world.row(part.refund_id) for part in group.parts], world.count("decisions")
    with pytest.raises(RefundError) as raised:
        await decide(world, group, actor, named=named)
    assert ([world.row(part.refund_id) for part in group.parts], world.count("decisions")) == before
    return raised.value


# --- allocation and storing --------------------------------------------------------------------------------------------------------------


async def test_field_26_a_group_gives_each_payment_its_own_refund(world: World) -> None:
    first, upgrade = await ordered(world, 4_000, 2_000)
    group = await asked(world, wish(amount=5_000))
    assert shares(world, group) == {first: 4_000, upgrade: 1_000}
    rows = [world.row(part.refund_id) for part in group.parts]
    assert {row["group_id"] for row in rows} == {group.id}
    assert len({row["idempotency_key"] for row in rows}) == 2
    assert world.rows("SELECT type FROM ledger WHERE data->>'group' = %s", group.id) == [{"type": "group_received"}]


async def test_field_48_card_and_gift_card_each_give_what_they_took(world: World) -> None:
    [card] = await ordered(world, 7_000, gift=2_000)
    group, found = await quoted(world, wish(amount=9_000))
    assert shares(world, group) == {card: 7_000, "card-1": 2_000}
    assert {situation.status for situation in found.values()} == {Status.APPROVED}
    alone, denied = await world.quoted(payment_id=card, amount=9_000)
    assert (world.row(alone)["status"], denied.code) == (Status.DENIED, Code.ALREADY_REFUNDED)


async def test_the_same_request_again_is_the_same_group_and_another_body_is_refused(world: World) -> None:
    await ordered(world, 4_000, 2_000)
    group = await asked(world, wish(amount=5_000))
    again = await asked(world, wish(amount=5_000))
    assert (again.id, again.replayed, {p.refund_id for p in again.parts}) == (group.id, True, {p.refund_id for p in group.parts})
    assert world.count("refunds") == 2
    other = await refused(world, wish(amount=4_999))
    assert (other.code, other.ids) == (Code.IDEMPOTENCY_KEY_REUSED, {"group": group.id})


async def test_twenty_at_once_with_one_key_make_one_group(world: World) -> None:
    await ordered(world, 4_000, 2_000)
    found = await asyncio.gather(*(asked(world, wish(amount=5_000)) for _ in range(20)))
    assert len({group.id for group in found}) == 1
    assert sum(not group.replayed for group in found) == 1
    assert (world.count("refund_groups"), world.count("refunds")) == (1, 2)


async def test_what_is_missing_is_said_to_the_unit_and_nothing_is_made(world: World) -> None:
    [card] = await ordered(world, 7_000, gift=2_000)
    error = await refused(world, wish(amount=9_001))
    assert (error.code, error.ids["missing"]) == (Code.GROUP_NOT_COVERED, 1)
    assert error.detail == "The order's payments hold $90.00 of $90.01: $0.01 is missing."
    assert {one["payment_id"]: one["holds"] for one in error.ids["payments"]} == {card: 7_000, "card-1": 2_000}


async def test_earlier_refunds_and_those_made_without_us_are_not_given_again(world: World) -> None:
    first, second = await ordered(world, 4_000, 2_000)
    await world.quoted(payment_id=first, amount=1_000)
    made_elsewhere = ProcessorRefund("re_1", second, 1_500, "USD", RefundState.SUCCEEDED, "succeeded")
    await read_again(world, second, 2_000, refunds=(made_elsewhere,))
    group = await asked(world, wish(amount=3_500))
    assert shares(world, group) == {first: 3_000, second: 500}


UNFIT: dict[str, tuple[dict[str, Any], LeftOut]] = {
    "disputed": ({"dispute": DisputeState.OPEN}, LeftOut.DISPUTED),
    "lost in a dispute": ({"dispute": DisputeState.LOST}, LeftOut.RETURNED_BY_DISPUTE),
    "refunded already": (
        {"refunds": (ProcessorRefund("re_1", "", 4_000, "USD", RefundState.SUCCEEDED, "succeeded"),)},
        LeftOut.NOTHING_LEFT,
    ),
    "canceled": ({"status": PaymentStatus.CANCELED}, LeftOut.NOT_CAPTURED),
    "only authorised": ({"status": PaymentStatus.AUTHORISED, "capturable": 4_000}, LeftOut.ONLY_AUTHORISED),
}


@pytest.mark.parametrize(("reading", "why"), UNFIT.values(), ids=UNFIT)
async def test_field_32_33_28_a_payment_that_cannot_give_is_left_out_with_its_reason(
    world: World, reading: dict[str, Any], why: LeftOut
) -> None:
    first, second = await ordered(world, 4_000, 2_000)
    await read_again(world, first, 4_000 if "capturable" not in reading else 0, **reading)
    group = await asked(world, wish(amount=1_500))
    assert (shares(world, group), left_out(world, group)) == ({second: 1_500}, {first: why})


async def test_what_is_only_authorised_is_released_where_the_whole_of_it_fits(world: World) -> None:
    first, second = await ordered(world, 4_000, 2_000)
    await read_again(world, second, 0, status=PaymentStatus.AUTHORISED, capturable=2_000)
    group, found = await quoted(world, wish(amount=3_000))
    assert shares(world, group) == {first: 1_000, second: 2_000}
    rows = world.rows("SELECT terms->>'operation' AS operation FROM revisions ORDER BY amount")
    assert [row["operation"] for row in rows] == ["refund", "release"]
    assert {situation.status for situation in found.values()} == {Status.APPROVED}


async def test_field_34_a_payment_in_another_currency_gives_nothing_of_an_amount_and_all_of_its_own_in_full(world: World) -> None:
    [card] = await ordered(world, 4_000)
    euro = {"id": f"pi_{world.database.name}eur", "amount": 300, "currency": "EUR"}
    await world.order(amounts=(), payments=[{"id": card, "amount": 4_000, "currency": "USD"}, euro])
    await world.read(euro["id"], 300, currency="EUR")

    by_amount = await asked(world, wish(amount=1_000))
    assert (shares(world, by_amount), left_out(world, by_amount)) == ({card: 1_000}, {euro["id"]: LeftOut.OTHER_CURRENCY})
    only = await asked(world, wish(full=True, currency="eur"), "euros")
    assert shares(world, only) == {euro["id"]: None}
    group, _ = await quoted(world, wish(full=True), "full")
    assert shares(world, group) == {card: 4_000, euro["id"]: 300}


async def test_in_full_takes_what_is_left_when_each_part_is_quoted(world: World) -> None:
    first, second = await ordered(world, 4_000, 2_000, gift=1_000)
    group = await asked(world, wish(full=True))
    await world.quoted(payment_id=second, amount=500)
    for part in group.parts:
        await world.steps.prepare(part.refund_id)
    assert shares(world, group) == {first: 4_000, second: 1_500, "card-1": 1_000}


async def test_field_12_a_payment_that_holds_less_than_allocated_denies_its_part_and_is_never_overdrawn(world: World) -> None:
    first, second = await ordered(world, 4_000, 2_000)
    group = await asked(world, wish(amount=6_000))
    await world.quoted(payment_id=second, amount=1_000)

    found = {name_of(world, part.refund_id): await world.steps.prepare(part.refund_id) for part in group.parts}

    assert (found[second].status, found[second].code) == (Status.DENIED, Code.EXCEEDS_REFUNDABLE)
    assert found[first].status == Status.APPROVED


async def test_a_group_has_at_most_as_many_parts_as_can_be_seen_and_decided_together(world: World) -> None:
    paid = [{"id": f"pi_{world.database.name}{n}", "amount": 1_000, "currency": "USD"} for n in range(51)]
    await world.order(amounts=(), payments=paid[:50])
    await world.order(amounts=(), payments=paid[50:])

    error = await refused(world, wish(full=True))
    group = await asked(world, wish(amount=50_000))

    assert (error.code, error.ids) == (Code.GROUP_TOO_LARGE, {"parts": 51})
    async with world.api.begin() as connection:
        seen = await group_views.group(connection, group.id, integration=None, now=world.clock.now())
    assert {row["id"] for row in seen.members} == {part.refund_id for part in group.parts}
    assert len(seen.members) == 50


async def test_a_gift_card_that_the_order_names_no_more_gives_nothing(world: World) -> None:
    [card] = await ordered(world, 7_000, gift=2_000, lines=LINES)
    await world.order(amounts=(), payments=[{"id": card, "amount": 7_000, "currency": "USD"}], lines=LINES)

    group = await asked(world, wish(full=True))

    assert (shares(world, group), left_out(world, group)) == ({card: None}, {"card-1": LeftOut.NOT_CAPTURED})


async def test_a_payment_that_was_never_taken_does_not_make_an_order_one_of_several_currencies(world: World) -> None:
    [card] = await ordered(world, 9_000, gift=0, lines=LINES)
    paid = {"id": card, "amount": 9_000, "currency": "USD"}
    await world.order(amounts=(), payments=[paid, CARD | {"currency": "EUR"}], lines=LINES)
    await world.order(amounts=(), payments=[paid], lines=LINES)
    assert shares(world, await asked(world, wish(lines=of_lines(mug=1)))) == {card: 3_000}


async def test_somebody_elses_order_is_not_there(world: World) -> None:
    await ordered(world, 4_000)
    assert (await refused(world, wish(amount=100, customer_id="customer-2"))).code is Code.ORDER_NOT_FOUND


async def test_without_any_reading_what_the_merchant_recorded_is_allocated(world: World) -> None:
    first, second = await world.order(amounts=(4_000, 2_000))
    assert shares(world, await asked(world, wish(amount=5_000))) == {first: 4_000, second: 1_000}


# --- lines -------------------------------------------------------------------------------------------------------------------------------

LINES = [{"id": "shirt", "quantity": 3, "amount": 6_000}, {"id": "mug", "amount": 3_000}]


def of_lines(**units: int) -> list[dict[str, Any]]:
    return [{"id": line, "quantity": quantity} for line, quantity in units.items()]


async def test_field_46_lines_of_an_order_with_several_payments_go_back_to_exactly_nothing(world: World) -> None:
    [card] = await ordered(world, 7_000, gift=2_000, lines=LINES)
    came_to: list[int] = []
    for key, units in (("a", {"shirt": 1}), ("b", {"mug": 1}), ("c", {"shirt": 2})):
        group, found = await quoted(world, wish(lines=of_lines(**units)), key)
        assert all(situation.status == Status.AWAITING_CONSENT for situation in found.values()), "the customer named no amount"
        came_to.append(sum(amount or 0 for amount in shares(world, group).values()))
    assert came_to == [2_000, 3_000, 4_000]
    error = await refused(world, wish(lines=of_lines(shirt=1)))
    assert error.code in (Code.LINE_NOT_LEFT, Code.IDEMPOTENCY_KEY_REUSED)
    rows = world.rows(
        "SELECT p.processor_payment AS name, sum(r.amount) AS n FROM refunds r JOIN payments p ON p.id = r.payment_id GROUP BY 1"
    )
    assert {row["name"]: int(row["n"]) for row in rows} == {card: 7_000, "card-1": 2_000}


async def test_each_unit_goes_back_once_however_many_ask_at_once(world: World) -> None:
    await ordered(world, 7_000, gift=2_000, lines=LINES)
    found = await asyncio.gather(*(asked(world, wish(lines=of_lines(mug=1)), f"key-{n}") for n in range(6)), return_exceptions=True)
    made = [one for one in found if isinstance(one, AcceptedGroup)]
    codes = {one.code for one in found if isinstance(one, RefundError)}
    assert (len(made), codes) == (1, {Code.LINE_NOT_LEFT})


async def test_the_same_request_a_moment_later_is_the_same_group_although_its_units_are_gone(world: World) -> None:
    await ordered(world, 7_000, gift=2_000, lines=LINES)
    wanted = wish(lines=of_lines(mug=1))
    async with world.api.begin() as connection:
        first = await groups.accept(connection, world.clock, world.texts, actor=world.desk, key="key", request=wanted, readings={})
        later = asyncio.create_task(asked(world, wanted))
        while not world.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"):
            assert not later.done(), later
            await asyncio.sleep(0.02)
    again = await later
    assert (again.id, again.replayed) == (first.id, True)


async def test_units_of_a_group_that_came_to_nothing_can_be_asked_for_again(world: World) -> None:
    await ordered(world, 7_000, gift=2_000, lines=LINES)
    group, _ = await quoted(world, wish(lines=of_lines(mug=1)))
    await withdraw(world, group)
    assert len((await asked(world, wish(lines=of_lines(mug=1)), "again")).parts) == 1


async def withdraw(world: World, group: AcceptedGroup) -> dict[str, str]:
    async with world.api.begin() as connection:
        found = await deciding_groups.record_withdrawals(connection, world.clock, group_id=group.id, actor=world.desk)
    return {one.refund_id: one.outcome for one in found}


# --- judged and decided as one -----------------------------------------------------------------------------------------------------------


async def test_splitting_does_not_escape_the_ceiling_of_one_refund(world: World) -> None:
    await ordered(world, 6_000, 6_000)
    alone, situation = await world.quoted(payment_id=(await ordered(world, 6_000, 6_000))[0], amount=6_000)
    assert situation.status == Status.APPROVED
    await world.withdraw(alone)

    _, found = await quoted(world, wish(amount=12_000))

    assert {situation.status for situation in found.values()} == {Status.AWAITING_REVIEW}


async def in_currencies(world: World, **paid: int) -> AcceptedGroup:
    """A group in full over an order that was paid in several currencies."""
    payments = [{"id": f"pi_{code.lower()}", "amount": amount, "currency": code} for code, amount in paid.items()]
    await world.order(amounts=(), payments=payments)
    for payment in payments:
        await world.read(payment["id"], payment["amount"], currency=payment["currency"])
    return await asked(world, wish(full=True))


async def needed(world: World, group: AcceptedGroup) -> list[set[str]]:
    """The group's checks that ask for a person, part by part in their order."""
    found: list[set[str]] = []
    for part in group.parts:
        await world.steps.prepare(part.refund_id)
        [row] = world.rows("SELECT decision FROM revisions WHERE refund_id = %s", part.refund_id)
        checks = row["decision"]["checks"]
        found.append({one["id"] for one in checks if one["result"] == "require_review" and one["id"].startswith("group:")})
    return found


async def test_field_36_a_group_over_several_currencies_is_one_wish_from_its_first_part_on(world: World) -> None:
    for code, text in (("EUR", "1.00"), ("GBP", "1.25"), ("CAD", "0.75")):
        await rates_of(world, code, text)

    group = await in_currencies(world, USD=9_000, EUR=9_000, GBP=7_000, CAD=12_000)

    first, *_ = await needed(world, group)
    assert first >= {"group:ceiling", "group:customer_day_all", "group:customer_week"}, "it is $357.50 in four refunds"


async def test_field_36_a_part_without_a_rate_makes_the_whole_group_a_persons(world: World) -> None:
    group = await in_currencies(world, USD=1_000, EUR=1_000)

    first, _ = await needed(world, group)

    assert first == {"group:customer_day_all"}


async def test_field_36_small_parts_in_two_currencies_go_without_a_person(world: World) -> None:
    await rates_of(world, "EUR", "1.00")
    group = await in_currencies(world, USD=4_000, EUR=4_000)

    assert await needed(world, group) == [set(), set()]


async def in_review(world: World, *amounts: int, gift: int = 0) -> AcceptedGroup:
    """A group of which every part waits for a reviewer."""
    await ordered(world, *(amounts or (8_000, 7_000)), gift=gift)
    group, found = await quoted(world, wish(amount=sum(amounts or (8_000, 7_000)) + gift))
    assert {situation.status for situation in found.values()} == {Status.AWAITING_REVIEW}
    return group


async def test_one_decision_is_recorded_for_every_part_and_again_gets_the_same_answer(world: World) -> None:
    group = await in_review(world, 8_000, 7_000, gift=2_000)
    named = terms(world, group)
    assert await decide(world, group, world.ann, named=named) == [False, False, False]
    assert statuses(world, group) == {Status.APPROVED}
    assert await decide(world, group, world.ann, named=named) == [True, True, True]
    rows = world.rows("SELECT refund_id, terms_hash FROM decisions WHERE kind = 'review'")
    assert {row["refund_id"]: row["terms_hash"] for row in rows} == named


async def test_a_stop_holds_every_part_of_an_approved_group_and_a_resume_lets_each_go(world: World) -> None:
    names = await ordered(world, 12_000, 12_000)
    group, _ = await quoted(world, wish(amount=24_000))
    await decide(world, group, world.mia)
    assert statuses(world, group) == {"approved"}
    await stop(world, stopped=True)

    held = [await world.kept(part.refund_id, 12_000) for part in group.parts]

    assert [(one.status, one.code) for one in held] == [("held", "EMERGENCY_STOP")] * 2
    assert (world.count("operations"), world.count("attempts")) == (0, 0)
    await stop(world, stopped=False)
    for part in group.parts:
        await read_again(world, name_of(world, part.refund_id), 12_000)
        assert (await world.steps.resume_held(part.refund_id)).status == "approved"
        await world.attempted(part.refund_id, 12_000)
    assert sorted(row["p"] for row in world.rows(SENT_FOR)) == sorted(names)


SENT_FOR = "SELECT p.processor_payment AS p FROM operations o JOIN payments p ON p.id = o.payment_id"


async def test_a_denial_denies_every_part(world: World) -> None:
    group = await in_review(world)
    await decide(world, group, world.ann, "deny")
    assert statuses(world, group) == {Status.DENIED}


async def test_a_part_that_moved_on_is_named_and_nothing_is_recorded(world: World) -> None:
    group = await in_review(world)
    first, second = sorted(part.refund_id for part in group.parts)
    stale = terms(world, group) | {second: "0" * 64}
    error = await undecided(world, group, world.ann, stale)
    assert (error.code, error.ids["refund"], error.ids["group"]) == (Code.TERMS_CHANGED, second, group.id)

    await world.withdraw(second)
    error = await undecided(world, group, world.ann)
    assert (error.code, error.ids["refund"]) == (Code.NOT_AWAITING_REVIEW, second)
    assert world.row(first)["status"] == Status.AWAITING_REVIEW


async def test_every_part_that_waits_must_be_named(world: World) -> None:
    group = await in_review(world)
    first, second = sorted(part.refund_id for part in group.parts)
    error = await undecided(world, group, world.ann, {first: terms(world, group)[first]})
    assert (error.code, error.ids["refund"], error.ids["terms_hash"]) == (Code.TERMS_CHANGED, second, terms(world, group)[second])


async def test_a_part_that_is_not_yet_quoted_holds_the_decision_back(world: World) -> None:
    await ordered(world, 8_000, 7_000)
    group = await asked(world, wish(amount=15_000))
    first, second = (part.refund_id for part in group.parts)
    await world.steps.prepare(first)
    error = await undecided(world, group, world.ann, {first: world.row(first)["terms_hash"]})
    assert (error.code, error.ids["refund"]) == (Code.NOT_AWAITING_REVIEW, second)


async def test_one_part_alone_is_not_decided_while_another_waits(world: World) -> None:
    group = await in_review(world)
    first, second = (part.refund_id for part in group.parts)
    assert await world.refused(first, world.ann) is Code.DECIDED_TOGETHER
    await world.withdraw(second)
    await world.decide(first, world.ann)
    assert world.row(first)["status"] == Status.APPROVED


async def one_before_review(world: World) -> tuple[AcceptedGroup, str, str]:
    """A group of which one part waits for a reviewer and the other, revised, for the customer."""
    await ordered(world, 20_000, 20_000)
    group, _ = await quoted(world, wish(amount=20_100))
    waits, revised = (part.refund_id for part in group.parts)
    await world.revise(revised, world.bob, amount=15_000)
    assert [world.row(refund)["status"] for refund in (waits, revised)] == ["awaiting_review", "awaiting_consent"]
    return group, waits, revised


async def test_an_approval_is_refused_with_the_part_that_has_not_come_so_far_and_what_that_waits_for(world: World) -> None:
    group, waits, revised = await one_before_review(world)
    said = f"{revised} of the same group waits for the customer's consent"

    error = await undecided(world, group, world.mia, {waits: world.row(waits)["terms_hash"]})
    assert (error.code, error.detail) == (Code.NOT_AWAITING_REVIEW, f"{said}, and a group is approved together.")
    with pytest.raises(RefundError) as alone:
        await world.decide(waits, world.mia)
    assert (alone.value.code, alone.value.detail) == (Code.DECIDED_TOGETHER, f"{said}.")
    async with world.api.begin() as connection:
        seen = await views.refund(connection, waits, integration=None, now=world.clock.now())
        listed = await views.page(connection, views.Filters(group_id=group.id), limit=9, now=world.clock.now())
    for row in (seen.row, *(row for row in listed if row["id"] == waits)):
        assert waits_for(dict(row)).endswith(f" (only a denial yet: {said})")


@pytest.mark.parametrize("alone", [True, False])
async def test_a_denial_needs_no_other_part(world: World, alone: bool) -> None:
    group, waits, revised = await one_before_review(world)
    if alone:
        await world.decide(waits, world.ann, "deny")
    else:
        await decide(world, group, world.ann, "deny", named={waits: world.row(waits)["terms_hash"]})
    assert [world.row(refund)["status"] for refund in (waits, revised)] == ["denied", "awaiting_consent"]


async def test_a_part_of_a_group_is_denied_alone_also_while_another_waits_for_a_decision(world: World) -> None:
    group = await in_review(world)
    first, second = (part.refund_id for part in group.parts)
    await world.decide(first, world.ann, "deny")
    assert [world.row(refund)["status"] for refund in (first, second)] == ["denied", "awaiting_review"]


async def test_a_customer_declines_one_part_also_while_another_is_not_quoted(world: World) -> None:
    await ordered(world, 4_000, 2_000)
    group = await asked(world, wish(full=True))
    first, second = (part.refund_id for part in group.parts)
    await world.steps.prepare(first)
    with pytest.raises(RefundError) as raised:
        await world.consent(first)
    assert (raised.value.code, raised.value.detail) == (
        Code.DECIDED_TOGETHER,
        f"{second} of the same group is still being read and quoted.",
    )

    await world.consent(first, agreed=False)

    assert [world.row(refund)["status"] for refund in (first, second)] == ["withdrawn", "received"]


async def test_field_57_the_time_of_a_part_does_not_run_while_its_group_cannot_be_approved(world: World) -> None:
    group, waits, revised = await one_before_review(world)
    for _ in range(5):
        world.clock.advance(hours=12)
        await world.steps.pass_deadline(waits)
    now = world.row(waits)
    assert (now["status"], now["rung"]) == ("awaiting_review", 0)

    await world.consent(revised)
    until = world.clock.at + timedelta(hours=24)
    world.clock.at = now["review_by"]
    assert world.clock.at < until
    await world.steps.pass_deadline(waits)
    assert world.row(waits)["review_by"] == until
    anew = [entry["data"]["until"] for entry in world.ledger(waits) if entry["type"] == "review_time_anew"]
    assert (len(anew), anew[-1]) == (3, rfc3339(until))
    await decide(world, group, world.mia)
    assert statuses(world, group) == {Status.APPROVED}


async def test_field_57_once_a_group_can_be_decided_silence_ends_it(world: World) -> None:
    group, waits, revised = await one_before_review(world)
    await world.consent(revised)
    for _ in range(8):
        world.clock.advance(hours=12)
        for part in group.parts:
            await world.steps.pass_deadline(part.refund_id)
    assert [(world.row(refund)["status"], world.row(refund)["code"]) for refund in (waits, revised)] == [("expired", "REVIEW_EXPIRED")] * 2


async def test_field_56_whoever_asked_for_the_group_cannot_approve_any_of_it(world: World) -> None:
    await ordered(world, 8_000, 7_000)
    async with world.api.begin() as connection:
        group = await groups.accept(
            connection, world.clock, world.texts, actor=world.ann, key="own", request=wish(amount=15_000), readings={}
        )
    for part in group.parts:
        await world.steps.prepare(part.refund_id)
    assert (await undecided(world, group, world.ann)).code is Code.SELF_APPROVAL
    await decide(world, group, world.bob)
    assert statuses(world, group) == {Status.APPROVED}


async def test_a_role_that_is_too_low_for_the_whole_is_too_low_for_each_part(world: World) -> None:
    group = await in_review(world, 40_000, 30_000)
    assert (await undecided(world, group, world.ann)).code is Code.ROLE_TOO_LOW
    await decide(world, group, world.mia)
    assert statuses(world, group) == {Status.APPROVED}


async def test_what_is_no_part_of_the_group_is_refused(world: World) -> None:
    group = await in_review(world)
    error = await undecided(world, group, world.ann, terms(world, group) | {"rf_00000000000000000000000000": "0" * 64})
    assert (error.code, error.field) == (Code.INVALID_FIELD, "terms")


async def consent(world: World, group: AcceptedGroup, *, agreed: bool = True, named: dict[str, str | None] | None = None) -> None:
    async with world.api.begin() as connection:
        await deciding_groups.record_consents(
            connection, world.clock, group_id=group.id, actor=world.desk, agreed=agreed, terms=named or terms(world, group)
        )


@pytest.mark.parametrize(("agreed", "status"), [(True, Status.APPROVED), (False, Status.WITHDRAWN)])
async def test_consent_is_given_and_declined_for_every_part_together(world: World, agreed: bool, status: Status) -> None:
    await ordered(world, 4_000, 2_000)
    group, found = await quoted(world, wish(full=True))
    assert {situation.status for situation in found.values()} == {Status.AWAITING_CONSENT}
    first = group.parts[0].refund_id
    with pytest.raises(RefundError) as raised:
        await world.consent(first)
    assert raised.value.code is Code.DECIDED_TOGETHER
    with pytest.raises(RefundError) as raised:
        await consent(world, group, named={first: world.row(first)["terms_hash"]})
    assert raised.value.code is Code.TERMS_CHANGED
    assert statuses(world, group) == {Status.AWAITING_CONSENT}

    await consent(world, group, agreed=agreed)

    assert statuses(world, group) == {status}


async def test_a_withdrawal_stops_every_part_while_nothing_was_sent(world: World) -> None:
    group = await in_review(world)
    assert set((await withdraw(world, group)).values()) == {"withdrawn"}
    assert statuses(world, group) == {Status.WITHDRAWN}
    assert set((await withdraw(world, group)).values()) == {"withdrawn"}


async def test_a_withdrawal_says_of_each_part_what_became_of_it(world: World) -> None:
    group = await in_review(world)
    await decide(world, group, world.ann)
    sent, waiting = sorted(part.refund_id for part in group.parts)
    await world.attempted(sent, captured=world.row(sent)["amount"])

    assert await withdraw(world, group) == {sent: "too_late", waiting: "withdrawn"}

    assert (world.row(sent)["status"], world.row(waiting)["status"]) == (Status.SUBMITTING, Status.WITHDRAWN)


async def test_a_withdrawal_of_which_nothing_is_left_is_too_late(world: World) -> None:
    group = await in_review(world)
    await decide(world, group, world.ann)
    for part in group.parts:
        await world.attempted(part.refund_id, captured=world.row(part.refund_id)["amount"])
    with pytest.raises(RefundError) as raised:
        await withdraw(world, group)
    assert raised.value.code is Code.TOO_LATE
    assert set(raised.value.ids["refunds"]) == {part.refund_id for part in group.parts}


async def test_a_day_limit_counts_the_group_once_whichever_part_is_quoted_first(world: World) -> None:
    await world.policy(sample_policy_text().replace("refunds_per_week: 3", "refunds_per_week: 2"))
    await ordered(world, 1_000, 1_000, gift=1_000)
    _, found = await quoted(world, wish(amount=3_000))
    assert {situation.status for situation in found.values()} == {Status.AWAITING_REVIEW}, "three refunds in a week of two"


async def test_the_fingerprint_of_a_group_stays_while_a_part_is_under_way(world: World) -> None:
    await ordered(world, 7_000, 5_000)
    group = await asked(world, wish(amount=12_000))
    first, second = (part.refund_id for part in group.parts)
    await world.withdraw(first)
    world.clock.advance(days=500)

    early = await Retention(world.api, world.settings).run()
    repeated = await asked(world, wish(amount=12_000))
    await world.withdraw(second)
    world.clock.advance(days=500)
    late = await Retention(world.api, world.settings).run()

    assert (early.removed[Kept.FINGERPRINTS], late.removed[Kept.FINGERPRINTS]) == (1, 2), (
        "the part that is over, then the other and the group"
    )
    assert (repeated.id, repeated.replayed) == (group.id, True)
    assert [row["body_hash"] for row in world.rows("SELECT body_hash FROM refund_groups")] == [""]
