"""Promise P10: whatever a model answers, the money that can move is the same set that the policy allows without it, or less.

The model of the test: a fixed set of requests, and for each of them what people would have to do before money moves. A request is payable by some deeds when
the policy does not refuse it and asks for none but those. For no deeds at all, for the customer's consent, for a reviewer and so on up to everything, the
set of payable requests is compared before and after any answer: it never grows.
"""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings

from refunds.classification import Classification, Intent
from refunds.facts import Facts, PolicyDecision, ReadingFacts
from refunds.policy import Policy, evaluate
from refunds.policy.limits import assumed
from store.classifying import without_words
from tests.activities.classifiers.hostile import GOOD, SMUGGLED, TEXT, answers, classified
from tests.refunds.conftest import GOOD as IN_ORDER
from tests.refunds.policy.test_properties import POLICIES

DEEDS = ("consent", "reviewer", "manager", "second person")
EVERY_SET = [
    frozenset(deed for deed, done in zip(DEEDS, chosen, strict=True) if done) for chosen in product((False, True), repeat=len(DEEDS))
]


def _requests() -> list[Facts]:
    """Requests of every size and standing: in order, late, disputed, of a young account, of somebody nobody made sure of, by an agent, near a limit."""
    order, payment, customer, request = IN_ORDER.order, IN_ORDER.payment, IN_ORDER.customer, IN_ORDER.request
    standings = [
        IN_ORDER,
        replace(IN_ORDER, order=replace(order, delivered_at=None)),
        replace(IN_ORDER, order=replace(order, categories=("final_sale",))),
        replace(IN_ORDER, order=replace(order, categories=("gift_card",))),
        replace(IN_ORDER, payment=replace(payment, risk_level="elevated")),
        replace(IN_ORDER, payment=replace(payment, remaining=2_000)),
        replace(IN_ORDER, customer=replace(customer, account_age_days=0)),
        replace(IN_ORDER, customer=replace(customer, amount_today=14_000)),
        replace(IN_ORDER, request=replace(request, customer_authenticated=False)),
        replace(IN_ORDER, request=replace(request, agent_id="ag_1", amount_named_by_customer=False)),
    ]
    amounts = (3_000, 10_000, 10_001, 50_001)
    return [
        replace(one, request=replace(one.request, amount=amount), base=replace(one.base, amount=amount))
        for one in standings
        for amount in amounts
    ]


REQUESTS = _requests()


def demands(decision: PolicyDecision) -> frozenset[str] | None:
    """What people must do before money moves; ``None`` when it never does."""
    if decision.outcome != "proceed":
        return None
    needed = {"consent"} if decision.consent else set[str]()
    if decision.review is not None:
        needed.add("reviewer")
        needed |= {"manager"} if decision.review.role == "manager" else set()
        needed |= {"second person"} if decision.review.people > 1 else set()
    return frozenset(needed)


def reading_of(classification: Classification, *, extracted: bool) -> ReadingFacts:
    """The facts of a classification as the store makes them."""
    reading = without_words(classification).reading
    if reading is None:
        return ReadingFacts(failed=True, intent=None, proposal=None, confidence=0)
    intent = reading.intent if extracted or reading.intent is Intent.OUT_OF_SCOPE else Intent.REFUND
    return ReadingFacts(False, intent, reading.proposal, reading.confidence, tuple(reading.manipulation))


def judge(policy: Policy, facts: Facts) -> frozenset[str] | None:
    return demands(evaluate(policy, assumed(policy, facts)))


def never_grows(before: Iterable[frozenset[str] | None], after: Iterable[frozenset[str] | None]) -> None:
    """For every set of deeds, what is payable afterwards was payable before."""
    pairs = list(zip(before, after, strict=True))
    for deeds in EVERY_SET:
        was = {at for at, (needed, _) in enumerate(pairs) if needed is not None and needed <= deeds}
        is_now = {at for at, (_, needed) in enumerate(pairs) if needed is not None and needed <= deeds}
        assert is_now <= was, (sorted(deeds), [(REQUESTS[at], pairs[at]) for at in sorted(is_now - was)])


BEFORE = {
    id(policy): ([judge(policy, facts) for facts in REQUESTS], [judge(policy, _as_if_asked(facts)) for facts in REQUESTS])
    for policy in POLICIES
    for _as_if_asked in [lambda facts: replace(facts, request=replace(facts.request, amount_named_by_customer=False, reason=None))]
}
"""By policy, without a model: what requests need as they are, and what they need when the customer has not named the amount and nobody a reason."""


_held: set[str] = set()


def hold(classification: Classification) -> None:
    """Nothing becomes payable by this classification: of no request that words came with, and of none that was read out of words."""
    kind = without_words(classification).model_dump_json()
    if kind in _held:  # the same facts give the same decisions
        return
    _held.add(kind)
    for policy in POLICIES:
        structured, unnamed = BEFORE[id(policy)]
        beside = reading_of(classification, extracted=False)
        never_grows(structured, [judge(policy, replace(facts, reading=beside)) for facts in REQUESTS])
        # Read out of words, the customer has agreed to nothing yet, whatever the policy says of consent.
        alone = reading_of(classification, extracted=True)
        reason = None if classification.reading is None else classification.reading.reason
        read = [replace(f, reading=alone, request=replace(f.request, extracted=True, reason=reason)) for f in REQUESTS]
        never_grows([None if needed is None else needed | {"consent"} for needed in unnamed], [judge(policy, facts) for facts in read])


@settings(max_examples=80, deadline=None)
@given(answers)
@example(None)
@example("")
@example(json.dumps(GOOD))
@example(json.dumps(GOOD | SMUGGLED))
@example(json.dumps(GOOD | {"intent": "track_refund"}))
@example(json.dumps(GOOD | {"intent": "policy_question", "proposal": "deny"}))
@example(json.dumps(GOOD | {"confidence": 101}))
@example(json.dumps(GOOD | {"proposal": ["approve"]}))
@example("[" * 5_000)
def test_field_63_whatever_a_model_answers_nothing_becomes_payable_by_it(raw: str | None) -> None:
    hold(classified(raw))


def test_field_63_a_perfect_answer_leaves_some_requests_payable() -> None:
    """The sets are not empty: the test could fail."""
    policy = POLICIES[0]
    structured, _ = BEFORE[id(policy)]
    perfect = classified(json.dumps(GOOD))
    after = [judge(policy, replace(facts, reading=reading_of(perfect, extracted=False))) for facts in REQUESTS]

    assert after == structured
    assert 2 <= sum(needed == frozenset() for needed in after) < sum(needed is not None for needed in after) < len(after)


def test_field_63_extra_fields_such_as_an_amount_or_an_approver_send_the_request_to_a_person() -> None:
    for name, value in SMUGGLED.items():
        smuggling = classified(json.dumps(GOOD | {name: value}))
        assert smuggling.reading is not None
        assert (smuggling.reading.amount, smuggling.reading.proposal) == (3_000, "escalate")
        needed = judge(POLICIES[0], replace(IN_ORDER, reading=reading_of(smuggling, extracted=False)))
        assert needed is not None
        assert "reviewer" in needed


def test_field_63_nothing_becomes_payable_by_a_model_that_fell_for_a_published_injection(figures: Callable[[str], None]) -> None:
    """A model that obeys each text wholly: sure of itself, for approval, silent about signs, and with what the text asked it to add."""
    place = os.environ.get("REFUNDS_INJECTIONS")
    if not place:
        figures("payable set under injections: NOT RUN, REFUNDS_INJECTIONS is not set")
        return
    texts: list[str] = [entry["user_input"] for entry in json.loads(Path(place).read_text(encoding="utf-8"))]
    seen: dict[str, Any] = {}
    for text in texts:
        for words in (text, f"{TEXT} {text}"):
            found = classified(json.dumps(GOOD | {"order_reference": None, "product_lines": [], "amount_text": None}), words)
            seen.setdefault(without_words(found).model_dump_json(), found)
    for found in seen.values():
        hold(found)
    figures(f"payable set under injections: {len(texts)} texts, {len(seen)} kinds of readings, nothing became payable")
    assert len(texts) > 50
