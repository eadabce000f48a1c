"""Field reports 26, 28, 30, 34 on the whole stack: the right payment, the right kind of operation, the right ceiling, the right currency."""

import json

import pytest

from tests.end_to_end.whole import Whole, only, order_of


async def test_field_26_of_two_payments_only_the_named_one_is_touched(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    upgrade = f"pi_{whole.number()}"
    await whole.control("POST", "/payments", {"id": upgrade, "amount": 2_000, "currency": "usd"})
    payments = [{"id": goods.intent, "amount": 4_000, "currency": "USD"}, {"id": upgrade, "amount": 2_000, "currency": "USD"}]
    await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, payments=payments))
    stranger = await whole.goods(2_000)

    told = only(await whole.ask(goods, 2_000), 409, "AMBIGUOUS_PAYMENT", "payment_id")
    only(await whole.ask(goods, 2_000, payment_id=stranger.intent), 404, "PAYMENT_NOT_FOUND", "payment_id")
    only(await whole.ask(goods, 2_000, payment_id="pi_9"), 404, "PAYMENT_NOT_FOUND", "payment_id")
    refund = await whole.asked_for(goods, 2_000, payment_id=upgrade)

    assert {goods.intent, upgrade} <= set(json.dumps(told).replace('"', " ").split())
    await whole.until(refund, "succeeded")
    assert (await whole.truth(upgrade)).amounts == [2_000]
    for untouched in (goods.intent, stranger.intent):
        assert (await whole.truth(untouched)).creates == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("processing", "PAYMENT_PROCESSING"),
        ("canceled", "PAYMENT_CANCELED"),
        ("requires_payment_method", "PAYMENT_INCOMPLETE"),
        ("requires_confirmation", "PAYMENT_INCOMPLETE"),
        ("requires_action", "PAYMENT_INCOMPLETE"),
    ],
)
async def test_field_28_what_was_never_captured_is_neither_refunded_nor_cancelled(whole: Whole, status: str, code: str) -> None:
    goods = await whole.goods(4_000, status=status)

    refund = await whole.asked_for(goods)

    await whole.assert_ended(refund, "denied", code, goods=goods, creates=0, returned=[], cancels=0)


async def test_field_28_an_authorisation_is_released_once_and_does_not_count_as_a_refund(whole: Whole) -> None:
    goods = await whole.goods(4_000, status="requires_capture")

    refund = await whole.asked_for(goods)

    view = await whole.assert_ended(refund, "released", goods=goods, creates=0, returned=[], cancels=1)
    assert "nothing was charged" in view["for_customer"]
    assert view["processor"]["operations"][0]["kind"] == "release"
    again = await whole.asked_for(goods, 100)
    view = await whole.assert_ended(again, "denied", "PAYMENT_CANCELED", goods=goods, creates=0, returned=[], cancels=1)
    assert view["context"]["customer"]["amount_today"] == 0, "a release uses up no limit"


async def test_field_28_a_part_of_an_authorisation_goes_to_a_person_and_is_not_released(whole: Whole) -> None:
    goods = await whole.goods(4_000, status="requires_capture")

    refund = await whole.asked_for(goods, 1_000)

    await whole.until(refund, "awaiting_review")
    truth = await whole.truth(goods.intent)
    assert (truth.creates, truth.cancels) == ([], [])


async def test_field_28_a_lost_answer_to_a_release_is_found(whole: Whole) -> None:
    goods = await whole.goods(4_000, status="requires_capture")
    await whole.disturb(goods.intent, "lose_answer", on="payment_intent.cancel")

    refund = await whole.asked_for(goods)

    await whole.assert_ended(refund, "released", goods=goods, creates=0, returned=[], cancels=1)


async def test_field_30_the_ceiling_is_what_was_captured(whole: Whole) -> None:
    goods = await whole.goods(10_000, captured=6_000)

    too_much = await whole.asked_for(goods, 7_000)
    view = await whole.assert_ended(too_much, "denied", "EXCEEDS_REFUNDABLE", goods=goods, creates=0, returned=[])
    assert view["context"]["refundable_besides_this"]["remaining"] == 6_000
    await whole.assert_ended(await whole.asked_for(goods, 6_000), "succeeded", goods=goods, creates=1, returned=[6_000])
    await whole.assert_ended(await whole.asked_for(goods, 1), "denied", "ALREADY_REFUNDED", goods=goods, creates=1, returned=[6_000])


async def test_field_34_rupees_are_asked_for_in_rupees(whole: Whole) -> None:
    goods = await whole.goods(9_650_000, "INR")

    told = only(await whole.ask(goods, 100_000, currency="GBP"), 422, "CURRENCY_MISMATCH", "currency")
    body = whole.asked(goods, 100_000)
    del body["currency"]
    only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), 422, "UNKNOWN_CURRENCY", "currency")
    refund = await whole.asked_for(goods, 100_000, currency="inr")

    assert "INR" in told["detail"]
    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[100_000])
    assert (view["amount"], view["currency"], view["amount_text"]) == (100_000, "INR", "₹1,000.00")


async def test_field_34_an_order_that_names_another_currency_than_the_processor_pays_nothing(whole: Whole) -> None:
    goods = await whole.goods(3_000, "JPY")
    number = whole.number()
    wrong = {"id": f"pi_{number}", "amount": 3_000, "currency": "USD"}
    await whole.control("POST", "/payments", {"id": wrong["id"], "amount": 3_000, "currency": "jpy"})
    order = order_of(goods, customer_id=f"customer-{number}", currency="USD", payments=[wrong])
    assert (await whole.call("shop", "PUT", f"/v1/orders/order-{number}", order)).status_code == 201
    body = whole.asked(goods) | {"order_id": f"order-{number}", "customer_id": f"customer-{number}", "currency": "USD"}

    answer = await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number())

    await whole.until(answer.json()["id"], "denied", code="CURRENCY_MISMATCH")
    assert (await whole.truth(wrong["id"])).creates == []
