"""A small OpenAI-compatible server on loopback that answers as each test scripts it.

Fixtures: ``model_server`` (a :class:`ModelServer`), ``reader`` (makes a :class:`ModelClassifier` that talks to it and closes it).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from activities.classifiers.model import ModelClassifier
from refunds.settings import ClassifierKind, Settings

KEY = "key-of-this-test"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Call:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ModelServer:
    """Plays the scripted answers one after the other, and the last one again and again. ``calls`` holds every request."""

    answers: list[Answer] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    url: str = ""
    busy: set[asyncio.Task[None]] = field(default_factory=set)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client hung up while it was still being answered."""

    def play(self, *answers: Answer) -> None:
        self.answers = list(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.busy.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.calls.append(Call(first.split()[1], headers, json.loads(body)))
            await self.answers[min(len(self.calls), len(self.answers)) - 1](writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()
            self.busy.discard(task)

    async def stop(self) -> None:
        """End every answer that is still going on."""
        going_on = list(self.busy)
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)


def http(status: int, body: bytes, *, headers: str = "") -> Answer:
    """An answer with exactly this status and body."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{headers}\r\n"
        writer.write(head.encode() + body)

    return answer


def completion(message: dict[str, Any], *, finish: str = "tool_calls", model: str = "gpt-5-mini-2025-08-07") -> Answer:
    """A chat completion with this message, for 100 tokens in and 10 out."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    return http(200, json.dumps(body).encode())


def labels(arguments: dict[str, Any] | str) -> Answer:
    """A completion that calls the labelling tool with these arguments (a string is sent as it is)."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": "call_1", "type": "function", "function": {"name": "label", "arguments": text}}
    return completion({"content": None, "tool_calls": [call]})


@dataclass(frozen=True)
class Script:
    """The ways of answering, for tests: modules here cannot import each other."""

    http: Callable[..., Answer] = http
    completion: Callable[..., Answer] = completion
    labels: Callable[..., Answer] = labels
    key: str = KEY


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model_server() -> AsyncIterator[ModelServer]:
    server = ModelServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**22)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    async with listening:
        yield server
        await server.stop()


@pytest.fixture
async def reader(model_server: ModelServer) -> AsyncIterator[Callable[..., ModelClassifier]]:
    made: list[ModelClassifier] = []

    def make(**changes: Any) -> ModelClassifier:
        values: dict[str, Any] = {
            "classifier": ClassifierKind.MODEL,
            "model": "openai:gpt-5-mini",
            "model_api_key": SecretStr(KEY),
            "model_base_url": model_server.url,
            "model_timeout_s": 5,
        }
        made.append(ModelClassifier(Settings(**(values | changes))))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()
