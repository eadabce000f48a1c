"""One stack for all tests that leave it standing; those that kill parts of it start their own."""

from collections.abc import AsyncIterator

import pytest

from tests.end_to_end.whole import Whole, shared


@pytest.fixture(scope="session")
async def whole(pytestconfig: pytest.Config) -> AsyncIterator[Whole]:
    """The running product; tests use goods and customers of their own and leave each other alone."""
    async with shared(pytestconfig.stash) as running:
        yield running
