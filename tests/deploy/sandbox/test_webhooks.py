"""Webhooks arrive signed, in order, at least once, and as disturbed as was ordered."""

import asyncio
import contextlib
import functools
import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import stripe

SECRET = "whsec_sandbox"


class Receiver:
    """An endpoint that verifies with the official SDK and answers what it is told to."""

    def __init__(self) -> None:
        self.events: list[stripe.Event] = []
        self.answers: list[int] = []
        self.silent = False
        self.url = ""

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            assert line.startswith(b"POST /hook ")
            headers: dict[str, str] = {}
            while (line := await reader.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            payload = await reader.readexactly(int(headers["content-length"]))
            self.events.append(stripe.Webhook.construct_event(payload, headers["stripe-signature"], SECRET))
            if self.silent:
                break
            status = self.answers.pop(0) if self.answers else 200
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()


@contextlib.asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    yield made
    server.close()


@pytest.fixture
async def receiver(sandbox: Any) -> AsyncIterator[Receiver]:
    async with receiving() as made:
        await asyncio.to_thread(sandbox.control, "PUT", "/webhook", {"url": made.url, "secret": SECRET})
        yield made
        await asyncio.to_thread(sandbox.control, "PUT", "/webhook", {"url": None})


@pytest.fixture
def control(sandbox: Any) -> Any:
    """The control API without blocking the loop that the receiver runs on."""

    async def call(method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(sandbox.control, method, path, body)

    return call


async def paid(control: Any, **wanted: Any) -> None:
    await control("POST", "/payments", {"id": "pi_w", "amount": 5000, "currency": "usd", **wanted})


async def test_a_refund_is_told_and_the_signature_verifies(client: stripe.StripeClient, receiver: Receiver, control: Any, until: Any):
    await paid(control)
    made = await client.v1.refunds.create_async({"payment_intent": "pi_w", "amount": 700}, {"idempotency_key": "k"})
    await until(lambda: len(receiver.events) == 2)
    assert receiver.kinds == ["refund.created", "charge.refunded"]
    first, second = receiver.events
    assert (first.data.object["id"], second.data.object["amount_refunded"]) == (made.id, 700)
    assert second.to_dict()["data"]["previous_attributes"] == {"amount_refunded": 0}
    assert first.request is not None
    assert (first.request.idempotency_key, first.livemode, first.api_version) == ("k", False, "2026-08-26.dahlia")
    assert (await client.v1.events.retrieve_async(first.id)).type == "refund.created"


async def test_late_failures_and_disputes_are_told(client: stripe.StripeClient, receiver: Receiver, control: Any, until: Any):
    await paid(control)
    made = await client.v1.refunds.create_async({"payment_intent": "pi_w"})
    await control("POST", f"/refunds/{made.id}", {"status": "failed", "failure_reason": "lost_or_stolen_card"})
    dispute = await control("POST", "/disputes", {"payment_intent": "pi_w", "status": "needs_response"})
    await control("POST", f"/disputes/{dispute['id']}", {"status": "under_review"})
    await control("POST", f"/disputes/{dispute['id']}", {"status": "lost"})
    await until(lambda: len(receiver.events) == 7)
    told = ["refund.created", "charge.refunded", "refund.updated", "refund.failed"]
    assert receiver.kinds == [*told, "charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed"]


async def test_an_unanswered_event_is_sent_again(client: stripe.StripeClient, receiver: Receiver, control: Any, sandbox: Any, until: Any):
    await paid(control)
    receiver.answers = [500]
    await client.v1.refunds.create_async({"payment_intent": "pi_w"})
    await until(lambda: len(receiver.events) == 2)
    await control("POST", "/clock", {"advance_seconds": 2})
    await until(lambda: len(receiver.events) == 3)
    assert receiver.kinds == ["refund.created", "charge.refunded", "refund.created"]
    assert receiver.events[0].id == receiver.events[2].id
    await until(lambda: sandbox.control("GET", "/webhooks") == {"done": 2})


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "duplicate"}, ["refund.created", "refund.created", "charge.refunded"]),
        ({"kind": "drop"}, ["charge.refunded"]),
        ({"kind": "delay", "ms": 3_600_000}, ["charge.refunded", "refund.created"]),
    ],
)
async def test_deliveries_can_be_disturbed(
    fault: dict[str, Any], expected: list[str], client: stripe.StripeClient, receiver: Receiver, control: Any, until: Any
):
    await paid(control)
    await control("POST", "/faults", {"on": "webhook", "match": {"type": "refund.created"}, "fault": fault})
    await client.v1.refunds.create_async({"payment_intent": "pi_w"})
    await until(lambda: "charge.refunded" in receiver.kinds)
    await control("POST", "/clock", {"advance_seconds": 3601})
    await until(lambda: len(receiver.events) == len(expected))
    assert receiver.kinds == expected


async def test_held_deliveries_are_released_in_reverse(client: stripe.StripeClient, receiver: Receiver, control: Any, until: Any):
    await paid(control)
    await control("POST", "/faults", {"on": "webhook", "times": None, "fault": {"kind": "hold"}})
    await client.v1.refunds.create_async({"payment_intent": "pi_w"})
    assert (await control("GET", "/webhooks"), receiver.events) == ({"held": 2}, [])
    assert await control("POST", "/webhooks/release", {"reverse": True}) == {"released": 2}
    await until(lambda: len(receiver.events) == 2)
    assert receiver.kinds == ["charge.refunded", "refund.created"]


async def test_the_events_of_one_payment_can_be_disturbed(client: stripe.StripeClient, receiver: Receiver, control: Any, until: Any):
    """Its refund, its charge and its dispute, by the payment that they are about; another payment's arrive as ever."""
    await paid(control)
    await paid(control, id="pi_other")
    await control("POST", "/faults", {"on": "webhook", "match": {"payment_intent": "pi_w"}, "times": None, "fault": {"kind": "hold"}})
    for intent in ("pi_w", "pi_other"):
        await client.v1.refunds.create_async({"payment_intent": intent, "amount": 700})
    await control("POST", "/disputes", {"payment_intent": "pi_w", "amount": 100})
    await until(lambda: len(receiver.events) == 2)

    assert {event.to_dict()["data"]["object"]["payment_intent"] for event in receiver.events} == {"pi_other"}
    assert (await control("GET", "/webhooks"))["held"] == 3


async def test_what_was_not_delivered_is_after_kill_9(own_sandbox: Any, until: Any):
    """Nobody listens, the sandbox is killed, somebody listens: every event arrives, those that were held when they are released."""
    sandbox = own_sandbox("--webhook-url", "http://127.0.0.1:9/hook", "--webhook-secret", SECRET)
    await asyncio.to_thread(sandbox.start)
    call = functools.partial(asyncio.to_thread, sandbox.control)
    await call("POST", "/payments", {"id": "pi_w", "amount": 5000, "currency": "usd"})
    await call("POST", "/faults", {"on": "webhook", "match": {"type": "charge.refunded"}, "fault": {"kind": "hold"}})
    made = [(await call("POST", "/refunds", {"payment_intent": "pi_w", "amount": 100}))["id"] for _ in range(3)]
    sandbox.stop(signal.SIGKILL)
    await asyncio.to_thread(sandbox.start)

    assert await call("GET", "/webhooks") == {"due": 5, "held": 1}
    async with receiving() as receiver:
        await call("PUT", "/webhook", {"url": receiver.url, "secret": SECRET})
        await call("POST", "/clock", {"advance_seconds": 60})
        await until(lambda: len(receiver.events) == 5)
        await call("POST", "/webhooks/release")
        await until(lambda: len(receiver.events) == 6)
        await until(lambda: sandbox.control("GET", "/webhooks") == {"done": 6})

    told = [(event.type, event.to_dict()["data"]["object"]["id"]) for event in receiver.events]
    assert sorted(told) == sorted([("charge.refunded", "ch_w")] * 3 + [("refund.created", refund) for refund in made])
    assert len({event.id for event in receiver.events}) == 6


async def test_an_event_that_was_under_way_at_kill_9_is_sent_again(own_sandbox: Any, until: Any):
    """It was received and not answered: nobody can tell, so it comes twice and never not at all."""
    async with receiving() as receiver:
        receiver.silent = True
        sandbox = own_sandbox("--webhook-url", receiver.url, "--webhook-secret", SECRET)
        await asyncio.to_thread(sandbox.start)
        await asyncio.to_thread(sandbox.control, "POST", "/payments", {"id": "pi_w", "amount": 5000, "currency": "usd"})
        await asyncio.to_thread(sandbox.control, "POST", "/refunds", {"payment_intent": "pi_w"})
        await until(lambda: bool(receiver.events))
        sandbox.stop(signal.SIGKILL)
        first, receiver.events, receiver.silent = receiver.events[0].id, [], False
        await asyncio.to_thread(sandbox.start)
        await asyncio.to_thread(sandbox.control, "POST", "/clock", {"advance_seconds": 60})
        await until(lambda: first in {event.id for event in receiver.events})


@pytest.mark.parametrize("lanes", [1, 4])
async def test_so_many_deliveries_are_under_way_at_once(lanes: int, own_sandbox: Any, until: Any):
    """None of them twice: what a lane has taken, another one leaves."""
    waiting: list[asyncio.StreamWriter] = []
    told: list[bytes] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            told.append(await reader.readexactly(length))
            waiting.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    sandbox = own_sandbox("--webhook-lanes", str(lanes), "--webhook-url", url, "--webhook-secret", SECRET)
    await asyncio.to_thread(sandbox.start)
    call = functools.partial(asyncio.to_thread, sandbox.control)
    await call("POST", "/payments", {"id": "pi_w", "amount": 5000, "currency": "usd"})
    for _ in range(6):
        await call("POST", "/refunds", {"payment_intent": "pi_w", "amount": 100})

    for done in range(0, 12, lanes):
        await until(lambda: len(waiting) == lanes)
        assert await call("GET", "/webhooks") == {name: count for name, count in (("done", done), ("due", 12 - done)) if count}
        held, waiting[:] = list(waiting), []
        for writer in held:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    await until(lambda: sandbox.control("GET", "/webhooks") == {"done": 12})
    assert len({json.loads(event)["id"] for event in told}) == len(told) == 12
    await asyncio.to_thread(sandbox.stop, signal.SIGKILL)
    server.close()


async def test_no_target_means_events_without_deliveries(http: httpx.AsyncClient, sandbox: Any, pay: Any):
    pay(id="pi_w")
    await http.post("/v1/refunds", data={"payment_intent": "pi_w"})
    events = (await http.get("/v1/events", params={"types[]": "refund.created"})).json()["data"]
    assert ([event["pending_webhooks"] for event in events], sandbox.control("GET", "/webhooks")) == ([0], {})


async def test_the_command_lines_target_survives_reset_and_restart(own_sandbox: Any):
    sandbox = own_sandbox("--webhook-url", "http://127.0.0.1:9/hook", "--webhook-secret", SECRET)
    for _ in range(2):
        sandbox.start()
        sandbox.control("PUT", "/webhook", {"url": None})
        sandbox.control("POST", "/reset")
        sandbox.control("POST", "/payments", {"id": "pi_w", "amount": 5000, "currency": "usd"})
        sandbox.control("POST", "/refunds", {"payment_intent": "pi_w"})
        assert sandbox.control("GET", "/webhooks") == {"due": 2}
        sandbox.stop(signal.SIGKILL)
