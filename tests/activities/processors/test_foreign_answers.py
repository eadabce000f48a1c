"""Answers that are not the processor's: error pages of something in between, and JSON of another shape (promise P7)."""

import json
from typing import Any

import pytest

from activities.processors import answers
from refunds.processor import NotSent, Unknown
from tests.activities.processors.conftest import MakeProcessor, answering, request_for, serving, soon

REFUND: dict[str, Any] = {
    "id": "re_1",
    "object": "refund",
    "amount": 3_000,
    "currency": "usd",
    "payment_intent": "pi_1",
    "charge": "ch_1",
    "status": "succeeded",
    "metadata": {"refunds_operation": "op_1"},
    "created": 1_790_000_000,
}
WRONG = [
    {"amount": None},
    {"amount": "3000"},
    {"amount": 30.5},
    {"currency": None},
    {"currency": 7},
    {"created": "now"},
    {"created": 10**30},
    {"id": None},
    {"amount": -1},
    {"amount": True},
    {"metadata": "refunds_operation"},
    {"metadata": {"refunds_operation": 1}},
    {"payment_intent": 7},
    {"object": "charge"},
]


@pytest.mark.parametrize("status", ["400 Bad Request", "402 Payment Required", "404 Not Found"])
@pytest.mark.parametrize("body", ["<html>nginx</html>", "{}", '{"message": "no Route matched"}', '{"error": "not_found"}'])
async def test_a_refusal_that_is_not_stripe_s_is_no_refusal(connected: MakeProcessor, status: str, body: str) -> None:
    async with serving(answering(status, body)) as server:
        with pytest.raises(Unknown):
            await connected(server.url).refund(request_for("pi_1"), send_before=soon())


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_refund_with_a_field_of_another_kind_is_unknown(connected: MakeProcessor, wrong: dict[str, Any]) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND | wrong))) as server:
        with pytest.raises(Unknown):
            await connected(server.url).refund(request_for("pi_1"), send_before=soon())


@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        {},
        {"object": "list"},
        {"object": "list", "data": None, "has_more": False},
        {"object": "list", "data": [{"id": "re_1", "object": "refund"}], "has_more": False},
        *({"object": "list", "data": [REFUND | wrong], "has_more": False} for wrong in WRONG),
    ],
)
async def test_a_list_that_cannot_be_read_was_not_asked(connected: MakeProcessor, body: Any) -> None:
    async with serving(answering("200 OK", json.dumps(body))) as server:
        for ask in (lambda p: p.find("pi_1", "op_1"), lambda p: p.read_payment("pi_1")):
            with pytest.raises(NotSent):
                await ask(connected(server.url))


@pytest.mark.parametrize("body", [[], {}, {"object": "charge", "id": "ch_1"}, *(REFUND | wrong for wrong in WRONG)])
async def test_a_refund_that_cannot_be_read_was_not_asked(connected: MakeProcessor, body: Any) -> None:
    async with serving(answering("200 OK", json.dumps(body))) as server:
        with pytest.raises(NotSent):
            await connected(server.url).retrieve("re_1")


async def test_an_error_page_is_not_a_missing_refund(connected: MakeProcessor) -> None:
    async with serving(answering("404 Not Found", "<html>nginx</html>")) as server:
        with pytest.raises(NotSent):
            await connected(server.url).retrieve("re_1")
        with pytest.raises(NotSent):
            await connected(server.url).read_payment("pi_1")


INTENT = {
    "object": "payment_intent",
    "id": "pi_1",
    "status": "succeeded",
    "currency": "usd",
    "amount_received": 5_000,
    "amount_capturable": 0,
}
CHARGE = {"object": "charge", "id": "ch_1", "status": "succeeded", "captured": True, "currency": "usd", "amount_captured": 5_000}


def read(intent: dict[str, Any]) -> answers.Json:
    return answers.intent(intent, "pi_1", answers.charges_shown(intent, "pi_1") or [])


def test_the_payments_that_are_altered_below_can_be_read() -> None:
    assert read(INTENT | {"latest_charge": CHARGE})["captured"] == 5_000
    assert answers.charge(CHARGE, "ch_1")["captured"] == 5_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "pi_2"},
        {"amount_received": -1},
        {"amount_capturable": "0"},
        {"currency": None},
        {"status": 1},
        {"latest_charge": 7},
        {"latest_charge": CHARGE | {"payment_intent": "pi_2"}},
        {"latest_charge": CHARGE | {"amount_captured": "5000"}},
        {"object": "charge"},
    ],
)
def test_another_payment_or_an_amount_of_another_kind_is_not_believed(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        read(INTENT | {"latest_charge": None} | wrong)


def test_where_the_payment_and_its_charges_disagree_the_smaller_sum_counts() -> None:
    for received, taken in ((5_000, 4_000), (4_000, 5_000)):
        intent = INTENT | {"amount_received": received, "latest_charge": None}
        assert answers.intent(intent, "pi_1", [CHARGE | {"amount_captured": taken}])["captured"] == 4_000
    assert answers.intent(INTENT | {"latest_charge": None}, "pi_1", [])["captured"] == 5_000, "no charge says anything yet"


@pytest.mark.parametrize("wrong", [{"id": "ch_2"}, {"captured": 1}, {"amount_captured": True}, {"outcome": "normal"}])
def test_another_charge_is_not_believed(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        answers.charge(CHARGE | wrong, "ch_1")
