"""Ids that are no payment's, told by what they begin with: refused by name when an order is sent, when a refund is asked for, and in a quote."""

from typing import Any

import pytest

from refunds.payment_ids import TOLD_BY_ITSELF
from tests.api.conftest import Api

KINDS = {
    "re_3MabcSandbox": "PAYMENT_IS_REFUND",
    "pyr_1MabcSandbox": "PAYMENT_IS_REFUND",
    "cs_test_a1Sandbox": "PAYMENT_IS_CHECKOUT_SESSION",
    "cs_live_a1Sandbox": "PAYMENT_IS_CHECKOUT_SESSION",
    "in_1MabcSandbox": "PAYMENT_IS_INVOICE",
    "seti_1MabcSandbox": "PAYMENT_IS_SETUP_INTENT",
    "pi_3MabcSandbox_secret_xyz": "PAYMENT_IS_CLIENT_SECRET",
    "seti_1MabcSandbox_secret_xyz": "PAYMENT_IS_CLIENT_SECRET",
    "dp_1MabcSandbox": "PAYMENT_IS_DISPUTE",
    "du_1MabcSandbox": "PAYMENT_IS_DISPUTE",
    "txn_1MabcSandbox": "PAYMENT_IS_BALANCE_TRANSACTION",
    "cus_MabcSandbox": "PAYMENT_IS_OTHER_OBJECT",
    "pm_1MabcSandbox": "PAYMENT_IS_OTHER_OBJECT",
    "tr_1MabcSandbox": "PAYMENT_IS_OTHER_OBJECT",
    "sub_1MabcSandbox": "PAYMENT_IS_OTHER_OBJECT",
}


def test_every_kind_is_tried() -> None:
    assert set(KINDS.values()) == {code.value for code in TOLD_BY_ITSELF}


@pytest.mark.parametrize("given", KINDS)
async def test_an_order_with_such_a_payment_is_refused_by_name_and_not_stored(shared_api: Api, given: str) -> None:
    api, shop = shared_api, await shared_api.shop()
    payments = [{"id": "pi_good", "amount": 100, "currency": "USD"}, {"id": given, "amount": 100, "currency": "USD"}]
    body = {"customer_id": "c-1", "currency": "USD", "payments": payments}
    answer = await api.call("PUT", "/v1/orders/wrong", shop, body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, KINDS[given], "payments.1.id")
    assert "in the named field" in answer.json()["remedy"]
    assert (await api.call("GET", "/v1/orders/wrong", shop)).status_code == 404

    [one] = (await api.call("POST", "/v1/orders/import", shop, {"orders": [{"order_id": "wrong", "order": body}]})).json()["orders"]
    assert (one["outcome"], one["code"], one["field"]) == ("refused", KINDS[given], "payments.1.id")


@pytest.mark.parametrize("given", KINDS)
async def test_a_refund_or_quote_of_such_a_payment_is_refused_by_name_and_leaves_nothing(shared_api: Api, given: str) -> None:
    api = shared_api
    body = api.asked(await api.order()) | {"payment_id": given}
    before = await api.count("refunds")
    quoted = await api.call("POST", "/v1/quotes", await api.shop(), body)
    for answer in (await api.ask(body), quoted):
        assert "_secret_xyz" not in answer.text
        assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, KINDS[given], "payment_id")
    assert await api.count("refunds") == before


async def asked_for(api: Api, paid_with: str, named: str, **changed: Any) -> tuple[int, str, str | None]:
    paid = [{"id": paid_with, "amount": 30_000, "currency": "USD"}]
    body = api.asked(await api.order(payments=paid)) | {"payment_id": named} | changed
    answer = await api.ask(body)
    return answer.status_code, answer.json()["code"], answer.json().get("field")


@pytest.mark.parametrize(
    ("paid_with", "named", "code"),
    [
        ("ch_kinds1", "pi_kinds1", "PAYMENT_NAMED_OTHERWISE"),
        ("pi_kinds2", "ch_kinds2", "PAYMENT_NAMED_OTHERWISE"),
        ("py_kinds3", "pi_kinds3", "PAYMENT_NAMED_OTHERWISE"),
        ("pi_kinds4", "pi_kinds5", "PAYMENT_NOT_FOUND"),
        ("ch_kinds6", "ch_kinds7", "PAYMENT_NOT_FOUND"),
        ("pi_kinds8", "bank transfer 12", "PAYMENT_NOT_FOUND"),
    ],
)
async def test_the_other_kind_of_id_of_an_order_s_payment_is_told_from_one_it_does_not_have(
    shared_api: Api, paid_with: str, named: str, code: str
) -> None:
    assert await asked_for(shared_api, paid_with, named) == (404, code, "payment_id")


async def test_nothing_is_said_of_somebody_else_s_order(shared_api: Api) -> None:
    """Neither whether a payment is there, nor by which kind of id: to a customer who is not its owner it is not there."""
    api = shared_api
    await api.order(payments=[{"id": "ch_theirs", "amount": 30_000, "currency": "USD"}])
    theirs = await api.order(payments=[{"id": "ch_theirs2", "amount": 30_000, "currency": "USD"}])
    mine = await api.order()
    for changed in ({"payment_id": "ch_theirs"}, {"payment_id": "pi_theirs2", "order_id": theirs["order_id"]}):
        answer = await api.ask(api.asked(mine) | changed)
        assert (answer.status_code, answer.json()["code"]) == (404, "PAYMENT_NOT_FOUND"), answer.text
