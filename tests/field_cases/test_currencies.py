"""Field report 36 on the whole stack: what the customer reads is what the customer gets; what left the balance has names of its own; limits know all currencies."""

from dataclasses import replace
from typing import Any

from tests.end_to_end.whole import Goods, Whole, eventually, order_of


async def test_field_36_the_customer_reads_the_presentment_amount_and_the_balance_has_its_own(whole: Whole) -> None:
    """The sandbox settles USD in CAD, as the recorded account did."""
    goods = await whole.goods(2_750)
    refund = await whole.asked_for(goods)
    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[2_750])
    assert "$27.50" in view["for_customer"]

    async def figures() -> dict[str, Any] | None:
        return (await whole.view(refund))["processor"]["settlement"]

    found = await eventually(figures, lambda found: found is not None)

    assert found is not None
    assert found["presentment"] == {"amount": 2_750, "currency": "USD", "amount_text": "$27.50"}
    assert found["settled"] == {"amount": 3_846, "currency": "CAD", "amount_text": "CA$38.46"}
    assert (found["rate"], found["rate_text"], found["fee"]["amount"]) == ("1.3985", "1 USD = 1.3985 CAD", 0)
    view = await whole.view(refund)
    assert "$27.50" in view["for_customer"] and "38.46" not in view["for_customer"], "never the figure of the balance"
    assert (view["amount"], view["currency"], view["terms"]["amount_text"]) == (2_750, "USD", "$27.50")


async def also_bought(whole: Whole, goods: Goods, amount: int, currency: str) -> Goods:
    """Another order of the same customer, paid in another currency."""
    number = whole.number()
    other = replace(goods, order=f"order-{number}", intent=f"pi_{number}", amount=amount, currency=currency)
    await whole.control("POST", "/payments", {"id": other.intent, "amount": amount, "currency": currency.lower()})
    answer = await whole.call("shop", "PUT", f"/v1/orders/{other.order}", order_of(other))
    assert answer.status_code == 201, answer.text
    return other


async def test_field_36_the_second_currency_of_a_day_escapes_no_limit(whole: Whole) -> None:
    """The policy of these tests names no base currency, so nothing says what yen and dollars are together: a person looks."""
    goods = await whole.goods(9_000)
    await whole.until(await whole.asked_for(goods), "succeeded")
    other = await also_bought(whole, goods, 14_000, "JPY")

    refund = await whole.asked_for(other)

    view = await whole.until(refund, "awaiting_review")
    assert [check["id"] for check in view["policy"]["checks"] if check["result"] == "require_review"] == ["customer_day_all"]
    assert (await whole.decide("rita", refund)).status_code == 200
    await whole.assert_ended(refund, "succeeded", goods=other, creates=1, returned=[14_000])
