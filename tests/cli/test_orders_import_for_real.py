"""`refunds orders import` against the real API and PostgreSQL, as a process of its own, and killed."""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from tests.api.conftest import Api, running
from tests.conftest import FreshDatabase

ROOT = Path(__file__).parents[2]
COUNT = 2_000


@dataclass
class Site:
    """The API on a port, and a command that finds it."""

    api: Api
    url: str
    directory: Path

    async def start(self, *arguments: str) -> Process:
        key = (await self.api.shop()).key
        environment = os.environ | {"REFUNDS_API_URL": self.url, "REFUNDS_API_KEY": key, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "cli.main", "orders", "import", *arguments]
        return await asyncio.create_subprocess_exec(*command, cwd=self.directory, env=environment, stdout=PIPE, stderr=PIPE)

    async def run(self, *arguments: str) -> tuple[int, Any, str]:
        process = await self.start(*arguments, "--json")
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(out), err.decode()

    async def stored(self) -> dict[str, int]:
        query = "SELECT count(*) AS n FROM ledger WHERE type = 'order_recorded'"
        counted = {table: await self.api.count(table) for table in ("orders", "order_versions", "payments", "customers")}
        return counted | {"entries": (await self.api.rows(query))[0]["n"]}


@asynccontextmanager
async def site(database: FreshDatabase, directory: Path) -> AsyncIterator[Site]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with running(database) as api:
            server = uvicorn.Server(uvicorn.Config(api.app, lifespan="off", log_config=None))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield Site(api, f"http://127.0.0.1:{listening.getsockname()[1]}", directory)
            finally:
                server.should_exit = True
                await serving


def write(file: Path) -> None:
    """Orders of which each tenth has a second payment, and one is wrong."""
    with file.open("w") as out:
        out.write("order_id,customer_id,currency,tax,payment_id,payment_amount\n")
        for number in range(COUNT):
            out.write(f'{number},c-{number % 100},EUR,"1,10",pi_imp{number},"{number + 1},00"\n')
            if number % 10 == 0:
                out.write(f'{number},,,,pi_second{number},"5,00"\n')
        out.write('late,c-1,EUR,,pi_imp0,"1,00"\n')


async def test_killed_and_repeated_every_order_is_stored_once(database: FreshDatabase, tmp_path: Path) -> None:
    write(tmp_path / "orders.csv")
    state = tmp_path / "orders.csv.report.csv.resume"
    async with site(database, tmp_path) as shop:
        killed = await shop.start("orders.csv", "--locale", "de_DE")
        async with asyncio.timeout(60):
            while not state.exists():  # noqa: ASYNC110 - the file is what another process writes
                await asyncio.sleep(0.002)
        killed.send_signal(signal.SIGKILL)
        await killed.communicate()
        half = await shop.stored()

        code, done, err = await shop.run("orders.csv", "--locale", "de_DE")
        whole = await shop.stored()
        again = (await shop.run("orders.csv", "--locale", "de_DE"))[1]

        assert 200 <= half["orders"] < COUNT and half["orders"] == half["order_versions"] == half["entries"], half
        assert "Going on after line " in err and not state.exists()
        assert (code, done["created"] + done["unchanged"], done["new_version"], done["failed"]) == (1, COUNT, 0, 1)
        assert whole == {"orders": COUNT, "order_versions": COUNT, "payments": COUNT + COUNT // 10, "customers": 100, "entries": COUNT}
        assert (again["unchanged"], again["failed"], await shop.stored()) == (COUNT, 1, whole)
        report = (tmp_path / "orders.csv.report.csv").read_text().splitlines()
        assert len(report) == 2 and report[1].startswith(f"{COUNT + COUNT // 10 + 2},late,ORDER_CONFLICT,payment_id,"), report
