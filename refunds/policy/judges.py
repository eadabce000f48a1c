"""Judges at work: processes of :mod:`refunds.policy.judging`, one for each core, that share the requests of a simulation among them."""

import asyncio
import json
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MOST = 4
"""The most processes for one simulation, however many cores there are."""
BATCH = 500
"""Requests to a batch: small enough that progress is seen, large enough that handing over costs little."""

_LONGEST_LINE = 64 * 2**20
_ROOT = Path(__file__).resolve().parents[2]


class JudgeFailed(RuntimeError):
    """A process that judges has died or answered nonsense: there is no result, and nothing was stored anyway."""


def batch_of(requests: list[tuple[str, str]]) -> str:
    """A batch from ids and facts as JSON text, which is passed on as it is."""
    return "[" + ",".join(f"[{json.dumps(identifier)},{facts}]" for identifier, facts in requests) + "]"


async def judged(before: str, after: str, batches: AsyncIterator[str]) -> AsyncGenerator[dict[str, Any]]:
    """Judge batches of requests under two policies (given as valid YAML), and yield the result of each in their order, as soon as it is there.

    A result is what :func:`refunds.policy.judging.judge` returns. Close it and the processes end, also half way. Raises :class:`JudgeFailed`.
    """
    async with _Judges(before, after, min(MOST, os.cpu_count() or 1)) as judges:
        under_way: deque[asyncio.Task[dict[str, Any]]] = deque()
        try:
            async for batch in batches:
                under_way.append(asyncio.create_task(judges.judge(batch)))
                if len(under_way) >= 2 * judges.count:
                    yield await under_way.popleft()
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)


class _Judges:
    def __init__(self, before: str, after: str, count: int) -> None:
        self.count = count
        self._policies = json.dumps({"before": before, "after": after}).encode() + b"\n"
        self._all: list[asyncio.subprocess.Process] = []
        self._free: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self.count):
                # Nothing of our own environment: no database, no keys.
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "refunds.policy.judging"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                    cwd=_ROOT,
                    env={"PATH": os.defpath, "PYTHONPATH": str(_ROOT), "PYTHONUTF8": "1"},
                    limit=_LONGEST_LINE,
                )
                self._all.append(process)
                _input_of(process).write(self._policies)
                self._free.put_nowait(process)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._end()

    async def judge(self, batch: str) -> dict[str, Any]:
        process = await self._free.get()
        try:
            _input_of(process).write(batch.encode() + b"\n")
            await _input_of(process).drain()
            assert process.stdout is not None
            answer = await process.stdout.readline()
            if not answer.endswith(b"\n"):
                raise JudgeFailed("a process that judges has ended before its time")
            return json.loads(answer)
        except (ConnectionError, ValueError) as error:
            raise JudgeFailed("a process that judges does not answer") from error
        finally:
            self._free.put_nowait(process)

    async def _end(self) -> None:
        for process in self._all:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._all))


def _input_of(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
