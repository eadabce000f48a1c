"""Stops by scope: once one has answered nothing more is sent within it, whichever way it would go out, and everything else goes on (promise P4)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.prepare import Prepare
from refunds.errors import Code, RefundError
from refunds.messages import StepInput
from store import controls, halts
from tests.activities.shop import MakeShop, Shop, Tampered, all_of
from tests.activities.test_manual import NOBODY, gift_card, reader
from tests.activities.test_marketplace import BOTH, SELLER, legs_of, made, sold

_minutes = itertools.count(5, 5)


@pytest.fixture
async def shop(make_shop: MakeShop) -> Shop:
    """At a time of its own: the policy limits how much an agent asks for in a minute, which is not what these tests are about."""
    return await later(make_shop)


async def later(make_shop: MakeShop, **changed: Any) -> Shop:
    shop = await make_shop(**changed)
    shop.clock.advance(timedelta(minutes=next(_minutes)))
    return shop


SCOPES = ["everything", "agents", "agent:bot", "processor:stripe"]
HELD_AS = {
    "everything": ("EMERGENCY_STOP", "an operator has stopped all refunds"),
    "agents": ("EMERGENCY_STOP", "an operator has stopped all refunds that agents asked for"),
    "agent:bot": ("EMERGENCY_STOP", "an operator has stopped all refunds that the agent bot asked for"),
    "processor:stripe": ("PROCESSOR_HALTED", "submitting is halted (HALTED_BY_OPERATOR)"),
}


@asynccontextmanager
async def stopped(shop: Shop, scope: str) -> AsyncIterator[dict[str, Any]]:
    """Within, Olga has stopped this scope; at the end Omar resumes it."""
    state = await shop.control_scope(scope, "stopped", "olga", reason="the customer Ada Lovelace complained")
    try:
        yield state
    finally:
        await shop.control_scope(scope, "running", "omar")


async def opened(shop: Shop, refunds: list[str]) -> int:
    count = "SELECT count(*) AS n FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE o.refund_id = ANY(:ids)"
    return (await shop.query(count, ids=refunds))[0]["n"]


# --- what a scope covers -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("everything", {"a person's", "relayed", "bot's", "other-bot's"}),
        ("agents", {"relayed", "bot's", "other-bot's"}),
        ("agent:bot", {"bot's"}),
        ("processor:stripe", {"a person's", "relayed", "bot's", "other-bot's"}),
    ],
)
async def test_a_stop_holds_exactly_its_scope_and_says_which(shop: Shop, scope: str, covered: set[str]) -> None:
    refunds = {
        "a person's": await shop.approved(),
        "relayed": await shop.approved(agent_session_id="s-1", agent_model="m-1"),
        "bot's": await shop.approved(by="bot"),
        "other-bot's": await shop.approved(by="other-bot"),
    }
    async with stopped(shop, scope):
        ends = {whose: (await shop.submit(refund)).status for whose, refund in refunds.items()}
        again = {(await shop.steps.resume_held(refunds[whose])).status for whose in covered}
        held = [await shop.row(refunds[whose]) for whose in sorted(covered)]

    assert {whose for whose, status in ends.items() if status == "held"} == covered
    assert {status for whose, status in ends.items() if whose not in covered} <= {"succeeded"}
    assert again == {"held"}
    assert {(row["code"], row["detail"]) for row in held} == {HELD_AS[scope]}, "what an operator wrote goes nowhere that the engine keeps"
    assert await opened(shop, [refunds[whose] for whose in covered]) == 0
    for whose in covered:
        shop.clock.advance(timedelta(seconds=1))
        assert (await shop.steps.resume_held(refunds[whose])).status == "approved"
        assert (await shop.submit(refunds[whose])).status == "succeeded"


async def test_an_agent_is_stopped_by_its_id_as_by_its_handle_in_whatever_case(shop: Shop) -> None:
    refund = await shop.approved(by="bot")
    async with stopped(shop, f"agent:{shop.people['bot'].principal_id}") as state:
        assert state["scope"] == "agent:bot"
        assert (await shop.submit(refund)).status == "held"
    async with stopped(shop, "agent:BOT") as state:
        assert state["scope"] == "agent:bot"


@pytest.mark.parametrize("scope", SCOPES)
async def test_an_authorisation_of_the_scope_is_not_released(shop: Shop, scope: str) -> None:
    intent = await shop.paid(3_000, captured=0)
    refund = await shop.approved(intent, by="bot")
    async with stopped(shop, scope):
        assert (await shop.submit(refund)).status == "held"
        assert (await shop.truth(intent))["cancel_requests"] == []


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_retry_within_the_scope_looks_and_does_not_post_again(shop: Shop, scope: str) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent, by="bot")
    await shop.fault("refund.create", {"kind": "lose_request"}, intent=intent)
    with pytest.raises(ApplicationError):
        await shop.submit(refund)
    async with stopped(shop, scope):
        for tried in (2, 3):
            with pytest.raises(ApplicationError):
                await shop.submit(refund, attempt=tried)
        assert await shop.asked_and_made(intent) == (1, 0)
        await shop.let_attempts_lapse(refund)
        with pytest.raises(ApplicationError, match=HELD_AS[scope][0].lower()):
            await shop.submit(refund, attempt=4)
        assert await shop.asked_and_made(intent) == (1, 0)
    assert (await shop.submit(refund, attempt=5)).status == "succeeded"


@pytest.mark.parametrize("scope", SCOPES)
async def test_legs_of_the_scope_wait_though_their_refund_has_gone(shop: Shop, scope: str) -> None:
    await shop.control("POST", "/accounts", {"id": SELLER, "available": None})
    intent = await sold(shop)
    refund = await shop.approved(intent, by="bot", **BOTH)
    assert (await shop.submit(refund)).status == "succeeded"
    async with stopped(shop, scope):
        await shop.send_legs(refund)
        assert await made(shop, intent) == {"reversals": [], "fee_refunds": []}
        assert {(leg["state"], leg["code"], leg["detail"]) for leg in await legs_of(shop, refund)} == {("waiting", *HELD_AS[scope])}
    await shop.send_legs(refund)
    assert await made(shop, intent) == {"reversals": [3_000], "fee_refunds": [300]}


@pytest.mark.parametrize(("scope", "status"), [("agents", "held"), ("agent:bot", "held"), ("agent:other-bot", "parked")])
async def test_nobody_is_told_to_give_a_manual_part_back_within_the_scope(shop: Shop, scope: str, status: str) -> None:
    refund = await gift_card(shop, f"of a bot, {scope}", by="bot")
    await ActivityEnvironment().run(Prepare(shop.steps, reader(shop)).prepare, StepInput(refund))
    await shop.agreed(refund)
    async with stopped(shop, scope):
        assert (await shop.submit(refund, step=shop.submitting(NOBODY))).status == status


# --- the answer ----------------------------------------------------------------------------------------------------------------------------


async def test_a_stop_lists_the_calls_of_its_scope_that_had_started(shop: Shop) -> None:
    bots, persons = await shop.approved(by="bot"), await shop.approved()
    listed: dict[str, list[str]] = {}
    go_on, reached = asyncio.Event(), asyncio.Semaphore(0)

    async def wait() -> None:
        reached.release()
        await go_on.wait()

    step = shop.submitting(Tampered(shop.processor, before={"refund": wait}))
    sending = [asyncio.create_task(shop.submit(refund, step=step)) for refund in (bots, persons)]
    for _ in sending:
        await reached.acquire()
    async with shop.api.begin() as connection:
        for scope in (*SCOPES, "agent:other-bot"):
            listed[scope] = sorted(row["refund_id"] for row in await controls.open_attempts(connection, scope))
    go_on.set()
    assert [done.status for done in await asyncio.gather(*sending)] == ["succeeded", "succeeded"]

    both = sorted([bots, persons])
    assert listed == {
        "everything": both,
        "agents": [bots],
        "agent:bot": [bots],
        "processor:stripe": both,
        "agent:other-bot": [],
    }


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_stop_during_attempts_lets_none_of_its_scope_open_after_its_answer(make_shop: MakeShop, scope: str) -> None:
    """Of twelve of the scope some are on their way, some race with the stop, and some come when it has answered; others are not hindered."""
    shop = await later(make_shop, database_lock_timeout_ms=5_000, database_pool_size=20)
    inside = [await shop.approved(by="bot") for _ in range(12)]
    outside = [] if scope in ("everything", "processor:stripe") else [await shop.approved() for _ in range(3)]
    stopping, answered, sending = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def one_is_sent() -> None:
        sending.set()

    async def submit(number: int, refund_id: str) -> object:
        gate = (None, stopping, answered)[number % 3]

        async def at_the_gate() -> None:
            if gate is not None:
                await gate.wait()

        processor = Tampered(shop.processor, before={"refund": one_is_sent}, after={"read_payment": at_the_gate})
        return await shop.submit(refund_id, step=shop.submitting(processor))

    submitting = [asyncio.create_task(submit(number, refund)) for number, refund in enumerate([*inside, *outside])]
    await sending.wait()
    stopping.set()
    async with stopped(shop, scope):
        at_the_answer = await opened(shop, inside)
        answered_at = shop.clock.now()
        answered.set()
        results = await all_of(submitting)
        afterwards = await opened(shop, inside)
        for refund_id, result in zip([*inside, *outside], results, strict=True):
            if isinstance(result, RefundError):  # a lock that was not had in time: nothing was stored, the activity is repeated
                await shop.submit(refund_id, attempt=2)

    late = "SELECT count(*) AS n FROM attempts a JOIN operations o ON o.id = a.operation_id WHERE refund_id = ANY(:ids) AND opened_at > :at"
    assert (await shop.query(late, ids=inside, at=answered_at))[0]["n"] == 0
    assert 1 <= at_the_answer == afterwards <= 8
    ends = [await shop.ended(refund_id) for refund_id in inside]
    assert set(ends) == {("held", HELD_AS[scope][0]), ("succeeded", None)}
    assert ends.count(("succeeded", None)) == at_the_answer
    assert {await shop.ended(refund_id) for refund_id in outside} <= {("succeeded", None)}


async def test_the_state_is_read_in_one_statement_whatever_is_stopped(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """No scope costs an attempt a further round trip to the database."""
    asked: list[tuple[str, ...]] = []
    execute = psycopg.AsyncCursor.execute

    async def noting(cursor: Any, query: Any, *arguments: Any, **more: Any) -> Any:
        statement = query.decode() if isinstance(query, bytes) else str(query)
        if read := tuple(table for table in ("controls", "halts") if f"FROM {table}" in statement):
            asked.append(read)
        return await execute(cursor, query, *arguments, **more)

    refund = await shop.approved(by="bot")
    async with stopped(shop, "agents"), stopped(shop, "agent:bot"), stopped(shop, "processor:stripe"):
        with monkeypatch.context() as patched:
            patched.setattr(psycopg.AsyncCursor, "execute", noting)
            assert (await shop.submit(refund)).status == "held"
    assert asked == [("controls", "halts")]


# --- what cannot be read counts as stopped ------------------------------------------------------------------------------------------------


async def missing(connection: Any) -> Callable[[Any], Any]:
    [kept] = (await connection.execute(text("DELETE FROM controls RETURNING *"))).mappings().all()

    async def back(connection: Any) -> None:
        columns, values = ", ".join(kept), ", ".join(f":{name}" for name in kept)
        await connection.execute(text(f"INSERT INTO controls ({columns}) VALUES ({values})"), dict(kept))

    return back


def done_and_undone(do: str, undo: str) -> Callable[[Any], Any]:
    async def broken(connection: Any) -> Callable[[Any], Any]:
        for statement in do.split(";"):
            await connection.execute(text(statement))

        async def back(connection: Any) -> None:
            for statement in undo.split(";"):
                await connection.execute(text(statement))

        return back

    return broken


BROKEN = {
    "a missing row": missing,
    "a revoked grant on the stop": done_and_undone(
        "REVOKE SELECT ON controls FROM refunds_payments", "GRANT SELECT ON controls TO refunds_payments"
    ),
    "a revoked grant on the halts": done_and_undone(
        "REVOKE SELECT ON halts FROM refunds_payments", "GRANT SELECT ON halts TO refunds_payments"
    ),
    "a mode nobody knows": done_and_undone(
        "ALTER TABLE controls DROP CONSTRAINT ck_controls_mode; UPDATE controls SET mode = 'liv'",
        "UPDATE controls SET mode = 'live'; ALTER TABLE controls ADD CONSTRAINT ck_controls_mode CHECK (mode IN ('live', 'draft'))",
    ),
    "a halt of a scope nobody knows": done_and_undone(
        "ALTER TABLE halts DROP CONSTRAINT ck_halts_scope; INSERT INTO halts (id, scope, code, reason, opened_at)"
        " VALUES ('hlt_odd', 'agnts', 'HALTED_BY_OPERATOR', 'r', now())",
        "DELETE FROM halts WHERE id = 'hlt_odd'; ALTER TABLE halts ADD CONSTRAINT ck_halts_scope CHECK (CASE WHEN processor IS NULL"
        " THEN scope IN ('everything', 'agents') OR scope LIKE 'agent:_%' ELSE scope = 'processor:' || processor END)",
    ),
    "a halt with a code nobody knows": done_and_undone(
        "INSERT INTO halts (id, scope, code, reason, opened_at) VALUES ('hlt_odd', 'everything', 'NO_SUCH', 'r', now())",
        "DELETE FROM halts WHERE id = 'hlt_odd'",
    ),
}


@pytest.mark.parametrize("how", sorted(BROKEN))
async def test_a_stop_state_that_cannot_be_read_counts_as_stopped(shop: Shop, how: str) -> None:
    intent = await shop.paid()
    refund = await shop.approved(intent)
    async with shop.owner.begin() as connection:
        back = await BROKEN[how](connection)
    try:
        [result] = await all_of([shop.submit(refund)])
    finally:
        async with shop.owner.begin() as connection:
            await back(connection)

    assert isinstance(result, Exception) or result.status == "held"
    assert (await shop.asked_and_made(intent), await shop.outcomes(refund)) == ((0, 0), [])
    if (await shop.row(refund))["status"] == "held":
        assert (await shop.steps.resume_held(refund)).status == "approved"
    assert (await shop.submit(refund, attempt=2)).status == "succeeded"


async def test_while_the_halts_are_locked_nothing_is_sent(make_shop: MakeShop) -> None:
    shop = await later(make_shop, database_lock_timeout_ms=100)
    intent = await shop.paid()
    refund = await shop.approved(intent)
    async with shop.owner.begin() as connection:
        await connection.execute(text("LOCK TABLE halts IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(RefundError) as caught:
            await shop.submit(refund)

    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert await shop.asked_and_made(intent) == (0, 0)


# --- what the orchestrator halts itself ----------------------------------------------------------------------------------------------------


async def test_what_the_orchestrator_halts_it_lifts_itself_and_never_what_a_person_did(shop: Shop) -> None:
    refund = await shop.approved(by="bot")
    await shop.control_scope("agents", "stopped", "olga")
    async with shop.owner.begin() as connection:
        opened_it = await halts.open_scope(connection, shop.clock.now(), scope="agents", code=Code.KEY_REFUSED, reason="too many")
        twice = await halts.open_scope(connection, shop.clock.now(), scope="agents", code=Code.KEY_REFUSED, reason="too many")
    async with shop.owner.begin() as connection:
        theirs = await halts.lift_own(connection, shop.clock.now(), scope="agents", code=Code.HALTED_BY_OPERATOR, reason="calm")
        own = await halts.lift_own(connection, shop.clock.now(), scope="agents", code=Code.KEY_REFUSED, reason="calm")

    assert (opened_it, twice, theirs, own) == (True, False, False, True)
    assert (await shop.submit(refund)).status == "held"
    await shop.control_scope("agents", "running", "omar")


async def test_one_person_resumes_what_the_orchestrator_halted(shop: Shop) -> None:
    async with shop.owner.begin() as connection:
        await halts.open_scope(connection, shop.clock.now(), scope="everything", code=Code.KEY_REFUSED, reason="too many")
    assert (await shop.control_scope("everything", "running", "olga"))["stopped"] is False
