"""The sample policy on the running product: what each of its sentences comes to, with the money that moved counted at the processor."""

import re
from collections.abc import AsyncIterator

import pytest

from refunds.policy import sample_policy_text
from tests.end_to_end.whole import POLICY, Whole, only


def by_itself() -> str:
    """The sample as it is for one customer: with its first currency alone, because the others need rates that nobody recorded here, and without its limits on
    everyone, towards which all counts that other tests did in the last hour."""
    dollars = re.sub(r"(?m)^  (?:EUR|GBP|CAD|AUD|CHF|JPY|INR|KWD|BHD): \{.*\n", "", sample_policy_text())
    alone, limits = re.subn(r"(?m)^  - \{ name: \w+, who: everyone, .*\n", "", dollars)
    assert limits == 2
    return alone


async def publish(whole: Whole, source: str) -> None:
    answer = await whole.call("administrator", "POST", "/v1/policy/versions", {"source": source, "note": "the sample, from end to end"})
    assert answer.status_code == 201, answer.text


@pytest.fixture
async def sample(whole: Whole) -> AsyncIterator[Whole]:
    """The product with the sample policy in force, until the test is over."""
    await publish(whole, by_itself())
    yield whole
    await publish(whole, POLICY.read_text())


async def test_the_sample_policy_is_what_the_field_describes(sample: Whole) -> None:
    small = await sample.goods(10_000)
    refund = await sample.asked_for(small)
    view = await sample.assert_ended(refund, "succeeded", goods=small, creates=1, returned=[10_000])
    assert [(d["kind"], d["verdict"]) for d in view["decisions"]] == [("consent", "approve"), ("policy", "approve")]
    assert view["policy"]["governance"]["approval_owner"] == "Head of customer service"

    larger = await sample.goods(10_001)
    refund = await sample.asked_for(larger)
    assert (await sample.until(refund, "awaiting_review"))["queue"] == "team"
    assert (await sample.decide("rita", refund)).status_code == 200
    await sample.assert_ended(refund, "succeeded", goods=larger, creates=1, returned=[10_001])

    large = await sample.goods(50_001)
    refund = await sample.asked_for(large)
    view = await sample.until(refund, "awaiting_review", queue="managers", tier=4)
    assert view["for_customer"].endswith(view["policy"]["appeal"])
    assert view["policy"]["needs"]["review"]["specialists"] == ["manager"]
    only(await sample.decide("rita", refund), 403, "ROLE_TOO_LOW")
    only(await sample.decide("mona", refund, note=""), 422, "REASON_REQUIRED", "note")
    assert (await sample.decide("mona", refund, note="the photo shows it")).status_code == 200
    await sample.assert_ended(refund, "succeeded", goods=large, creates=1, returned=[50_001])


async def test_ninety_nine_dollars_three_times_the_second_the_same_day_is_stopped_whoever_asks(sample: Whole) -> None:
    goods = await sample.goods(29_700)
    first = await sample.asked_for(goods, 9_900)
    await sample.until(first, "succeeded")

    second = await sample.asked_for(goods, 9_900, who="bot", agent_session_id="s-1")
    await sample.until(second, "awaiting_consent")  # what an agent names is no consent
    assert (await sample.agree(second, "desk")).status_code == 200
    view = await sample.until(second, "awaiting_review")
    stopped = {check["id"] for check in view["policy"]["checks"] if check["result"] == "require_review"}
    assert {"customer_day", "customer_day_all"} <= stopped
    third = await sample.asked_for(goods, 9_900)
    await sample.until(third, "awaiting_review")
    assert (await sample.truth(goods.intent)).amounts == [9_900]


async def test_payouts_and_what_is_not_named_are_refused(sample: Whole) -> None:
    goods = await sample.goods()
    for named, words in (("payout", "pay money out"), ("voucher", "future purchases"), ("goodwill", "goodwill")):
        problem = only(await sample.ask(goods, reason=named), 422, "OUT_OF_SCOPE", "reason")
        assert words in problem["detail"]
    only(await sample.ask(goods, iban="DE89370400440532013000"), 422, "OUT_OF_SCOPE", "iban")

    refund = await sample.asked_for(goods, channel="carrier_pigeon")
    view = await sample.assert_ended(refund, "denied", "NOT_COVERED", goods=goods, creates=0, returned=[])
    assert view["for_customer"] == f"We cannot refund this request. {view['policy']['appeal']}"
