"""The ledger role as a program: it keeps up, survives being killed in the middle of a batch, and its copies arrive (promises P6 and P8)."""

import asyncio
import base64
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local.processes import Command, Identity, spawn, stop, wait_until
from refunds.clock import SystemClock
from refunds.ledger import verifier
from tests.conftest import ROOT, FreshDatabase
from tests.store.chained import KEY, NEXT_KEY, ORIGIN, Chained
from tests.store.world import FixedClock

SEEDS = {"key": base64.b64encode(b"k" * 32).decode(), "next": base64.b64encode(b"n" * 32).decode()}
PATIENCE_S = 40


@pytest.fixture
async def chained(database: FreshDatabase) -> AsyncIterator[Chained]:
    made = Chained(database, FixedClock(SystemClock().now()))
    yield made
    await made.close()


class Role:
    """The role's process, with nothing of the tester's and no other secret."""

    def __init__(self, chained: Chained, home: Path, **changed: str) -> None:
        env = {
            "PATH": "/usr/bin:/bin",
            "DATABASE_URL_LEDGER": chained.fresh.url("refunds_ledger"),
            "REFUNDS_LEDGER_KEY": SEEDS["key"],
            "LEDGER_ORIGIN": ORIGIN,
            "LEDGER_EVERY_S": "0.05",
            "LEDGER_CHECKPOINT_EVERY_S": "0.1",
            "LEDGER_EVERYWHERE_S": "0.2",
        }
        self.log = home / f"ledger-{len(list(home.iterdir()))}.log"
        self.process: subprocess.Popen[bytes] = spawn(
            Command((sys.executable, "-m", "worker", "--role", "ledger"), env=env | changed, cwd=ROOT), self.log
        )
        self.identity = Identity.of(psutil.Process(self.process.pid))

    def text(self) -> str:
        return self.log.read_text()

    def end(self) -> None:
        stop(self.identity, signal.SIGTERM, grace_seconds=10)
        self.process.wait(timeout=10)


async def until(condition: Any, what: str, role: Role) -> None:
    if not await asyncio.to_thread(wait_until, condition, PATIENCE_S):
        pytest.fail(f"{what} did not happen:\n{role.text()[-3000:]}")


def count(chained: Chained, query: str) -> int:
    [(found,)] = chained.rows(query)
    assert isinstance(found, int)
    return found


async def test_the_role_needs_no_temporal_and_one_secret(chained: Chained, tmp_path: Path) -> None:
    await chained.enter(25)
    role = Role(chained, tmp_path)
    try:
        await until(lambda: count(chained, "SELECT count(*) FROM ledger_checkpoints WHERE size = 26") == 1, "a checkpoint", role)
        held = {name for name in psutil.Process(role.process.pid).environ() if name.startswith(("REFUNDS", "DATABASE", "STRIPE", "MODEL"))}
        assert held == {"DATABASE_URL_LEDGER", "REFUNDS_LEDGER_KEY"}
    finally:
        role.end()
    assert (await chained.judged()).checkpoint.size == 26, "with the entry that names the log's keys"
    assert role.process.returncode == 0


@pytest.mark.parametrize("point", ["before:sequenced=kill@2", "after:sequenced=kill@2", "before:checkpoint=kill", "after:checkpoint=kill"])
async def test_a_sequencer_that_is_killed_has_left_whole_batches_and_the_next_one_goes_on(
    chained: Chained, tmp_path: Path, point: str
) -> None:
    await chained.enter(500)
    first = Role(chained, tmp_path, CRASH_POINTS=point)
    await asyncio.to_thread(first.process.wait, PATIENCE_S)
    assert first.process.returncode == -signal.SIGKILL
    left = count(chained, "SELECT count(*) FROM ledger_entries")
    assert left % 100 == 0 and left > 0
    if "sequenced" in point:
        assert left == (200 if point.startswith("before") else 400)

    second = Role(chained, tmp_path)
    try:
        await until(lambda: count(chained, "SELECT coalesce(max(size), 0)::int FROM ledger_checkpoints") == 501, "the rest", second)
    finally:
        second.end()
    assert (await chained.judged()).checkpoint.size == 501
    assert count(chained, "SELECT count(DISTINCT ledger_id)::int FROM ledger_entries") == 501


async def test_a_new_key_is_an_entry_and_signs_beside_the_old_one(chained: Chained, tmp_path: Path) -> None:
    await chained.enter(3)
    for keys, signers in (("key", (KEY,)), ("key,next", (KEY, NEXT_KEY)), ("next", (NEXT_KEY,))):
        await chained.enter()
        role = Role(chained, tmp_path, REFUNDS_LEDGER_KEY=",".join(SEEDS[name] for name in keys.split(",")))
        wanted = [[key.vkey for key in signers]]
        try:
            await until(
                lambda wanted=wanted: (
                    [keys for (keys,) in chained.rows("SELECT keys FROM ledger_checkpoints ORDER BY size DESC, id DESC LIMIT 1")] == wanted
                ),
                f"a checkpoint by {keys}",
                role,
            )
        finally:
            role.end()
    entered = chained.rows("SELECT data FROM ledger WHERE type = 'ledger_keys_changed' ORDER BY id")
    assert [data for (data,) in entered] == [
        {"origin": ORIGIN, "keys": [key.vkey for key in signers]} for signers in ((KEY,), (KEY, NEXT_KEY), (NEXT_KEY,))
    ]


async def test_copies_arrive_everywhere_and_one_that_fails_is_tried_until_it_does(chained: Chained, tmp_path: Path) -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        received.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    targets = (f"{tmp_path}/copies/", f"{tmp_path}/copies.txt", f"http://127.0.0.1:{port}/keep")
    await chained.enter(4)
    role = Role(chained, tmp_path, LEDGER_COPIES=",".join(targets))
    try:
        failing = "SELECT count(*)::int FROM ledger_exports WHERE done_at IS NULL AND last_error IS NOT NULL"
        await until(lambda: count(chained, failing) >= 2, "copies that fail", role)
        (tmp_path / "copies").mkdir()
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            await until(
                lambda: count(chained, "SELECT count(*)::int FROM ledger_exports WHERE done_at IS NULL") == 0, "every copy", role.log
            )
    finally:
        role.end()
    made = [str(note).encode() for (note,) in chained.rows("SELECT note FROM ledger_checkpoints ORDER BY id")]
    assert sorted(path.read_bytes() for path in (tmp_path / "copies").iterdir()) == sorted(made)
    assert verifier.split_notes((tmp_path / "copies.txt").read_bytes()) == made
    assert set(received) == set(made)
    reasons = {str(line) for line in role.text().splitlines() if "checkpoint_not_copied" in line}
    assert any("No such file" in line for line in reasons) and any("no answer" in line for line in reasons)


def test_a_process_without_a_key_does_not_start_as_the_ledger_role(chained: Chained, tmp_path: Path) -> None:
    role = Role(chained, tmp_path, REFUNDS_LEDGER_KEY="")
    role.process.wait(timeout=PATIENCE_S)
    assert role.process.returncode == 1
    assert "REFUNDS_LEDGER_KEY" in role.text()
