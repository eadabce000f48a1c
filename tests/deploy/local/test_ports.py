"""Ports: no two stacks share one, no stranger is taken for a part, and a part whose port is taken goes elsewhere."""

import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import psutil
import psycopg

from deploy.local import ports, processes, stack
from deploy.local.parts import PARTS, Context, Part
from deploy.local.ports import Ports
from deploy.local.processes import Command, wait_until
from deploy.local.progress import Silent
from deploy.local.stack import LocalStack

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
BASE = ("postgres", "temporal", "sandbox")
LISTENING = ("postgres", "temporal", "ui", "sandbox")


def test_two_stacks_that_start_at_once_work_each_on_ports_of_its_own(open_home):
    wanted = dict(zip(LISTENING, ports.unused(len(LISTENING)), strict=True))
    reporters = (Silent(), Silent())
    stacks = [
        LocalStack(open_home / name, parts=BASE, ports=wanted, environment=ENVIRONMENT, reporter=reporter)
        for name, reporter in zip(("one", "two"), reporters, strict=True)
    ]
    together = threading.Barrier(len(stacks))

    def start(each: LocalStack) -> None:
        together.wait()
        each.start()

    with ExitStack() as undo, ThreadPoolExecutor(len(stacks)) as pool:
        for each in stacks:
            undo.callback(each.stop)
        for starting in [pool.submit(start, each) for each in stacks]:
            starting.result()
        one, two = (each.context.ports for each in stacks)
        assert len({*one.values(), *two.values()}) == 2 * len(LISTENING)
        for each in stacks:
            for part in PARTS:
                for name in part.ports if part.name in BASE else ():
                    assert processes.listens(each.pid(part.name), each.context.ports[name]), (each.home.name, name)
            with each.context.postgres.connect() as connection:
                assert connection.execute("SELECT current_setting('data_directory')").fetchone() == (str(each.home / "postgres/data"),)
            assert httpx.get(f"{each.addresses['sandbox']}/_sandbox/clock", trust_env=False).status_code == 200
    assert [note for reporter in reporters for note in reporter.notes if "ended" in note or "given up" in note] == []


def test_a_port_chosen_by_one_stack_is_taken_for_the_next_until_it_is_released(tmp_path):
    [port] = ports.unused(1)
    first, second = Ports(tmp_path / "first.json"), Ports(tmp_path / "second.json")
    assert first.choose(["api"], {"api": port}) == ({"api": port}, [])
    chosen, [note] = second.choose(["api"], {"api": port})
    assert chosen["api"] > port
    assert f"(pid {os.getpid()})" in note
    first.release()
    second.release()
    assert second.choose(["api"], {"api": port}) == ({"api": port}, [])
    second.release()


def web(prepare=lambda context: []) -> Part:
    """A server that ends when it cannot have its port, as all of ours do."""

    def command(context: Context) -> Command:
        return Command((sys.executable, "-m", "http.server", "--bind", ports.HOST, str(context.ports["api"])), env=ENVIRONMENT)

    def is_ready(context: Context, pid: int) -> bool:
        return httpx.get(context.url("api"), trust_env=False).is_success

    return Part("web", command, is_ready, prepare, ports=("api",))


def test_a_stranger_that_takes_the_port_last_and_answers_is_not_taken_for_the_part(open_home):
    with ExitStack() as strangers:

        def take(context: Context) -> list[str]:
            argv = (sys.executable, "-m", "http.server", "--bind", ports.HOST, str(context.ports["api"]))
            stranger = processes.spawn(Command(argv, env=ENVIRONMENT), open_home / "stranger.log")
            strangers.callback(stranger.wait)
            strangers.callback(stranger.kill)
            assert wait_until(lambda: processes.listens(stranger.pid, context.ports["api"]), 10)
            return []

        [port] = ports.unused(1)
        reporter = Silent()
        new = LocalStack(open_home / "stack", ports={"api": port}, environment=ENVIRONMENT, reporter=reporter, table=(web(take),))
        with new as started:
            other = started.context.ports["api"]
            assert other != port
            assert processes.listens(started.pid("web"), other)
        [note] = reporter.notes
        assert note.endswith(f"using {other} instead.")


def test_a_part_whose_port_is_taken_while_it_is_down_moves_and_those_that_use_it_follow(open_home, monkeypatch):
    monkeypatch.setattr(stack, "FIRST_BACK_OFF_SECONDS", 1)
    reader = Part(
        "reader",
        lambda context: Command(
            (sys.executable, "-c", "import signal; signal.pause()"),
            env={**ENVIRONMENT, "DATABASE_URL": context.database_url("refunds_api")},
        ),
    )
    reporter = Silent()
    new = LocalStack(
        open_home / "stack",
        ports=dict(zip(("postgres", "api"), ports.unused(2), strict=True)),
        environment=ENVIRONMENT,
        reporter=reporter,
        table=(PARTS[0], reader, web()),
    )
    with new as started:
        old, unconcerned, before = started.context.ports["postgres"], started.pid("web"), started.pid("reader")
        started.kill("postgres")
        with socket.create_server((ports.HOST, old)):
            started.wait_ready("postgres")
            new_port = started.context.ports["postgres"]
            assert new_port != old
            assert wait_until(lambda: started.pid("reader") != before, 10)
            started.wait_ready("reader")
            told = psutil.Process(started.pid("reader")).environ()["DATABASE_URL"]
            with psycopg.connect(told.replace("postgresql+psycopg", "postgresql")) as connection:
                assert connection.execute("SELECT current_user").fetchone() == ("refunds_api",)
            assert started.pid("web") == unconcerned
    assert "reader is started again, because postgres has moved." in reporter.notes
    again = Ports(open_home / "stack/ports.json")
    assert again.choose(["postgres"]) == ({"postgres": new_port}, [])
    again.release()
