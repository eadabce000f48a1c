"""``python -m tests.bench.simulating [N]``: how fast recorded requests are judged under another policy, over the API as an operator does it.

One quoted refund is copied N times in the stand's database, under ids and keys of their own and with amounts that spread over the ceilings; then
``POST /v1/policy/simulations`` reads and judges all of them under two versions. Orientation: 100,000 in about a minute on two cores.
"""

import asyncio
import sys
import time
from dataclasses import dataclass

from rich.console import Console
from temporalio.client import Client

from cli.client import Api
from cli.connection import Connection
from deploy.local.progress import ConsoleReporter
from refunds.policy import sample_policy_text
from tests.bench.goods import prepare
from tests.bench.measure import Contest
from tests.bench.stand import Stand, running
from tests.bench.watch import Watch

REQUESTS = 100_000

_TEMPLATE = """
    WITH template AS (
        SELECT r AS refund, v AS revision, n, left(r.id, 3) || lpad(n::text, 26, '0') AS id
          FROM refunds r JOIN revisions v ON v.refund_id = r.id AND v.revision = 1, generate_series(1, %(count)s) n
         WHERE r.id = (SELECT max(refund_id) FROM revisions WHERE revision = 1 AND terms IS NOT NULL)
    )
"""
_COPIES = (
    """
    INSERT INTO refunds
    SELECT (jsonb_populate_record(refund, jsonb_build_object('id', id, 'idempotency_key', 'copy-' || n))).* FROM template
    """,
    """
    INSERT INTO revisions
    SELECT (jsonb_populate_record(revision, jsonb_build_object('refund_id', id, 'facts',
               jsonb_set((revision).facts, '{request,amount}', to_jsonb(500 + n::bigint * 7919 %% 60000))))).* FROM template
    """,
)
"""The copies are refunds of the bench's own stand, which is thrown away; nothing ever runs for them."""


@dataclass(frozen=True)
class Simulated:
    """How many requests were judged, in how long, and how many of them would have gone otherwise."""

    requests: int
    changed: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Requests judged in a second, each under both policies."""
        return self.requests / self.seconds


def measure(stand: Stand, count: int = REQUESTS) -> Simulated:
    """Copy a refund ``count`` times and simulate. The stand has quoted one before. Raises ``RuntimeError`` when the stream has no result."""
    with stand.connect() as connection:
        for copies in _COPIES:
            connection.execute(_TEMPLATE + copies, {"count": count})
        connection.execute("ANALYZE refunds, revisions")
    stricter = sample_policy_text().replace("manager_above: 500.00", "manager_above: 300.00", 1)
    started = time.monotonic()
    with Api(Connection(stand.url("api"), stand.stack.admin_key)) as admin:
        for line in admin.lines("/v1/policy/simulations", {"source": stricter}):
            if line["type"] == "result":
                result = line["result"]
                return Simulated(result["requests"], result["changed"], time.monotonic() - started)
    raise RuntimeError("the simulation has no result")


def main(arguments: list[str]) -> int:
    """Measure alone; what to return to the shell."""
    count = int(arguments[0]) if arguments else REQUESTS
    console = Console(highlight=False, soft_wrap=True)

    async def one(stand: Stand) -> None:
        client = await Client.connect(stand.url("temporal"))
        async with Watch(stand.postgres_url) as watch:
            [goods] = await prepare(stand, 1)
            await Contest(stand, client, watch, 1).automatic(goods)

    with running(ConsoleReporter(console), console.print) as stand:
        asyncio.run(one(stand))
        found = measure(stand, count)
    console.print(
        f"{found.requests:,} requests judged in {found.seconds:.1f} s: {found.per_second:,.0f} /s; {found.changed:,} would go otherwise"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
