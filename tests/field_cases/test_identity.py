"""Field reports 1, 3, 59, 61 on the whole stack: one wish is one refund, one decision counts once."""

import asyncio
from collections import Counter

from tests.end_to_end.whole import POLICY, Whole, only


async def test_field_1_a_redelivered_request_is_one_refund_and_an_equal_one_is_another(whole: Whole) -> None:
    goods, key = await whole.goods(10_000), whole.number()
    body = whole.asked(goods, 3_000)
    await whole.disturb(goods.intent, "lose_answer")

    first = await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key)
    again = await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key)
    await whole.assert_ended(first.json()["id"], "succeeded", goods=goods, creates=1, returned=[3_000])
    other = await whole.asked_for(goods, 3_000)

    assert again.json()["id"] == first.json()["id"] != other
    # An equal wish so soon after may be the same one asked twice: a person looks, and it may be honest.
    view = await whole.until(other, "awaiting_review")
    assert view["possible_duplicate_of"] == first.json()["id"]
    both = view["possible_duplicate"]
    assert (both["id"], both["amount_text"], both["payment_id"], both["requester"]) == (first.json()["id"], "$30.00", goods.intent, "shop")
    assert (await whole.decide("rita", other)).status_code == 200
    view = await whole.assert_ended(other, "succeeded", goods=goods, creates=2, returned=[3_000, 3_000])
    assert view["context"]["refundable_besides_this"]["remaining"] - 3_000 == 4_000
    assert len({request["key"] for request in (await whole.truth(goods.intent)).creates}) == 2


async def test_field_3_a_refund_and_a_release_carry_keys_of_their_own_kind(whole: Whole) -> None:
    captured, authorised = await whole.goods(3_000), await whole.goods(3_000, status="requires_capture")
    for goods, end in ((captured, "succeeded"), (authorised, "released")):
        await whole.until(await whole.asked_for(goods), end)

    [refund] = (await whole.truth(captured.intent)).creates
    [release] = (await whole.truth(authorised.intent)).cancels

    assert refund["key"].startswith("refunds-refund-test-op_")
    assert release["key"].startswith("refunds-release-test-op_")
    for key in (refund["key"], release["key"]):
        assert len(key) <= 255
        assert key.isascii()
        assert key.isprintable()


async def test_field_59_double_clicks_and_a_stale_page(whole: Whole) -> None:
    goods, key = await whole.goods(20_000), whole.number()
    body = whole.asked(goods)
    clicks = await asyncio.gather(*(whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key) for _ in range(2)))
    assert Counter(click.status_code for click in clicks) == {201: 1, 200: 1}
    [refund] = {click.json()["id"] for click in clicks}
    stale = (await whole.until(refund, "awaiting_review"))["terms_hash"]
    change = {"terms_hash": stale, "amount": 15_000, "currency": "USD"}
    assert (await whole.act("ravi", refund, "revisions", change)).status_code == 201
    await whole.agree(refund)
    view = await whole.until(refund, "awaiting_review")

    told = only(await whole.decide("rita", refund, terms_hash=stale), 409, "TERMS_CHANGED")
    approvals = await asyncio.gather(*(whole.decide("rita", refund, terms_hash=view["terms_hash"]) for _ in range(2)))

    assert (told["terms_hash"], told["revision"]) == (view["terms_hash"], 2)
    assert [answer.status_code for answer in approvals] == [200, 200]
    assert len({answer.json()["decision"]["id"] for answer in approvals}) == 1
    assert sorted(answer.json()["replayed"] for answer in approvals) == [False, True]
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[15_000])


async def test_field_61_a_refund_that_failed_is_not_tried_again_on_the_old_approval(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    refusal = {"error": {"type": "invalid_request_error", "code": "charge_not_refundable", "message": "This charge cannot be refunded."}}
    await whole.disturb(goods.intent, {"kind": "status", "status": 400, "body": refusal})
    terms = (await whole.view(refund))["terms_hash"]
    approved = await whole.decide("rita", refund, terms_hash=terms)
    await whole.assert_ended(refund, "failed", "PROCESSOR_REFUSED", goods=goods, creates=1, returned=[])

    again = await whole.decide("rita", refund, terms_hash=terms)
    other = only(await whole.decide("ravi", refund, terms_hash=terms), 409, "ALREADY_DECIDED")

    assert (again.json()["replayed"], again.json()["decision"]["id"]) == (True, approved.json()["decision"]["id"])
    assert other["retryable"] is False
    assert len((await whole.truth(goods.intent)).creates) == 1
    new = await whole.asked_for(goods)
    await whole.until(new, "awaiting_review")
    assert len((await whole.truth(goods.intent)).creates) == 1, "a new refund needs its own decision"
    await whole.decide("ravi", new)
    await whole.assert_ended(new, "succeeded", goods=goods, creates=2, returned=[20_000])


async def test_field_61_a_stricter_policy_does_not_ask_again_and_the_stop_still_applies(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    await whole.stop("before the approval")
    try:
        assert (await whole.decide("rita", refund)).status_code == 200
        await whole.until(refund, "held", code="EMERGENCY_STOP")
        source = POLICY.read_text()
        stricter = source.replace("manager_above: 500.00, largest: 10000.00", "manager_above: 150.00, largest: 150.00")
        assert stricter != source
        assert (await whole.call("olga", "POST", "/v1/policy/versions", {"source": stricter, "note": "stricter"})).status_code == 201
        assert (await whole.call("olga", "POST", "/v1/policy/versions", {"source": source, "note": "as before"})).status_code == 201
        assert (await whole.truth(goods.intent)).creates == []
    finally:
        await whole.resume("go on")

    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])
    assert [d["kind"] for d in view["decisions"]].count("review") == 1
    assert view["revision"] == 1
