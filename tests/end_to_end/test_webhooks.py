"""Real events of the sandbox, over HTTP to the API, through the inbox and a watch to the record: what happens at the processor becomes known by itself."""

import asyncio
from typing import Any

import httpx
import psycopg
from psycopg.rows import dict_row

from deploy.local.postgres import SUPERUSER
from tests.end_to_end.whole import Goods, Whole, eventually, only, order_of


def rows(whole: Whole, query: str, *values: Any) -> list[dict[str, Any]]:
    """What is stored."""
    server = whole.stack.context.postgres
    assert server is not None
    address = server.url(SUPERUSER).replace("+psycopg", "")
    with psycopg.connect(address) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode(), values).fetchall()


async def events(whole: Whole, goods: Goods) -> list[tuple[str, str]]:
    """The events about a payment, with how far each has come."""
    found = rows(whole, "SELECT type, state FROM events WHERE processor_payment = %s ORDER BY received_at, id", goods.intent)
    return [(row["type"], row["state"]) for row in found]


async def all_done(whole: Whole, goods: Goods, *types: str) -> None:
    """Wait until events of these types, and no others, have come in about the payment and are dealt with."""

    async def look() -> list[tuple[str, str]]:
        return sorted(set(await events(whole, goods)))

    await eventually(look, lambda found: found == sorted((kind, "done") for kind in set(types)))


async def made(whole: Whole, goods: Goods) -> dict[str, Any]:
    """The one refund of a payment at the processor."""
    [refund] = (await whole.truth(goods.intent)).refunds
    return refund


async def external(whole: Whole, refund: str) -> list[dict[str, Any]]:
    """The entries that say that a refund was made without us."""
    return rows(whole, "SELECT actor, data FROM ledger WHERE type = 'external_refund' AND data->>'processor_refund' = %s", refund)


async def disturb(whole: Whole, goods: Goods, *kinds: str | dict[str, Any]) -> None:
    """Have every delivery about a payment disturbed."""
    await whole.disturb(goods.intent, *kinds, times=None, on="webhook")


async def test_a_refund_of_ours_is_told_of_and_nothing_changes_by_it(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    refund = await whole.asked_for(goods)
    before = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[4_000])

    await all_done(whole, goods, "refund.created", "charge.refunded")

    after = await whole.view(refund)
    assert after["version"] == before["version"]
    assert [entry for entry in await whole.story(refund) if entry == "to succeeded"] == ["to succeeded"]


async def test_field_19_events_that_come_before_the_answer_make_no_second_refund(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    await disturb(whole, goods, "duplicate")
    await whole.disturb(goods.intent, {"kind": "hang", "ms": 1_500})

    refund = await whole.asked_for(goods)

    async def story() -> list[str]:
        return await whole.story(refund)

    # The events are there before our own answer, twice; whichever is recorded first, the other finds the record made.
    told = await eventually(story, lambda found: "receipt" in found)
    assert told.count("to succeeded") == 1
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[4_000])
    await all_done(whole, goods, "refund.created", "charge.refunded")
    assert await external(whole, (await made(whole, goods))["id"]) == []


async def test_field_17_a_refund_that_fails_after_its_run_has_ended_is_known_and_not_sent_again(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    refund = await whole.asked_for(goods)
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[4_000])

    await whole.control(
        "POST", f"/refunds/{(await made(whole, goods))['id']}", {"status": "failed", "failure_reason": "expired_or_canceled_card"}
    )

    async def look() -> str:
        return (await whole.view(refund))["status"]

    await eventually(look, lambda status: status == "failed")
    view = await whole.assert_ended(refund, "failed", "PROCESSOR_FAILED", goods=goods, creates=1, returned=[])
    assert view["detail"] == "expired_or_canceled_card"
    assert (await whole.story(refund))[-2:] == ["to failed", "compensated"]
    another = await whole.asked_for(goods, 3_999)
    assert (await whole.view(another))["status"] != "denied", "what can be refunded is restored"


async def test_field_22_reordered_and_doubled_events_end_as_the_processor_says(whole: Whole) -> None:
    goods = await whole.goods(4_000, refund_outcome={"initial": "pending"})
    await disturb(whole, goods, "hold", "duplicate")
    refund = await whole.asked_for(goods)
    await whole.until(refund, "pending")
    found = await made(whole, goods)
    for status in ("succeeded", "failed"):
        await whole.control("POST", f"/refunds/{found['id']}", {"status": status})

    await whole.control("POST", "/webhooks/release", {"reverse": True})

    await whole.assert_ended(refund, "failed", "PROCESSOR_FAILED", goods=goods, creates=1, returned=[])
    story = await whole.story(refund)
    assert (story.count("to failed"), story.count("to pending")) == (1, 1)


async def test_field_16_a_pending_refund_becomes_known_by_its_event(whole: Whole) -> None:
    for state, status, code in (("succeeded", "succeeded", None), ("canceled", "failed", "PROCESSOR_FAILED")):
        goods = await whole.goods(4_000, refund_outcome={"initial": "requires_action"})
        refund = await whole.asked_for(goods)
        await whole.until(refund, "pending")
        await whole.control("POST", f"/refunds/{(await made(whole, goods))['id']}", {"status": state})

        await whole.assert_ended(refund, status, code, goods=goods, creates=1, returned=[4_000] if code is None else [])


async def test_field_33_a_refund_from_the_dashboard_is_imported_before_anybody_asks(whole: Whole) -> None:
    goods = await whole.goods(5_000)
    outside = await whole.control("POST", "/refunds", {"payment_intent": goods.intent, "amount": 2_000})

    async def look() -> list[str]:
        return [entry["actor"] for entry in await external(whole, outside["id"])]

    assert await eventually(look, lambda found: found != []) == ["external"]
    await all_done(whole, goods, "refund.created", "charge.refunded")
    refund = await whole.asked_for(goods, 4_000)
    view = await whole.assert_ended(refund, "denied", "EXCEEDS_REFUNDABLE", goods=goods, creates=0, returned=[2_000])
    assert view["context"]["refundable_besides_this"]["remaining"] == 3_000
    assert len(await external(whole, outside["id"])) == 1


async def test_field_21_a_refund_of_an_order_that_is_sent_later_is_linked(whole: Whole) -> None:
    number = whole.number()
    goods = Goods(f"order-{number}", f"customer-{number}", f"pi_{number}", 5_000, "USD")
    await whole.control("POST", "/payments", {"id": goods.intent, "amount": 5_000, "currency": "usd"})
    outside = await whole.control("POST", "/refunds", {"payment_intent": goods.intent, "amount": 2_000})

    async def arrived() -> list[tuple[str, str]]:
        return await events(whole, goods)

    await eventually(arrived, lambda found: [state for _, state in found] == ["waiting", "waiting"])
    answer = await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods))
    assert answer.status_code == 201

    await all_done(whole, goods, "refund.created", "charge.refunded")
    assert len(await external(whole, outside["id"])) == 1


async def test_field_32_a_dispute_that_opens_while_a_reviewer_thinks_ends_the_refund(whole: Whole) -> None:
    for dispute, code in (("needs_response", "PAYMENT_DISPUTED"), ("lost", "ALREADY_RETURNED")):
        goods, refund = await whole.in_review()
        await whole.control("POST", "/disputes", {"payment_intent": goods.intent, "status": dispute})

        await whole.assert_ended(refund, "denied", code, goods=goods, creates=0, returned=[])
        late = await whole.decide("rita", refund)
        assert late.status_code == 409


async def test_a_forged_event_is_refused_and_stops_nobody(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    address = f"{whole.stack.addresses['api']}/webhooks/stripe"
    async with httpx.AsyncClient(trust_env=False) as stranger:
        forged = [stranger.post(address, json={"id": "evt_1"}, headers={"Stripe-Signature": "t=1,v1=00"}) for _ in range(40)]
        answers = await asyncio.gather(*forged)
    assert {only(answer, 400, "SIGNATURE_INVALID")["code"] for answer in answers} == {"SIGNATURE_INVALID"}

    refund = await whole.asked_for(goods)
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[4_000])
    await all_done(whole, goods, "refund.created", "charge.refunded")
