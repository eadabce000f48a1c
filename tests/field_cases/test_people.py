"""Field reports 56, 57, 62 on the whole stack: who approves, until when, and whose payment it is."""

from typing import Any

import pytest

from tests.end_to_end.whole import Whole, only


async def refusals(whole: Whole, refund: str) -> list[tuple[str, str]]:
    entries = [entry for entry in await whole.ledger(refund) if entry["type"] == "decision_refused"]
    return [(entry["actor"], entry["data"]["code"]) for entry in entries]


async def test_field_56_nobody_approves_what_they_asked_for_at_any_amount(whole: Whole) -> None:
    goods = await whole.goods(100, category="flowers")
    refund = await whole.asked_for(goods, who="bot", requested_by="uma")
    await whole.agree(refund, "desk")
    await whole.until(refund, "awaiting_review")

    only(await whole.decide("uma", refund), 403, "SELF_APPROVAL")
    only(await whole.decide("bot", refund), 403, "FORBIDDEN")
    assert await refusals(whole, refund) == [(whole.ids["uma"], "SELF_APPROVAL"), (whole.ids["bot"], "FORBIDDEN")]
    assert (await whole.truth(goods.intent)).creates == []
    assert (await whole.decide("mona", refund)).status_code == 200
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[100])


async def test_field_56_the_second_of_two_is_somebody_else(whole: Whole) -> None:
    goods, refund = await whole.in_review(9_000, category="jewellery")

    await whole.decide("uma", refund)
    again = await whole.decide("uma", refund)
    view = await whole.view(refund)

    assert (again.json()["replayed"], view["status"]) == (True, "awaiting_review")
    assert (await whole.truth(goods.intent)).creates == []
    await whole.decide("rita", refund)
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[9_000])


async def test_field_57_after_the_deadline_nothing_is_approved_and_nobody_is_told_it_was(whole: Whole) -> None:
    goods, refund = await whole.in_review(9_000, category="perishable")
    terms = (await whole.view(refund))["terms_hash"]

    async def queue(name: str) -> list[str]:
        answer = await whole.call("mona", "GET", f"/v1/refunds?queue={name}&customer_id={goods.customer}")
        return [found["id"] for found in answer.json()["refunds"]]

    assert await queue("team") == [refund]
    await whole.until(refund, "awaiting_review", queue="managers")
    assert (await queue("team"), await queue("managers")) == ([], [refund])
    await whole.until(refund, "expired")

    only(await whole.decide("mona", refund, terms_hash=terms), 409, "REVIEW_EXPIRED")
    only(await whole.act("rita", refund, "revisions", {"terms_hash": terms, "amount": 100, "currency": "USD"}), 409, "NOT_REVISABLE")

    assert await queue("managers") == []
    assert await refusals(whole, refund) == [(whole.ids["mona"], "REVIEW_EXPIRED")]
    await whole.assert_ended(refund, "expired", "REVIEW_EXPIRED", goods=goods, creates=0, returned=[])
    assert (await whole.story(refund)).count("escalated") == 1


@pytest.mark.parametrize("almost", ["upper", "tag"])
async def test_field_62_almost_the_same_customer_is_another_one(whole: Whole, almost: str) -> None:
    goods = await whole.goods(3_000)
    other = {"upper": goods.customer.upper(), "tag": f"{goods.customer}+1"}[almost]

    only(await whole.ask(goods, customer_id=other), 404, "ORDER_NOT_FOUND", "order_id")


async def test_field_62_somebody_elses_payment_is_not_there_and_the_try_is_recorded(whole: Whole) -> None:
    mine, theirs = await whole.goods(3_000), await whole.goods(3_000)
    before = mismatches(whole)

    by_order = only(await whole.ask(theirs, customer_id=mine.customer), 404, "ORDER_NOT_FOUND", "order_id")
    only(await whole.ask(mine, payment_id=theirs.intent), 404, "PAYMENT_NOT_FOUND", "payment_id")
    only(await whole.ask(mine, order_id=None, payment_id=theirs.intent), 404, "PAYMENT_NOT_FOUND", "payment_id")
    ticket = whole.asked_by(mine.customer) | {"order_id": theirs.order, "message": "I want my money back"}
    only(await whole.call("shop", "POST", "/v1/tickets", ticket, Idempotency_Key=whole.number()), 404, "ORDER_NOT_FOUND", "order_id")

    unknown = only(await whole.ask(mine, order_id="order-nowhere"), 404, "ORDER_NOT_FOUND", "order_id")
    assert {name: by_order[name] for name in ("title", "detail")} == {name: unknown[name] for name in ("title", "detail")}
    found = mismatches(whole)[len(before) :]
    assert [actor for actor, _ in found] == [whole.ids["shop"]] * 4
    for goods in (mine, theirs):
        assert (await whole.truth(goods.intent)).creates == []


async def test_field_62_an_order_named_in_words_is_the_customers_or_nobodys(whole: Whole) -> None:
    mine, theirs = await whole.goods(3_000), await whole.goods(3_000)
    ticket = whole.asked_by(mine.customer) | {"message": f"The mug from order {theirs.order} broke. Please refund $30.00."}

    answer = await whole.call("shop", "POST", "/v1/tickets", ticket, Idempotency_Key=whole.number())

    view = await whole.until(answer.json()["id"], "awaiting_review")
    assert (view["order_id"], view["payment_id"], view["terms_hash"]) == (None, None, None)
    only(await whole.decide("rita", view["id"], terms_hash="0" * 64), 409, "TERMS_CHANGED")


def mismatches(whole: Whole) -> list[Any]:
    """The ledger entries that belong to no refund; HTTP does not show them yet."""
    assert whole.stack.context.postgres is not None
    with whole.stack.context.postgres.connect() as connection:
        return connection.execute("SELECT actor, data FROM ledger WHERE type = 'ownership_mismatch' ORDER BY id").fetchall()
