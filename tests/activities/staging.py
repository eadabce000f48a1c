"""Staging a race: one act is held at a named point, another is played against it, and then the first goes on.

``before:`` a commit the first act holds its locks, so that the second one waits for them; ``after:`` it they are free and the second plays in between.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from temporalio.exceptions import ApplicationError

from refunds import points
from refunds.errors import RefundError
from refunds.messages import Situation
from tests.activities.shop import Shop

PATIENCE_S = 20
Play = Callable[[], Awaitable[Any]]


class Gate:
    """Where the first act is held: at the first point that the rule means."""

    def __init__(self, at: str) -> None:
        [self._rule] = points.parse(f"{at}=raise")
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def meet(self, point: str) -> None:
        if self._rule.matches(point):
            self.reached.set()
            await self.open.wait()


_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)


async def _at_gate(point: str) -> None:
    gate = _gate.get()
    if gate is not None:
        await gate.meet(point)


async def during(shop: Shop, first: Play, at: str, second: Play) -> tuple[Any, Any]:
    """What both acts come to (an exception is a result), with the second one played while the first is held there.

    The first goes on when the second is over, waits for a lock that the first one holds, or waits its turn to be sent.
    """
    gate = Gate(at)

    async def held() -> Any:
        _gate.set(gate)
        return await first()

    with points.watched_by(_at_gate):
        acting = asyncio.ensure_future(held())
        await until(lambda: gate.reached.is_set() or acting.done())
        assert gate.reached.is_set(), f"the first act never came to {at}: {acting.result()}"
        playing = asyncio.ensure_future(second())

        async def over_or_waiting() -> bool:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted UNION ALL SELECT 1 FROM refunds WHERE code = 'PAYMENT_BUSY'"
            return playing.done() or bool(await shop.query(waiting))

        await until(over_or_waiting)
        gate.open.set()
        done = await asyncio.gather(acting, playing, return_exceptions=True)
    return done[0], done[1]


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a condition, with a deadline."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        assert asyncio.get_running_loop().time() < deadline, "it did not come true"
        await asyncio.sleep(0.005)


def told(outcome: Any) -> str | None:
    """What an act was answered: a status, a refusal's code, or what Temporal was told."""
    match outcome:
        case Situation():
            return outcome.refused or outcome.status
        case RefundError():
            return outcome.code
        case ApplicationError():
            return outcome.message
        case BaseException():
            raise outcome
        case _:
            return None


async def record(shop: Shop, refund: str, intent: str) -> tuple[str, int, int, int]:
    """Its status, how often it changed to that, and how many requests and refunds the processor saw."""
    status = (await shop.row(refund))["status"]
    return (status, (await shop.moves(refund)).count(status), *await shop.asked_and_made(intent))


DONE = ("succeeded", 1, 1, 1)
