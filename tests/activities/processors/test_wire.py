"""What can happen between the first byte of a request and the last byte of its answer (promise P7, field report 7).

A socket server misbehaves; the call goes through the official SDK. Each line says what the server does, and what nobody may conclude from it.
"""

import asyncio
import json
import socket
import struct
from typing import Any

import pytest

from activities.processors.base import uptime
from refunds.errors import Code
from refunds.money import Money
from refunds.processor import NotSent, ProcessorError, Unknown, conclude
from refunds.status import Event
from tests.activities.processors.conftest import MakeProcessor, Serve, answering, listening, request_for, serving, soon
from tests.activities.processors.test_foreign_answers import REFUND

BODY = json.dumps(REFUND).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset at once."""


def saying(*pieces: bytes) -> Serve:
    """Say these bytes and close."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return serve


def resetting(said: bytes) -> Serve:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    return serve


async def error_of(connected: MakeProcessor, url: str, **settings: Any) -> ProcessorError:
    with pytest.raises(ProcessorError) as caught:
        await connected(url, **settings).refund(request_for("pi_1"), send_before=soon())
    return caught.value


CUT: dict[str, Serve] = {
    "closed without a word": saying(),
    "reset after the request was read": resetting(b""),
    "reset in the middle of the head": resetting(b"HTTP/1.1 200 OK\r\nContent-Ty"),
    "reset in the middle of the body": resetting(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:40]),
    "closed in the middle of the head": saying(HEAD),
    "closed before the length that was promised": saying(HEAD + b"Content-Length: %d\r\n\r\n" % (len(BODY) + 1), BODY),
    "a chunk that is cut": saying(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n" % len(BODY) + BODY[:-1]),
    "chunks without their end": saying(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n" % len(BODY) + BODY + b"\r\n"),
    "a chunk of no number": saying(HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    "not HTTP": saying(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "no status": saying(b"HTTP/1.1 OK\r\n\r\n"),
    "a provisional answer alone": saying(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "two lengths": saying(HEAD + b"Content-Length: 1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY),
    "a head without end": saying(HEAD + b"X-Long: " + b"a" * 200_000),
}


@pytest.mark.parametrize("what", CUT)
async def test_a_call_without_a_whole_answer_is_unknown(connected: MakeProcessor, what: str) -> None:
    async with serving(CUT[what]) as server:
        found = await error_of(connected, server.url)

    assert (type(found), found.reason) == (Unknown, "no_answer")
    assert len(server.received) == 1, "and it is not repeated behind the back of whoever has to look first"


async def test_a_reset_before_the_request_was_read_is_unknown_too(connected: MakeProcessor) -> None:
    """The connection stood, so bytes may have left; what the other side did with them it does not say."""

    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    async with listening(reset) as url:
        found = await error_of(connected, url)

    assert (type(found), found.reason) == (Unknown, "no_answer")


@pytest.mark.parametrize("said", [b"", HEAD, HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:-1]])
async def test_an_answer_that_stops_is_given_up_in_time_and_unknown(connected: MakeProcessor, said: bytes) -> None:
    done = asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        await done.wait()

    async with serving(stall) as server:
        found = await error_of(connected, server.url, stripe_read_timeout_s=0.3)
        done.set()

    assert (type(found), found.reason) == (Unknown, "no_answer")


@pytest.mark.parametrize("head", [b"", HEAD + b"Content-Length: 5000\r\n\r\n"])
async def test_an_answer_that_drips_is_given_up_in_time_and_unknown(connected: MakeProcessor, head: bytes) -> None:
    """Each byte comes sooner than the time-out; the whole never would. A person may settle once no attempt can be open any more: this is why that is true."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)  # the drip itself; nothing is waited for here

    async with serving(drip) as server:
        begun = uptime()
        found = await error_of(connected, server.url, stripe_read_timeout_s=0.5)
        took = uptime() - begun

    assert (type(found), found.reason) == (Unknown, "no_answer")
    assert 0.5 <= took < 5


async def test_an_answer_in_chunks_is_read_whole(connected: MakeProcessor) -> None:
    """The same server and the same bytes, uncut: what is refused above is not refused for being chunked."""
    half = len(BODY) // 2
    pieces = b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in (BODY[:half], BODY[half:]))

    async with serving(saying(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", pieces, b"0\r\n\r\n")) as server:
        refund = await connected(server.url).refund(request_for("pi_1"), send_before=soon())

    assert (refund.id, refund.amount, refund.operation) == ("re_1", 3_000, "op_1")


@pytest.mark.parametrize("address", ["http://nobody.invalid", "http://127.0.0.1:1", "https://127.0.0.1:1"])
async def test_where_nobody_listens_nothing_was_sent(connected: MakeProcessor, address: str) -> None:
    found = await error_of(connected, address)

    assert (type(found), found.reason) == (NotSent, "no_connection")


@pytest.mark.parametrize("said", [b"", b"\x15\x03\x03\x00\x02\x02\x28", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_tls_handshake_that_fails_sent_nothing(connected: MakeProcessor, said: bytes) -> None:
    """Closed, an alert, and a server that speaks no TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await writer.drain()

    async with listening(serve, "https") as url:
        found = await error_of(connected, url)

    assert (type(found), found.reason) == (NotSent, "no_connection")


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([REFUND]),
        json.dumps({"object": "list", "data": [REFUND], "has_more": False}),
        json.dumps({"error": {"type": "invalid_request_error", "code": "charge_already_refunded", "message": "No."}}),
        json.dumps(REFUND | {"object": "charge"}),
        json.dumps({name: value for name, value in REFUND.items() if name != "id"}),
        json.dumps({name: value for name, value in REFUND.items() if name != "status"}),
        json.dumps(REFUND | {"id": "pi_1"}),
        json.dumps(REFUND | {"id": "re_\0"}),
        json.dumps(REFUND | {"id": "re_" + "1" * 600}),
        json.dumps(REFUND | {"currency": "us\u2028d"}),
        json.dumps(REFUND | {"amount": "3000"}),
        json.dumps(REFUND | {"amount": 3_000.0}),
    ],
)
async def test_a_200_of_another_shape_is_unknown_also_when_it_holds_a_refusal(connected: MakeProcessor, body: str) -> None:
    async with serving(answering("200 OK", body)) as server:
        found = await error_of(connected, server.url)

    assert (type(found), found.reason) == (Unknown, "unexpected_shape")


@pytest.mark.parametrize("body", ["{", '{"id": "re_1", "am', "[" * 100_000, '{"amount": ' + "9" * 5_000 + "}", "\ufeff{}", "NaN,"])
async def test_a_200_that_is_no_json_is_unknown(connected: MakeProcessor, body: str) -> None:
    async with serving(answering("200 OK", body)) as server:
        found = await error_of(connected, server.url)

    assert (type(found), found.reason) == (Unknown, "malformed_answer")


@pytest.mark.parametrize("wrong", [{"payment_intent": "pi_2"}, {"payment_intent": None}, {"amount": 2_999}, {"currency": "eur"}])
async def test_field_29_a_refund_of_another_payment_or_amount_is_read_and_parked(connected: MakeProcessor, wrong: dict[str, Any]) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND | wrong))) as server:
        refund = await connected(server.url).refund(request_for("pi_1"), send_before=soon())

    found = conclude(refund, amount=Money(3_000, "USD"), processor_payment="pi_1")
    assert (refund.id, found.event, found.code) == ("re_1", Event.PARK, Code.RESPONSE_MISMATCH)


@pytest.mark.parametrize("field", ["operation", "raw_state", "failure_reason"])
async def test_what_strangers_may_write_never_makes_a_payment_unreadable(connected: MakeProcessor, field: str) -> None:
    """Metadata is anybody's at the processor: a letter that no column takes is shown as a question mark."""
    word = "a\0b\ud800c" + "d" * 600
    given = {
        "operation": {"metadata": {"refunds_operation": word}},
        "raw_state": {"status": word},
        "failure_reason": {"failure_reason": word},
    }

    async with serving(answering("200 OK", json.dumps(REFUND | given[field]))) as server:
        refund = await connected(server.url).retrieve("re_1")

    assert refund is not None
    assert getattr(refund, field) == "a?b?c" + "d" * 495
