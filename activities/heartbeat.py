"""Heartbeats: Temporal learns within seconds that a worker died in mid-call, instead of waiting for the activity's whole time-out."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from temporalio import activity

EVERY_S = 1.0
T = TypeVar("T")


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Send a heartbeat every second while the block runs."""

    async def beat() -> None:
        while True:
            # The first second needs none: the time-out starts with the activity, and each heartbeat is a write in Temporal.
            await asyncio.sleep(EVERY_S)
            activity.heartbeat()

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end even when the activity is cancelled meanwhile: a call that may move money is not abandoned."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
