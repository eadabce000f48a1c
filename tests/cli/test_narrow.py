"""A terminal of eighty columns: every id can be copied, and nothing is folded into a column of single letters."""

import re
from typing import Any

import pytest
from rich.console import Console

from cli.demo import table
from cli.demo.board import End, Row
from cli.output import Output, clean
from tests.cli.conftest import FakeApi, Runner, refund

WIDTH = 80
LONG = "a decision on $120.00 in queue team until 2026-03-01T10:00:00Z, which is a sentence that no terminal of eighty columns holds on one line"
STYLE = re.compile(r"\x1b(?:\[[0-9;]*m|\]8;[^\x1b]*\x1b\\)")
PERSON = "pr_06f2kqh7v9m3x5t8w1z4y6b0cd"
KEY = "key_06f2kqh7v9m3x5t8w1z4y6b0ce"
OPERATION = "op_06f2kqh7v9m3x5t8w1z4y6b0cf"
REFUND = refund(1, next_step=LONG, order_id="an-order-of-the-shop-2026-000017", queue="a-queue-of-managers")
ATTEMPTS = [
    {"number": 1, "opened_at": "2026-03-01T10:00:00.000000Z", "answered_at": None, "outcome": None, "reason": None},
    {
        "number": 2,
        "opened_at": "2026-03-01T10:01:00.000000Z",
        "answered_at": "2026-03-01T10:01:01.000000Z",
        "outcome": "made",
        "reason": None,
    },
]
WHOLE = REFUND | {
    "policy": {"checks": [{"id": "a_long_check_id", "result": "require_review", "observed": "$120.00 at once", "limit": f"up to {LONG}"}]},
    "decisions": [
        {
            "id": "dec_1",
            "kind": "review",
            "verdict": "approve",
            "revision": 1,
            "role": "reviewer",
            "recorded_at": "2026-03-01T10:00:00.000000Z",
        }
        | {"person": PERSON, "recorded_by": {"id": PERSON, "handle": "rita", "name": "Rita of the second team"}}
    ],
    "processor": {
        "operations": [
            {"id": OPERATION, "kind": "refund", "amount_text": "$120.00", "refund_id": "re_3PxLqW2eZvKYlo2C1", "refund_state": "succeeded"}
            | {"attempts": ATTEMPTS}
        ]
    },
}
PEOPLE = [{"id": PERSON, "kind": "service", "handle": "support-system", "name": "The shop's support system", "disabled_at": None}]
KEYS = [
    {"id": KEY, "principal_id": PERSON, "roles": ["requester", "integrator"], "hint": "rfk_...abcd"}
    | {"created_at": "2026-03-01T10:00:00.000000Z", "expires_at": None, "revoked_at": "2026-03-02T10:00:00.000000Z"}
]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal of eighty columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def seen(printed: str) -> list[str]:
    """The lines as a person sees them."""
    return STYLE.sub("", printed).splitlines()


@pytest.mark.parametrize(
    ("command", "path", "answer", "whole"),
    [
        (
            ("list",),
            "/v1/refunds",
            {"refunds": [REFUND, refund(2)], "next_cursor": None},
            [REFUND["id"], refund(2)["id"], REFUND["order_id"]],
        ),
        (("show", REFUND["id"]), f"/v1/refunds/{REFUND['id']}", WHOLE, [REFUND["id"], OPERATION, "re_3PxLqW2eZvKYlo2C1", "ab" * 32]),
        (("people", "list"), "/v1/people", {"people": PEOPLE}, [PERSON, "support-system"]),
        (("keys", "list"), "/v1/keys", {"keys": KEYS}, [KEY, PERSON, "support-system"]),
    ],
)
def test_ids_are_whole_and_no_line_is_too_long(
    api: FakeApi, refunds: Runner, command: tuple[str, ...], path: str, answer: Any, whole: list[str]
) -> None:
    api.on("GET", "/v1/people", (200, {"people": PEOPLE}))
    api.on("GET", path, (200, answer))

    ran = refunds(*command)

    lines = seen(ran.out)
    assert ran.code == 0 and [line for line in lines if len(line) > WIDTH] == []
    words = " ".join(lines).split()
    assert [text for text in whole if text not in words] == []
    assert [line for line in lines if len(line.strip()) == 1] == [], "prose is not one letter a line"


def test_a_stop_names_what_was_under_way_whole(api: FakeApi, refunds: Runner) -> None:
    call = {"refund": REFUND["id"], "attempt": "att_06f2kqh7v9m3x5t8w1z4y6b0cg", "opened_at": "2026-03-01T10:00:00.000000Z"}
    state = {"scope": "everything", "state": "stopped", "mode": "live", "reason": "fire", "changed_by": PERSON, "changed_at": "t"}
    api.on("PUT", "/v1/controls", (200, state | {"calls_in_flight": [call | {"confirmed": True, "may_still_send": False}]}))

    lines = seen(refunds("stop", "--reason", "fire").out)

    assert {REFUND["id"], call["attempt"]} <= set(" ".join(lines).split()) and max(map(len, lines)) <= WIDTH


def test_a_narrow_table_that_fits_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("order", "what"), [("D-1", LONG), ("D-2", "short")], fold="what")

    lines = seen(capsys.readouterr().out)
    assert lines[0].split() == ["order", "what"] and lines[1].startswith("D-1") and max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize("final", [False, True])
def test_the_demos_tables_keep_ids_whole(capsys: pytest.CaptureFixture[str], final: bool) -> None:
    now = refund(1, next_step=LONG, final=final, status="succeeded" if final else "awaiting_consent", amount_text="$1,120.00")
    rows = [Row("revised, approved again", now["id"], "D-1005", End("succeeded"), now)]
    console = Console(force_terminal=True, width=WIDTH)

    console.print(table.compact(rows, "http://ui", footer="0 of 1", width=WIDTH))
    moving = seen(capsys.readouterr().out)
    shown = table.complete(rows, "http://ui", width=WIDTH)
    console.print(shown, soft_wrap=True)
    over = seen(capsys.readouterr().out)

    for lines in (moving, over):
        assert now["id"] in " ".join(lines).split() and max(map(len, lines)) <= WIDTH
    assert len(moving) == 3 and now["status"] in moving[1]


def test_a_list_of_nothing_leaves_no_empty_line(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/reconciliation", (200, {"discrepancies": [], "next_cursor": None}))

    ran = refunds("discrepancies", "list")

    assert (ran.out, ran.err.strip()) == ("", "No discrepancy matches.")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (["a", None, True], "a, -, yes"),
        ({"USD": 5, "of": ["x\ny", "z"]}, "USD 5, of x y, z"),
        ([], "-"),
        ({}, "-"),
        ("\x1b[2J", "\ufffd[2J"),
    ],
)
def test_whatever_an_answer_holds_is_one_line_for_people(value: Any, told: str) -> None:
    assert clean(value) == told
