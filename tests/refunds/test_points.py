"""Crash points: how they are named and armed, and that nothing happens unless they are."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from refunds import points


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    points.arm("")


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


async def transaction(*names: str) -> None:
    """A transaction that writes these."""
    with points.Transaction() as transaction:
        points.writes(*names)
        await transaction.committing()
        await transaction.committed()


async def reached(*names: str) -> list[str]:
    """The points of such a transaction."""
    seen: list[str] = []

    async def see(point: str) -> None:
        seen.append(point)

    with points.watched_by(see):
        await transaction(*names)
    return seen


async def test_a_point_is_named_by_what_is_written() -> None:
    assert await reached("intent", "submitting", "attempt_opened") == [
        "before:intent+submitting+attempt_opened",
        "after:intent+submitting+attempt_opened",
    ]
    assert await reached("attempt_ended", "attempt_ended") == ["before:attempt_ended", "after:attempt_ended"]
    assert await reached() == ["before:commit", "after:commit"]


async def test_transactions_that_run_at_once_are_named_apart() -> None:
    seen: list[str] = []
    meet = asyncio.Barrier(2)

    async def see(point: str) -> None:
        seen.append(point)

    async def write(name: str) -> None:
        with points.Transaction() as transaction:
            await meet.wait()
            points.writes(name)
            await meet.wait()
            await transaction.committing()

    with points.watched_by(see):
        await asyncio.gather(write("a"), write("b"))
    assert sorted(seen) == ["before:a", "before:b"]


async def test_a_transaction_within_another_does_not_name_it() -> None:
    seen: list[str] = []

    async def see(point: str) -> None:
        seen.append(point)

    with points.watched_by(see), points.Transaction() as outer:
        points.writes("outer")
        await transaction("inner")
        points.writes("more")
        await outer.committing()
    assert seen == ["before:inner", "after:inner", "before:outer+more"]


async def test_a_call_that_raises_is_not_reached_after() -> None:
    seen: list[str] = []

    async def see(point: str) -> None:
        seen.append(point)

    with points.watched_by(see):
        async with points.around("refund.create"):
            pass
        with pytest.raises(ZeroDivisionError):
            async with points.around("refund.create"):
                raise ZeroDivisionError
    assert seen == ["before:refund.create", "after:refund.create", "before:refund.create"]


async def test_a_rule_that_names_a_part_means_every_transaction_with_it() -> None:
    points.arm("after:receipt=raise")
    await transaction("intent", "submitting")
    with pytest.raises(points.Crashed, match="after:receipt\\+succeeded"):
        await transaction("receipt", "succeeded")
    await transaction("receipt", "succeeded")  # once


async def test_an_exact_rule_means_only_a_transaction_that_writes_nothing_else() -> None:
    points.arm("before:succeeded!=raise")
    await transaction("receipt", "succeeded")
    with pytest.raises(points.Crashed, match="before:succeeded"):
        await transaction("succeeded")


async def test_the_nth_time_counts_only_what_the_rule_means() -> None:
    points.arm("before:intent+submitting=raise@2,after:*=raise@6")
    for names in (("intent",), ("intent", "submitting"), ("receipt",), ("submitting", "attempt_opened")):
        await transaction(*names)
    with pytest.raises(points.Crashed, match="before:intent"):
        await transaction("intent", "submitting")
    await transaction("receipt")
    with pytest.raises(points.Crashed, match="after:commit"):
        await transaction()


async def test_a_delay_is_waited_out_before_the_work_goes_on() -> None:
    points.arm("before:intent=delay:0.05")
    began = asyncio.get_running_loop().time()
    await transaction("intent")
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_unarmed_nothing_is_noted_and_nothing_happens() -> None:
    points.arm("after:*=raise")
    points.arm("")
    await transaction("intent")
    async with points.around("refund.create"):
        points.writes("outside of any transaction")


async def test_a_file_of_rules_is_taken_by_whoever_gets_there_first(tmp_path: Path) -> None:
    rules = tmp_path / "points"
    points.arm(f"file:{rules}")
    await transaction("receipt")
    rules.write_text("after:receipt=raise@2")
    await transaction("receipt")
    with pytest.raises(points.Crashed):
        await transaction("receipt")
    assert names_in(tmp_path) == ["points.taken"]
    await transaction("receipt")


@pytest.mark.parametrize(
    "text", ["intent=kill", "before:=kill", "before:intent", "before:intent=explode", "before:intent=kill@0", "during:intent=kill"]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no crash point"):
        points.check(text)


PROGRAM = """
import asyncio
import os
from refunds import points

async def main():
    points.arm("{rules}")
    with points.Transaction() as transaction:
        points.writes("intent")
        await transaction.committing()
        print("committed", flush=True)
        await transaction.committed()
    print("told", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("rules", "said"), [("before:intent=kill", ""), ("after:intent=kill", "committed\n")])
def test_kill_ends_the_process_on_the_spot(rules: str, said: str) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM.format(rules=rules)], capture_output=True, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, said)
    assert ended.stderr == f"crash point {rules.replace('=', ': ')}\n"


def test_freeze_stops_the_process_until_it_is_let_go() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(rules="after:intent=freeze")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"

        stopped, status = os.waitpid(process.pid, os.WUNTRACED)
        assert (stopped, os.WIFSTOPPED(status)) == (process.pid, True)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "told\n"
