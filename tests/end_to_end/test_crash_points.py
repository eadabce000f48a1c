"""The API killed right before and right after it commits what somebody asked for or said: they repeat themselves, and it counts once (promise P6).

A stack of its own, because its API dies in every test.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from deploy.local import stack as supervisor
from tests.conftest import open_directory
from tests.end_to_end.whole import Whole, eventually, staffed

RULES = "points"


@pytest.fixture(scope="module")
async def mortal() -> AsyncIterator[tuple[Whole, Path]]:
    """The stack, and the file whose rules its API and worker die by."""
    with open_directory() as home, pytest.MonkeyPatch.context() as patched:
        # It dies on purpose: nothing is gained by letting it rest ever longer, or by giving it up.
        patched.setattr(supervisor, "LONGEST_BACK_OFF_SECONDS", supervisor.FIRST_BACK_OFF_SECONDS)
        patched.setattr(supervisor, "RESTARTS", 1_000)
        async with staffed(CRASH_POINTS=f"file:{home / RULES}") as running:
            yield running, home / RULES


async def insisting(mortal: tuple[Whole, Path], rule: str, call: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    """The answer of a call whose first try dies in the API, repeated until the API is there again."""
    _, rules = mortal
    _write(rules, rule)
    with pytest.raises(httpx.TransportError):
        await call()

    async def again() -> httpx.Response | None:
        try:
            return await call()
        except httpx.TransportError:
            return None

    answer = await eventually(again, lambda found: found is not None)
    assert not rules.exists(), f"nobody came to {rule}"
    return answer


def _write(rules: Path, rule: str) -> None:
    fresh = rules.with_suffix(".new")
    fresh.write_text(rule)
    fresh.rename(rules)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_request_is_stored_once_and_carried_out(mortal: tuple[Whole, Path], when: str) -> None:
    """Stored, and the API dies before it has told anybody: no run was started, the sweep starts it."""
    whole, _ = mortal
    goods, key = await whole.goods(), whole.number()
    body = whole.asked(goods)

    async def ask() -> httpx.Response:
        return await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=key)

    answer = await insisting(mortal, f"{when}:refund_received=kill", ask)

    assert answer.status_code in ((201, 202) if when == "before" else (200,)), answer.text
    found = await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}")
    assert [refund["id"] for refund in found.json()["refunds"]] == [answer.json()["id"]]
    await whole.assert_ended(answer.json()["id"], "succeeded", goods=goods, creates=1, returned=[3_000])


async def test_a_stored_request_needs_no_repetition(mortal: tuple[Whole, Path]) -> None:
    """The API dies with the answer, and its caller never comes back: what was stored is carried out all the same."""
    whole, rules = mortal
    goods = await whole.goods()
    _write(rules, "after:refund_received=kill")
    with pytest.raises(httpx.TransportError):
        await whole.ask(goods)

    async def stored() -> list[str]:
        try:
            answer = await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}")
        except httpx.TransportError:
            return []
        return [refund["id"] for refund in answer.json()["refunds"]]

    [refund] = await eventually(stored, lambda ids: ids != [])
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[3_000])


@pytest.mark.parametrize(("when", "deliver"), [("before", "update"), ("after", "signal")])
async def test_an_approval_counts_once(mortal: tuple[Whole, Path], when: str, deliver: str) -> None:
    """Recorded, and the API dies before it has told the run: the run hears of it by the sweep, or when the reviewer clicks again."""
    whole, _ = mortal
    goods, refund = await whole.in_review()
    terms = (await whole.view(refund))["terms_hash"]

    async def approve() -> httpx.Response:
        body = {"verdict": "approve", "terms_hash": terms, "deliver": deliver}
        return await whole.call("rita", "POST", f"/v1/refunds/{refund}/decisions", body)

    answer = await insisting(mortal, f"{when}:decision_recorded=kill", approve)

    assert answer.status_code in (200, 202), answer.text
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])
    assert (await whole.story(refund)).count("review approve") == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_revision_counts_once(mortal: tuple[Whole, Path], when: str) -> None:
    whole, _ = mortal
    _, refund = await whole.in_review()
    body = {"terms_hash": (await whole.view(refund))["terms_hash"], "amount": 15_000, "currency": "USD"}

    async def revise() -> httpx.Response:
        return await whole.call("rita", "POST", f"/v1/refunds/{refund}/revisions", body)

    answer = await insisting(mortal, f"{when}:revise_recorded=kill", revise)

    assert answer.status_code in ((201, 202) if when == "before" else (200, 201, 202)), answer.text

    async def revised() -> int:
        return (await whole.view(refund))["revision"]

    assert await eventually(revised, lambda found: found > 1) == 2
    view = await whole.view(refund)
    assert (view["terms"]["amount"], len(view["instructions"])) == (15_000, 1)


async def test_a_withdrawal_counts_once(mortal: tuple[Whole, Path]) -> None:
    whole, _ = mortal
    goods, refund = await whole.in_review()

    async def withdraw() -> httpx.Response:
        return await whole.call("shop", "POST", f"/v1/refunds/{refund}/withdrawal", {})

    answer = await insisting(mortal, "after:withdraw_recorded=kill", withdraw)

    assert answer.status_code == 200, answer.text
    await whole.assert_ended(refund, "withdrawn", goods=goods, creates=0, returned=[])
    assert (await whole.story(refund)).count("to withdrawn") == 1


async def test_a_stop_holds_though_nobody_was_answered(mortal: tuple[Whole, Path]) -> None:
    whole, _ = mortal

    async def stop() -> httpx.Response:
        return await whole.call("olga", "PUT", "/v1/controls", {"state": "stopped", "reason": "test"})

    answer = await insisting(mortal, "after:control_changed=kill", stop)
    try:
        assert answer.status_code == 200, answer.text
        goods = await whole.goods()
        refund = await whole.asked_for(goods)
        await whole.until(refund, "held", code="EMERGENCY_STOP")
        assert (await whole.truth(goods.intent)).creates == []
    finally:
        await whole.resume()
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[3_000])
