"""Refunds by line: priced at the quote from what was captured, and each unit once, however many ask for it at once."""

import asyncio
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.messages import Situation
from refunds.policy import sample_policy_text
from refunds.processor import PaymentStatus
from refunds.status import RESERVING, Status
from tests.store.world import World

LINES = [
    {"id": "shirt", "category": "clothes", "quantity": 3, "amount": 6_000, "tax": 1_200, "shipped": 3, "returned": 1},
    {"id": "mug", "category": "kitchen", "amount": 4_000, "tax": 800},
]
WHOLE = 12_600
RETURNS = "\nreturns:\n  require_return_for: [clothes]\n  not_returned: {setting}\n"


async def ordered(world: World, captured: int = WHOLE, reading: dict[str, Any] | None = None, **more: Any) -> str:
    """An order of shirts and a mug with tax and shipping, 126.00 in all, and its payment, just read."""
    [payment] = await world.order(amounts=(WHOLE,), **({"tax": 2_100, "shipping": 500, "lines": LINES} | more))
    await world.read(payment, captured, **(reading or {}))
    return payment


def named(**units: int) -> list[dict[str, Any]]:
    return [{"id": line, "quantity": quantity} for line, quantity in units.items()]


async def by_lines(world: World, *, shipping: bool = False, **units: int) -> tuple[str, Situation]:
    """Ask for units without an amount."""
    return await world.quoted(amount=None, currency=None, lines=named(**units), shipping=shipping)


def breakdown(world: World, refund_id: str) -> dict[str, Any]:
    [row] = world.rows("SELECT facts FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund_id)
    return row["facts"]["breakdown"]


def check(world: World, refund_id: str, name: str) -> str:
    [row] = world.rows("SELECT decision FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund_id)
    [found] = [one["result"] for one in row["decision"]["checks"] if one["id"] == name]
    return found


async def refused(world: World, **fields: Any) -> RefundError:
    """Have a request refused at the door, with nothing stored."""
    before = world.count("refunds")
    with pytest.raises(RefundError) as raised:
        await world.accept(world.request(**fields))
    assert world.count("refunds") == before
    return raised.value


async def test_lines_are_priced_from_what_was_captured_and_the_customer_is_asked(world: World) -> None:
    await ordered(world)
    refund_id, quoted = await by_lines(world, shipping=True, shirt=2)
    row, parts = world.row(refund_id), breakdown(world, refund_id)
    assert (quoted.status, row["amount"], row["currency"]) == (Status.AWAITING_CONSENT, 4_800 + 600, "USD")
    assert parts["amount"] == 5_400
    assert parts["lines"] == [{"quantity": 2, "ordered": 3, "earlier": 0, "amount": 4_800, "tax": 800, "discount": 0, "left": 2_400}]
    assert parts["shipping"] == {"amount": 600, "tax": 100, "discount": 0}
    assert row["sources"]["amount"] == "system_of_record"
    terms = world.rows("SELECT terms FROM revisions WHERE refund_id = %s", refund_id)[0]["terms"]
    assert (terms["amount"], terms["order_version"]) == (5_400, 1)


async def test_field_46_lines_one_after_the_other_and_the_shipping_end_at_exactly_what_was_captured(world: World) -> None:
    await ordered(world, lines=[{"id": "shirt", "quantity": 3, "amount": 10_000, "tax": 2_000}], tax=2_100)
    amounts: list[int] = []
    for _ in range(3):
        refund_id, _ = await by_lines(world, shirt=1)
        amounts.append(world.row(refund_id)["amount"])
    refund_id, _ = await by_lines(world, shipping=True)
    amounts.append(world.row(refund_id)["amount"])
    assert amounts == [4_000, 4_000, 4_000, 600]
    last, nothing = await world.quoted(full=True)
    assert (nothing.status, world.row(last)["code"]) == (Status.DENIED, Code.ALREADY_REFUNDED)


async def test_field_15_two_requests_for_the_last_unit_at_once_give_it_once(world: World) -> None:
    await ordered(world)
    await by_lines(world, shirt=2)
    both = [await world.accept(world.request(amount=None, currency=None, lines=named(shirt=1))) for _ in range(2)]
    await asyncio.gather(*(world.steps.prepare(refund_id) for refund_id in both))
    rows = sorted((world.row(refund_id) for refund_id in both), key=lambda row: row["status"])
    assert [(row["status"], row["code"]) for row in rows] == [(Status.AWAITING_CONSENT, None), (Status.DENIED, Code.LINE_NOT_LEFT)]
    assert [row["amount"] for row in rows] == [2_400, None]


async def test_field_15_twenty_requests_for_three_units_at_once_give_three(world: World) -> None:
    await ordered(world)
    asked = [await world.accept(world.request(amount=None, currency=None, lines=named(shirt=1))) for _ in range(20)]
    await asyncio.gather(*(world.steps.prepare(refund_id) for refund_id in asked))
    rows = [world.row(refund_id) for refund_id in asked]
    assert sorted(row["amount"] for row in rows if row["status"] != Status.DENIED) == [2_400] * 3
    assert [row["code"] for row in rows if row["status"] == Status.DENIED] == [Code.LINE_NOT_LEFT] * 17


@pytest.mark.parametrize("how", ["declined", "withdrawn"])
async def test_units_of_refunds_that_came_to_nothing_are_free_again(world: World, how: str) -> None:
    await ordered(world)
    refund_id, _ = await by_lines(world, mug=1)
    _, meanwhile = await by_lines(world, mug=1)
    assert meanwhile.status == Status.DENIED
    recorded = await (world.consent(refund_id, agreed=False) if how == "declined" else world.withdraw(refund_id))
    await world.steps.apply_message(refund_id, "consent" if how == "declined" else "withdraw", recorded.id)
    assert world.row(refund_id)["status"] in (Status.DENIED, Status.WITHDRAWN)
    _, again = await by_lines(world, mug=1)
    assert again.status in (Status.AWAITING_CONSENT, Status.AWAITING_REVIEW)


@pytest.mark.parametrize("status", list(Status))
async def test_units_are_taken_as_long_as_their_refund_reserves_or_has_returned_money(world: World, status: Status) -> None:
    await ordered(world)
    refund_id, _ = await by_lines(world, mug=1)
    world.execute("UPDATE refunds SET status = %s WHERE id = %s", status.value, refund_id)
    later, _ = await by_lines(world, mug=1)
    taken = status in RESERVING | {Status.SUCCEEDED}
    assert (world.row(later)["code"] == Code.LINE_NOT_LEFT) is taken


async def test_an_amount_that_the_lines_come_to_is_the_customers_consent_and_another_goes_to_a_person(world: World) -> None:
    await ordered(world)
    right, quoted = await world.quoted(amount=4_800, lines=named(shirt=2))
    assert (quoted.status, check(world, right, "lines_amount")) == (Status.APPROVED, "pass")
    other, quoted = await world.quoted(amount=4_700, lines=named(mug=1))
    assert (quoted.status, check(world, other, "lines_amount")) == (Status.AWAITING_REVIEW, "require_review")
    assert (world.row(other)["amount"], breakdown(world, other)["amount"]) == (4_700, 4_800)
    _, gone = await by_lines(world, mug=1)
    assert gone.status == Status.DENIED


async def test_a_stated_amount_for_a_line_that_costs_nothing_goes_to_a_person(world: World) -> None:
    await ordered(world, lines=[{"id": "shirt", "amount": 12_100}, {"id": "sticker", "amount": 0, "tax": 0}], tax=0)
    refund_id, quoted = await world.quoted(amount=500, lines=named(sticker=1))
    assert (quoted.status, check(world, refund_id, "lines_amount")) == (Status.AWAITING_REVIEW, "require_review")


async def test_equal_amounts_of_other_lines_are_two_wishes_and_the_same_line_again_may_be_one(world: World) -> None:
    await ordered(world, lines=[{"id": "left", "quantity": 2, "amount": 6_050}, {"id": "right", "quantity": 2, "amount": 6_050}], tax=0)
    first, _ = await by_lines(world, left=1)
    other, _ = await by_lines(world, right=1)
    again, _ = await by_lines(world, left=1)
    amounts = [world.row(refund_id)["amount"] for refund_id in (first, other, again)]
    assert amounts == [3_025] * 3
    assert [world.row(refund_id)["possible_duplicate_of"] for refund_id in (first, other, again)] == [None, None, first]
    by_amount, _ = await world.quoted(amount=3_025)
    assert world.row(by_amount)["possible_duplicate_of"] == again


async def test_field_46_field_48_where_less_was_captured_than_ordered_a_person_looks_at_the_share(world: World) -> None:
    await ordered(world, captured=6_300)
    refund_id, quoted = await world.quoted(amount=2_400, lines=named(mug=1))
    assert (quoted.status, check(world, refund_id, "lines_captured")) == (Status.AWAITING_REVIEW, "require_review")
    assert world.row(refund_id)["amount"] == 2_400
    assert (breakdown(world, refund_id)["captured"], breakdown(world, refund_id)["order_total"]) == (6_300, 12_600)


async def test_what_the_order_alone_makes_impossible_is_refused_at_the_door(world: World) -> None:
    await ordered(world)
    error = await refused(world, amount=None, currency=None, lines=named(shirt=1, hat=1))
    assert (error.code, error.field) == (Code.LINE_NOT_FOUND, "lines.1.id")
    error = await refused(world, amount=None, currency=None, lines=named(shirt=4))
    assert (error.code, error.field, error.ids) == (Code.LINE_NOT_LEFT, "lines.0.quantity", {"left": 3})
    payments = await world.order(ref="order-2", amounts=(5_000, 7_600), lines=LINES)
    for payment in (None, payments[0]):
        error = await refused(world, order_id="order-2", payment_id=payment, amount=None, currency=None, lines=named(mug=1))
        assert error.code is Code.LINES_OF_SEVERAL_PAYMENTS


async def test_what_only_the_quote_can_see_is_denied_by_its_own_code(world: World) -> None:
    free = [{"id": "shirt", "amount": 12_100}, {"id": "sticker", "amount": 0, "tax": 0}]
    await ordered(world, lines=free, tax=0)
    refund_id, _ = await by_lines(world, sticker=1)
    assert world.row(refund_id)["code"] == Code.LINES_COME_TO_NOTHING
    asked = await world.accept(world.request(amount=None, currency=None, lines=named(shirt=1)))
    [payment] = world.rows("SELECT processor_payment FROM payments")
    kept = [{"id": payment["processor_payment"], "amount": WHOLE, "currency": "USD"}]
    await world.order(amounts=(), lines=[{"id": "coat", "amount": 12_100}], payments=kept)
    await world.steps.prepare(asked)
    assert (world.row(asked)["status"], world.row(asked)["code"]) == (Status.DENIED, Code.LINE_NOT_FOUND)
    await world.order(amounts=(), lines=[{"id": "coat", "amount": 0}], payments=kept)
    refund_id, _ = await by_lines(world, coat=1)
    assert world.row(refund_id)["code"] == Code.LINES_NOT_PRICED


async def test_lines_of_money_that_went_back_by_amount_are_never_more_than_what_is_left(world: World) -> None:
    await ordered(world)
    await world.quoted(amount=10_000)
    refund_id, _ = await by_lines(world, shirt=3)
    assert world.row(refund_id)["code"] == Code.EXCEEDS_REFUNDABLE


async def test_a_part_of_an_authorisation_by_line_goes_to_a_person(world: World) -> None:
    await ordered(world, captured=0, reading={"status": PaymentStatus.AUTHORISED, "capturable": WHOLE})
    refund_id, quoted = await world.quoted(amount=4_800, lines=named(mug=1))
    assert (quoted.status, world.row(refund_id)["amount"]) == (Status.AWAITING_REVIEW, 4_800)
    assert world.row(refund_id)["terms_hash"] is None


async def test_all_lines_and_the_shipping_of_an_authorisation_are_its_release(world: World) -> None:
    await ordered(world, captured=0, reading={"status": PaymentStatus.AUTHORISED, "capturable": WHOLE})
    refund_id, quoted = await by_lines(world, shipping=True, shirt=3, mug=1)
    [revision] = world.rows("SELECT terms FROM revisions WHERE refund_id = %s", refund_id)
    assert (quoted.status, revision["terms"]["operation"], revision["terms"]["amount"]) == (Status.AWAITING_CONSENT, "release", WHOLE)


@pytest.mark.parametrize(("price", "amount"), [(4_000, 4_800), (4_600, 5_400)])
async def test_terms_that_lapsed_are_priced_anew_and_consented_to_again(world: World, price: int, amount: int) -> None:
    payment = await ordered(world, tax=0, shipping=600)
    refund_id, first = await by_lines(world, mug=1)
    await world.consent(refund_id)
    paid = [{"id": payment, "amount": WHOLE, "currency": "USD"}]
    await world.order(amounts=(), payments=paid, lines=[LINES[0], LINES[1] | {"amount": price}], shipping=4_600 - price)
    [revision] = world.rows("SELECT expires_at FROM revisions")
    world.clock.at = revision["expires_at"]
    held = await world.kept(refund_id, WHOLE)

    again = await world.steps.resume_held(refund_id)

    assert (first.amount, held.status, held.code) == (4_800, "held", "TERMS_EXPIRED")
    # Also at the same price: the customer had agreed to terms that are gone, and never named an amount.
    assert (again.status, again.revision, again.amount) == (Status.AWAITING_CONSENT, 2, amount)
    assert breakdown(world, refund_id)["lines"][0]["earlier"] == 0, "its own units do not count against it"


async def test_a_payment_without_a_capture_says_so_and_not_that_lines_cost_nothing(world: World) -> None:
    await ordered(world, captured=0, reading={"status": PaymentStatus.CANCELED})
    refund_id, _ = await by_lines(world, mug=1)
    assert world.row(refund_id)["code"] == Code.PAYMENT_CANCELED


async def test_another_reason_by_a_reviewer_keeps_the_lines_price_and_another_amount_replaces_it(world: World) -> None:
    await ordered(world)
    refund_id, _ = await world.quoted(amount=None, currency=None, lines=named(mug=1), reason=None)
    await world.revise(refund_id, world.ann, reason="wrong_item")
    row = world.row(refund_id)
    assert (row["revision"], row["amount"], row["sources"]["amount"]) == (2, 4_800, "system_of_record")
    await world.revise(refund_id, world.ann, amount=4_000)
    row = world.row(refund_id)
    assert (row["revision"], row["amount"], row["sources"]["amount"]) == (3, 4_000, "person")
    assert breakdown(world, refund_id)["amount"] == 4_800
    _, gone = await by_lines(world, mug=1)
    assert gone.status == Status.DENIED


async def test_everything_instead_of_the_lines_by_a_reviewer_stays_everything_when_it_is_quoted_again(world: World) -> None:
    await ordered(world)
    refund_id, _ = await by_lines(world, mug=1)
    await world.revise(refund_id, world.mia, full=True)
    await world.consent(refund_id)
    await world.decide(refund_id, world.ann)
    [expires] = world.rows("SELECT expires_at FROM revisions WHERE revision = 2")
    world.clock.at = expires["expires_at"]
    await world.kept(refund_id, WHOLE)

    again = await world.steps.resume_held(refund_id)

    facts = [row["facts"] for row in world.rows("SELECT facts FROM revisions ORDER BY revision")]
    assert (again.revision, again.amount) == (3, WHOLE)
    assert [one["request"]["full"] for one in facts] == [False, True, True]
    assert [one["request"]["lines_amount"] for one in facts] == [4_800, None, None]
    assert ["breakdown" in one for one in facts] == [True, False, False]


@pytest.mark.parametrize(("setting", "status"), [("review", Status.AWAITING_REVIEW), ("deny", Status.DENIED)])
async def test_goods_that_must_come_back_and_have_not_are_as_the_policy_says(world: World, setting: str, status: Status) -> None:
    await world.policy(sample_policy_text() + RETURNS.format(setting=setting))
    await ordered(world)
    back, quoted = await world.quoted(amount=2_400, lines=named(shirt=1))
    assert (quoted.status, check(world, back, "lines_returned")) == (Status.APPROVED, "pass")
    away, quoted = await world.quoted(amount=2_400, lines=named(shirt=1))
    assert quoted.status == status
    assert check(world, away, "lines_returned") == ("deny" if setting == "deny" else "require_review")
    assert (world.row(away)["code"] == Code.LINES_NOT_RETURNED) is (setting == "deny")
    other, quoted = await by_lines(world, mug=1)
    assert (quoted.status, check(world, other, "lines_returned")) == (Status.AWAITING_CONSENT, "pass")
