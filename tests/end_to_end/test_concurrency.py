"""Many callers at once, over HTTP, on the real stack: exact counts."""

import asyncio
from collections import Counter

from tests.end_to_end.whole import Whole


async def test_twenty_identical_posts_at_once_are_one_refund_and_one_run(whole: Whole) -> None:
    goods = await whole.goods(3_000)
    body, key = whole.asked(goods), whole.number()

    answers = await asyncio.gather(*(whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key) for _ in range(20)))

    assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 19}
    [refund] = {answer.json()["id"] for answer in answers}
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[3_000])
    assert [entry["type"] for entry in await whole.ledger(refund)].count("refund_received") == 1


async def test_twenty_requests_for_the_last_money_at_once_exactly_one_gets_it(whole: Whole) -> None:
    goods = await whole.goods(10_000)

    answers = await asyncio.gather(*(whole.ask(goods, 6_000) for _ in range(20)))

    assert Counter(answer.status_code for answer in answers) == {201: 20}, [answer.text for answer in answers]
    views = [await whole.view(answer.json()["id"]) for answer in answers]
    [winner] = [view["id"] for view in views if view["status"] != "denied"]
    assert Counter(view["code"] for view in views if view["id"] != winner) == {"EXCEEDS_REFUNDABLE": 19}
    view = await whole.assert_ended(winner, "succeeded", goods=goods, creates=1, returned=[6_000])
    assert view["context"]["refundable_besides_this"]["remaining"] == 10_000
    loser = next(view["id"] for view in views if view["id"] != winner)
    assert (await whole.view(loser))["context"]["refundable_besides_this"]["remaining"] == 4_000


async def test_two_reviewers_at_once_make_one_decision(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    terms = (await whole.view(refund))["terms_hash"]

    approving = [whole.decide("rita", refund, "approve", terms_hash=terms), whole.decide("ravi", refund, "deny", terms_hash=terms)]
    answers = await asyncio.gather(*approving)

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    [refused] = [answer.json()["code"] for answer in answers if answer.status_code == 409]
    assert refused == "ALREADY_DECIDED"
    if answers[0].status_code == 200:
        await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])
    else:
        await whole.assert_ended(refund, "denied", "REVIEWER_DENIED", goods=goods, creates=0, returned=[])


async def test_a_decision_and_a_withdrawal_at_once_one_of_them_counts(whole: Whole) -> None:
    for _ in range(5):
        goods, refund = await whole.in_review(20_000)
        terms = (await whole.view(refund))["terms_hash"]

        approval, withdrawal = await asyncio.gather(
            whole.decide("rita", refund, terms_hash=terms), whole.act("shop", refund, "withdrawal", {})
        )

        # A withdrawal may still come after the approval, as long as nothing was sent; once it has answered, nothing ever is.
        if withdrawal.status_code == 200:
            await whole.assert_ended(refund, "withdrawn", goods=goods, creates=0, returned=[])
            assert approval.status_code in (200, 409)
        else:
            assert (approval.status_code, withdrawal.json()["code"]) == (200, "TOO_LATE")
            await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])


async def test_orders_of_one_customer_at_once_do_not_wait_for_each_other_for_ever(whole: Whole) -> None:
    wanted = [await whole.goods(2_000 + n) for n in range(10)]

    refunds = await asyncio.gather(*(whole.asked_for(goods) for goods in wanted for _ in range(1)))

    for goods, refund in zip(wanted, refunds, strict=True):
        await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[goods.amount])
