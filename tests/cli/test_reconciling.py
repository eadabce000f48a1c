"""`refunds reconcile` and `refunds discrepancies`: for people, for pipes, for spreadsheets, for programs."""

import json
from datetime import timedelta
from typing import Any

import pytest

from cli import watching
from cli.commands.reconciling import share
from refunds.clock import SystemClock, parse_rfc3339
from tests.cli.conftest import FakeApi, Runner

RUN = f"rec_{1:026d}"
DIS = f"dis_{1:026d}"


def run(**changed: Any) -> dict[str, Any]:
    """A reconciliation as the API answers it."""
    plain: dict[str, Any] = {
        "id": RUN,
        "processor": "stripe",
        "since": "2026-03-01T00:00:00.000000Z",
        "until": "2026-03-03T00:00:00.000000Z",
        "started_by": "pr_1",
        "started_at": "2026-03-03T00:00:00.000000Z",
        "phase": "theirs",
        "reached": None,
        "pages": 0,
        "compared": 0,
        "elsewhere": 0,
        "differences": 0,
        "imported": 0,
        "progressed_at": "2026-03-03T00:00:00.000000Z",
        "finished_at": None,
        "last_error": None,
        "workflow_id": f"reconciliation-{RUN}",
    }
    return plain | changed


def done(**changed: Any) -> dict[str, Any]:
    return run(phase="done", pages=4, compared=250, differences=2, finished_at="2026-03-03T00:00:42.000000Z") | changed


def discrepancy(number: int = 1, **changed: Any) -> dict[str, Any]:
    """A discrepancy as the API answers it."""
    plain: dict[str, Any] = {
        "id": f"dis_{number:026d}",
        "kind": "amount",
        "meaning": "The processor's refund has another amount than our record.",
        "state": "open",
        "processor_refund_id": f"re_{number}",
        "refund_id": f"rf_{number:026d}",
        "payment_id": f"pi_{number}",
        "owner": None,
        "first_seen_at": "2026-03-03T00:00:00.000000Z",
    }
    return plain | changed


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a stand-in."""
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "SAY_EVERY_S", 0.0)


@pytest.mark.parametrize(
    ("typed", "ago"), [("2d", timedelta(days=2)), ("36h", timedelta(hours=36)), ("90m", timedelta(minutes=90)), (" 7d ", timedelta(days=7))]
)
def test_since_so_long_ago(api: FakeApi, refunds: Runner, typed: str, ago: timedelta) -> None:
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    before = SystemClock().now()

    ran = refunds("reconcile", "--since", typed)

    [(_, body)] = api.sent("POST")
    assert timedelta(0) <= parse_rfc3339(body["since"]) - (before - ago) < timedelta(seconds=20)
    assert (ran.code, ran.out) == (0, "")
    assert f"{RUN} has begun" in ran.err


@pytest.mark.parametrize(
    ("typed", "sent"), [("2026-03-01", "2026-03-01T00:00:00.000000Z"), ("2026-03-01T10:00:00+02:00", "2026-03-01T08:00:00.000000Z")]
)
def test_since_a_day_or_a_moment(api: FakeApi, refunds: Runner, typed: str, sent: str) -> None:
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    refunds("reconcile", "--since", typed)
    assert api.sent("POST") == [("/v1/reconciliation/runs", {"since": sent})]


@pytest.mark.parametrize("typed", ["", "2 days", "2y", "-1d", "99999999d", "2026-02-30", "2026-03-01T10:00:00", "tomorrow", "٢d"])
def test_since_that_is_no_time_sends_nothing(api: FakeApi, refunds: Runner, typed: str) -> None:
    ran = refunds("reconcile", "--since", typed)
    assert (ran.code, api.calls) == (2, [])
    assert ran.err.startswith("--since: ")
    assert "such as 2d" in ran.err


def test_waiting_in_a_pipe_says_plain_lines_and_ends_with_what_was_found(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    path = f"/v1/reconciliation/runs/{RUN}"
    halfway = run(compared=100, reached="2026-03-02T00:00:00.000000Z", last_error="the processor cannot be asked (connection_refused)")
    api.on("GET", path, (200, halfway), (200, halfway), (200, done()))

    ran = refunds("reconcile", "--since", "2d", "--wait")

    assert ran.code == 0
    assert ran.err.splitlines() == [
        "theirs: 0 compared, 0 differ",
        "theirs: 100 compared, 0 differ; the processor cannot be asked (connection_refused)",
        "done: 250 compared, 2 differ",
        f"See: refunds discrepancies list --run {RUN}",
    ]
    assert "differences     2" in ran.out
    assert "seconds         42" in ran.out
    assert "\x1b" not in ran.err + ran.out


def test_waiting_on_a_terminal_draws_a_bar_and_leaves_stdout_to_the_result(
    api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    api.on("GET", f"/v1/reconciliation/runs/{RUN}", (200, done()))

    ran = refunds("reconcile", "--since", "2d", "--wait", "--json")

    assert json.loads(ran.out) == done()
    assert "━" in ran.err


def test_a_run_that_somebody_cancelled_is_no_success(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    api.on("GET", f"/v1/reconciliation/runs/{RUN}", (200, done(phase="canceled", differences=0)))
    ran = refunds("reconcile", "--since", "2d", "--wait")
    assert (ran.code, ran.err.splitlines()[-1]) == (1, f"{RUN} was cancelled before it was done.")


def test_ctrl_c_leaves_the_run_to_go_on(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", interrupted)
    api.on("POST", "/v1/reconciliation/runs", (202, run()))
    ran = refunds("reconcile", "--since", "2d", "--wait")
    assert (ran.code, api.sent("GET")) == (0, [])
    assert f"{RUN} goes on without this command." in ran.err


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (run(), 0.0),
        (run(reached="2026-03-02T00:00:00.000000Z"), 0.475),
        (run(reached="2026-02-01T00:00:00.000000Z"), 0.95),
        (run(reached="2026-03-04T00:00:00.000000Z"), 0.0),
        (run(phase="ours"), 0.95),
        (run(phase="ours", reached="2026-03-02T00:00:00.000000Z"), 0.975),
        (run(since="2026-03-03T00:00:00.000000Z", phase="theirs"), 0.95),
        (done(), 1.0),
    ],
)
def test_how_much_is_done(shown: dict[str, Any], expected: float) -> None:
    assert share(shown) == pytest.approx(expected)


def test_a_refusal_is_one_line(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/reconciliation/runs", (403, {"code": "FORBIDDEN", "detail": "This call needs a key with the role operator."}))
    ran = refunds("reconcile", "--since", "2d", "--wait")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)


def test_the_list_is_whole_in_a_pipe_and_pages_for_programs(api: FakeApi, refunds: Runner) -> None:
    mine = discrepancy(1, owner={"id": "pr_1", "handle": "olga", "name": "Olga"})
    page = {"runs": [], "counts": {}, "discrepancies": [mine], "next_cursor": None}
    api.on("GET", "/v1/reconciliation", (200, page))
    ran = refunds("discrepancies", "list", "--state", "open", "--kind", "amount", "--run", RUN)
    assert [mine["id"], "amount", "open", "re_1", mine["refund_id"], "pi_1", "olga"] == ran.out.splitlines()[1].split()[:7]
    [(path, _)] = api.sent("GET")
    assert "state=open" in path and "kind=amount" in path and f"run={RUN}" in path

    api.on(
        "GET",
        "/v1/reconciliation",
        (200, page | {"next_cursor": "c"}),
        (200, page | {"discrepancies": [discrepancy(2)], "next_cursor": None}),
    )
    ran = refunds("discrepancies", "list", "--json")
    assert [one["id"] for one in json.loads(ran.out)["discrepancies"]] == [discrepancy(1)["id"], discrepancy(2)["id"]]


def test_as_csv_it_is_what_the_api_says_to_the_letter(api: FakeApi, refunds: Runner) -> None:
    table = 'id,note\r\ndis_1,"a\nb"\r\ndis_2,\'=1+1\r\n'
    api.on("GET", "/v1/reconciliation", (200, table))
    ran = refunds("discrepancies", "list", "--csv", "--state", "explained")
    assert (ran.code, ran.out.replace("\r", ""), ran.err) == (0, table.replace("\r", ""), "")
    [(path, _)] = api.sent("GET")
    assert "format=csv" in path and "state=explained" in path
    assert refunds("discrepancies", "list", "--csv", "--json").code == 2


def test_a_refused_table_is_one_line_and_no_half_file(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/reconciliation", (403, {"code": "FORBIDDEN", "detail": "No."}))
    ran = refunds("discrepancies", "list", "--csv")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    ("command", "body"),
    [
        (("assign", DIS, "olga"), {"owner": "olga"}),
        (("explain", DIS, "--note", "agreed"), {"state": "explained", "note": "agreed"}),
        (("close", DIS, "--note", "gone"), {"state": "closed", "note": "gone"}),
    ],
)
def test_what_is_done_about_one(api: FakeApi, refunds: Runner, command: tuple[str, ...], body: dict[str, str]) -> None:
    answer = discrepancy(1, state="explained", owner={"id": "pr_1", "handle": "olga", "name": "Olga"})
    api.on("POST", f"/v1/reconciliation/discrepancies/{DIS}", (200, answer))
    ran = refunds("discrepancies", *command)
    assert (ran.code, api.sent("POST")) == (0, [(f"/v1/reconciliation/discrepancies/{DIS}", body)])
    assert ran.err == f"{DIS} (amount) is explained, with olga.\n"


@pytest.mark.parametrize("command", [("explain", DIS), ("close", DIS), ("assign", DIS), ("list", "--kind", "weird")])
def test_what_is_not_whole_is_not_sent(api: FakeApi, refunds: Runner, command: tuple[str, ...]) -> None:
    assert (refunds("discrepancies", *command).code, api.calls) == (2, [])


def test_reconciliations_shows_how_far_they_are_and_what_is_open(api: FakeApi, refunds: Runner) -> None:
    counts = {"open": 2, "explained": 1, "closed": 0}
    api.on("GET", "/v1/reconciliation", (200, {"runs": [done(), run()], "counts": counts, "discrepancies": [], "next_cursor": None}))
    ran = refunds("reconciliations")
    assert len(ran.out.splitlines()) == 3
    assert ran.err == "Discrepancies: 2 open, 1 explained, 0 closed.\n"
    assert json.loads(refunds("reconciliations", "--json").out)["counts"] == counts


def test_restored_asks_first_and_says_what_is_next(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/reconciliation/restored", (202, {"halted": True, "reconciliation": run()}))
    asked = refunds("restored", "--reason", "restored to yesterday")
    assert (asked.code, api.calls) == (4, [])
    ran = refunds("restored", "--reason", "restored to yesterday", "--yes")
    assert (ran.code, api.sent("POST")) == (0, [("/v1/reconciliation/restored", {"reason": "restored to yesterday"})])
    assert "refunds resume --processor stripe" in ran.err
