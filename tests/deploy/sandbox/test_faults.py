"""Every fault does what it says, to the call that it was ordered for and to no other."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import stripe

TRUTH = "/truth?payment_intent=pi_f"

IMPATIENT = httpx.Timeout(20, read=0.2)
"""Seconds. Only the answer is not waited for: on a busy machine connecting alone may take longer."""


def order(sandbox: Any, fault: Any, on: str = "refund.create", **more: Any) -> None:
    sandbox.control("POST", "/faults", {"on": on, "fault": fault, **more})


async def create(client: stripe.StripeClient, key: str = "k", intent: str = "pi_f", amount: int = 700) -> stripe.Refund:
    return await client.v1.refunds.create_async({"payment_intent": intent, "amount": amount}, {"idempotency_key": key})


def seen(sandbox: Any) -> list[Any]:
    return [request["answered"] for request in sandbox.control("GET", TRUTH)["create_requests"]]


def made(sandbox: Any) -> list[int]:
    return [refund["amount"] for refund in sandbox.control("GET", TRUTH)["refunds"]]


@pytest.mark.parametrize(("kind", "after"), [("lose_answer", [700]), ("lose_request", [])])
async def test_a_lost_connection_is_a_connection_error(
    kind: str, after: list[int], client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_f")
    order(sandbox, {"kind": kind})
    with pytest.raises(stripe.APIConnectionError):
        await create(client)
    assert (seen(sandbox), made(sandbox)) == (["lost"], after)
    refund = await create(client)
    assert (refund.amount, seen(sandbox), made(sandbox)) == (700, ["lost", 200], [700])
    assert sandbox.control("GET", "/faults") == []


@pytest.mark.parametrize(
    ("fault", "error", "status", "code"),
    [
        ({"kind": "status", "status": 500}, stripe.APIError, 500, None),
        ({"kind": "rate_limit", "lock_timeout": True}, stripe.RateLimitError, 429, "lock_timeout"),
        ({"kind": "rate_limit"}, stripe.RateLimitError, 429, "rate_limit"),
        ({"kind": "key_in_use"}, stripe.StripeError, 409, "idempotency_key_in_use"),
        ({"kind": "status", "status": 402, "body": {"error": {"type": "card_error", "code": "x"}}}, stripe.CardError, 402, "x"),
    ],
)
async def test_refusals_do_nothing(
    fault: dict[str, Any],
    error: type[stripe.StripeError],
    status: int,
    code: str | None,
    client: stripe.StripeClient,
    sandbox: Any,
    pay: Callable[..., Any],
):
    pay(id="pi_f")
    order(sandbox, fault)
    with pytest.raises(error) as caught:
        await create(client)
    assert caught.value.error is not None
    assert (caught.value.http_status, caught.value.error.code) == (status, code)
    assert (seen(sandbox), made(sandbox)) == ([status], [])


async def test_what_was_not_answered_by_the_api_is_not_kept_under_the_key(
    client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]
):
    pay(id="pi_f")
    order(sandbox, {"kind": "rate_limit"})
    order(sandbox, {"kind": "status", "status": 503})
    order(sandbox, {"kind": "key_in_use"})
    for _ in range(3):
        with pytest.raises(stripe.StripeError):
            await create(client)
    await create(client)
    assert (seen(sandbox), made(sandbox)) == ([429, 503, 409, 200], [700])


async def test_a_gateway_error_after_the_work_keeps_the_result(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "status", "status": 502, "after_work": True})
    with pytest.raises(stripe.APIError) as caught:
        await create(client)
    assert (caught.value.http_status, made(sandbox)) == (502, [700])
    assert ((await create(client)).amount, made(sandbox)) == (700, [700])


async def test_a_500_after_the_work_hides_a_real_refund_for_good(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "status", "status": 500, "after_work": True})
    for _ in range(2):
        with pytest.raises(stripe.APIError):
            await create(client)
    assert (seen(sandbox), made(sandbox)) == ([500, 500], [700])


async def test_a_malformed_answer_after_the_work(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "malformed"})
    with pytest.raises(stripe.APIError, match="Invalid response body"):
        await create(client)
    assert (seen(sandbox), made(sandbox)) == ([200], [700])


async def test_a_delayed_call_is_worked_on_though_the_caller_has_left(http: httpx.AsyncClient, sandbox: Any, pay: Any, until: Any):
    pay(id="pi_f")
    order(sandbox, {"kind": "delay", "ms": 2_000})
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/refunds", data={"payment_intent": "pi_f"}, timeout=IMPATIENT)
    assert (seen(sandbox), made(sandbox)) == ([None], [])
    await until(lambda: bool(made(sandbox)))
    assert made(sandbox) == [5000]


async def test_a_hanging_answer_comes_after_the_work(http: httpx.AsyncClient, sandbox: Any, pay: Any, until: Any):
    pay(id="pi_f")
    order(sandbox, {"kind": "hang", "ms": 60_000})
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/v1/refunds", data={"payment_intent": "pi_f", "amount": "700"}, timeout=IMPATIENT)
    await until(lambda: seen(sandbox) == ["lost"])
    assert made(sandbox) == [700]
    order(sandbox, {"kind": "hang", "ms": 150})
    started = time.monotonic()
    answer = await http.post("/v1/refunds", data={"payment_intent": "pi_f", "amount": "800"})
    assert (answer.status_code, time.monotonic() - started >= 0.15, made(sandbox)) == (200, True, [700, 800])


async def test_field_29_the_whole_is_returned_when_a_part_was_asked(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "alter", "fields": {"amount": 5000}})
    refund = await create(client, amount=2500)
    charge = await client.v1.charges.retrieve_async("ch_f")
    assert (refund.amount, made(sandbox), charge.amount_refunded, charge.refunded) == (5000, [5000], 5000, True)
    [request] = sandbox.control("GET", TRUTH)["create_requests"]
    assert (request["params"]["amount"], request["made"]) == ("2500", refund.id)


async def test_altered_reads_differ_in_the_answer_alone(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "alter", "fields": {"amount_received": 1}}, on="payment_intent.retrieve")
    first = await client.v1.payment_intents.retrieve_async("pi_f")
    again = await client.v1.payment_intents.retrieve_async("pi_f")
    assert (first.amount_received, again.amount_received) == (1, 5000)


async def test_hidden_refunds_are_made_and_not_listed(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    order(sandbox, {"kind": "hide"})
    hidden = await create(client, "a")
    shown = await create(client, "b")

    async def listed() -> list[str]:
        page = await client.v1.refunds.list_async({"payment_intent": "pi_f"})
        return [refund.id for refund in page.data]

    assert (await listed(), made(sandbox)) == ([shown.id], [700, 700])
    assert (await client.v1.refunds.retrieve_async(hidden.id)).id == hidden.id
    sandbox.control("DELETE", "/faults")
    assert await listed() == [shown.id, hidden.id]
    order(sandbox, {"kind": "hide"}, on="refund.list", times=None)
    assert (await listed(), await listed(), len(sandbox.control("GET", "/faults"))) == ([], [], 1)


async def test_orders_match_one_payment_and_run_out_in_turn(client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f")
    pay(id="pi_g")
    match = {"payment_intent": "pi_f"}
    sandbox.control(
        "POST",
        "/faults",
        [
            {"on": "refund.create", "match": match, "times": 2, "fault": {"kind": "rate_limit"}},
            {"on": "refund.create", "match": match, "fault": [{"kind": "delay", "ms": 10}, {"kind": "lose_answer"}]},
        ],
    )
    assert (await create(client, "g", "pi_g")).amount == 700
    for error in (stripe.RateLimitError, stripe.RateLimitError, stripe.APIConnectionError):
        with pytest.raises(error):
            await create(client)
    assert ((await create(client)).amount, seen(sandbox), made(sandbox)) == (700, [429, 429, "lost", 200], [700])


@pytest.mark.parametrize(
    "on", ["refund.list", "refund.retrieve", "payment_intent.retrieve", "payment_intent.cancel", "dispute.list", "any"]
)
async def test_every_named_operation_can_be_hit(on: str, client: stripe.StripeClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_f", captured=0 if on == "payment_intent.cancel" else None)
    refund_id = "re_none" if on == "payment_intent.cancel" else (await create(client)).id
    calls: dict[str, Callable[[], Any]] = {
        "refund.list": lambda: client.v1.refunds.list_async({"payment_intent": "pi_f"}),
        "refund.retrieve": lambda: client.v1.refunds.retrieve_async(refund_id),
        "payment_intent.retrieve": lambda: client.v1.payment_intents.retrieve_async("pi_f"),
        "payment_intent.cancel": lambda: client.v1.payment_intents.cancel_async("pi_f", {}, {"idempotency_key": "c"}),
        "dispute.list": lambda: client.v1.disputes.list_async({"payment_intent": "pi_f"}),
        "any": lambda: client.v1.balance.retrieve_async(),
    }
    order(sandbox, {"kind": "lose_answer"}, on=on, match={} if on == "any" else {"payment_intent": "pi_f"})
    with pytest.raises(stripe.APIConnectionError):
        await calls[on]()
    await calls[on]()
    if on == "payment_intent.cancel":
        assert [request["answered"] for request in sandbox.control("GET", TRUTH)["cancel_requests"]] == ["lost", 200]


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": "refund.destroy", "fault": {"kind": "lose_answer"}},
        {"on": "refund.create", "fault": {"kind": "explode"}},
        {"on": "refund.create", "fault": {"kind": "delay"}},
        {"on": "refund.create", "fault": {"kind": "lose_answer"}, "times": 0},
        {"on": "refund.create", "fault": {"kind": "lose_answer"}, "match": {"colour": "red"}},
        {"on": "webhook", "fault": {"kind": "lose_answer"}},
        {"on": "refund.create", "fault": {"kind": "lose_answer"}, "match": {"type": "refund.created"}},
        {"on": "webhook", "fault": {"kind": "drop"}, "match": {"key": "k"}},
    ],
)
async def test_a_wrong_order_is_refused_in_words(wrong: dict[str, Any], http: httpx.AsyncClient):
    answer = await http.post("/_sandbox/faults", json=wrong)
    assert (answer.status_code, bool(answer.json()["error"]), (await http.get("/_sandbox/faults")).json()) == (400, True, [])
