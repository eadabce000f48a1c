"""A pull of orders carried out by real worker processes that are killed in the middle of both phases: every order is made once, whole."""

import signal
from typing import Any

from store import pulling
from store.pulling import Pull, Pulling
from tests.worker.site import Site, until

ORDERS = 450
SLOW = {"on": "payment_intent.list", "times": None, "fault": {"kind": "delay", "ms": 300}}


def payments() -> list[dict[str, Any]]:
    """Two for each order, far apart in the list."""
    names = [(number, part) for part in (1, 2) for number in range(ORDERS)]
    return [
        {
            "id": f"pi_pull{number}x{part}",
            "amount": 100 * part,
            "currency": "usd",
            "metadata": {"order_id": f"zqorderqz-{number}", "customer_id": f"zqcustomerqz-{number % 7}"},
        }
        for number, part in names
    ]


async def asked(site: Site) -> Pull:
    """A pull that somebody asked for while Temporal was away: the worker's keeper starts its workflow."""
    async with site.shop.api.begin() as connection:
        return await pulling.request(connection, site.shop.clock, site.shop.settings, site.shop.people["shop"], since=None, dry_run=False)


async def test_killed_while_it_reads_and_while_it_makes_it_goes_on_and_makes_every_order_once(site: Site) -> None:
    shop, store = site.shop, Pulling(site.shop.payments.database)
    await shop.control("POST", "/reset")  # whatever other tests paid there, and by whatever time, is not of this list
    await shop.control("POST", "/payments", payments())
    await shop.control("POST", "/faults", SLOW)
    pull = await asked(site)

    async def read_some() -> bool:
        return (await store.read(pull.id)).pages >= 2

    async def dead() -> bool:
        return dying.process.poll() is not None

    async def over() -> bool:
        return (await store.read(pull.id)).is_over

    [worker] = site.start("all")
    await until(read_some, site.logs)
    worker.kill()
    killed = await store.read(pull.id)
    assert killed.phase == "reading", "killed in the middle of the list"
    await shop.control("DELETE", "/faults")

    # The next one dies by itself: after the second batch of orders is stored, and before anybody is told.
    dying = site.launch("all", CRASH_POINTS="after:order_recorded=kill@2")
    await until(dead, site.logs)
    assert dying.process.poll() == -signal.SIGKILL
    killed = await store.read(pull.id)
    assert (killed.phase, killed.judged) == ("making", 400), "killed behind the second batch"
    site.start("all")
    await until(over, site.logs)

    done = await store.read(pull.id)
    assert (done.phase, done.pages, done.payments, done.judged) == ("done", 9, 2 * ORDERS, 2 * ORDERS)
    async with shop.api.begin() as connection:
        assert (await pulling.counts(connection, pull.id))["created"] == 2 * ORDERS
    whole = "SELECT count(*) AS n FROM orders WHERE version = 1 AND jsonb_array_length(body->'payments') = 2"
    assert await shop.query(whole) == [{"n": ORDERS}]
    assert await shop.query("SELECT count(*) AS n FROM order_versions") == [{"n": ORDERS}]
    assert await shop.query("SELECT count(*) AS n FROM payments") == [{"n": 2 * ORDERS}]
    # The merchant's ids are in the database and nowhere else (promise P9).
    history = await site.client.get_workflow_handle(f"orders-{pull.id}").fetch_history()
    for text in (history.to_json(), site.logs()):
        assert "zqorderqz" not in text
        assert "zqcustomerqz" not in text
