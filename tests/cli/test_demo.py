"""The demo's judgement: it says that all went well only when all did. The demo as a whole runs in `.ci/run`."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from cli.client import Api
from cli.connection import Connection
from cli.demo import run, table
from cli.demo.board import Board, End, NeverHappened, Row
from cli.demo.sample import Goods
from cli.demo.scenes import SCENES, Scene
from cli.problems import Refused
from refunds.clock import parse_rfc3339
from refunds.orders import Order

GOODS = Goods(1, 3000)
SUCCEEDED = {"id": "rf_1", "status": "succeeded", "final": True, "code": None, "amount": 3000, "amount_text": "$30.00"}


class Truth:
    """The sandbox's truth, without a sandbox."""

    def __init__(self, *refunds: dict[str, Any]) -> None:
        self.refunds = list(refunds)

    def refunds_of(self, intent: str) -> list[dict[str, Any]]:
        return self.refunds


def board_with(*rows: Row) -> Board:
    board = Board(Api(Connection("http://127.0.0.1:1", "k")))
    for row in rows:
        board.add(row)
    return board


def row(now: dict[str, Any], expected: End = End("succeeded")) -> Row:
    return Row("a scene", "rf_1", "D-1", expected, now)


def scene(returned: int = 3000, refunds: int = 1) -> Scene:
    return Scene("a scene", lambda stage: None, GOODS, returned=returned, refunds=refunds)


PAID = {"amount": 3000, "status": "succeeded"}


def test_as_expected_is_said_only_of_the_right_status_and_code() -> None:
    denied = SUCCEEDED | {"status": "denied", "code": "PAYMENT_DISPUTED"}

    assert row(SUCCEEDED).as_expected
    assert row(denied, End("denied", "PAYMENT_DISPUTED")).as_expected
    assert not row(denied, End("denied", "POLICY_DENIED")).as_expected
    assert not row(SUCCEEDED | {"final": False}).as_expected
    assert not row({}).as_expected


@pytest.mark.parametrize(
    ("now", "truth", "expected_of_scene", "differs"),
    [
        (SUCCEEDED, [PAID], {}, None),
        (SUCCEEDED, [PAID, {"amount": 3000, "status": "failed"}], {}, None),
        (SUCCEEDED, [PAID, PAID], {}, "6000 went back of pi_demo_1 in 2 refunds, expected 3000"),
        (SUCCEEDED, [], {}, "0 went back"),
        (SUCCEEDED, [PAID], {"refunds": 2}, "1 refunds were made of it, expected 2"),
        (SUCCEEDED | {"status": "parked", "final": False}, [PAID], {}, "rf_1 is parked , expected succeeded"),
        ({}, [PAID], {}, "rf_1 is unseen , expected succeeded"),
    ],
)
def test_every_difference_is_named(now: dict[str, Any], truth: list[Any], expected_of_scene: dict[str, int], differs: str | None) -> None:
    found = run._differences([scene(**expected_of_scene)], Truth(*truth), board_with(row(now)))

    assert ([] if differs is None else [differs]) == [what[: len(differs)] if differs else what for _, what in found]


def test_a_scene_waits_for_what_it_names_and_no_longer_than_it_can_come() -> None:
    board = board_with(row(SUCCEEDED))

    assert board.until("rf_1", "its end", lambda now: now["final"]) == SUCCEEDED
    with pytest.raises(NeverHappened, match="ended as succeeded before parked"):
        board.until("rf_1", "parked", lambda now: now["status"] == "parked")


def test_ctrl_c_ends_scenes_that_wait() -> None:
    board = board_with(row(SUCCEEDED | {"final": False, "status": "held"}))
    waiting = threading.Event()

    def wait() -> None:
        board.until("rf_1", "its end", lambda now: waiting.set() or False)

    with ThreadPoolExecutor(1) as pool:
        scene_thread = pool.submit(wait)
        waiting.wait()
        board.give_up()
        with pytest.raises(NeverHappened, match="interrupted"):
            scene_thread.result()


def test_trouble_in_a_scene_is_reported_with_its_line_and_a_bug_is_raised() -> None:
    def refused(stage: Any) -> None:
        raise Refused(409, {"code": "ALREADY_DECIDED", "detail": "x"})

    def buggy(stage: Any) -> None:
        raise KeyError("id")

    playing: list[str] = []
    wrong = run._play([Scene("s", refused, GOODS)], *[None] * 2, board_with(), lambda: playing.append("refreshed"))

    assert [(title, what.split(":")[0]) for title, what in wrong] == [("s", "ALREADY_DECIDED")] and playing
    with pytest.raises(KeyError):
        run._play([Scene("s", buggy, GOODS)], *[None] * 2, board_with(), lambda: None)


def test_the_pipe_gets_a_line_a_change_and_a_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    moving = row(SUCCEEDED | {"status": "approved", "final": False, "next_step": "$30.00 approved, about to be submitted"})
    board = board_with(moving)

    with table.display(board, "http://ui", Console(force_terminal=False)) as shown:
        shown.refresh()
        shown.refresh()
        moving.now = SUCCEEDED
        shown.refresh()

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["approved", "succeeded"], "a line a change, none twice"
    assert lines[2] == "" and lines[3].split() == ["scene", "refund", "order", "amount", "ended", "run"], "nothing waits any more"
    assert lines[4].endswith("http://ui/namespaces/default/workflows/refund-rf_1") and len(lines) == 5


def test_the_terminal_gets_one_line_a_refund_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(force_terminal=True, width=120, height=50)
    rows = [row(SUCCEEDED | {"final": False, "next_step": "a decision " * 20}), row(SUCCEEDED, End("denied"))]

    console.print(table.compact(rows, "http://ui", footer="0 of 2", width=120))
    console.print(table.complete(rows, "http://ui", width=200))

    out = capsys.readouterr().out
    assert out.count("http://ui/namespaces/default/workflows/refund-rf_1") >= 4
    assert "(expected denied)" in out


@pytest.mark.parametrize(("final", "shown"), [(True, False), (False, True)])
def test_the_end_has_a_column_for_what_refunds_wait_for_only_where_one_waits(final: bool, shown: bool) -> None:
    rows = [row(SUCCEEDED), row(SUCCEEDED | {"final": final, "next_step": "a decision on $30.00"})]
    console = Console(width=200, record=True, file=io.StringIO())

    console.print(table.complete(rows, "http://ui", width=200))

    assert ("waits for" in (said := console.export_text())) is shown and ("a decision on $30.00" in said) is shown
    assert ("status" in said) is shown, "how it ended begins with it"


def test_the_whole_table_of_a_demo_fits_a_terminal_of_120() -> None:
    ended = {"status": "denied", "final": True, "code": "ALREADY_REFUNDED", "amount": 12_000, "amount_text": "$120.00"}
    rows = [Row("a part, the rest, 1 too much", f"rf_{number:026d}", "D-1008", End("denied"), ended) for number in range(2)]

    assert isinstance(table.complete(rows, "http://ui", width=120), Table)


def test_the_scenes_are_those_of_the_demo_and_share_nothing() -> None:
    goods = [scene.goods for scene in SCENES]

    assert len(SCENES) == 17 and len({item.number for item in goods}) == 17 and len({scene.title for scene in SCENES}) == 17
    assert [scene.title for scene in SCENES if scene.alone] == ["stopped, held, resumed"], "only a stop touches the others"
    for item in goods:
        Order.model_validate_json(json.dumps(item.as_order(parse_rfc3339("2026-03-01T00:00:00Z"))))


def test_the_demo_never_sees_a_persons_own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DATABASE_URL", "STRIPE_API_KEY", "TEMPORAL_ADDRESS", "MODEL_API_KEY", "REFUNDS_API_URL"):
        monkeypatch.setenv(name, "theirs")

    assert "theirs" not in run._machine_only().values()


@pytest.mark.parametrize(("exit_", "terminal", "ends"), [("1", True, True), ("", True, False), ("0", True, False), ("", False, True)])
def test_it_ends_by_itself_when_asked_or_when_nobody_can_press_a_key(
    monkeypatch: pytest.MonkeyPatch, exit_: str, terminal: bool, ends: bool
) -> None:
    monkeypatch.setenv("EXIT", exit_)
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"isatty": lambda self: terminal})())

    assert run.ends_by_itself() is ends
