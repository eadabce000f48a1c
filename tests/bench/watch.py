"""Learning how refunds move without asking the API: PostgreSQL notifies of each move, and one small query looks at all that moved."""

import asyncio
import time
from types import TracebackType
from typing import Self

import psycopg


class Watch:
    """Keeps when each refund was first seen quoted, and final. Several notifications that arrive together cost one query."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._final: dict[str, asyncio.Future[tuple[str, float]]] = {}
        self._quoted: dict[str, float] = {}
        self._moved: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._listening = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        self._asking = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        await self._listening.execute('LISTEN "refund"')
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._ask())]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listening.close()
        await self._asking.close()

    async def final(self, refund: str, *, within_s: float) -> tuple[str, float]:
        """The final status and the ``perf_counter`` at which it was seen. Raises ``TimeoutError``, and what broke the watch."""
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(self._of(refund))
        except TimeoutError:
            raise TimeoutError(f"{refund} was not final within {within_s:g} s") from None

    async def events_waiting(self) -> int:
        """How many events of the processor's are stored and not dealt with."""
        found = await self._asking.execute("SELECT count(*) FROM events WHERE state = 'waiting'")
        [count] = await found.fetchone() or (0,)
        return count

    def quoted(self, refund: str) -> float:
        """The ``perf_counter`` at which a refund that is final was first seen with its quote."""
        return self._quoted[refund]

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fail whoever waits: a watch that broke must not look like a refund that hangs."""
        if not task.cancelled() and (error := task.exception()) is not None:
            for future in self._final.values():
                if not future.done():
                    future.set_exception(error)

    def _of(self, refund: str) -> asyncio.Future[tuple[str, float]]:
        # Made by whoever comes first: the last notification may precede the answer that tells the refund's id.
        return self._final.setdefault(refund, asyncio.get_running_loop().create_future())

    async def _listen(self) -> None:
        async for notice in self._listening.notifies():
            self._moved.add(notice.payload)
            self._wake.set()

    async def _ask(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            moved, self._moved = list(self._moved), set()
            found = await self._asking.execute(
                "SELECT id, status, final_at IS NOT NULL FROM refunds WHERE id = ANY(%s) AND revision > 0", (moved,)
            )
            seen = time.perf_counter()
            for refund, status, final in await found.fetchall():
                self._quoted.setdefault(refund, seen)
                if final and not (future := self._of(refund)).done():
                    future.set_result((status, seen))
