"""`refunds orders pull` and `pulled`: what is sent, how progress is shown, and how the command ends."""

import json
from typing import Any

import pytest

from cli import watching
from cli.commands.pulling import share
from tests.cli.conftest import FakeApi, Runner

PULL = f"pull_{1:026d}"
PATH = "/v1/orders/pull"
NONE = {"created": 0, "new_version": 0, "unchanged": 0, "skipped": 0, "error": 0}


def pull(**changed: Any) -> dict[str, Any]:
    """A pull as the API answers it."""
    plain: dict[str, Any] = {
        "id": PULL,
        "phase": "reading",
        "since": "2026-03-01T00:00:00.000000Z",
        "until": "2026-03-03T00:00:00.000000Z",
        "dry_run": False,
        "order_field": "order_id",
        "customer_field": "customer_id",
        "started_at": "2026-03-03T00:00:00.000000Z",
        "reached": None,
        "pages": 0,
        "payments": 0,
        "judged": 0,
        "counts": NONE,
        "progressed_at": "2026-03-03T00:00:00.000000Z",
        "finished_at": None,
        "last_error": None,
    }
    return plain | changed


def done(**changed: Any) -> dict[str, Any]:
    counts = NONE | {"created": 3, "skipped": 1}
    return pull(phase="done", pages=1, payments=4, judged=4, counts=counts, finished_at="2026-03-03T00:00:42.000000Z") | changed


def skipped(number: int = 1) -> dict[str, Any]:
    return {
        "payment_id": f"pi_{number}",
        "order_id": None,
        "captured": 3_000,
        "currency": "USD",
        "status": "succeeded",
        "outcome": "skipped",
        "version": None,
        "code": "NO_ORDER_ID",
        "detail": "The payment's metadata names no order.",
        "remedy": "Send the order yourself, or set the metadata and pull again.",
    }


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a stand-in."""
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "SAY_EVERY_S", 0.0)


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ((), {"dry_run": False}),
        (("--dry-run",), {"dry_run": True}),
        (("--since", "2026-03-01"), {"dry_run": False, "since": "2026-03-01T00:00:00.000000Z"}),
    ],
)
def test_what_is_sent(api: FakeApi, refunds: Runner, typed: tuple[str, ...], sent: dict[str, Any]) -> None:
    api.on("POST", PATH, (202, done()))
    api.on("GET", f"{PATH}/{PULL}/payments", (200, {"payments": [], "next_cursor": None}))
    assert refunds("orders", "pull", *typed).code == 0
    assert api.sent("POST") == [(PATH, sent)]


def test_a_since_that_is_no_time_sends_nothing(api: FakeApi, refunds: Runner) -> None:
    ran = refunds("orders", "pull", "--since", "tomorrow")
    assert (ran.code, api.calls) == (2, [])
    assert ran.err.startswith("--since: ")


def test_progress_in_a_pipe_is_lines_and_the_result_names_what_was_left_out(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", PATH, (202, pull()))
    halfway = pull(payments=2, last_error="the processor cannot be asked (connection_refused)")
    api.on("GET", f"{PATH}/{PULL}", (200, halfway), (200, halfway), (200, pull(phase="making", payments=4, judged=1)), (200, done()))
    api.on(
        "GET",
        f"{PATH}/{PULL}/payments",
        (200, {"payments": [], "next_cursor": None}),
        (200, {"payments": [skipped(1)], "next_cursor": "pi_1"}),
        (200, {"payments": [skipped(2)], "next_cursor": None}),
    )

    ran = refunds("orders", "pull")

    assert ran.code == 0
    assert ran.err.splitlines() == [
        "reading: 0 payments read, 0 judged",
        "reading: 2 payments read, 0 judged; the processor cannot be asked (connection_refused)",
        "making: 4 payments read, 1 judged",
        "done: 4 payments read, 4 judged",
    ]
    for words in ("order made         3", "skipped            1", "pi_1", "pi_2", "NO_ORDER_ID", "names no order"):
        assert words in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_json_is_the_whole_report_on_stdout(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    api.on("GET", f"{PATH}/{PULL}", (200, pull()), (200, done()))
    api.on("GET", f"{PATH}/{PULL}/payments", (200, {"payments": [skipped()], "next_cursor": None}))
    ran = refunds("orders", "pulled", PULL, "--json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["id"], len(answer["report"])) == (0, PULL, 5), "of each of the five outcomes what the stand-in answers"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (done(counts=NONE | {"error": 2}), "2 payments contradict what is recorded"),
        (done(phase="canceled"), "was cancelled before it was done"),
    ],
)
def test_what_needs_a_person_ends_with_one(api: FakeApi, refunds: Runner, ended: dict[str, Any], words: str) -> None:
    api.on("GET", f"{PATH}/{PULL}", (200, ended))
    api.on("GET", f"{PATH}/{PULL}/payments", (200, {"payments": [], "next_cursor": None}))
    ran = refunds("orders", "pulled", PULL, "--outcome", "error")
    assert ran.code == 1
    assert words in ran.err
    assert [path for path, _ in api.sent("GET")][-1].startswith(f"{PATH}/{PULL}/payments?outcome=error")


@pytest.mark.parametrize(
    ("seen", "part"),
    [
        (pull(), 0.0),
        (pull(since=None, reached="2026-03-02T00:00:00.000000Z"), 0.0),
        (pull(reached="2026-03-02T00:00:00.000000Z"), 0.25),
        (pull(phase="making", payments=4, judged=1), 0.625),
        (pull(phase="making"), 1.0),
        (done(), 1.0),
    ],
)
def test_how_much_is_done(seen: dict[str, Any], part: float) -> None:
    assert share(seen) == part
