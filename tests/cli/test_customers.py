"""`refunds forget`, `refunds export` and `refunds retention`: what is sent, what is shown, and what never stands anywhere."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cli.commands import customers
from tests.cli.conftest import FakeApi, Runner, refund

ERASED: dict[str, Any] = {
    "id": f"era_{'0' * 26}",
    "customer": f"cu_{'0' * 26}",
    "forgotten_at": "2026-03-01T10:00:00.000000Z",
    "removed": {"keys": 1, "texts": 4, "orders": 2},
    "listed": True,
}
DOCUMENT = {"summary": ["1 order, 2 refunds and 5 texts are held."], "orders": [{"order_id": "ünique"}]}


def test_forgetting_names_the_customer_in_the_address_only(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/customers/a%2Fb%20c/erasure", (200, ERASED))

    ran = refunds("forget", "--customer", "a/b c", "--reason", "customer_asked", "--case", "DSR-1", "--yes")

    assert ran.code == 0, ran.err
    assert api.sent("POST") == [("/v1/customers/a%2Fb%20c/erasure", {"reason": "customer_asked", "reference": "DSR-1"})]
    assert "1 key, 4 texts, 2 orders" in ran.out and ERASED["customer"] in ran.out
    assert "a/b c" not in ran.out + ran.err


def test_a_customer_who_was_forgotten_already_is_told_so(api: FakeApi, refunds: Runner) -> None:
    api.on("POST", "/v1/customers/c-1/erasure", (200, ERASED | {"removed": {"keys": 0, "texts": 0, "orders": 0}}))

    assert "nothing more: forgotten already" in refunds("forget", "--customer", "c-1", "--reason", "customer_asked", "--yes").out


def test_the_id_may_come_from_stdin(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    api.on("POST", "/v1/customers/c-1/erasure", (200, ERASED | {"listed": False}))
    monkeypatch.setattr("sys.stdin", io.StringIO("c-1\n"))

    ran = refunds("forget", "--customer", "-", "--reason", "customer_asked", "--yes")

    assert ran.code == 0, ran.err
    assert "no: set ERASURE_LIST" in ran.out


def test_nothing_is_forgotten_without_a_yes(api: FakeApi, refunds: Runner) -> None:
    ran = refunds("forget", "--customer", "c-1", "--reason", "customer_asked")

    assert (ran.code, api.calls) == (4, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--customer", "c-1"),
        ("--reason", "customer_asked"),
        (),
        ("--customer", "c-1", "--reason", "he asked"),
        ("--customer", " ", "--reason", "customer_asked", "--yes"),
        ("--replay", "nowhere.jsonl"),
        ("--replay", ".", "--customer", "c-1"),
    ],
)
def test_what_is_not_whole_sends_nothing(api: FakeApi, refunds: Runner, arguments: tuple[str, ...]) -> None:
    ran = refunds("forget", *arguments)

    assert (ran.code, api.calls) == (2, [])


def test_a_refusal_names_what_is_open(api: FakeApi, refunds: Runner) -> None:
    problem = {
        "code": "CUSTOMER_HAS_OPEN_REFUNDS",
        "detail": "2 refunds are under way.",
        "remedy": "Let it end.",
        "refunds": [{"id": "rf_1", "status": "parked"}, {"id": "rf_2", "status": "pending"}],
    }
    api.on("POST", "/v1/customers/c-1/erasure", (409, problem))

    ran = refunds("forget", "--customer", "c-1", "--reason", "customer_asked", "--yes")

    assert ran.code == 1
    assert "CUSTOMER_HAS_OPEN_REFUNDS" in ran.err and "2 refunds are under way: rf_1 (parked), rf_2 (pending). Let it end." in ran.err


def test_a_list_is_gone_through_in_parts_and_told_as_a_whole(
    api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(customers, "_AT_ONCE", 2)
    (tmp_path / "list").write_text("one\ntwo\n\nthree\n")
    api.on(
        "POST",
        "/v1/erasures/replays",
        (200, {"id": None, "lines": 2, "forgotten": 1, "absent": 0}),
        (200, {"id": "rep_1", "lines": 3, "forgotten": 1, "absent": 1}),
    )

    ran = refunds("forget", "--replay", "list")

    assert ran.code == 0, ran.err
    assert [body for _, body in api.sent("POST")] == [
        {"lines": ["one", "two"], "first_line": 1, "complete": False, "lines_before": 0, "forgotten_before": 0, "absent_before": 0},
        {"lines": ["three"], "first_line": 3, "complete": True, "lines_before": 2, "forgotten_before": 1, "absent_before": 0},
    ]
    assert "3 lines: 1 forgotten again, 1 not in this database" in ran.err


def test_a_directory_is_a_list_too(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    for name in ("era_b.json", "era_a.json", "other.txt"):
        (tmp_path / name).write_text(f"{name}\n")
    api.on("POST", "/v1/erasures/replays", (200, {"id": "rep_1", "lines": 2, "forgotten": 2, "absent": 0}))

    refunds("forget", "--replay", ".")

    assert [body["lines"] for _, body in api.sent("POST")] == [["era_a.json", "era_b.json"]]


def test_an_export_is_summed_up_and_written_for_its_owner_alone(api: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    api.on("GET", "/v1/customers/c-1/export", (200, DOCUMENT))

    shown = refunds("export", "--customer", "c-1")
    saved = refunds("export", "--customer", "c-1", "-o", "c.json")
    again = refunds("export", "--customer", "c-1", "--output", "c.json")
    whole = refunds("export", "--customer", "c-1", "--json")

    assert (shown.code, shown.out) == (0, "1 order, 2 refunds and 5 texts are held.\n")
    assert saved.code == 0 and json.loads((tmp_path / "c.json").read_text()) == DOCUMENT
    assert (tmp_path / "c.json").stat().st_mode & 0o777 == 0o600
    assert again.code == 2 and "is there already" in again.err
    assert json.loads(whole.out) == DOCUMENT


def test_periods_are_shown_and_applied(api: FakeApi, refunds: Runner) -> None:
    kinds = [{"kind": "messages", "days": 540, "what": "what they wrote", "reason": "Disputes.", "due": 3}]
    kinds += [{"kind": "notes", "days": 0, "what": "notes", "reason": "Claims.", "due": None}]
    api.on("GET", "/v1/retention", (200, {"kinds": kinds}))
    first, last = (
        {"id": "ret_1", "dry_run": False, "removed": {"messages": count}, "more": more} for count, more in ((5, True), (2, False))
    )
    api.on("POST", "/v1/retention/runs", (200, first), (200, last))

    shown = refunds("retention", "show")
    refused = refunds("retention", "run")
    ran = refunds("retention", "run", "--yes")
    counted = refunds("retention", "run", "--dry-run")

    assert "540" in shown.out and "until forgotten" in shown.out
    assert refused.code == 4
    assert ran.err.strip() == "Taken away: 7 messages."
    assert counted.err.strip() == "Has had its time: 2 messages."
    assert [body for _, body in api.sent("POST")] == [{"dry_run": False}] * 2 + [{"dry_run": True}]


def test_a_refund_of_a_forgotten_customer_is_shown_as_such(api: FakeApi, refunds: Runner) -> None:
    gone = refund(customer_id=None, order_id=None, customer_forgotten_at="2026-03-01T10:00:00.000000Z", status="succeeded", final=True)
    api.on("GET", f"/v1/refunds/{gone['id']}", (200, gone))
    api.on("GET", "/v1/refunds", (200, {"refunds": [gone], "next_cursor": None}))

    shown, listed = refunds("show", gone["id"]), refunds("list")

    assert shown.code == listed.code == 0, shown.err + listed.err
    assert "forgotten 2026-03-01T10:00:00.000000Z" in shown.out
    assert gone["id"] in listed.out and "None" not in listed.out
