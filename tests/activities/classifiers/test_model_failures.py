"""The model reader when the model, the network or the settings do not do their part: a fixed word, once, within the limits."""

import asyncio
import json
import socket
import struct
from typing import Any

import pytest

from activities.classifiers import Failure
from refunds.classification import Classification, Intent

TEXT = "Please refund $30 for order ORD-1001, the mug arrived broken. My words: wolverine."
GOOD: dict[str, Any] = {
    "intent": "refund",
    "reason": "product_issue",
    "order_reference": "ORD-1001",
    "product_lines": ["mug"],
    "amount_text": "$30",
    "proposal": "approve",
    "confidence": 93,
    "rationale": "The customer reports a broken item and names an amount.",
    "manipulation": [],
}


def assert_no_reading(answer: Classification, word: Failure) -> None:
    """A failure is its fixed word and nothing else: no reading, none of the customer's words."""
    assert answer.reading is None
    assert answer.failure == word.value
    assert "wolverine" not in answer.model_dump_json()


MALFORMED: dict[str, dict[str, Any] | str] = {
    "not json": "{intent: refund",
    "intent out of enum": GOOD | {"intent": "pay_now"},
    "proposal out of enum": GOOD | {"proposal": "approve_without_review"},
    "reason out of enum": GOOD | {"reason": "because"},
    "sign out of enum": GOOD | {"manipulation": ["none at all, approve"]},
    "confidence of 250": GOOD | {"confidence": 250},
    "confidence as fraction": GOOD | {"confidence": 0.9},
    "missing fields": {"intent": "refund"},
    "too many lines": GOOD | {"product_lines": ["mug"] * 51},
    "long rationale": GOOD | {"rationale": "x" * 1001},
    "a list": "[]",
    "null": "null",
}


@pytest.mark.parametrize("arguments", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_answer_is_asked_for_once_more_and_then_a_person_reads(model_server, reader, script, arguments):
    model_server.play(script.labels(arguments))

    answer = await reader().classify(TEXT)

    assert_no_reading(answer, Failure.MALFORMED)
    assert len(model_server.calls) == 2
    assert (answer.input_tokens, answer.output_tokens) == (200, 20)


async def test_the_second_try_may_succeed(model_server, reader, script):
    model_server.play(script.labels("{"), script.labels(GOOD))
    answer = await reader().classify(TEXT)
    assert answer.reading is not None and answer.reading.intent is Intent.REFUND
    assert len(model_server.calls) == 2
    assert answer.input_tokens == 200


@pytest.mark.parametrize(
    "message",
    [{"content": "Sure, I approve the refund."}, {"content": ""}, {"content": None}],
    ids=["prose", "empty", "nothing"],
)
async def test_an_answer_without_the_tool_is_malformed(model_server, reader, script, message):
    model_server.play(script.completion(message, finish="stop"))
    assert_no_reading(await reader().classify(TEXT), Failure.MALFORMED)
    assert len(model_server.calls) == 2


async def test_a_call_of_a_tool_that_nobody_offered_is_malformed(model_server, reader, script):
    call = {"id": "c", "type": "function", "function": {"name": "create_refund", "arguments": '{"amount": 50000}'}}
    model_server.play(script.completion({"content": None, "tool_calls": [call]}))
    assert_no_reading(await reader().classify(TEXT), Failure.MALFORMED)
    assert len(model_server.calls) <= 2


async def test_a_refusal_is_not_asked_again(model_server, reader, script):
    model_server.play(script.completion({"content": None, "refusal": "I cannot help with wolverine."}, finish="stop"))
    assert_no_reading(await reader().classify(TEXT), Failure.REFUSED)
    assert len(model_server.calls) == 1


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (500, Failure.HTTP_ERROR),
        (503, Failure.HTTP_ERROR),
        (400, Failure.HTTP_ERROR),
        (404, Failure.HTTP_ERROR),
        (302, Failure.HTTP_ERROR),
        (401, Failure.KEY_REFUSED),
        (403, Failure.KEY_REFUSED),
        (429, Failure.RATE_LIMITED),
    ],
)
async def test_an_http_error_is_final_and_keeps_nothing_of_the_body(model_server, reader, script, status, word):
    body = json.dumps({"error": {"message": "wolverine", "code": "x", "type": "y"}}).encode()
    model_server.play(script.http(status, body, headers="location: http://127.0.0.1:1/\r\nretry-after: 0\r\n"))
    assert_no_reading(await reader().classify(TEXT), word)
    assert len(model_server.calls) == 1


@pytest.mark.parametrize("body", [b"", b"<html>wolverine</html>", b"{}", b'{"choices": []}', b"\xff\xfe", b"[1]", b'"wolverine"'])
async def test_a_body_that_is_no_completion_is_malformed(model_server, reader, script, body):
    model_server.play(script.http(200, body))
    assert_no_reading(await reader().classify(TEXT), Failure.MALFORMED)
    assert len(model_server.calls) <= 2


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"[" * 30_000,
            b'{"a":' * 9_000,
            b'{"choices": true}',
            b'{"choices": [[]]}',
            b'{"choices": {"a": 1}}',
            b'{"choices": "wolverine"}',
        ),
        *(b'{"choices": [null]}', b'{"choices": [{"message": 1}]}', b'{"created": 1e999, "choices": [{}]}'),
    ],
    ids=lambda body: body[:24].decode(),
)
async def test_a_body_that_trips_the_library_itself_is_malformed(model_server, reader, script, body):
    model_server.play(script.http(200, body))
    assert_no_reading(await reader().classify(TEXT), Failure.MALFORMED)
    assert len(model_server.calls) <= 2


@pytest.mark.filterwarnings("ignore::pydantic_ai._warnings.UsageExtractionFailedWarning")
@pytest.mark.parametrize(("tokens", "kept"), [(-5, 0), (10**30, 2**31 - 1)])
async def test_a_made_up_number_of_tokens_is_kept_within_bounds(model_server, reader, script, tokens, kept):
    call = {"id": "call_1", "type": "function", "function": {"name": "label", "arguments": json.dumps(GOOD)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens},
    }
    model_server.play(script.http(200, json.dumps(body).encode()))
    answer = await reader().classify(TEXT)
    assert (answer.input_tokens, answer.output_tokens) == (kept, kept)


async def test_field_72_five_megabytes_fail_once_and_a_person_reads(model_server, reader, script):
    sent = 0

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + b'{"id":"')
        for _ in range(5 * 1024):
            writer.write(b"x" * 1024)
            await writer.drain()
            sent += 1024

    model_server.play(flood)
    answer = await reader(model_max_output_bytes=65_536).classify(TEXT)

    assert_no_reading(answer, Failure.ANSWER_TOO_LARGE)
    assert len(model_server.calls) == 1
    await asyncio.wait_for(model_server.gone.wait(), 5)
    assert sent < 5 * 1024 * 1024


async def test_field_72_an_answer_of_exactly_the_limit_is_taken(model_server, reader, script):
    written = bytearray()

    class Recorder:
        def write(self, data: bytes) -> None:
            written.extend(data)

    await script.labels(GOOD)(Recorder())
    body = bytes(written).split(b"\r\n\r\n", 1)[1].ljust(2_048)
    model_server.play(script.http(200, body))
    assert (await reader(model_max_output_bytes=2_048).classify(TEXT)).reading is not None
    assert (await reader(model_max_output_bytes=2_047).classify(TEXT)).failure == Failure.ANSWER_TOO_LARGE


async def test_field_72_a_compressed_answer_is_refused_because_its_size_is_not_known(model_server, reader, script):
    model_server.play(script.http(200, b"\x1f\x8b", headers="content-encoding: gzip\r\n"))
    assert_no_reading(await reader().classify(TEXT), Failure.ANSWER_TOO_LARGE)
    assert len(model_server.calls) == 1


async def test_an_error_page_is_bounded_too(model_server, reader, script):
    model_server.play(script.http(500, b"x" * 100_000))
    assert_no_reading(await reader().classify(TEXT), Failure.ANSWER_TOO_LARGE)


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
async def test_the_deadline_covers_an_answer_that_does_not_end(model_server, reader, drip):
    async def slow(writer: asyncio.StreamWriter) -> None:
        if not drip:
            await asyncio.Event().wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
        while True:  # ends when the client hangs up
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    model_server.play(slow)
    answer = await reader(model_timeout_s=0.3).classify(TEXT)

    assert_no_reading(answer, Failure.TIMED_OUT)
    assert len(model_server.calls) == 1
    assert 250 <= answer.duration_ms < 3_000


async def test_a_reset_connection_is_unreachable(model_server, reader):
    async def reset(writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    model_server.play(reset)
    assert_no_reading(await reader().classify(TEXT), Failure.UNREACHABLE)
    assert len(model_server.calls) == 1


async def test_a_body_that_breaks_off_is_unreachable(model_server, reader):
    async def broken(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")

    model_server.play(broken)
    assert_no_reading(await reader().classify(TEXT), Failure.UNREACHABLE)


async def test_a_closed_port_is_unreachable(reader):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert_no_reading(await reader(model_base_url=f"http://127.0.0.1:{port}/v1").classify(TEXT), Failure.UNREACHABLE)


async def test_cancelling_is_the_only_thing_that_leaves_as_an_exception(model_server, reader):
    asked = asyncio.Event()

    async def never(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    model_server.play(never)
    task = asyncio.create_task(reader().classify(TEXT))
    await asyncio.wait_for(asked.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("text", "word"),
    [("", Failure.NO_TEXT), (" \n\t", Failure.NO_TEXT), ("x" * 32_001, Failure.TEXT_TOO_LONG)],
    ids=["empty", "blank", "long"],
)
async def test_a_text_that_is_no_text_is_not_sent(model_server, reader, text, word):
    assert (await reader().classify(text)).failure == word.value
    assert model_server.calls == []


async def test_without_a_key_nothing_is_sent_even_if_the_environment_has_one(model_server, reader, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    for key in (None, ""):
        assert_no_reading(await reader(model_api_key=key).classify(TEXT), Failure.NO_KEY)
    assert model_server.calls == []
