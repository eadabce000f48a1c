"""What becomes of a refund by itself: pending, action required, succeeded, failed, cancelled, sooner or days later (field reports 16 and 17)."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe


async def made(client: stripe.StripeClient, intent: str = "pi_l", amount: int = 700, key: str = "k") -> stripe.Refund:
    return await client.v1.refunds.create_async({"payment_intent": intent, "amount": amount}, {"idempotency_key": key})


async def now(client: stripe.StripeClient, refund: str) -> tuple[str | None, Any]:
    found = (await client.v1.refunds.retrieve_async(refund)).to_dict()
    return found["status"], found.get("failure_reason")


@pytest.mark.parametrize(
    ("life", "statuses", "counted"),
    [
        ({"initial": "pending"}, ["pending"], 700),
        ({"initial": "pending", "then": "succeeded"}, ["pending", "succeeded"], 700),
        ({"initial": "pending", "then": "failed"}, ["pending", "failed"], 0),
        ({"initial": "pending", "then": "canceled"}, ["pending", "canceled"], 0),
        ({"initial": "requires_action", "then": "pending"}, ["requires_action", "pending"], 700),
        ({"initial": "requires_action", "then": "canceled"}, ["requires_action", "canceled"], 0),
        ({"then": "failed"}, ["succeeded", "failed"], 0),
        ({"initial": "failed"}, ["failed"], 0),
        ({"initial": "canceled"}, ["canceled"], 0),
        ({"initial": "pending", "then": [{"status": "succeeded"}, {"status": "failed"}]}, ["pending", "succeeded", "failed"], 0),
        (
            {"initial": "requires_action", "then": [{"status": "pending"}, {"status": "succeeded"}, {"status": "failed"}]},
            ["requires_action", "pending", "succeeded", "failed"],
            0,
        ),
    ],
)
@pytest.mark.parametrize("by", ["payment", "call"])
async def test_every_life_is_lived_and_told(
    by: str,
    life: dict[str, Any],
    statuses: list[str],
    counted: int,
    client: stripe.StripeClient,
    http: httpx.AsyncClient,
    sandbox: Any,
    pay: Callable[..., Any],
):
    """Whether it was ordered for all refunds of a payment or for one call; every step is an event, and the charge's total follows."""
    days = {"after_ms": 86_400_000} if isinstance(life.get("then"), str) else {}
    given = (
        life | days | ({"then": [step | {"after_ms": 86_400_000} for step in life["then"]]} if isinstance(life.get("then"), list) else {})
    )
    pay(id="pi_l", **({"refund_outcome": given} if by == "payment" else {}))
    if by == "call":
        sandbox.control("POST", "/faults", {"on": "refund.create", "fault": {"kind": "outcome", **given}})

    refund = await made(client)
    seen = [refund.status]
    for _ in statuses[1:]:
        # The sandbox's clock goes on by itself: an hour is more than a slow machine needs for all of this.
        sandbox.control("POST", "/clock", {"advance_seconds": 82_800})
        assert (await now(client, refund.id))[0] == seen[-1], "not before its time"
        sandbox.control("POST", "/clock", {"advance_seconds": 3_600})
        seen.append((await now(client, refund.id))[0])

    assert seen == statuses
    assert (await client.v1.charges.retrieve_async("ch_l")).amount_refunded == counted
    events = (await http.get("/v1/events", params={"types[0]": "refund.created", "types[1]": "refund.updated"})).json()["data"]
    assert [event["data"]["object"]["status"] for event in reversed(events)] == statuses


async def test_a_life_that_was_ordered_for_one_call_is_not_the_next_one_s(client: stripe.StripeClient, sandbox: Any, pay: Any):
    pay(id="pi_l", refund_outcome={"initial": "pending"})
    fault = {"kind": "outcome", "initial": "failed", "failure_reason": "lost_or_stolen_card"}
    sandbox.control("POST", "/faults", {"on": "refund.create", "match": {"key": "second"}, "fault": fault})

    refunds = [await made(client, key=key) for key in ("first", "second", "third")]

    assert [await now(client, refund.id) for refund in refunds] == [("pending", None), ("failed", "lost_or_stolen_card"), ("pending", None)]


async def test_a_refund_that_was_moved_by_hand_does_not_go_on_by_itself(client: stripe.StripeClient, sandbox: Any, pay: Any):
    pay(id="pi_l", refund_outcome={"initial": "pending", "then": [{"status": "succeeded", "after_ms": 60_000}, {"status": "failed"}]})
    refund = await made(client)

    sandbox.control("POST", f"/refunds/{refund.id}", {"status": "canceled"})
    sandbox.control("POST", "/clock", {"advance_seconds": 120})

    assert await now(client, refund.id) == ("canceled", "merchant_request")


async def test_a_life_goes_on_after_a_lost_answer_and_under_the_same_key(client: stripe.StripeClient, sandbox: Any, pay: Any):
    """Several faults on one call: made, pending, its answer lost, failed a day later. The key still replays what was answered first."""
    pay(id="pi_l")
    both = [{"kind": "lose_answer"}, {"kind": "outcome", "initial": "pending", "then": "failed", "after_ms": 60_000}]
    sandbox.control("POST", "/faults", {"on": "refund.create", "fault": both})

    with pytest.raises(stripe.APIConnectionError):
        await made(client)
    sandbox.control("POST", "/clock", {"advance_seconds": 61})
    again = await made(client)

    assert again.status == "pending", "the first answer, replayed"
    assert await now(client, again.id) == ("failed", "unknown")
    assert len(sandbox.control("GET", "/truth")["refunds"]) == 1


async def test_a_key_that_was_forgotten_at_once_makes_a_second_refund(client: stripe.StripeClient, sandbox: Any, pay: Any):
    """What the processor does after 24 hours, without moving the clock: the danger that a look-up before each retry is there for."""
    pay(id="pi_l")
    sandbox.control("POST", "/faults", {"on": "refund.create", "fault": [{"kind": "forget_key"}, {"kind": "lose_answer"}]})

    with pytest.raises(stripe.APIConnectionError):
        await made(client)
    await made(client)

    truth = sandbox.control("GET", "/truth")
    assert [(request["key"], request["answered"], request["replayed"]) for request in truth["create_requests"]] == [
        ("k", "lost", False),
        ("k", 200, False),
    ]
    assert len(truth["refunds"]) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": "gone"},
        {"then": "gone"},
        {"then": 7},
        {"then": [{"after_ms": 1}]},
        {"then": ["failed"]},
        {"then": [{"status": "failed", "colour": "red"}]},
        {"then": "failed", "after_ms": "soon"},
        {"initial": "pending", "pending_reason": "lazy"},
        {"colour": "red"},
    ],
)
async def test_a_life_that_cannot_be_is_refused_in_words(wrong: dict[str, Any], http: httpx.AsyncClient):
    payment = {"amount": 5_000, "currency": "usd", "refund_outcome": wrong}
    order = {"on": "refund.create", "fault": {"kind": "outcome", **wrong}}

    for path, body in (("/_sandbox/payments", payment), ("/_sandbox/faults", order)):
        answer = await http.post(path, json=body)
        assert (answer.status_code, bool(answer.json()["error"])) == (400, True), path
