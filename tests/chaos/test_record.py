"""The check of the chained ledger, on a small one that is spoiled: it says nothing of a sound one and names what is wrong with another."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from refunds.clock import SystemClock
from tests.chaos.record import unverified
from tests.chaos.truth import Violation
from tests.conftest import FreshDatabase
from tests.store.chained import Chained
from tests.store.world import FixedClock


@pytest.fixture
async def chained(database: FreshDatabase) -> AsyncIterator[Chained]:
    made = Chained(database, FixedClock(SystemClock().now()))
    yield made
    await made.close()


async def test_a_spoiled_ledger_is_a_violation(chained: Chained) -> None:
    stand: Any = SimpleNamespace(stack=SimpleNamespace(context=SimpleNamespace(postgres=chained.fresh)))
    await chained.enter(9)
    await chained.numbered()
    await chained.signed()
    assert await unverified(stand) == []

    chained.spoil("DELETE FROM ledger_entries WHERE seq = 4")
    assert await unverified(stand) == [Violation("ledger_unverified", "entry 4", "missing: Entry 4 is missing: entry 5 follows entry 3.")]
