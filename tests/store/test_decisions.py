"""People's decisions: who may, when, on which terms, and that each counts once (field reports 56, 57, 59, 61)."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from refunds.processor import NotSent
from store import refusals
from store.requirements import Required, decisions_on, revision_of, sufficient
from tests.store.approvals import MANAGED, MANAGERS, TEAM, policy, reviewed, waiting
from tests.store.world import World

__all__ = ["reviewed"]

TWO_PEOPLE = (MANAGED, "managers:\n    people: 2")


async def two_people(world: World) -> str:
    """A refund that waits for two managers."""
    await policy(world, TWO_PEOPLE)
    return await waiting(world, MANAGERS, "managers")


async def test_an_approval_counts_when_it_is_recorded(world: World, reviewed: str) -> None:
    recorded = await world.decide(reviewed, world.ann)

    assert (recorded.row["status"], recorded.replayed) == ("approved", False)
    assert [e["type"] for e in world.ledger(reviewed)][-2:] == ["decision_recorded", "status_changed"]
    [out] = world.rows("SELECT * FROM outbox WHERE kind = 'signal'")
    assert (out["refund_id"], out["body"]) == (reviewed, {"name": "approve", "message": recorded.id})


async def test_a_denial_ends_it(world: World, reviewed: str) -> None:
    recorded = await world.decide(reviewed, world.ann, "deny")

    assert (recorded.row["status"], recorded.row["code"]) == ("denied", Code.REVIEWER_DENIED)


@pytest.mark.parametrize("amount", [TEAM, MANAGERS])
async def test_field_56_nobody_approves_what_they_asked_for(world: World, amount: int) -> None:
    both = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(actor=both, amount=amount)

    assert await world.refused(refund, both) is Code.SELF_APPROVAL
    assert (await world.decide(refund, world.mia)).row["status"] == "approved"


@pytest.mark.parametrize("named", ["mia", "MIA ", "Mia"])
async def test_field_56_nor_what_was_asked_for_in_their_name(world: World, named: str) -> None:
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM, requested_by=named)

    assert await world.refused(refund, world.mia) is Code.SELF_APPROVAL
    assert (await world.decide(refund, world.ann)).row["status"] == "approved"


@pytest.mark.parametrize("kind", [PrincipalKind.SERVICE, PrincipalKind.AGENT])
async def test_field_56_services_and_agents_never_decide(world: World, reviewed: str, kind: PrincipalKind) -> None:
    machine = Actor("pr_machine", "machine", "Machine", kind, frozenset({Role.REVIEWER, Role.MANAGER}), "machine")

    assert await world.refused(reviewed, machine) is Code.PERSON_REQUIRED
    assert await world.refused(reviewed, machine, "deny") is Code.PERSON_REQUIRED


async def test_field_56_two_steps_need_two_persons(world: World) -> None:
    refund = await two_people(world)
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)

    first = await world.decide(refund, world.mia)
    again = await world.decide(refund, world.mia)  # the same again is the same answer, and not a second step
    assert (first.row["status"], again.id, again.replayed) == ("awaiting_review", first.id, True)
    assert [d["step"] for d in world.rows("SELECT step FROM decisions WHERE kind = 'review'")] == [1]

    assert (await world.decide(refund, max_)).row["status"] == "approved"
    assert [d["step"] for d in world.rows("SELECT step FROM decisions WHERE kind = 'review' ORDER BY step")] == [1, 2]


async def test_two_persons_at_once_are_two_steps(world: World) -> None:
    refund = await two_people(world)
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)

    await asyncio.gather(world.decide(refund, world.mia), world.decide(refund, max_))

    assert world.row(refund)["status"] == "approved"


async def test_the_second_person_may_deny_what_the_first_approved(world: World) -> None:
    refund = await two_people(world)
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    await world.decide(refund, world.mia)

    assert (await world.decide(refund, max_, "deny")).row["status"] == "denied"


async def test_a_role_that_is_too_low(world: World) -> None:
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=MANAGERS)
    assert seen.queue == "managers"
    clerk = await world.actor("clerk", PrincipalKind.PERSON, Role.REQUESTER)

    assert await world.refused(refund, world.ann) is Code.ROLE_TOO_LOW
    assert await world.refused(refund, world.ann, "deny") is Code.ROLE_TOO_LOW
    assert await world.refused(refund, clerk) is Code.FORBIDDEN
    assert (await world.decide(refund, world.mia)).row["status"] == "approved"


async def test_a_refused_decision_is_entered_in_the_ledger(world: World, reviewed: str) -> None:
    with pytest.raises(RefundError) as refusal:
        await world.decide(reviewed, world.ann, terms_hash="0" * 64)
    async with world.api.begin() as connection:
        await refusals.note_refusal(connection, world.clock, reviewed, world.ann, "decision", refusal.value, sees=None)

    last = world.ledger(reviewed)[-1]
    assert (last["type"], last["actor"], last["data"]) == ("decision_refused", world.ann.principal_id, {"code": "TERMS_CHANGED"})


@pytest.mark.parametrize(("before", "code"), [(timedelta(microseconds=1), None), (timedelta(0), Code.REVIEW_EXPIRED)])
async def test_field_57_the_deadline_is_an_exact_instant(world: World, before: timedelta, code: Code | None) -> None:
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=MANAGERS)
    deadline = world.clock.at + timedelta(hours=48)
    assert seen.review_by == deadline

    world.clock.at = deadline - before

    if code is None:
        assert (await world.decide(refund, world.mia)).row["status"] == "approved"
        return
    assert await world.refused(refund, world.mia) is code
    assert (await world.steps.pass_deadline(refund)).status == "expired"
    assert await world.refused(refund, world.mia) is code


async def test_field_57_silence_climbs_once_and_then_expires(world: World, reviewed: str) -> None:
    seen = []
    for hours in (0, 4, 20, 0, 4, 20, 1):
        world.clock.advance(hours=hours)
        now = await world.steps.pass_deadline(reviewed)
        seen.append((now.status, now.queue))

    assert seen == [("awaiting_review", "team")] * 2 + [("awaiting_review", "managers")] * 3 + [("expired", "")] * 2
    assert Counter(e["type"] for e in world.ledger(reviewed) if e["type"] in ("reminded", "escalated")) == {"reminded": 2, "escalated": 1}
    assert world.row(reviewed)["code"] == Code.REVIEW_EXPIRED
    assert world.count("operations") == 0


async def test_after_the_escalation_only_a_manager_decides(world: World, reviewed: str) -> None:
    world.clock.advance(hours=24)

    assert await world.refused(reviewed, world.ann) is Code.ROLE_TOO_LOW  # judged as escalated although no timer has fired yet
    assert (await world.decide(reviewed, world.mia)).row["status"] == "approved"


async def test_field_59_ten_clicks_at_once_are_one_decision(world: World, reviewed: str) -> None:
    recorded = await asyncio.gather(*(world.decide(reviewed, world.ann) for _ in range(10)))

    assert len({r.id for r in recorded}) == 1
    assert Counter(r.replayed for r in recorded) == {False: 1, True: 9}
    assert len([e for e in world.ledger(reviewed) if e["type"] == "decision_recorded" and e["data"]["kind"] == "review"]) == 1


async def test_field_59_two_who_disagree_at_once(world: World, reviewed: str) -> None:
    ended = await asyncio.gather(world.decide(reviewed, world.ann), world.decide(reviewed, world.bob, "deny"), return_exceptions=True)

    assert Counter(e.code if isinstance(e, RefundError) else "recorded" for e in ended) == {"recorded": 1, Code.ALREADY_DECIDED: 1}


async def test_field_59_two_tabs_of_one_person_that_say_different_things(world: World, reviewed: str) -> None:
    ended = await asyncio.gather(world.decide(reviewed, world.ann), world.decide(reviewed, world.ann, "deny"), return_exceptions=True)

    assert Counter(e.code if isinstance(e, RefundError) else "recorded" for e in ended) == {"recorded": 1, Code.ALREADY_DECIDED: 1}
    assert len(world.rows("SELECT id FROM decisions WHERE kind = 'review'")) == 1


async def test_field_59_a_stale_page(world: World, reviewed: str) -> None:
    old = world.row(reviewed)["terms_hash"]
    await world.revise(reviewed, world.ann, amount=15_000)
    await world.consent(reviewed)

    assert await world.refused(reviewed, world.bob, terms_hash=old) is Code.TERMS_CHANGED
    assert (await world.decide(reviewed, world.bob)).row["status"] == "approved"


async def test_field_61_an_approval_is_consumed_once(world: World, reviewed: str) -> None:
    await world.decide(reviewed, world.ann)

    first, attempt = await world.attempted(reviewed, 100_000)
    await world.submitting.failed_attempt(first, attempt, NotSent("no_connection"))
    again, _ = await world.attempted(reviewed, 100_000)

    assert (first.id, world.count("operations"), world.count("attempts")) == (again.id, 1, 2)
    consumed = world.rows("SELECT d.kind FROM consumed_decisions c JOIN decisions d ON d.id = c.decision_id ORDER BY d.kind")
    assert [c["kind"] for c in consumed] == ["consent", "review"]


async def test_field_61_a_new_policy_does_not_ask_again(world: World, reviewed: str) -> None:
    await world.decide(reviewed, world.ann)
    [current] = world.rows("SELECT source FROM policy_versions")
    await world.policy(current["source"].replace("consent_only_up_to: 100.00", "consent_only_up_to: 1.00"))

    await world.attempted(reviewed, 100_000)

    assert world.row(reviewed)["status"] == "submitting"


async def test_field_61_a_decision_does_not_cover_other_terms(world: World, reviewed: str) -> None:
    await world.decide(reviewed, world.ann)
    async with world.api.begin() as connection:
        revision = await revision_of(connection, reviewed, 1)
        recorded = await decisions_on(connection, reviewed, 1)

    required = Required.of(revision["decision"])
    assert sufficient(required, recorded, revision["terms_hash"]) is not None
    assert sufficient(required, recorded, "0" * 64) is None


async def test_deciding_something_that_waits_for_nobody(world: World) -> None:
    await world.ready()
    refund, seen = await world.quoted(amount=2_000)
    assert seen.status == "approved"

    assert await world.refused(refund, world.ann) is Code.NOT_AWAITING_REVIEW


async def test_consent_is_asked_for_and_counts_once(world: World) -> None:
    await world.ready()
    refund, seen = await world.quoted(full=True)
    assert seen.status == "awaiting_consent"

    recorded = await asyncio.gather(*(world.consent(refund) for _ in range(5)))

    assert {r.row["status"] for r in recorded} == {"approved"}
    assert Counter(r.replayed for r in recorded) == {False: 1, True: 4}
    [decision] = world.rows("SELECT person, role, principal_id FROM decisions WHERE kind = 'consent'")
    assert decision == {
        "person": f"customer:{world.row(refund)['customer_id']}",
        "role": "customer",
        "principal_id": world.desk.principal_id,
    }


async def test_consent_to_other_terms_and_too_late(world: World) -> None:
    await world.ready()
    refund, seen = await world.quoted(full=True)
    assert seen.status == "awaiting_consent"
    assert seen.review_by is not None

    with pytest.raises(RefundError) as other:
        await world.consent(refund, terms_hash="0" * 64)
    world.clock.at = seen.review_by
    with pytest.raises(RefundError) as late:
        await world.consent(refund)

    assert (other.value.code, late.value.code) == (Code.TERMS_CHANGED, Code.CONSENT_EXPIRED)
    assert (await world.steps.pass_deadline(refund)).code == Code.CONSENT_EXPIRED


async def test_consent_declined_withdraws(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(full=True)

    assert (await world.consent(refund, agreed=False)).row["status"] == "withdrawn"


async def test_withdrawal_and_a_withdrawal_again(world: World, reviewed: str) -> None:
    first = await world.withdraw(reviewed)
    again = await world.withdraw(reviewed)

    assert (first.row["status"], first.replayed, again.replayed) == ("withdrawn", False, True)
    assert (await world.kept(reviewed, 100_000)).status == "withdrawn"


async def test_withdrawal_is_too_late_once_there_is_an_operation(world: World) -> None:
    await world.ready()
    refund, _ = await world.quoted(amount=2_000)
    await world.attempted(refund)

    with pytest.raises(RefundError) as refusal:
        await world.withdraw(refund)

    assert refusal.value.code is Code.TOO_LATE
    assert world.row(refund)["status"] == "submitting"


async def test_withdrawal_and_intent_at_once_have_one_winner(world: World) -> None:
    await world.ready(captured=100_000)
    for _ in range(10):
        refund, _ = await world.quoted(amount=1_000)
        if world.row(refund)["status"] == "awaiting_review":
            await world.decide(refund, world.ann)
        ended = await asyncio.gather(world.withdraw(refund), world.attempt(refund, 100_000), return_exceptions=True)
        assert isinstance(ended[0], RefundError) == isinstance(ended[1], tuple)
