"""``python -m tests.bench.stopping``: how long the emergency stop takes while many are opening attempts, scope by scope, on PostgreSQL alone.

Each client repeats what opens an attempt does under the stop's lock (the lock, the state in its one statement, an insert that stays), as fast as it can. Meanwhile
one operator stops, and another resumes, over and over. Shown is the time from asking until the stop is committed, which is when nothing more begins. It asserts no
time; it ends with 1 when an attempt was opened after a stop had been committed.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from contextlib import AsyncExitStack, suppress
from signal import SIGINT

from sqlalchemy import text

from deploy.local import ports
from deploy.local.postgres import OWNER, PostgresServer
from refunds.clock import SystemClock
from refunds.errors import RefundError
from refunds.people import Actor, PrincipalKind, Role
from refunds.settings import Settings
from store import brakes, controls, principals, scopes
from store.bootstrap import bootstrap
from store.db import Database, connect
from tests.bench.stand import ROOT
from tests.conftest import open_directory, ready, running

SCOPES = ("everything", "agents", "agent:bot", "processor:stripe")
_TABLES = (
    "CREATE TABLE opened (id bigint GENERATED ALWAYS AS IDENTITY, opened_at timestamptz NOT NULL DEFAULT clock_timestamp());"
    "GRANT INSERT ON opened TO refunds_payments"
)
# The one refund that all of them read is of no order: only its agent counts here.
_REFUND = (
    "INSERT INTO processor_binding (processor, account, mode, bound_at) VALUES ('stripe', 'acct', 'test', now());"
    "INSERT INTO customers (id, created_at) VALUES ('cus_1', now());"
    "INSERT INTO refunds (id, version, status, created_at, status_since, integration, idempotency_key, body_hash, requester_id, agent_id, customer_id,"
    ' "full", details, sources, has_text, revision, rung, reminded)'
    " SELECT 'rf_1', 1, 'approved', now(), now(), 'i', 'k', 'h', id, 'bot', 'cus_1', false, '{}', '{}', false, 1, 0, false FROM principals WHERE handle = 'bot'"
)


async def _opening(database: Database, over: asyncio.Event) -> int:
    """Open attempts until it is over; how many there were."""
    opened = 0
    while not over.is_set():
        with suppress(RefundError):  # the lock was not had within its bound: nothing is stored, and the activity would be repeated
            async with database.begin() as connection:
                await controls.share_stop_lock(connection)
                if await brakes.of_everything(connection, "stripe", "rf_1") is None:
                    await connection.execute(text("INSERT INTO opened DEFAULT VALUES"))
                    opened += 1
    return opened


async def _people(owner: Database) -> dict[str, Actor]:
    found: dict[str, Actor] = {}
    for handle, kind in (("bot", PrincipalKind.AGENT), ("olga", PrincipalKind.PERSON), ("omar", PrincipalKind.PERSON)):
        async with owner.begin() as connection:
            row = await principals.create_principal(connection, owner.clock, kind=kind, handle=handle, name=handle, actor="bench")
        found[handle] = Actor(row["id"], handle, handle, kind, frozenset({Role.OPERATOR}))
    return found


async def _change(api: Database, scope: str, who: Actor, *, stopped: bool) -> float:
    """Stop or resume; seconds until it was committed."""
    began = time.perf_counter()
    async with api.begin() as connection:
        await scopes.change(connection, api.clock, scopes.Wanted(scope, stopped, None, "bench"), who)
    return time.perf_counter() - began


async def measure(server: PostgresServer, name: str, clients: int, rounds: int) -> bool:
    """Measure and print a line a scope; whether nothing was opened after a stop."""
    clock, settings = SystemClock(), Settings(database_pool_size=clients)
    async with AsyncExitStack() as stack:
        opened: dict[str, Database] = {}
        for login in ("owner", "api", "payments"):
            opened[login] = connect(server.url(f"refunds_{login}", name), clock, settings, name=f"bench-{login}")
            stack.push_async_callback(opened[login].close)
        owner, api, payments = opened["owner"], opened["api"], opened["payments"]
        await bootstrap(owner)
        people = await _people(owner)
        async with owner.begin() as connection:
            for statement in f"{_TABLES};{_REFUND}".split(";"):
                await connection.execute(text(statement))
        over, exact = asyncio.Event(), True
        working = [asyncio.create_task(_opening(payments, over)) for _ in range(clients)]
        for scope in SCOPES:
            took: list[float] = []
            for _ in range(rounds):
                await asyncio.sleep(0.05)  # so that attempts are under way
                took.append(await _change(api, scope, people["olga"], stopped=True))
                exact = await _nothing_more(owner) and exact
                await _change(api, scope, people["omar"], stopped=False)
            took.sort()
            print(f"{scope:<18} median {took[len(took) // 2] * 1000:7.1f} ms   longest {took[-1] * 1000:7.1f} ms   of {rounds}")
        over.set()
        print(
            f"{sum(await asyncio.gather(*working))} attempts opened by {clients} clients meanwhile; after a stop: {'none' if exact else 'SOME'}"
        )
    return exact


async def _nothing_more(owner: Database) -> bool:
    """Whether nothing is opened between now, when a stop has answered, and a moment later."""
    counts: list[int] = []
    for pause in (0, 0.05):
        await asyncio.sleep(pause)
        async with owner.begin() as connection:
            counts.append((await connection.execute(text("SELECT count(*) FROM opened"))).scalar_one())
    return counts[0] == counts[1]


def main() -> int:
    """Start a server of its own, measure, and stop it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    with open_directory() as home:
        [port] = ports.unused(1)
        server = PostgresServer(home, port, durable=True)
        server.prepare()
        with running(server.command(), home / "postgres.log", SIGINT):
            ready(server.is_ready, "PostgreSQL", home / "postgres.log")
            server.create_roles()
            server.create_database("bench")
            environment = {"PATH": "/usr/bin:/bin", "DATABASE_URL": server.url(OWNER, "bench")}
            subprocess.run([sys.executable, "-m", "store.migrate"], cwd=ROOT, env=environment, check=True, capture_output=True)
            return 0 if asyncio.run(measure(server, "bench", given.clients, given.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
