"""Approving on real PostgreSQL: ceilings of one's own, delegation, evidence, specialists, assignment, business hours (field reports 56 and 57)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from refunds.requests import Ticket
from store import assigning, decisions, delegations, evidence, principals
from store.decisions import Recorded
from store.sql import Row
from tests.store.world import START, World

TEAM, MANAGERS = 20_000, 60_000
MANAGED = "managers:\n    people: 1"


@pytest.fixture
async def reviewed(world: World) -> str:
    """A refund that waits for the team."""
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=TEAM)
    assert (seen.status, seen.queue) == ("awaiting_review", "team")
    return refund


@pytest.fixture
async def managed(world: World) -> str:
    """A refund that waits for a manager."""
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=MANAGERS)
    assert (seen.status, seen.queue) == ("awaiting_review", "managers")
    return refund


async def policy(world: World, *changes: tuple[str, str]) -> None:
    [current] = world.rows("SELECT source FROM policy_versions ORDER BY version DESC LIMIT 1")
    source = current["source"]
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new, 1)
    await world.policy(source)


async def approving(world: World, actor: Actor, **said: Any) -> Actor:
    """Have an operator say what somebody may approve; returns them as they authenticate from then on."""
    async with world.api.begin() as connection:
        operator = Actor("pr_operator", "operator", "Operator", PrincipalKind.PERSON, frozenset({Role.OPERATOR}))
        given = {"approves_up_to": None, "operates_classifier": False, "owner_id": None} | said
        row = await principals.set_approving(connection, world.clock, principal_id=actor.principal_id, actor=operator, **given)
    return Actor(
        actor.principal_id,
        actor.handle,
        actor.name,
        actor.kind,
        actor.roles,
        actor.integration,
        row["approves_up_to"],
        row["operates_classifier"],
    )


async def lets(
    world: World, of: Actor, to: Actor, role: Role = Role.MANAGER, *, queue: str | None = None, after: float = 0, hours: float = 240
) -> Row:
    async with world.api.begin() as connection:
        begins = world.clock.now() + timedelta(hours=after)
        times = {"starts_at": begins, "ends_at": begins + timedelta(hours=hours)}
        return await delegations.delegate(connection, world.clock, actor=of, to=to.handle, role=role, queue=queue, **times)


async def decide(world: World, refund: str, actor: Actor, verdict: str = "approve", **more: Any) -> Recorded:
    async with world.api.begin() as connection:
        said = {"terms_hash": world.row(refund)["terms_hash"], "reason": "looked at it"} | more
        return await decisions.record_review(connection, world.clock, refund_id=refund, actor=actor, verdict=verdict, **said)


async def refused(world: World, refund: str, actor: Actor, verdict: str = "approve", **more: Any) -> Code:
    """Have a decision refused; holds that nothing at all changed."""
    before = world.row(refund), len(world.ledger(refund)), world.count("decisions")
    with pytest.raises(RefundError) as refusal:
        await decide(world, refund, actor, verdict, **more)
    assert (world.row(refund), len(world.ledger(refund)), world.count("decisions")) == before
    return refusal.value.code


# --- ceilings of one's own


async def test_above_their_own_ceiling_a_reviewer_only_denies(world: World, reviewed: str) -> None:
    ann = await approving(world, world.ann, approves_up_to={"USD": TEAM - 1})

    assert await refused(world, reviewed, ann) is Code.ABOVE_OWN_LIMIT
    assert (await decide(world, reviewed, ann, "deny")).row["status"] == "denied"


async def test_up_to_and_with_their_own_ceiling_a_reviewer_approves(world: World, reviewed: str) -> None:
    ann = await approving(world, world.ann, approves_up_to={"USD": TEAM})

    assert (await decide(world, reviewed, ann)).row["status"] == "approved"


async def test_a_ceiling_is_in_the_record_and_nobody_sets_their_own(world: World) -> None:
    await approving(world, world.ann, approves_up_to={"USD": 500})
    await approving(world, world.ann, approves_up_to={"USD": 500})  # the same again is no change

    entries = [e for e in world.rows("SELECT type, actor, data FROM ledger") if e["type"] == "approving_set"]
    assert [(e["actor"], e["data"]["said"]) for e in entries] == [("pr_operator", {"approves_up_to": {"USD": 500}})]
    async with world.api.begin() as connection:
        with pytest.raises(RefundError) as refusal:
            await principals.set_approving(
                connection,
                world.clock,
                principal_id=world.mia.principal_id,
                actor=world.mia,
                approves_up_to=None,
                operates_classifier=False,
                owner_id=None,
            )
    assert refusal.value.code is Code.SELF_APPROVAL


# --- who has a part in it


async def test_field_56_whoever_an_agent_acts_for_cannot_approve(world: World) -> None:
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    await approving(world, bot, owner_id=world.mia.principal_id)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(actor=bot, amount=TEAM)
    if world.row(refund)["status"] == "awaiting_consent":  # that an agent asks is no consent
        await world.consent(refund)

    assert await refused(world, refund, world.mia) is Code.SELF_APPROVAL
    assert await refused(world, refund, bot) is Code.PERSON_REQUIRED
    await lets(world, world.mia, world.ann)
    assert await refused(world, refund, world.ann, on_behalf_of="mia") is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.bob)).row["status"] == "approved"


async def test_field_56_a_second_account_of_the_same_name_is_the_same_person(world: World) -> None:
    first = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER)
    second = await world.actor("Uma@support.example", PrincipalKind.PERSON, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(actor=first, amount=TEAM)

    assert await refused(world, refund, second) is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.ann)).row["status"] == "approved"


async def test_who_operates_the_reader_of_free_text_approves_nothing_it_read(world: World) -> None:
    await world.ready(captured=100_000)
    ann = await approving(world, world.ann, operates_classifier=True)
    refund = await world.accept(
        Ticket.model_validate({"customer_id": "customer-1", "order_id": "order-1", "message": "Please refund $200.00, the mug broke."})
    )
    await world.steps.prepare(refund, unread=True)
    await world.revise(refund, world.bob, amount=TEAM)
    if world.row(refund)["status"] == "awaiting_consent":
        await world.consent(refund)

    assert await refused(world, refund, ann) is Code.SELF_APPROVAL
    assert await refused(world, refund, world.bob) is Code.SELF_APPROVAL  # wrote the first terms there are
    assert (await decide(world, refund, world.mia)).row["status"] == "approved"


# --- delegation


async def test_a_stand_in_decides_in_their_own_name_on_behalf_of_the_other(world: World, managed: str) -> None:
    assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
    made = await lets(world, world.mia, world.ann)

    recorded = await decide(world, managed, world.ann)

    [row] = world.rows("SELECT principal_id, person, on_behalf_of, delegation_id, role FROM decisions WHERE id = %s", recorded.id)
    assert row == {
        "principal_id": world.ann.principal_id,
        "person": world.ann.principal_id,
        "on_behalf_of": world.mia.principal_id,
        "delegation_id": made["id"],
        "role": "manager",
    }
    [entry] = [e for e in world.ledger(managed) if e["type"] == "decision_recorded" and e["data"]["kind"] == "review"]
    assert (entry["actor"], entry["on_behalf_of"], entry["data"]["delegation"]) == (
        world.ann.principal_id,
        world.mia.principal_id,
        made["id"],
    )
    assert recorded.row["status"] == "approved"


@pytest.mark.parametrize(("at", "holds"), [(-1, False), (0, True), (24 * 3600 - 1, True), (24 * 3600, False)])
async def test_a_delegation_holds_from_its_first_instant_until_before_its_last(world: World, managed: str, at: int, *, holds: bool) -> None:
    start = world.clock.at
    await lets(world, world.mia, world.ann, after=1, hours=24)
    world.clock.at = start + timedelta(hours=1, seconds=at)

    if holds:
        assert (await decide(world, managed, world.ann)).row["status"] == "approved"
    else:
        assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
        assert await refused(world, managed, world.ann, on_behalf_of="mia") is Code.DELEGATION_INVALID


async def test_a_delegation_that_was_ended_early_gives_nothing_from_then_on(world: World, managed: str) -> None:
    made = await lets(world, world.mia, world.ann)
    async with world.api.begin() as connection:
        ended = await delegations.end(connection, world.clock, actor=world.mia, delegation_id=made["id"])
    world.clock.advance(hours=1)
    async with world.api.begin() as connection:
        again = await delegations.end(connection, world.clock, actor=world.ann, delegation_id=made["id"])

    assert (ended["ended_at"], again["ended_at"], again["ender_handle"]) == (ended["ended_at"], ended["ended_at"], "mia")
    assert await refused(world, managed, world.ann) is Code.ROLE_TOO_LOW
    made_and_ended = [e["type"] for e in world.rows("SELECT type FROM ledger WHERE type LIKE 'delegation%%' ORDER BY id")]
    assert made_and_ended == ["delegation_made", "delegation_ended"]


async def test_a_stranger_ends_no_delegation(world: World) -> None:
    made = await lets(world, world.mia, world.ann)

    async with world.api.begin() as connection:
        with pytest.raises(RefundError) as refusal:
            await delegations.end(connection, world.clock, actor=world.bob, delegation_id=made["id"])

    assert refusal.value.code is Code.NOT_FOUND


async def test_what_was_handed_over_ends_with_the_role_of_whoever_handed_it_over(world: World, managed: str) -> None:
    await lets(world, world.mia, world.ann)
    world.execute("UPDATE api_keys SET revoked_at = %s WHERE principal_id = %s", world.clock.at, world.mia.principal_id)

    assert await refused(world, managed, world.ann) is Code.DELEGATION_INVALID


async def test_nothing_is_handed_on(world: World, managed: str) -> None:
    await lets(world, world.mia, world.ann)

    with pytest.raises(RefundError) as refusal:
        await lets(world, world.ann, world.bob)

    assert (refusal.value.code, refusal.value.field) == (Code.ROLE_TOO_LOW, "role")
    await lets(world, world.ann, world.bob, Role.REVIEWER)  # what is Ann's own
    assert await refused(world, managed, world.bob) is Code.ROLE_TOO_LOW
    assert (await decide(world, managed, world.ann)).row["status"] == "approved"


@pytest.mark.parametrize(
    ("to", "given", "field"),
    [
        ("mia", {}, "to"),
        ("nobody", {}, "to"),
        ("desk", {}, "to"),
        ("clerk", {}, "to"),
        ("ann", {"after": -1}, "starts_at"),
        ("ann", {"hours": 0}, "ends_at"),
        ("ann", {"hours": -1}, "ends_at"),
        ("ann", {"hours": 367 * 24}, "ends_at"),
        ("ann", {"role": Role.OPERATOR}, "role"),
    ],
)
async def test_a_delegation_that_makes_no_sense_is_refused(world: World, to: str, given: dict[str, Any], field: str) -> None:
    await world.actor("clerk", PrincipalKind.PERSON, Role.REQUESTER)
    somebody = Actor("pr_x", to, to, PrincipalKind.PERSON)

    with pytest.raises(RefundError) as refusal:
        await lets(world, world.mia, somebody, **given)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, field)
    assert world.count("delegations") == 0


async def test_of_several_delegations_one_that_suffices_is_used_and_one_that_is_named(world: World, managed: str) -> None:
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    await lets(world, max_, world.ann, queue="vip")
    await lets(world, world.mia, world.ann)
    await lets(world, world.mia, world.ann, hours=1)

    assert await refused(world, managed, world.ann, on_behalf_of="max") is Code.DELEGATION_INVALID
    recorded = await decide(world, managed, world.ann)
    assert world.rows("SELECT on_behalf_of FROM decisions WHERE id = %s", recorded.id) == [{"on_behalf_of": world.mia.principal_id}]


async def test_field_56_nobody_approves_their_own_request_through_a_stand_in(world: World) -> None:
    uma = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(actor=uma, amount=MANAGERS)
    await lets(world, uma, world.ann)
    await lets(world, world.mia, uma)

    assert await refused(world, refund, world.ann) is Code.SELF_APPROVAL
    assert await refused(world, refund, world.ann, on_behalf_of="uma") is Code.SELF_APPROVAL
    assert await refused(world, refund, uma, on_behalf_of="mia") is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.mia)).row["status"] == "approved"


async def test_field_56_two_of_which_one_stands_in_for_the_other_are_one(world: World) -> None:
    await policy(world, (MANAGED, "managers:\n    people: 2"))
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=MANAGERS)
    await lets(world, world.mia, world.ann)
    await lets(world, max_, world.bob)
    await lets(world, world.mia, world.bob)

    first = await decide(world, refund, world.ann)

    assert first.row["status"] == "awaiting_review"
    assert await refused(world, refund, world.mia) is Code.SELF_APPROVAL  # in whose right it was approved
    assert await refused(world, refund, world.bob, on_behalf_of="mia") is Code.SELF_APPROVAL
    assert (await decide(world, refund, world.ann)).replayed
    assert (await decide(world, refund, world.bob)).row["status"] == "approved"  # on behalf of Max
    assert world.count("decisions") == 3  # the customer's consent and two reviews


async def test_a_stand_in_denies_too(world: World, managed: str) -> None:
    assert await refused(world, managed, world.ann, "deny") is Code.ROLE_TOO_LOW
    await lets(world, world.mia, world.ann)

    recorded = await decide(world, managed, world.ann, "deny")

    assert recorded.row["status"] == "denied"
    assert world.rows("SELECT on_behalf_of FROM decisions WHERE id = %s", recorded.id) == [{"on_behalf_of": world.mia.principal_id}]


# --- what goes before an approval


async def attach(world: World, refund: str, actor: Actor, kind: str, digest: str | None = None) -> None:
    async with world.api.begin() as connection:
        await evidence.attach(
            connection, world.clock, world.texts, refund_id=refund, actor=actor, kind=kind, words="a photo of the crack", digest=digest
        )


async def test_evidence_is_there_before_anybody_approves_and_an_agents_is_not_enough(world: World) -> None:
    await policy(world, ("  any_other: review\n", "  any_other: review\n  evidence:\n    product_issue: [photo, invoice]\n"))
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM)
    await attach(world, refund, bot, "photo")
    await attach(world, refund, world.desk, "invoice", "0" * 64)

    assert await refused(world, refund, world.ann) is Code.EVIDENCE_MISSING
    await attach(world, refund, world.desk, "photo")
    assert (await decide(world, refund, world.ann)).row["status"] == "approved"
    entries = [e["data"] for e in world.ledger(refund) if e["type"] == "evidence_attached"]
    assert [(e["kind"], e.get("digest")) for e in entries] == [("photo", None), ("invoice", "0" * 64), ("photo", None)]
    assert "crack" not in str(world.ledger(refund))
    with pytest.raises(RefundError) as late:
        await attach_after_submitting(world, refund)
    assert late.value.code is Code.TOO_LATE


async def attach_after_submitting(world: World, refund: str) -> None:
    await world.attempted(refund, 100_000)
    await attach(world, refund, world.desk, "photo")


async def test_without_evidence_it_can_still_be_denied(world: World) -> None:
    await policy(world, ("  any_other: review\n", "  any_other: review\n  evidence:\n    product_issue: [photo]\n"))
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM)

    assert (await decide(world, refund, world.ann, "deny")).row["status"] == "denied"


async def test_at_a_tier_of_specialists_these_decide_and_both_say_why(world: World) -> None:
    await policy(world, (MANAGED, "managers:\n    people: 2"), ("specialists: [manager]", "specialists: [mia, fraud]"))
    max_ = await world.actor("max", PrincipalKind.PERSON, Role.MANAGER)
    fay = await world.actor("fay", PrincipalKind.PERSON, Role.MANAGER, Role.FRAUD)
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=MANAGERS)

    assert await refused(world, refund, max_) is Code.SPECIALIST_REQUIRED
    assert await refused(world, refund, world.mia, reason="") is Code.REASON_REQUIRED
    assert (await decide(world, refund, world.mia, reason="seen the parcel")).row["status"] == "awaiting_review"
    assert await refused(world, refund, fay, reason=" . ") is Code.REASON_REQUIRED
    assert (await decide(world, refund, fay, reason="the card is the customer's")).row["status"] == "approved"


# --- who looks at it


async def assign(world: World, refund: str, to: str | None = None, queue: str | None = None) -> Recorded:
    async with world.api.begin() as connection:
        return await assigning.record_assignment(connection, world.clock, refund_id=refund, actor=world.mia, to=to, queue=queue)


DUE = ("review_by", "wake_at", "rung_since", "reminded", "rung")


async def test_giving_it_to_somebody_moves_no_deadline_and_keeps_nobody_else_from_deciding(world: World, reviewed: str) -> None:
    before = world.row(reviewed)
    world.clock.advance(hours=3)

    first = await assign(world, reviewed, "Bob")
    again = await assign(world, reviewed, world.bob.principal_id)

    after = world.row(reviewed)
    assert (first.replayed, again.replayed, again.id) == (False, True, first.id)
    assert (after["assigned_to"], after["queue"]) == (world.bob.principal_id, "team")
    assert [after[name] for name in DUE] == [before[name] for name in DUE]
    assert [e["type"] for e in world.ledger(reviewed)].count("assign_recorded") == 1
    assert (await decide(world, reviewed, world.ann)).row["status"] == "approved"


async def test_in_another_queue_its_role_is_asked_for_and_the_ladder_goes_on_as_it_was(world: World, reviewed: str) -> None:
    before = world.row(reviewed)
    await assign(world, reviewed, "mia", "managers")
    moved = world.row(reviewed)

    assert (moved["queue"], moved["assigned_to"]) == ("managers", world.mia.principal_id)
    assert [moved[name] for name in DUE] == [before[name] for name in DUE]
    assert await refused(world, reviewed, world.ann) is Code.ROLE_TOO_LOW
    world.clock.at = before["review_by"]
    escalated = await world.steps.pass_deadline(reviewed)
    assert (escalated.status, escalated.queue, world.row(reviewed)["assigned_to"]) == ("awaiting_review", "managers", None)
    assert escalated.review_by == before["review_by"] + timedelta(hours=24)
    assert (await decide(world, reviewed, world.mia)).row["status"] == "approved"


async def test_back_in_the_first_queue_the_role_does_not_fall(world: World, reviewed: str) -> None:
    world.clock.advance(hours=24)
    await world.steps.pass_deadline(reviewed)
    assert world.row(reviewed)["queue"] == "managers"

    await assign(world, reviewed, queue="team")

    assert world.row(reviewed)["queue"] == "team"
    assert await refused(world, reviewed, world.ann) is Code.ROLE_TOO_LOW


async def test_it_can_be_taken_back(world: World, reviewed: str) -> None:
    await assign(world, reviewed, "bob")
    await assign(world, reviewed, assigning.NOBODY)

    assert world.row(reviewed)["assigned_to"] is None


@pytest.mark.parametrize(
    ("to", "queue", "field"),
    [
        ("desk", None, "to"),
        ("uma", None, "to"),
        ("bea", None, "to"),
        ("ann", "managers", "to"),
        ("nobody", None, "to"),
        (None, "vip", "queue"),
    ],
)
async def test_it_is_given_to_nobody_who_could_not_approve_it(world: World, to: str | None, queue: str | None, field: str) -> None:
    await world.actor("uma", PrincipalKind.PERSON, Role.REVIEWER)
    await approving(world, await world.actor("bea", PrincipalKind.PERSON, Role.REVIEWER), approves_up_to={"USD": 100})
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM, requested_by="Uma")
    before = world.row(refund)

    with pytest.raises(RefundError) as refusal:
        await assign(world, refund, to, queue)

    assert (refusal.value.code, refusal.value.field) == (Code.INVALID_FIELD, field)
    assert world.row(refund) == before


async def test_what_waits_for_no_review_is_given_to_nobody(world: World, reviewed: str) -> None:
    await decide(world, reviewed, world.ann)

    with pytest.raises(RefundError) as refusal:
        await assign(world, reviewed, "bob")

    assert refusal.value.code is Code.NOT_AWAITING_REVIEW


# --- groups, hours, races


async def test_a_decision_and_the_end_of_the_delegation_it_rests_on_have_one_order(world: World) -> None:
    await world.ready(captured=1_000_000)
    for _ in range(5):
        refund, _ = await world.quoted(amount=MANAGERS)
        made = await lets(world, world.mia, world.ann)

        async def end(delegation: str = made["id"]) -> None:
            async with world.api.begin() as connection:
                await delegations.end(connection, world.clock, actor=world.mia, delegation_id=delegation)

        ended = await asyncio.gather(decide(world, refund, world.ann), end(), return_exceptions=True)

        approved = world.row(refund)["status"] == "approved"
        assert approved == isinstance(ended[0], Recorded)
        assert ended[1] is None


HOURS = """
calendars:
  office:
    zone: Europe/Berlin
    hours:
      monday: ["09:00-17:00"]
      tuesday: ["09:00-17:00"]
      wednesday: ["09:00-17:00"]
    holidays: ["2026-06-02"]
rules:"""


async def test_field_57_where_the_ladder_says_so_deadlines_count_open_hours_and_running_refunds_keep_theirs(world: World) -> None:
    # The world begins on Monday 2026-06-01 at 12:00 UTC, 14:00 in Berlin; Tuesday is a holiday.
    rung = "decide_within: 24h\n      - queue: managers"
    await world.ready(captured=100_000)
    old, by_the_clock = await world.quoted(amount=TEAM)
    await policy(
        world,
        ("\nrules:\n", f"\n{HOURS.strip()}\n"),
        (rung, rung.replace("24h", "8h\n        hours: office")),
        ("remind_after: 4h", "remind_after: 2h"),
    )
    late = world.clock.at - START  # publishing takes an instant
    new, in_hours = await world.quoted(amount=TEAM)

    assert by_the_clock.review_by == datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
    assert in_hours.review_by == datetime(2026, 6, 3, 12, 0, tzinfo=UTC) + late  # three hours on Monday, none on Tuesday, five on Wednesday
    assert world.row(new)["wake_at"] == datetime(2026, 6, 1, 14, 0, tzinfo=UTC) + late
    assert "within the hours office" in in_hours.ladder
    world.clock.at = datetime(2026, 6, 3, 12, 0, tzinfo=UTC) - timedelta(microseconds=1)
    await world.steps.pass_deadline(old)
    assert world.row(old)["queue"] == "managers"
    assert (await decide(world, new, world.ann)).row["status"] == "approved"


async def test_field_57_in_business_hours_too_the_deadline_is_an_instant_and_silence_pays_nothing(world: World) -> None:
    rung = "decide_within: 24h\n      - queue: managers"
    await policy(
        world,
        ("\nrules:\n", f"\n{HOURS.strip()}\n"),
        (rung, rung.replace("24h", "8h\n        hours: office")),
        ("remind_after: 4h", "remind_after: 2h"),
    )
    await world.ready(captured=100_000)
    refund, seen = await world.quoted(amount=TEAM)
    assert seen.review_by is not None

    world.clock.at = seen.review_by
    assert await refused(world, refund, world.ann) is Code.ROLE_TOO_LOW  # the second rung is reached at that very instant
    world.clock.advance(hours=25)
    await world.steps.pass_deadline(refund)
    world.clock.advance(hours=25)
    ended = await world.steps.pass_deadline(refund)

    assert (ended.status, ended.code, world.count("operations")) == ("expired", Code.REVIEW_EXPIRED, 0)
