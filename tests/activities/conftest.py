"""``shop``: a merchant's shop on real parts (see ``shop.py``); ``make_shop``: the same with other settings, on the same database and sandbox."""

from collections.abc import AsyncIterator

import pytest

from tests.activities.shop import MakeShop, Shop, opening
from tests.conftest import FreshDatabase, Sandbox


@pytest.fixture
async def make_shop(module_database: FreshDatabase, sandbox: Sandbox) -> AsyncIterator[MakeShop]:
    """A function that opens a shop; keyword arguments are settings."""
    async with opening(module_database, sandbox) as open_shop:
        yield open_shop


@pytest.fixture
async def shop(make_shop: MakeShop) -> Shop:
    """A shop with the usual settings."""
    return await make_shop()
