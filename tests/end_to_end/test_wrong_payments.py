"""Wrong payments over HTTP, in a quote and in a refund: what only the processor knows is read live, and each has its own answer."""

import pytest

from tests.end_to_end.whole import Whole, only, order_of


@pytest.mark.parametrize(
    ("placed", "code"),
    [
        ({"livemode": True}, "PAYMENT_OTHER_MODE"),
        (None, "PAYMENT_MISSING"),
        ({"status": "processing"}, "PAYMENT_PROCESSING"),
        ({"status": "canceled"}, "PAYMENT_CANCELED"),
        ({"status": "requires_payment_method"}, "PAYMENT_INCOMPLETE"),
    ],
)
async def test_what_the_processor_knows_denies_by_name(whole: Whole, placed: dict[str, object] | None, code: str) -> None:
    goods = await whole.goods(3_000, **(placed or {}))
    asked = whole.asked(goods)
    if placed is None:
        number = whole.number()
        nobody = {"id": f"pi_nobody{number}", "amount": 3_000, "currency": "USD"}
        sent = await whole.call("shop", "PUT", f"/v1/orders/nobody-{number}", order_of(goods, payments=[nobody]))
        assert sent.status_code == 201, sent.text
        asked |= {"order_id": f"nobody-{number}"}
    quote = await whole.call("shop", "POST", "/v1/quotes", asked)
    assert (quote.status_code, quote.json()["code"]) == (200, code), quote.text
    answer = await whole.call("shop", "POST", "/v1/refunds", asked, Idempotency_Key=whole.number())
    view = await whole.until(answer.json()["id"], "denied", code=code)
    assert view["remedy"]


async def test_an_id_that_is_no_payments_is_refused_at_the_door(whole: Whole) -> None:
    goods = await whole.goods(3_000)
    for given, code in (("re_1Mabc", "PAYMENT_IS_REFUND"), ("in_1Mabc", "PAYMENT_IS_INVOICE"), ("dp_1Mabc", "PAYMENT_IS_DISPUTE")):
        wrong = [{"id": given, "amount": 3_000, "currency": "USD"}]
        only(await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, payments=wrong)), 422, code, "payments.0.id")
        only(await whole.ask(goods, 3_000, payment_id=given), 422, code, "payment_id")
