"""Field reports 39, 40, 43, 45 on the whole stack: the number that was asked for is the number that arrives, in every currency."""

import json

import pytest

from tests.end_to_end.whole import Whole, only


@pytest.mark.parametrize(
    ("paid", "asked", "currency", "text"),
    [
        *[(9_899, 5_800, "JPY", "¥5,800"), (98_990, 58_000, "KRW", "₩58,000"), (9_899, 5_800, "USD", "$58.00")],
        *[(29_600, 18_600, "KWD", "KWD 18.600"), (35_200, 35_200, "BHD", "BHD 35.200")],
    ],
)
async def test_field_39_40_the_amount_arrives_as_it_was_asked(whole: Whole, paid: int, asked: int, currency: str, text: str) -> None:
    goods = await whole.goods(paid, currency)

    refund = await whole.asked_for(goods, asked)

    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[asked])
    [request] = (await whole.truth(goods.intent)).creates
    assert request["params"]["amount"] == str(asked)
    assert view["amount_text"].replace("\xa0", " ") == text
    assert text in view["for_customer"].replace("\xa0", " ")


async def test_field_39_yen_have_no_decimals(whole: Whole) -> None:
    goods = await whole.goods(9_899, "JPY")
    for amount in ('"58.00"', "58.00", "58.5"):
        body = json.dumps(whole.asked(goods) | {"amount": "HERE"}).replace('"HERE"', amount).encode()
        only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), 422, "AMOUNT_NOT_INTEGER", "amount")
    assert (await whole.truth(goods.intent)).creates == []


async def test_field_40_a_step_that_cannot_be_sent_is_not_rounded(whole: Whole) -> None:
    goods = await whole.goods(29_600, "KWD")

    told = only(await whole.ask(goods, 5_124), 422, "AMOUNT_NOT_SENDABLE", "amount")

    assert "(5120)" in told["detail"]
    assert "(5130)" in told["detail"]


async def test_field_40_everything_of_a_payment_in_dinars(whole: Whole) -> None:
    goods = await whole.goods(35_200, "BHD")

    answer = await whole.call(
        "shop", "POST", "/v1/refunds", {**whole.asked(goods), "amount": None, "full": True}, Idempotency_Key=whole.number()
    )
    refund = answer.json()["id"]
    await whole.until(refund, "awaiting_consent")
    await whole.agree(refund)

    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[35_200])


async def test_field_43_no_cent_is_lost_or_found(whole: Whole) -> None:
    goods = await whole.goods(34_948)
    for amount in ("349.48", "true", "1e3"):
        body = json.dumps(whole.asked(goods) | {"amount": "HERE"}).replace('"HERE"', amount).encode()
        only(await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number()), 422, "AMOUNT_NOT_INTEGER", "amount")

    for amount in (14_505, 820, 34_948 - 14_505 - 820):
        refund = await whole.asked_for(goods, amount)
        # The first and the last are too large to go by themselves, and the middle one is too much for one day.
        await whole.until(refund, "awaiting_review")
        await whole.decide("rita", refund)
        await whole.until(refund, "succeeded")

    assert sum((await whole.truth(goods.intent)).amounts) == 34_948
    whole_amount = await whole.goods(34_948)
    view = await whole.view(await whole.asked_for(whole_amount, 34_948))
    assert (view["terms"]["amount"], view["terms"]["full"]) == (34_948, True)


@pytest.mark.parametrize("amount", ["0", "-1", "-0", "null", '""', '"0"', "0.5", "1" + "0" * 20])
async def test_field_45_no_amount_means_nothing_rather_than_everything(whole: Whole, amount: str) -> None:
    goods = await whole.goods(3_000)
    body = json.dumps(whole.asked(goods) | {"amount": "HERE"}).replace('"HERE"', amount).encode()

    answer = await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number())

    assert (answer.status_code, answer.json()["field"]) == (422, "amount")
    listed = await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}")
    assert listed.json()["refunds"] == []
    assert (await whole.truth(goods.intent)).creates == []


async def test_field_45_everything_is_frozen_to_a_number_and_shown_again_when_less_is_left(whole: Whole) -> None:
    goods = await whole.goods(30_000)
    body = {**whole.asked(goods), "amount": None, "full": True}
    refund = (await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number())).json()["id"]
    first = await whole.until(refund, "awaiting_consent")
    assert first["terms"]["amount"] == 30_000
    await whole.agree(refund)
    await whole.until(refund, "awaiting_review")

    await whole.control("POST", "/refunds", {"payment_intent": goods.intent, "amount": 10_000})
    assert (await whole.decide("rita", refund)).status_code == 200
    again = await whole.until(refund, "awaiting_consent", revision=2)

    assert again["terms"]["amount"] == 20_000
    assert (await whole.truth(goods.intent)).creates == [], "it is not silently made smaller, nor sent as it was"
    await whole.agree(refund)
    await whole.until(refund, "awaiting_review")
    await whole.decide("ravi", refund)
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[10_000, 20_000])
