"""`refunds orders import` that is cut off goes on where it was, waits for a busy API, and never has a whole file in memory."""

import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.importing import sending
from cli.importing.entries import Entry
from cli.importing.lines import Lines
from cli.importing.tables import rows_of_orders
from tests.cli.conftest import FakeApi, Ran, Runner
from tests.cli.files_of_orders import HEAD, Shop, jsonl, order, report, said, write


@pytest.fixture
def shop(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(api)
    monkeypatch.setattr(api, "take", made.take)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two orders."""
    monkeypatch.setattr("cli.importing.run.MOST_ORDERS", 2)


FIVE = jsonl(order(1), order(2, tax=-1), order(3), order(4), order(5), order(6))
AWAY = (500, {"code": "INTERNAL", "detail": "Something went wrong."})


def cut_off(shop: Shop, refunds: Runner, *options: str) -> Ran:
    """An import of the five good orders of which the second part fails."""
    shop.before = lambda number: AWAY if number == 2 else None
    return refunds("orders", "import", write("o.jsonl", FIVE), *options)


@pytest.mark.usefixtures("small")
def test_an_import_that_stops_goes_on_behind_its_last_confirmed_line(shop: Shop, refunds: Runner) -> None:
    stopped = cut_off(shop, refunds)
    assert stopped.code == 1 and "Everything up to line 3 is done" in stopped.err

    ran = refunds("orders", "import", "o.jsonl", "--json")

    assert "Going on after line 3" in ran.err
    assert (ran.code, said(ran)) == (1, {"created": 5, "new_version": 0, "unchanged": 0, "failed": 1})
    assert shop.parts == [["o-1", "o-3"], ["o-4", "o-5"], ["o-4", "o-5"], ["o-6"]]
    assert report("o.jsonl") == [(2, "o-2", "INVALID_FIELD", "tax")] and not Path("o.jsonl.report.csv.resume").exists()


@pytest.mark.usefixtures("small")
def test_what_was_reported_behind_the_last_confirmed_line_is_not_reported_twice(shop: Shop, refunds: Runner) -> None:
    cut_off(shop, refunds)
    with Path("o.jsonl.report.csv").open("a") as killed_while_writing:
        killed_while_writing.write("4,o-4,INVALID_FIELD,tax,half a r")

    refunds("orders", "import", "o.jsonl")

    assert report("o.jsonl") == [(2, "o-2", "INVALID_FIELD", "tax")]


@pytest.mark.usefixtures("small")
def test_a_file_that_changed_is_not_gone_on_with(shop: Shop, refunds: Runner) -> None:
    cut_off(shop, refunds)
    write("o.jsonl", FIVE.replace("c-1", "d-1"))

    ran = refunds("orders", "import", "o.jsonl")
    assert (ran.code, len(shop.parts)) == (2, 2) and "has changed since an import of it stopped after line 3" in ran.err

    assert refunds("orders", "import", "o.jsonl", "--restart").code == 1
    assert shop.parts[2:] == [["o-1", "o-3"], ["o-4", "o-5"], ["o-6"]] and report("o.jsonl") == [(2, "o-2", "INVALID_FIELD", "tax")]


@pytest.mark.usefixtures("small")
def test_an_import_does_not_go_on_in_another_place_or_reading(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(shop, refunds)

    assert "with locale en_US" in refunds("orders", "import", "o.jsonl", "--locale", "de_DE").err
    monkeypatch.setenv("REFUNDS_API_URL", shop.api.url.replace("127.0.0.1", "localhost"))
    assert f"with target {shop.api.url}" in refunds("orders", "import", "o.jsonl").err
    assert len(shop.parts) == 2


@pytest.mark.usefixtures("small")
def test_the_state_of_an_import_is_never_guessed(shop: Shop, refunds: Runner) -> None:
    cut_off(shop, refunds)
    kept = Path("o.jsonl.report.csv").read_bytes()

    Path("o.jsonl.report.csv").unlink()
    assert "is gone; begin again with --restart" in refunds("orders", "import", "o.jsonl").err
    Path("o.jsonl.report.csv").write_bytes(kept)
    Path("o.jsonl.report.csv.resume").write_text("{")
    assert "cannot be read" in refunds("orders", "import", "o.jsonl").err
    assert len(shop.parts) == 2


@pytest.mark.usefixtures("small")
def test_a_busy_api_is_waited_for_and_a_lost_answer_is_asked_for_again(shop: Shop, refunds: Runner) -> None:
    busy = (429, {"code": "RATE_LIMITED", "detail": "Too many.", "retryable": True, "retry_after": 3})
    shop.before = lambda number: {2: busy, 3: (503, {"code": "STORE_UNAVAILABLE", "retryable": True})}.get(number)

    ran = refunds("orders", "import", write("o.jsonl", FIVE), "--json")

    assert said(ran)["created"] == 5 and ran.err.count("Trying again.") == 2
    assert shop.parts == [["o-1", "o-3"], *[["o-4", "o-5"]] * 3, ["o-6"]]


def test_an_api_that_is_not_there_is_said_at_once(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUNDS_API_URL", "http://127.0.0.1:1")

    ran = refunds("orders", "import", write("o.jsonl", FIVE))

    assert ran.code == 3 and "Nothing answers" in ran.err and "Trying" not in ran.err


def test_a_part_that_is_too_large_is_halved_down_to_the_order_that_is(shop: Shop, refunds: Runner) -> None:
    large = (413, {"code": "BODY_TOO_LARGE", "detail": "The body is larger than 1048576 bytes."})
    shop.before = lambda _: large if "o-3" in shop.parts[-1] else None

    ran = refunds("orders", "import", write("o.jsonl", jsonl(*map(order, range(1, 5)))), "--json")

    assert said(ran) == {"created": 3, "new_version": 0, "unchanged": 0, "failed": 1}
    assert report("o.jsonl") == [(3, "o-3", "BODY_TOO_LARGE", "")]


def test_an_answer_of_something_else_stops_it(shop: Shop, refunds: Runner) -> None:
    shop.before = lambda _: (200, {"orders": [{"outcome": "created"}]})

    assert refunds("orders", "import", write("o.jsonl", FIVE)).code == 3


def test_parts_are_bounded_in_bytes(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = order(1)
    monkeypatch.setattr("cli.importing.run.MOST_BYTES", 2 * sending.size_of((plain.pop("order_id"), plain)))

    refunds("orders", "import", write("o.jsonl", jsonl(*map(order, range(1, 4)))))

    assert shop.parts == [["o-1", "o-2"], ["o-3"]]


def test_a_file_that_changes_under_the_import_stops_it(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.importing.run.MOST_ORDERS", 2)

    def append(_: int) -> None:
        with Path("o.jsonl").open("a") as file:
            file.write(jsonl(order(7)))

    shop.before = append
    ran = refunds("orders", "import", write("o.jsonl", FIVE))

    assert (ran.code, shop.parts) == (2, [["o-1", "o-3"]]) and "changed while it was imported" in ran.err


@pytest.mark.usefixtures("small")
def test_whoever_interrupts_it_is_told_that_it_goes_on(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    send = sending.Sender.send

    def interrupted(sender: sending.Sender, orders: list[sending.Numbered]) -> list[dict[str, object]]:
        if shop.parts:
            raise KeyboardInterrupt
        return send(sender, orders)

    monkeypatch.setattr(sending.Sender, "send", interrupted)
    ran = refunds("orders", "import", write("o.jsonl", FIVE))

    assert (ran.code, ran.err) == (1, "Stopped. Everything up to line 3 is done; the same command goes on there.\n")


MANY = 1_000


def test_how_far_it_has_come_is_said_line_by_line_in_a_pipe(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.commands.importing.SAY_EVERY_S", 0)

    ran = refunds("orders", "import", write("o.jsonl", jsonl(*(order(number, tax=number - 1) for number in range(MANY)))))

    lines = ran.err.splitlines()
    assert lines[0].endswith(" %, line 201: 200 created, 1 failed") and lines[-1].startswith("1 problems, line by line")
    assert [int(line.partition(" %")[0]) for line in lines[:-1]] == sorted(int(line.partition(" %")[0]) for line in lines[:-1])


def test_a_person_at_a_terminal_sees_a_bar(shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")

    ran = refunds("orders", "import", write("o.jsonl", jsonl(*map(order, range(MANY)))))

    assert ran.code == 0 and "Importing" in ran.err and "100%" in ran.err and f"{MANY} created" in ran.err


def test_killed_in_the_middle_it_goes_on_and_every_order_is_there_once(
    shop: Shop, refunds: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("o.jsonl", jsonl(*map(order, range(MANY))))
    command = [sys.executable, "-m", "cli.main", "orders", "import", "o.jsonl"]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    process_ended = threading.Event()

    def kill(number: int) -> None:
        if number == 3:
            process.kill()
            assert process_ended.wait(60)

    shop.before = kill
    monkeypatch.setattr("socketserver.BaseServer.handle_error", lambda *_: None)  # nobody hears the third answer
    assert process.wait(timeout=60) == -9
    process_ended.set()
    until = time.monotonic() + 30
    while len(shop.orders) < 600:
        assert time.monotonic() < until, "the third part is stored"

    shop.before = lambda _: None
    ran = refunds("orders", "import", "o.jsonl", "--json")

    assert (ran.code, said(ran)) == (0, {"created": 800, "new_version": 0, "unchanged": 200, "failed": 0})
    assert [len(part) for part in shop.parts] == [200] * 6 and shop.parts[2] == shop.parts[3]
    assert list(shop.orders) == [f"o-{number}" for number in range(MANY)]


# --- never whole in memory ---------------------------------------------------------------------------------------------------------------


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["o.csv", "o.jsonl"])
def test_ten_times_as_many_orders_take_hardly_more_memory(refunds: Runner, tmp_path: Path, name: str) -> None:
    def write_orders(count: int) -> None:
        with (tmp_path / name).open("w") as file:
            file.write(HEAD if name == "o.csv" else "")
            for number in range(count):
                plain = order(number, lines=[{"id": "a", "title": "x" * 480, "amount": 1}])
                file.write(f"{number},c,USD,pi_{number},1.00,a,1.00,1,{'x' * 480}\n" if name == "o.csv" else jsonl(plain))

    def most(count: int) -> int:
        write_orders(count)
        return peak(lambda: refunds("orders", "import", str(tmp_path / name), "--dry-run"))

    few, many = most(500), most(5_000)

    # What grows is a digest and a line number for each order. The file has more than 500 bytes an order, and as objects they are several times that.
    assert many - few < 4_500 * 300, (few, many)


def test_an_endless_order_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "o.csv"
    file.write_text(HEAD + "1,c,USD,,,,,,\n" + f"1,,,,,a,1.00,1,{'x' * 400}\n" * 20_000)
    found: list[Entry] = []

    def read() -> None:
        with file.open("rb") as opened, Lines(opened) as lines:
            found.extend(rows_of_orders(lines, "en_US"))

    assert peak(read) < 5_000_000
    (only,) = found
    assert (only.first, only.last) == (2, 20_002) and "more than 2000 rows" in only.judge().troubles[-1].what
