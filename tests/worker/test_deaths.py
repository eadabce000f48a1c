"""Worker processes that die, are stopped or freeze in the middle of a call that moves money (promises P1, P6, P7; field report 11)."""

import signal

import pytest

from tests.worker.site import Site

HANG = {"kind": "hang", "ms": 60_000}
SOON_S = 25
"""Heartbeats tell within seconds that a worker died; without them it would be the activity's whole time-out of three minutes."""


@pytest.fixture(scope="module", autouse=True)
def orchestration(site: Site) -> None:
    """The process that hosts the workflows; the payments role is each test's own."""
    site.start("refunds")


async def in_mid_call(site: Site, fault: dict[str, object]) -> tuple[str, str]:
    """A refund whose request is at the processor, which has not answered."""
    intent = await site.shop.paid()
    await site.shop.fault("refund.create", fault, intent=intent)
    refund_id = await site.shop.received(intent)
    await site.run(refund_id)
    await site.asks(intent)
    return refund_id, intent


@pytest.mark.parametrize("fault", [HANG, {"kind": "delay", "ms": 4_000}])
async def test_kill_9_in_mid_call_leaves_one_refund(site: Site, fault: dict[str, object]) -> None:
    """``hang``: the refund was made and nobody heard of it. ``delay``: it is made while the next worker already asks."""
    [dying] = site.start("payments")
    refund_id, intent = await in_mid_call(site, fault)
    dying.kill()
    [heir] = site.start("payments")

    assert await site.reaches(refund_id, "succeeded", "failed", "parked", "held") == "succeeded"
    truth = await site.shop.truth(intent)
    assert len(truth["refunds"]) == 1
    assert len({request["key"] for request in truth["create_requests"]}) == 1
    assert (await site.shop.moves(refund_id)).count("succeeded") == 1
    sent, ended = await site.shop.query(
        "SELECT at FROM ledger WHERE refund_id = :r AND (type = 'attempt_opened' AND data->>'number' = '1' OR data->>'to' = 'succeeded')"
        " ORDER BY refund_version",
        r=refund_id,
    )
    assert (ended["at"] - sent["at"]).total_seconds() < SOON_S
    heir.kill()


async def test_sigterm_lets_the_call_finish(site: Site) -> None:
    """The process ends by itself, after the answer came and was recorded."""
    [ending] = site.start("payments")
    refund_id, intent = await in_mid_call(site, {"kind": "hang", "ms": 2_000})
    ending.send(signal.SIGTERM)

    assert ending.process.wait(timeout=40) == 0
    assert (await site.shop.row(refund_id))["status"] == "succeeded"
    assert await site.shop.asked_and_made(intent) == (1, 1)
    assert await site.shop.outcomes(refund_id) == ["answered"]
    entries = await site.shop.entries(refund_id)
    assert ("receipt" in entries, "adopted" in entries) == (True, False)


async def test_field_11_a_frozen_worker_that_thaws_changes_nothing(site: Site) -> None:
    """SIGSTOP is what a paused machine looks like: the engine gives the call to another worker, and the first one comes back later."""
    [frozen] = site.start("payments")
    refund_id, intent = await in_mid_call(site, {"kind": "hang", "ms": 1_500})
    frozen.send(signal.SIGSTOP)
    [heir] = site.start("payments")
    assert await site.reaches(refund_id, "succeeded", "failed", "parked", "held") == "succeeded"
    before = await site.shop.row(refund_id)
    frozen.send(signal.SIGCONT)
    frozen.send(signal.SIGTERM)

    assert frozen.process.wait(timeout=40) == 0
    after = await site.shop.row(refund_id)
    assert (after["status"], after["status_since"]) == ("succeeded", before["status_since"])
    assert (await site.shop.moves(refund_id)).count("succeeded") == 1
    assert len((await site.shop.truth(intent))["refunds"]) == 1
    heir.kill()


async def test_everything_killed_at_once_goes_on_where_it_was(site: Site) -> None:
    """All roles in one process, killed in mid-call, and so is the process that orchestrates; two others take over."""
    [everything] = site.start("all")
    refund_id, intent = await in_mid_call(site, HANG)
    for worker in (everything, site.workers[0]):
        worker.kill()
    site.start("all")

    assert await site.reaches(refund_id, "succeeded", "failed", "parked", "held") == "succeeded"
    assert (await site.shop.asked_and_made(intent))[1] == 1
    outcome = await site.client.get_workflow_handle(f"refund-{refund_id}").result()
    assert outcome["status"] == "succeeded"
