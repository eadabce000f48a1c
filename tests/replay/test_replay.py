"""Running refunds outlive releases: recorded histories of every path replay on today's code, whatever the hash seed (field report 69)."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Replayer

from tests.conftest import ROOT
from tests.replay.careless import AnotherOrder
from tests.replay.paths import PATHS
from tests.replay.replaying import HISTORIES, corpus

ENDS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
}
FORBIDDEN = {
    "asyncio": {"wait", "as_completed"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"environ", "getenv", "urandom", "getpid"},
    "random": {"*"},
    "secrets": {"*"},
    "threading": {"*"},
    "socket": {"*"},
}


def test_every_path_has_a_completed_history() -> None:
    histories = corpus()

    assert sorted(histories) == sorted(PATHS)
    assert {name: h.events[-1].event_type for name, h in histories.items() if h.events[-1].event_type not in ENDS} == {}


@pytest.mark.parametrize("seed", ["0", "1", "20260601"])
def test_field_69_the_corpus_replays_under_any_hash_seed(seed: str) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"PYTHONHASHSEED": seed}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.replay.replaying"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, [f"replayed {len(PATHS)} of {len(PATHS)}"]), (
        ended.stdout + ended.stderr
    )


@pytest.mark.parametrize("name", sorted(PATHS))
async def test_the_corpus_notices_code_that_does_something_else(name: str) -> None:
    result = await Replayer(workflows=[AnotherOrder]).replay_workflow(corpus()[name], raise_on_replay_failure=False)

    assert result.replay_failure is not None


@pytest.mark.parametrize("name", sorted(PATHS))
def test_a_history_says_nothing_of_customers_nor_of_the_machine_it_was_recorded_on(name: str) -> None:
    text = (HISTORIES / f"{name}.json").read_text()

    assert [word for word in ("stackTrace", "File \\", "@", "sk_test", "customer-1", "order-1", "/tests/") if word in text] == []


def _modules() -> list[Path]:
    return sorted((ROOT / "workflows").glob("*.py"))


def _named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Everything a module names that a replay would not repeat."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = FORBIDDEN.get(node.value.id, set())
            if node.attr in names or "*" in names:
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            for alias in node.names:
                if alias.name in FORBIDDEN[node.module] or "*" in FORBIDDEN[node.module]:
                    yield node.lineno, f"{node.module}.{alias.name}"


@pytest.mark.parametrize("module", _modules(), ids=lambda path: path.name)
def test_field_69_workflow_modules_name_nothing_that_a_replay_would_not_repeat(module: Path) -> None:
    assert list(_named(ast.parse(module.read_text()))) == []


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.wait([])",
        "datetime.now()",
        "from uuid import uuid4",
        "os.environ['X']",
        "random.random()",
        "import asyncio; asyncio.as_completed(x)",
    ],
)
def test_the_check_sees_what_it_forbids(line: str) -> None:
    assert len(list(_named(ast.parse(line)))) == 1
