"""Copies of checkpoints on their way: each place has a task of its own, so that one which does not answer holds up neither the others nor the chain."""

import asyncio
from collections.abc import Sequence

from refunds.errors import RefundError
from refunds.ledger.verifier import Key
from refunds.logs import logger
from store import checkpoints
from store.checkpoints import Copy
from store.db import Database
from worker.copying import Copier, CopyFailed, newest_in

log = logger(__name__)

_READ_WITHIN_S = 10.0


class Copies:
    """Brings copies to their places for as long as it takes. End it at the end."""

    def __init__(self, database: Database, targets: Sequence[str], copier: Copier) -> None:
        self._database = database
        self._targets = targets
        self._copier = copier
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def go_on(self) -> None:
        """Begin with every place for which a copy is due and none is on its way. Raises what was unforeseen of a task that has ended since."""
        ended = [target for target, task in self._tasks.items() if task.done()]
        errors = [error for target in ended if (error := self._tasks.pop(target).exception()) is not None]
        async with self._database.read() as connection:
            due = await checkpoints.targets_due(connection, self._database.clock.now())
        for target in due:
            if target not in self._tasks:
                self._tasks[target] = asyncio.create_task(self._bring_to(target))
        for error in errors:
            raise error

    async def end(self) -> None:
        """Give up what is on its way; it is due again in a while."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def newest(self, keys: Sequence[Key]) -> dict[int, bytes]:
        """What the copies that can be read here sign at most, by size. A place that cannot be read says nothing, which is logged."""
        found: dict[int, bytes] = {}
        for target in self._targets:
            try:
                async with asyncio.timeout(_READ_WITHIN_S):
                    one = await asyncio.to_thread(newest_in, target, keys)
            except (OSError, TimeoutError) as error:
                log.warning("checkpoint_copies_not_read", target=target, why=type(error).__name__)
            else:
                found |= {} if one is None else {one.size: one.root}
        return found

    async def _bring_to(self, target: str) -> None:
        """Bring everything that is due to a place, until something does not arrive; an outage of the database is waited for as everywhere."""
        try:
            while (copy := await self._taken(target)) is not None:
                if not await self._sent(copy):
                    return
        except RefundError as error:
            log.warning("ledger_interrupted", error=str(error)[:300])

    async def _taken(self, target: str) -> Copy | None:
        async with self._database.one() as connection:
            return await checkpoints.take_copy(connection, self._database.clock.now(), target)

    async def _sent(self, copy: Copy) -> bool:
        try:
            await self._copier.send(copy)
        except CopyFailed as error:
            log.warning("checkpoint_not_copied", target=copy.target, size=copy.size, tries=copy.tries, why=str(error))
            async with self._database.begin() as connection:
                await checkpoints.failed(connection, copy, self._database.clock.now(), str(error))
            return False
        async with self._database.begin() as connection:
            await checkpoints.arrived(connection, copy, self._database.clock.now())
        return True
