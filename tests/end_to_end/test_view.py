"""``GET /v1/refunds/{id}`` says everything, while it waits and when it is over; every view in these tests is held against the promised shape besides."""

import hashlib

import rfc8785

from tests.end_to_end.whole import Whole


async def test_a_reviewer_sees_all_that_the_decision_rests_on(whole: Whole) -> None:
    goods = await whole.goods(30_000)
    refund = await whole.asked_for(goods, 20_000, message="It broke.", metadata={"ticket": "t-9"}, lines=[{"id": "1"}])

    view = await whole.until(refund, "awaiting_review")

    assert hashlib.sha256(rfc8785.dumps(view["terms"])).hexdigest() == view["terms_hash"], (
        "what is approved can be recomputed from what is shown"
    )
    terms = view["terms"]
    assert (terms["amount"], terms["currency"], terms["processor_payment"], terms["full"]) == (20_000, "USD", goods.intent, False)
    assert (terms["destination"], terms["mode"], terms["api_version"]) == ("original_payment_method", "test", "2026-08-26.dahlia")
    assert (view["order_id"], view["customer_id"], view["payment_id"]) == (goods.order, goods.customer, goods.intent)
    assert {name: view["sources"][name] for name in ("amount", "currency", "reason", "order_id", "payment", "customer")} == {
        **dict.fromkeys(("amount", "currency", "reason", "order_id"), "person"),
        **dict.fromkeys(("payment", "customer"), "system_of_record"),
    }
    assert view["context"]["refundable_besides_this"] | {"read_at": ""} == {
        **{"captured": 30_000, "returned": 0, "reserved": 0, "external": 0, "remaining": 30_000},
        **{"remaining_text": "$300.00", "currency": "USD", "read_at": ""},
    }
    assert view["context"]["customer"]["amount_today"] == 0
    checks = view["policy"]["checks"]
    assert len({check["id"] for check in checks}) == len(checks) > 15
    assert all(check["observed"] and check["limit"] and check["text"] for check in checks)
    [asking] = [check for check in checks if check["id"] == "ceiling"]
    assert (asking["result"], asking["observed"]) == ("require_review", "$200.00")
    assert view["policy"]["needs"]["review"]["role"] == "reviewer"
    assert [(d["kind"], d["verdict"]) for d in view["decisions"]] == [("consent", "approve")]
    assert (view["queue"], view["runbook"], view["final"], view["tier"]) == ("team", "docs/runbooks/review.md", False, 3)
    deadlines = view["deadlines"]
    assert deadlines["consent_by"] is None
    assert deadlines["next_due_at"] <= deadlines["review_by"] <= deadlines["terms_expire_at"]
    assert view["next_step"].startswith("a decision on $200.00 in queue team until ")
    assert view["for_customer"] == "A colleague is looking at your request for $200.00."
    assert view["request"]["metadata"] == {"ticket": "t-9"}
    assert view["request"]["lines"] == [{"id": "1", "quantity": 1}]
    assert view["reading"]["source"] == "rules"
    assert view["processor"] == {"name": "stripe", "payment_id": goods.intent, "operations": [], "settlement": None, "legs": []}


async def test_what_is_over_shows_what_was_sent(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    await whole.decide("rita", refund, note="photo seen")

    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])

    [made] = (await whole.truth(goods.intent)).refunds
    [operation] = view["processor"]["operations"]
    assert (operation["refund_id"], operation["refund_state"], operation["amount"], operation["outcome"]) == (
        *(made["id"], "succeeded", 20_000, "succeeded"),
    )
    assert [(attempt["number"], attempt["outcome"]) for attempt in operation["attempts"]] == [(1, "answered")]
    assert (view["next_step"], view["queue"], view["deadlines"]["review_by"], view["runbook"]) == (None, None, None, None)
    assert view["final_at"] == view["status_since"]
    assert "photo seen" in view["texts"].values()
    assert made["metadata"] == {
        "refunds_operation": operation["id"],
        "refunds_refund": refund,
        "refunds_terms": view["terms_hash"],
    }
