"""Promise P10 on the real path: an answer is recorded, the refund is quoted, and no more can move than without the model."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, find, settings

from refunds.classification import Classification
from refunds.messages import Step
from refunds.requests import Ticket
from tests.activities.classifiers.hostile import GOOD, SMUGGLED, TEXT, answers, classified
from tests.store.world import World

EASE = ("approved", "awaiting_consent", "awaiting_review", "denied", "answered")
"""Where a quoted request stands, from the easiest to what never moves."""


def sample() -> list[Classification]:
    """The worst there is by name, and answers that are drawn, each of another kind of outcome."""
    named: list[str | None] = [
        None,
        "{",
        json.dumps(GOOD),
        json.dumps(GOOD | SMUGGLED),
        json.dumps(GOOD | {"amount_text": "$3000"}),
        json.dumps(GOOD | {"order_reference": "ORD-9999"}),
        json.dumps(GOOD | {"intent": "track_refund", "amount_text": None}),
        json.dumps(GOOD | {"intent": "out_of_scope"}),
        json.dumps(GOOD | {"proposal": "deny"}),
    ]
    drawn = {classified(raw).model_dump_json(): raw for raw in named}
    quiet = settings(
        database=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None
    )
    for wanted in ("complaint", "policy_question"):
        raw = find(answers, lambda raw, wanted=wanted: _intent(raw) == wanted, settings=quiet)
        drawn.setdefault(classified(raw).model_dump_json(), raw)
    return [classified(raw) for raw in drawn.values()]


def _intent(raw: str | None) -> str | None:
    reading = classified(raw).reading
    return None if reading is None else reading.intent.value


@dataclass(frozen=True)
class Asked:
    """What became of one request: where it stands, and the exact terms that could be sent."""

    status: str
    amount: int | None
    payment: str | None
    review: Any


async def asked(world: World, number: int, classification: Classification | None, *, words: bool) -> Asked:
    """One customer's first request for $30.00 of $100.00, with or without words and what a model made of them."""
    order, customer = f"ORD-{number}", f"customer-{number}"
    [payment] = await world.order(order, customer)
    await world.read(payment)
    refund = await world.accept(world.request(order_id=order, customer_id=customer, message=TEXT if words else None))
    seen = await world.steps.prepare(refund)
    if words:
        assert seen.needs == Step.CLASSIFY
        assert classification is not None
        await world.classifying.save(refund, classification)
        seen = await world.steps.prepare(refund)
    return stands(world, refund, payment)


def stands(world: World, refund: str, payment: str) -> Asked:
    row = world.row(refund)
    revisions = world.rows("SELECT terms FROM revisions WHERE refund_id = %s ORDER BY revision DESC LIMIT 1", refund)
    terms = revisions[0]["terms"] if revisions else None
    if terms is not None:
        assert terms["processor_payment"] == payment, "no other payment than that of the order"
    return Asked(row["status"], terms and terms["amount"], terms and terms["payment"], row["review"])


async def test_field_63_no_answer_makes_a_request_easier_than_it_is_without_words(world: World) -> None:
    without = await asked(world, 1, None, words=False)
    assert (without.status, without.amount) == ("approved", 3_000)

    found = [await asked(world, number, answer, words=True) for number, answer in enumerate(sample(), 1_001)]

    assert len(found) >= 8
    for one in found:
        assert EASE.index(one.status) >= EASE.index(without.status), one
        assert one.amount in (3_000, None), "the amount is the caller's, whatever a model reads"
    assert {one.status for one in found} >= {"approved", "awaiting_review"}, "a perfect answer leaves it as it was, a hostile one does not"


async def test_field_63_a_ticket_is_never_paid_without_the_customer_s_consent_to_exact_terms(world: World) -> None:
    others = await world.order("ORD-9999", "somebody-else")
    await world.read(others[0])
    for number, answer in enumerate(sample(), 1_001):
        [payment] = await world.order("ORD-1001" if number == 1_001 else f"ORD-{number}", f"customer-{number}")
        await world.read(payment)
        refund = await world.accept(Ticket(customer_id=f"customer-{number}", order_id=f"ORD-{number}", message=TEXT))
        await world.steps.prepare(refund)
        await world.classifying.save(refund, answer)
        await world.steps.prepare(refund)

        found = stands(world, refund, payment)
        assert found.status in ("awaiting_consent", "awaiting_review", "denied", "answered"), answer
        assert found.amount in (3_000, None), "only what the customer's own words say"
    assert world.rows("SELECT id FROM decisions WHERE verdict = 'approve'") == []


async def test_field_63_an_answer_that_comes_late_changes_nothing(world: World) -> None:
    [payment] = await world.order("ORD-1001", "customer-1")
    await world.read(payment)
    refund = await world.accept(world.request(order_id="ORD-1001", message=TEXT))
    await world.steps.prepare(refund, unread=True)
    before, entries = stands(world, refund, payment), len(world.ledger(refund))
    assert before.status == "awaiting_review"

    await world.classifying.save(refund, classified(json.dumps(GOOD)))
    await world.steps.prepare(refund)

    assert stands(world, refund, payment) == before
    assert len(world.ledger(refund)) == entries + 1, "only that it was read"


async def test_field_63_the_first_answer_stays(world: World) -> None:
    [payment] = await world.order("ORD-1001", "customer-1")
    await world.read(payment)
    refund = await world.accept(world.request(order_id="ORD-1001", message=TEXT))
    await world.steps.prepare(refund)
    await world.classifying.save(refund, classified(None))
    await world.classifying.save(refund, classified(json.dumps(GOOD)))
    await world.steps.prepare(refund)

    assert stands(world, refund, payment).status == "awaiting_review"
    assert world.count("classifications") == 1
