"""An order that goes back line by line on the real stack, until exactly nothing is left at the processor."""

from typing import Any

from tests.end_to_end.whole import Goods, Whole, order_of

LINES = [
    {"id": "shirt", "quantity": 3, "amount": 6_000},
    {"id": "mug", "amount": 1_500, "tax": 150},
    {"id": "card", "amount": 299, "discount": 299},
]


async def ordered(whole: Whole) -> Goods:
    """The order of decision 0014: $79.99 with tax, shipping and a discount."""
    goods = await whole.goods(7_999)
    order = order_of(goods, lines=LINES, tax=700, shipping=500, discount=1_000)
    assert (await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order)).status_code == 200
    return goods


async def by_lines(whole: Whole, goods: Goods, *, shipping: bool = False, **units: int) -> dict[str, Any]:
    """Ask for units, and see the first answer."""
    lines = [{"id": line, "quantity": quantity} for line, quantity in units.items()]
    body = {"order_id": goods.order, "lines": lines, "shipping": shipping, "reason": "product_issue"} | whole.asked_by(goods.customer)
    answer = await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number())
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_field_46_an_order_goes_back_line_by_line_until_exactly_nothing_is_left(whole: Whole) -> None:
    goods = await ordered(whole)
    amounts: list[int] = []
    for shipping, units in ((False, {"shirt": 1}), (True, {"mug": 1}), (False, {"shirt": 2})):
        asked = await by_lines(whole, goods, shipping=shipping, **units)
        assert (asked["status"], asked["amount"]) == ("awaiting_consent", asked["breakdown"]["amount"])
        assert (await whole.agree(asked["id"])).status_code == 200
        amounts.append((await whole.until(asked["id"], "succeeded"))["amount"])

    assert amounts == [1_981, 2_056, 3_962]
    truth = await whole.truth(goods.intent)
    assert (truth.amounts, sum(truth.amounts), len(truth.creates)) == ([1_981, 2_056, 3_962], 7_999, 3)
    for units, code in (({"shirt": 1}, "LINE_NOT_LEFT"), ({"card": 1}, "LINES_COME_TO_NOTHING")):
        late = await by_lines(whole, goods, shipping=False, **units)
        assert (late["status"], late["code"]) == ("denied", code)
    assert len((await whole.truth(goods.intent)).creates) == 3


async def test_units_whose_refund_failed_at_the_processor_can_be_asked_for_again(whole: Whole) -> None:
    goods = await ordered(whole)
    await whole.disturb(goods.intent, {"kind": "outcome", "initial": "failed", "failure_reason": "lost_or_stolen_card"})
    first = await by_lines(whole, goods, mug=1)
    await whole.agree(first["id"])
    await whole.until(first["id"], "failed")

    again = await by_lines(whole, goods, mug=1)

    await whole.agree(again["id"])
    assert (await whole.until(again["id"], "succeeded"))["breakdown"]["lines"][0]["earlier"] == 0
    assert (await whole.truth(goods.intent)).amounts == [1_510]
