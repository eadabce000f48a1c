"""Field reports 7 and 16 on the whole stack: what is unknown is never called failed, and the processor's five states are not two."""

import asyncio
from typing import Any

import pytest

from tests.end_to_end.whole import Goods, Whole

UNKNOWN: dict[str, dict[str, Any]] = {
    "the answer comes too late": {"kind": "hang", "ms": 4_000},
    "the connection breaks after the work": {"kind": "lose_answer"},
    "500": {"kind": "status", "status": 500},
    "500 after the work": {"kind": "status", "status": 500, "after_work": True},
    "502 after the work": {"kind": "status", "status": 502, "after_work": True},
    "half an answer": {"kind": "malformed"},
    "the key is in use": {"kind": "key_in_use"},
    "a proxy's page": {"kind": "status", "status": 404, "body": "<html>not here</html>"},
}


async def test_field_7_nobody_knows_is_never_failed_and_keeps_the_money_reserved(whole: Whole) -> None:
    async def one(fault: dict[str, Any]) -> None:
        goods = await whole.goods(4_000)
        # Whatever was done is in no list either, so that looking it up finds nothing.
        await whole.disturb(goods.intent, fault, "hide", times=None)
        refund = await whole.asked_for(goods)
        view = await whole.until(refund, "parked")
        assert view["code"] in ("OUTCOME_UNKNOWN", "IDEMPOTENCY_CONFLICT")
        truth = await whole.truth(goods.intent)
        assert len({request["key"] for request in truth.creates}) == 1
        assert len(truth.refunds) <= 1
        reserved = await whole.view(await whole.asked_for(goods, 1))
        assert (reserved["status"], reserved["code"]) == ("denied", "ALREADY_REFUNDED"), "its money stays reserved"
        assert reserved["context"]["refundable_besides_this"]["remaining"] == 0

    await asyncio.gather(*(one(fault) for fault in UNKNOWN.values()))


async def test_field_7_what_was_done_is_found(whole: Whole) -> None:
    async def one(fault: dict[str, Any]) -> Goods:
        goods = await whole.goods(4_000)
        await whole.disturb(goods.intent, fault)
        refund = await whole.asked_for(goods)
        view = await whole.until(refund, "succeeded")
        assert view["final"]
        return goods

    done = await asyncio.gather(*(one(fault) for name, fault in UNKNOWN.items() if name not in ("500",)))

    for goods in done:
        assert (await whole.truth(goods.intent)).amounts == [4_000]


async def test_field_7_a_definite_refusal_fails_and_releases_the_money(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    refusal = {"error": {"type": "invalid_request_error", "message": "Refund amount ($40.00) is greater than unrefunded amount."}}
    await whole.disturb(goods.intent, {"kind": "status", "status": 400, "body": refusal})

    refund = await whole.asked_for(goods)

    view = await whole.assert_ended(refund, "failed", "PROCESSOR_REFUSED", goods=goods, creates=1, returned=[])
    assert view["detail"] == "the processor answered invalid_request_error"  # its code, never its sentence
    another = await whole.asked_for(goods, 3_999)
    await whole.assert_ended(another, "succeeded", goods=goods, creates=2, returned=[3_999])


async def test_field_7_what_certainly_did_not_leave_is_held_and_goes_out_later(whole: Whole) -> None:
    goods = await whole.goods(4_000)
    await whole.disturb(goods.intent, "rate_limit", times=3)

    refund = await whole.asked_for(goods)

    await whole.until(refund, "held", code="PROCESSOR_UNREACHABLE")
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=4, returned=[4_000])


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        ("pending", "pending", None),
        ("requires_action", "pending", None),
        ("succeeded", "succeeded", None),
        ("failed", "failed", "PROCESSOR_FAILED"),
        ("canceled", "failed", "PROCESSOR_FAILED"),
    ],
)
async def test_field_16_each_state_of_the_processor(whole: Whole, state: str, status: str, code: str | None) -> None:
    goods = await whole.goods(4_200, refund_outcome={"initial": state})

    refund = await whole.asked_for(goods)

    view = await whole.until(refund, status, code=code)
    [operation] = view["processor"]["operations"]
    assert operation["refund_state"] == state
    assert ("on its way" in view["for_customer"]) == (state == "succeeded"), "only succeeded is told as done"
    assert len((await whole.truth(goods.intent)).creates) == 1


@pytest.mark.parametrize("state", ["something_new", None])
async def test_field_16_a_state_nobody_knows_is_parked_with_the_raw_value(whole: Whole, state: str | None) -> None:
    goods = await whole.goods(4_200)
    await whole.disturb(goods.intent, {"kind": "alter", "fields": {"status": state}})

    refund = await whole.asked_for(goods)

    view = await whole.until(refund, "parked", code="STATUS_UNKNOWN")
    [operation] = view["processor"]["operations"]
    assert operation["refund_state"] == (state or "null")
    assert len((await whole.truth(goods.intent)).creates) == 1


async def test_field_16_pending_is_followed_until_it_succeeds_or_fails(whole: Whole) -> None:
    for later, status, code in (("succeeded", "succeeded", None), ("failed", "failed", "PROCESSOR_FAILED")):
        goods = await whole.goods(4_300, refund_outcome={"initial": "pending"})
        refund = await whole.asked_for(goods)
        await whole.until(refund, "pending")
        only_one = await whole.view(await whole.asked_for(goods, 1))
        assert only_one["status"] == "denied", "pending money is reserved"
        [made] = (await whole.truth(goods.intent)).refunds

        await whole.control("POST", f"/refunds/{made['id']}", {"status": later})

        await whole.assert_ended(refund, status, code, goods=goods, creates=1, returned=[4_300] if later == "succeeded" else [])
