"""An agent that asks as fast as it can, over the real API and at real money's other end: no more moves than the policy permits."""

import asyncio
from collections import Counter
from collections.abc import Callable

from refunds.clock import parse_rfc3339
from tests.end_to_end.whole import POLICY, Goods, Whole

MOST, EACH, ASKS = 3, 2_000, 16
LIMITS = f"""
limits:
  - {{ name: agent_hour, who: agent, refunds: {MOST}, window: 1h, taken: both, when_exceeded: deny }}
"""


async def publish(whole: Whole, source: str) -> None:
    body = {"source": source, "note": "the runaway agent"}
    answer = await whole.call("administrator", "POST", "/v1/policy/versions", body)
    assert answer.status_code == 201, answer.text


async def asked_at_once(whole: Whole, goods: list[Goods], who: str) -> list[dict[str, object]]:
    """Ask for all of them together, and agree for the customers to whatever waits for that."""
    answers = await asyncio.gather(*(whole.ask(one, who=who) for one in goods))
    assert {answer.status_code for answer in answers} == {201}, [answer.text for answer in answers]
    views = [answer.json() for answer in answers]
    agreed = await asyncio.gather(*(whole.agree(view["id"], "desk") for view in views if view["status"] == "awaiting_consent"))
    assert {answer.status_code for answer in agreed} <= {200, 201}, [answer.text for answer in agreed]
    return views


async def test_an_agent_that_asks_as_fast_as_it_can_moves_no_more_than_the_policy_permits(
    whole: Whole, figures: Callable[[str], None]
) -> None:
    await whole.hire("runaway", "agent", ("requester",), integration="help-desk")  # of whom nothing counts yet
    await publish(whole, POLICY.read_text() + LIMITS)
    try:
        goods = [await whole.goods(EACH) for _ in range(ASKS)]
        views = await asked_at_once(whole, goods, "runaway")
        for view in views:
            if view["status"] != "denied":
                await whole.until(str(view["id"]), "succeeded")
    finally:
        await publish(whole, POLICY.read_text())

    seen = Counter((view["status"], view["code"]) for view in views)
    moved = [amount for one in goods for amount in (await whole.truth(one.intent)).amounts]
    figures(
        f"runaway agent over the API: asked {ASKS} times; moved {len(moved)} refunds of {sum(moved)}; the policy permits {MOST} of {MOST * EACH}"
    )
    assert seen[("denied", "LIMIT_EXCEEDED")] == ASKS - MOST
    assert (len(moved), sum(moved)) == (MOST, MOST * EACH)
    refused = next(view for view in views if view["status"] == "denied")
    limit = refused["limit"]
    assert isinstance(limit, dict)
    assert (limit["name"], limit["used"], limit["left"]) == ("agent_hour", MOST, 0)
    assert parse_rfc3339(limit["opens_at"]) > parse_rfc3339(str(refused["created_at"]))


async def test_what_a_limit_holds_goes_by_itself_when_the_limit_opens(whole: Whole) -> None:
    window_s = 10
    await whole.hire("pacer", "agent", ("requester",), integration="help-desk")  # of whom nothing counts yet
    pace = f"\nlimits:\n  - {{ name: pace, who: agent, refunds: 2, window: {window_s}s, taken: sent }}\n"
    await publish(whole, POLICY.read_text() + pace)
    try:
        goods = [await whole.goods(EACH) for _ in range(4)]
        views = await asked_at_once(whole, goods, "pacer")
        ended = [await whole.until(str(view["id"]), "succeeded", within_s=90) for view in views]
    finally:
        await publish(whole, POLICY.read_text())

    assert all(view["code"] is None for view in ended)
    opened = sorted(parse_rfc3339(view["processor"]["operations"][0]["attempts"][0]["opened_at"]) for view in ended)
    assert all((later - earlier).total_seconds() >= window_s for earlier, later in zip(opened, opened[2:], strict=False)), opened
    stories = [await whole.story(str(view["id"])) for view in views]
    assert sum("to held" in story for story in stories) == 2
