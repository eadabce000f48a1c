"""Reconciliations carried out by real worker processes that are killed in the middle: each page counts once, whoever carries it on."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import Client

from refunds.ids import Prefix, new_id
from store.reconciling import Reconciling, Run
from tests.activities.shop import opening
from tests.conftest import FreshDatabase, Sandbox, TemporalServer, open_directory
from tests.store.books import operation_id, record_by
from tests.worker.site import Site, until

COUNT = 1_500
SLOW = {"on": "refund.list", "times": None, "fault": {"kind": "delay", "ms": 300}}


@pytest.fixture
async def site(database: FreshDatabase, sandbox: Sandbox, temporal_server: TemporalServer, temporal_client: Client) -> AsyncIterator[Site]:
    """A shop with many refunds of the last hours, known to both sides: all but a few agree."""
    async with opening(database, sandbox) as open_shop:
        with open_directory() as home:
            made = Site(await open_shop(), temporal_client, database, temporal_server, home)
            await fill(made)
            try:
                yield made
            finally:
                made.stop()


async def fill(site: Site) -> None:
    newest = datetime.fromtimestamp(int(site.shop.clock.now().timestamp()) - 600, UTC)
    with site.fresh.connect("postgres") as connection:
        record_by(lambda query, *values: connection.execute(query.encode(), values), COUNT, site.shop.people["shop"].principal_id, newest)
    seeds: list[dict[str, Any]] = [
        {
            "id": f"re_{n}",
            "payment_intent": f"pi_{n}",
            "amount": 3_000,
            "created": int((newest - timedelta(seconds=n)).timestamp()),
            "metadata": {"refunds_operation": operation_id(n)},
        }
        for n in range(COUNT)
    ]
    seeds[700]["status"] = "failed"  # a failure whose event never came
    del seeds[1_200]  # recorded, and not there
    seeds.append(seeds[900] | {"id": "re_dashboard", "amount": 500, "metadata": {}})
    await site.shop.control("POST", "/seed", seeds)


async def begun(site: Site) -> Run:
    """A run that somebody asked for; the worker's keeper starts its workflow."""
    store = Reconciling(site.shop.payments.database, site.shop.settings, "stripe")
    return await store.begin(new_id(Prefix.RECONCILIATION), window=timedelta(days=2), started_by=site.shop.people["rita"].principal_id)


async def reached(site: Site, run: Run, *, pages: int = 10**9) -> Run:
    """The run, once it has come so far, or is over."""
    store = Reconciling(site.shop.payments.database, site.shop.settings, "stripe")

    async def there() -> bool:
        now = await store.read(run.id)
        return now.is_over or now.pages >= pages

    await until(there, site.logs)
    return await store.read(run.id)


async def test_killed_twice_in_the_middle_it_is_carried_on_and_everything_counts_once(site: Site) -> None:
    await site.shop.control("POST", "/faults", SLOW)
    [worker] = site.start("all")
    run = await begun(site)
    for pages in (3, 8):
        assert not (await reached(site, run, pages=pages)).is_over
        worker.kill()
        [worker] = site.start("all")
    ended = await reached(site, run)

    assert (ended.phase, ended.pages, ended.compared, ended.differences, ended.imported) == ("done", 16, COUNT + 1, 3, 1)
    found = await site.shop.query("SELECT kind, processor_refund, state FROM discrepancies ORDER BY kind")
    assert [tuple(row.values()) for row in found] == [("external", "re_dashboard", "explained"), ("ours_missing", "re_1200", "open")]
    counts = await site.shop.query(
        "SELECT type, count(*) AS n FROM ledger WHERE type IN ('reconciliation_finished', 'discrepancy_found', 'external_refund',"
        " 'status_changed') GROUP BY type ORDER BY type"
    )
    assert [tuple(row.values()) for row in counts] == [
        ("discrepancy_found", 2),
        ("external_refund", 1),
        ("reconciliation_finished", 1),
        ("status_changed", 1),  # the late failure
    ]
    [failed] = await site.shop.query("SELECT id FROM refunds WHERE status = 'failed'")
    assert failed["id"] == f"rf_{700:026d}"


async def test_while_the_processor_is_away_the_run_waits_says_why_and_goes_on_by_itself(site: Site) -> None:
    await site.shop.control("POST", "/faults", SLOW | {"fault": {"kind": "lose_request"}})
    site.start("all")
    run = await begun(site)
    store = Reconciling(site.shop.payments.database, site.shop.settings, "stripe")

    async def says_why() -> bool:
        return "cannot be asked" in ((await store.read(run.id)).last_error or "")

    await until(says_why, site.logs)
    stands = await store.read(run.id)
    assert replace(stands, last_error=None) == replace(run, last_error=None)
    await site.shop.control("DELETE", "/faults")
    ended = await reached(site, run)
    assert (ended.phase, ended.compared, ended.differences, ended.last_error) == ("done", COUNT + 1, 3, None)
