"""The emergency stop, end to end: what had started is listed, and no request to create a refund leaves after it has answered."""

import asyncio

from tests.end_to_end.whole import Goods, Whole, eventually


async def test_no_request_leaves_after_the_stop_has_answered(whole: Whole) -> None:
    goods = [await whole.goods(2_000 + n) for n in range(12)]
    asked = [asyncio.create_task(whole.asked_for(one)) for one in goods]
    try:
        # In the middle of them: some have gone out, some have not.
        await eventually(lambda: _creates(whole, goods), lambda count: count >= 1)
        await whole.stop("in the middle")
        at_the_stop = await _creates(whole, goods)
        refunds = await asyncio.gather(*asked)
        for one, refund in zip(goods, refunds, strict=True):
            if not (await whole.truth(one.intent)).creates:
                await whole.until(refund, "held", code="EMERGENCY_STOP")
        later = await whole.goods(4_000)
        held = await whole.asked_for(later)
        await whole.until(held, "held", code="EMERGENCY_STOP")
        assert await _creates(whole, [*goods, later]) == at_the_stop
    finally:
        resumed = await whole.resume("go on")

    assert resumed["resumed"] >= 1
    for one, refund in zip([*goods, later], [*refunds, held], strict=True):
        await whole.assert_ended(refund, "succeeded", goods=one, creates=1, returned=[one.amount])


async def test_an_approval_does_not_pass_the_stop_and_a_call_under_way_is_listed(whole: Whole) -> None:
    slow = await whole.goods(2_400)
    await whole.disturb(slow.intent, {"kind": "hang", "ms": 1_000})
    goods, reviewed = await whole.in_review(20_000)
    under_way = await whole.asked_for(slow)
    await eventually(lambda: _creates(whole, [slow]), lambda count: count == 1)
    try:
        stopped = await whole.stop("a call is under way")
        assert (await whole.decide("rita", reviewed)).status_code == 200
        await whole.until(reviewed, "held", code="EMERGENCY_STOP")
        assert [(call["refund"], call["may_still_send"]) for call in stopped["calls_in_flight"]] == [(under_way, False)]
        # What had started ends by itself, stop or not: its answer is not thrown away.
        await whole.assert_ended(under_way, "succeeded", goods=slow, creates=1, returned=[2_400])
        assert (await whole.truth(goods.intent)).creates == []
    finally:
        await whole.resume("go on")

    await whole.assert_ended(reviewed, "succeeded", goods=goods, creates=1, returned=[20_000])


async def test_a_held_refund_can_be_withdrawn_while_stopped(whole: Whole) -> None:
    goods = await whole.goods(2_300)
    await whole.stop("for a withdrawal")
    try:
        refund = await whole.asked_for(goods)
        await whole.until(refund, "held")
        assert (await whole.act("shop", refund, "withdrawal", {})).json()["status"] == "withdrawn"
    finally:
        await whole.resume("go on")

    await whole.assert_ended(refund, "withdrawn", goods=goods, creates=0, returned=[])


async def test_an_authorisation_is_not_released_while_stopped(whole: Whole) -> None:
    goods = await whole.goods(2_600, status="requires_capture")
    await whole.stop("releases too")
    try:
        refund = await whole.asked_for(goods)
        await whole.until(refund, "held", code="EMERGENCY_STOP")
        assert (await whole.truth(goods.intent)).cancels == []
    finally:
        await whole.resume("go on")

    await whole.assert_ended(refund, "released", goods=goods, creates=0, returned=[], cancels=1)


async def _creates(whole: Whole, goods: list[Goods]) -> int:
    return sum([len((await whole.truth(one.intent)).creates) for one in goods])
