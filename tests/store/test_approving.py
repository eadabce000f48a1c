"""Approving on real PostgreSQL: ceilings of one's own, whoever has a part in it, evidence, specialists, business hours (field reports 56 and 57)."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from refunds.errors import Code, RefundError
from refunds.people import Actor, PrincipalKind, Role
from refunds.requests import Ticket
from store import decisions, evidence, principals
from store.changes import lock_refund
from tests.store.approvals import MANAGED, MANAGERS, TEAM, approving, decide, lets, managed, policy, refused, reviewed
from tests.store.test_manual import gift_card, handing, parked, says, settler
from tests.store.world import START, World

__all__ = ["managed", "reviewed"]

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


async def test_field_56_nobody_takes_an_agent_from_themselves_to_approve_what_it_asks_for(world: World) -> None:
    bot = await world.actor("bot", PrincipalKind.AGENT, Role.REQUESTER)
    await approving(world, bot, owner_id=world.mia.principal_id)
    given = {"principal_id": bot.principal_id, "approves_up_to": None, "operates_classifier": False}

    async with world.api.begin() as connection:
        for owner in (None, world.ann.principal_id):
            with pytest.raises(RefundError) as refusal:
                await principals.set_approving(connection, world.clock, actor=world.mia, owner_id=owner, **given)
            assert refusal.value.code is Code.SELF_APPROVAL

    assert world.rows("SELECT owner_id FROM principals WHERE id = %s", bot.principal_id) == [{"owner_id": world.mia.principal_id}]
    await approving(world, bot, owner_id=world.ann.principal_id)  # another operator may


async def test_a_key_that_is_revoked_while_its_approval_waits_for_the_refund_approves_nothing(world: World, reviewed: str) -> None:
    terms_hash, locked, go = world.row(reviewed)["terms_hash"], asyncio.Event(), asyncio.Event()

    async def holding() -> None:
        async with world.api.begin() as connection:
            await lock_refund(connection, reviewed, world.clock.now)
            locked.set()
            await go.wait()

    async def approval() -> None:
        async with world.api.begin() as connection:
            said = {"refund_id": reviewed, "actor": world.ann, "verdict": "approve", "terms_hash": terms_hash}
            await decisions.record_review(connection, world.clock, **said)

    holder = asyncio.create_task(holding())
    await locked.wait()
    waiting = asyncio.create_task(approval())
    while not world.rows("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"):
        assert not waiting.done(), waiting
        await asyncio.sleep(0.01)
    world.execute("UPDATE api_keys SET revoked_at = now() WHERE principal_id = %s", world.ann.principal_id)
    go.set()
    await holder
    with pytest.raises(RefundError) as refusal:
        await waiting

    assert refusal.value.code is Code.ROLE_TOO_LOW
    assert world.count("decisions") == world.rows("SELECT count(*) AS n FROM decisions WHERE kind <> 'review'")[0]["n"]


async def test_what_was_approved_stands_when_the_key_is_revoked_before_the_second_person_approves(world: World) -> None:
    await policy(world, ("people: 1", "people: 2"))
    await world.ready(captured=100_000)
    refund, _ = await world.quoted(amount=TEAM)
    await decide(world, refund, world.ann)
    world.execute("UPDATE api_keys SET revoked_at = now() WHERE principal_id = %s", world.ann.principal_id)

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


# --- settling by hand compares persons, too


async def test_field_56_one_person_with_two_accounts_is_no_two_persons_who_settle(world: World) -> None:
    await gift_card(world)
    sven, same = await settler(world), await settler(world, "Sven@support.example")
    refund = await parked(world, amount=2_000)

    await says(world, refund, sven, "not_refunded")
    await says(world, refund, same, "not_refunded")
    await says(world, refund, await settler(world, "tom"), "not_refunded")

    said = world.rows("SELECT body FROM instructions WHERE kind = 'settle' ORDER BY recorded_at, id")
    assert [one["body"]["first_person"] for one in said] == [None, None, sven.principal_id]


async def test_field_56_who_asked_settles_no_manual_part_under_another_account(world: World) -> None:
    await gift_card(world)
    uma = await world.actor("uma", PrincipalKind.PERSON, Role.REQUESTER)
    same = await world.actor("uma@support.example", PrincipalKind.PERSON, Role.SETTLER)
    refund = await world.accept(world.request(amount=2_000), actor=uma)
    await world.steps.prepare(refund)
    assert world.row(refund)["status"] == "approved"
    assert (await handing(world).hand_over(refund)).status == "parked"

    with pytest.raises(RefundError) as refusal:
        await says(world, refund, same)

    assert refusal.value.code is Code.SELF_APPROVAL


# --- business hours


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
