"""What is recorded beside a judgement, as it is shown and said."""

from datetime import timedelta
from typing import Any

import pytest

from api.governing import recorded, review_needed, said
from refunds.status import Status
from tests.api.conftest import Api

DECISION: dict[str, Any] = {"appeal": "Ask us.", "answer": "A machine wrote this answer: 30 days.", "draft": True, "governance": None}


@pytest.mark.parametrize(
    ("status", "tier", "sentence"),
    [
        (Status.ANSWERED, 1, "A machine wrote this answer: 30 days."),
        (Status.DENIED, 2, "S. Ask us."),
        (Status.AWAITING_REVIEW, 4, "S. Ask us."),
        (Status.SUCCEEDED, 4, "S. Ask us."),
        (Status.AWAITING_REVIEW, 3, "S."),
        (Status.SUCCEEDED, 2, "S."),
    ],
)
def test_the_customer_is_told_the_answer_and_how_to_appeal(status: Status, tier: int, sentence: str) -> None:
    assert said("S.", status, tier, DECISION) == sentence


def test_what_was_judged_before_it_was_recorded_is_shown_without_it() -> None:
    assert said("S.", Status.DENIED, 4, None) == "S."
    assert said("S.", Status.ANSWERED, 1, {}) == said("S.", Status.DENIED, 4, {}) == "S."
    assert recorded({}) == {"draft": False, "appeal": None, "answer": None, "governance": None}
    assert review_needed(None) is None
    old = review_needed({"role": "manager", "people": 1, "ladder": []})
    assert old is not None
    assert (old["specialists"], old["reasons_required"], old["evidence"]) == ([], False, [])


async def test_a_refund_shows_what_good_governance_asks_for(api: Api) -> None:
    stated = {"legal_entity": "Shop GmbH", "customer_type": "business", "geography": "DE"}
    order = await api.order(**stated)
    view = await api.in_review(order)
    governance = view["policy"]["governance"]
    assert {name: governance[name] for name in stated} == stated
    assert governance["financial_ceiling"] == "$10,000.00"
    assert (governance["reversible"], governance["required_evidence"]) == (False, [])
    assert governance["approval_owner"] == "Head of customer service"
    assert view["policy"]["draft"] is False


async def test_the_refusal_of_what_is_out_of_scope_names_it_in_the_policys_words(api: Api) -> None:
    order = await api.order(delivered_at=(api.clock.now() - timedelta(days=1)).isoformat())
    for changed, field, asked, words in (
        ({"reason": "payout"}, "reason", "payouts", "we cannot pay money out to you in any other way"),
        ({"reason": "Store Credit"}, "reason", "credits", "We cannot give credit for future purchases here"),
        ({"goodwill_payment": 500}, "goodwill_payment", "goodwill", "We cannot make goodwill payments here"),
    ):
        answer = await api.ask(api.asked(order) | changed)
        body = answer.json()
        assert (answer.status_code, body["code"], body["field"], body["asked"]) == (422, "OUT_OF_SCOPE", field, asked)
        assert words in body["detail"]
