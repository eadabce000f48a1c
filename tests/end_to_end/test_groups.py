"""An order paid with two cards and a gift card, refunded as a whole on the real stack."""

from typing import Any

from tests.end_to_end.whole import Goods, Whole, eventually, only, order_of


async def ordered(whole: Whole) -> tuple[Goods, str]:
    """An order of $160.00: $80.00 and $50.00 by card, $30.00 with a gift card; returns the first card's goods, and the second card's payment."""
    goods = await whole.goods(8_000)
    second = f"{goods.intent}b"
    await whole.control("POST", "/payments", {"id": second, "amount": 5_000, "currency": "usd"})
    paid = [
        {"id": f"gc-{goods.order}", "processor": "manual", "tender": "gift_card", "amount": 3_000, "currency": "USD"},
        {"id": goods.intent, "amount": 8_000, "currency": "USD"},
        {"id": second, "amount": 5_000, "currency": "USD"},
    ]
    answer = await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, payments=paid))
    assert answer.status_code == 200, answer.text
    return goods, second


async def ask(whole: Whole, goods: Goods, amount: int) -> dict[str, Any]:
    answer = await whole.call("shop", "POST", "/v1/refund-groups", whole.asked(goods, amount), Idempotency_Key=whole.number())
    assert answer.status_code == 201, answer.text
    return answer.json()


async def group(whole: Whole, group_id: str) -> dict[str, Any]:
    return (await whole.call("rita", "GET", f"/v1/refund-groups/{group_id}")).json()


async def test_field_26_48_cards_and_gift_card_of_one_order_go_back_together_each_its_own_part(whole: Whole) -> None:
    goods, second = await ordered(whole)
    only(await whole.ask(goods, 16_000), 409, "AMBIGUOUS_PAYMENT", "payment_id")
    made = await ask(whole, goods, 16_000)
    parts = {part["payment_id"]: part["refund_id"] for part in made["allocation"]["parts"]}
    by_hand = parts[f"gc-{goods.order}"]
    assert {one["id"]: one["amount"] for one in made["refunds"]} == {by_hand: 3_000, parts[goods.intent]: 8_000, parts[second]: 5_000}
    assert set(made["decide"]) == set(parts.values()), "each is judged as the $160.00 they are together"

    decided = await whole.call("rita", "POST", f"/v1/refund-groups/{made['id']}/decisions", {"verdict": "approve", "terms": made["decide"]})
    assert decided.status_code == 200, decided.text
    for card in (goods.intent, second):
        await whole.until(parts[card], "succeeded")
    parked = await whole.until(by_hand, "parked")

    assert (parked["code"], parked["detail"]) == ("MANUAL_PART", "give $30.00 back on the gift card")
    [sums] = (await group(whole, made["id"]))["sums"]
    assert sums["in_words"] == "$130.00 went back; $30.00 waits for a person to give it back"
    only(
        await whole.act("uma", by_hand, "settlement", {"outcome": "refunded", "processor_refund_id": "re_1", "evidence": "x"}),
        422,
        "INVALID_FIELD",
        "processor_refund_id",
    )
    settled = await whole.act("sven", by_hand, "settlement", {"outcome": "refunded", "evidence": "credited, booking 99812"})
    assert (settled.status_code, settled.json()["status"]) == (200, "succeeded"), settled.text

    assert [(await whole.truth(card)).amounts for card in (goods.intent, second)] == [[8_000], [5_000]]
    done = await eventually(lambda: group(whole, made["id"]), lambda seen: seen["final"])
    assert [(one["returned"], one["not_given"]) for one in done["sums"]] == [(16_000, 0)]
    late = await whole.call("shop", "POST", "/v1/refund-groups", whole.asked(goods, 1), Idempotency_Key=whole.number())
    assert (late.status_code, late.json()["code"]) == (409, "GROUP_NOT_COVERED")


async def test_field_48_an_order_paid_by_gift_card_alone_is_given_back_by_a_person(whole: Whole) -> None:
    goods = await whole.goods(3_000)
    alone = {"id": f"gc-{goods.order}", "processor": "manual", "tender": "store_credit", "amount": 3_000, "currency": "USD"}
    order = f"{goods.order}-alone"
    assert (await whole.call("shop", "PUT", f"/v1/orders/{order}", order_of(goods, payments=[alone]))).status_code == 201
    asked = await whole.call("shop", "POST", "/v1/refunds", whole.asked(goods, 1_000) | {"order_id": order}, Idempotency_Key=whole.number())
    refund = asked.json()["id"]

    parked = await whole.until(refund, "parked")

    assert (parked["detail"], parked["runbook"]) == ("give $10.00 back as store credit", "docs/runbooks/manual.md")
    body = {"outcome": "not_refunded", "evidence": "the account is closed"}
    assert (await whole.act("sven", refund, "settlement", body)).status_code == 202
    assert (await whole.act("sara", refund, "settlement", body)).json()["status"] == "failed"
    assert (await whole.view(refund))["code"] == "SETTLED_NOT_REFUNDED"


async def test_a_dispute_of_one_payment_leaves_the_others_to_give(whole: Whole) -> None:
    goods, second = await ordered(whole)
    await whole.control("POST", "/disputes", {"payment_intent": goods.intent})
    made = await ask(whole, goods, 7_000)
    assert [(one["payment_id"], one["why"]) for one in made["allocation"]["left_out"]] == [(goods.intent, "disputed")]
    assert sorted((part["payment_id"], part["amount"]) for part in made["allocation"]["parts"]) == [
        (f"gc-{goods.order}", 2_000),
        (second, 5_000),
    ]
