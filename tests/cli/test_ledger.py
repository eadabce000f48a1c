"""`refunds ledger`: the record of a refund in words, for an auditor in a terminal or in a pipe."""

import json
import re
from typing import Any

import pytest

from cli.ledger_view import _SENTENCES, COLUMNS, in_words
from store.leg_rows import DONE, NOT_DONE, PARKED, VOID
from tests.cli.conftest import FakeApi, Runner, refund
from tests.conftest import ROOT

ID = refund()["id"]
HASH = "ab" * 32
RITA = {"id": "pr_2", "handle": "rita", "name": "Rita"}


def entry(number: int, type_: str, actor: str = "system", behind: str | None = None, /, **data: Any) -> dict[str, Any]:
    at = f"2026-03-01T10:00:{number:02d}.000000Z"
    return {
        "id": 90 + number,
        "at": at,
        "type": type_,
        "refund_id": ID,
        "refund_version": number,
        "actor": actor,
        "on_behalf_of": behind,
        "data": data,
    }


ENTRIES = [
    entry(1, "refund_received", "pr_1", "cu_1", kind="refund", body_hash=HASH),
    entry(2, "status_changed", **{"from": "received", "to": "quoting", "event": "read"}),
    entry(
        3,
        "quoted",
        revision=1,
        amount=1234,
        currency="KWD",
        payment="pay_1",
        policy_version=4,
        policy_hash=HASH,
        outcome="review",
        terms_hash=HASH,
    ),
    entry(4, "decision_recorded", "pr_2", kind="review", verdict="approve", revision=1, role="reviewer", decision="dc_1", terms_hash=HASH),
    entry(5, "something_of_tomorrow", "pr_9", colour="red", more={"a": 1, "b": ["x", "y"]}, nothing=None),
]


@pytest.fixture
def recorded(api: FakeApi) -> FakeApi:
    """A refund with a record."""
    by = {"requester": {"id": "pr_1", "handle": "shop", "name": "Our shop", "kind": "service"}}
    api.on("GET", f"/v1/refunds/{ID}/ledger", (200, {"refund": ID, "entries": ENTRIES}))
    api.on("GET", f"/v1/refunds/{ID}", (200, refund(request=by, decisions=[{"recorded_by": RITA}, {"recorded_by": None}])))
    return api


def test_a_pipe_gets_one_line_an_entry_with_number_time_kind_actor_and_words(recorded: FakeApi, refunds: Runner) -> None:
    ran = refunds("ledger", ID)

    lines = [re.split(" {2,}", line) for line in ran.out.splitlines()]
    assert (ran.code, ran.err, lines[0]) == (0, "", list(COLUMNS))
    assert [(line[0], line[2], line[3]) for line in lines[1:]] == [
        ("1", "refund_received", "Our shop (shop) for cu_1"),
        ("2", "status_changed", "system"),
        ("3", "quoted", "system"),
        ("4", "decision_recorded", "Rita (rita)"),
        ("5", "something_of_tomorrow", "pr_9"),
    ]
    assert [line[4] for line in lines[1:]] == [
        f"a refund was asked for and stored [body hash {HASH}]",
        "from received to quoting [event read]",
        f"revision 1: KWD 1.234 of pay_1, judged by policy version 4: review [policy hash {HASH}, terms hash {HASH}]",
        f"review: approve the terms of revision 1, as reviewer [decision dc_1, terms hash {HASH}]",
        "colour red, more (a 1, b x y)",
    ]
    assert lines[1][1] == "2026-03-01T10:00:01.000000Z"


@pytest.mark.parametrize("columns", ["200", "60"])
def test_a_terminal_loses_no_number_and_no_word(recorded: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)

    ran = refunds("ledger", ID)

    said = re.sub("\x1b\\[[0-9;]*m", "", ran.out)
    words = {word for entry in ENTRIES for word in (*in_words(entry).split(), entry["type"], entry["at"])}
    assert {word for word in words if len(word) < 40 and word not in said} == set()
    assert all(len(line) <= int(columns) for line in said.splitlines() if HASH not in line)


def test_json_is_the_record_as_the_api_gives_it_and_nothing_else_is_asked(recorded: FakeApi, refunds: Runner) -> None:
    ran = refunds("ledger", ID, "--json")

    assert json.loads(ran.out) == {"refund": ID, "entries": ENTRIES}
    assert [path for path, _ in recorded.sent("GET")] == [f"/v1/refunds/{ID}/ledger"]


def test_a_key_that_may_not_read_it_is_told_so(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}/ledger", (403, {"code": "FORBIDDEN", "detail": "This call needs a key with the role auditor."}))

    ran = refunds("ledger", ID)

    assert (ran.code, ran.out) == (1, "") and "auditor" in ran.err


def test_text_in_an_entry_cannot_move_the_cursor(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}", (200, refund()))
    evil = entry(1, "message_refused", kind="x\x1b[2J", code="MESSAGE_MALFORMED", detail="a\nb\u202e")
    api.on("GET", f"/v1/refunds/{ID}/ledger", (200, {"refund": ID, "entries": [evil]}))

    ran = refunds("ledger", ID)

    assert not {"\x1b", "\u202e"} & set(ran.out) and len(ran.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (entry(1, "classified", failure="timeout"), "the text was read [failure timeout]"),
        (entry(1, "quoted", amount=1234, currency="ZZZ", outcome="deny"), "amount 1234, currency ZZZ, outcome deny"),
        (
            entry(1, "attempt_opened", operation="op_1", attempt="at_1", number=2),
            "attempt 2 to send it was opened [operation op_1, attempt at_1]",
        ),
        (entry(1, "quoted"), ""),
    ],
)
def test_what_an_entry_lacks_is_not_made_up(written: dict[str, Any], said: str) -> None:
    assert in_words(written) == said


def test_every_kind_of_entry_that_the_store_writes_about_a_refund_has_words() -> None:
    written = {
        kind
        for file in (ROOT / "store").glob("*.py")
        for kinds in re.findall(r'(?:change|self)\.note\(\s*f?"([a-z_{}]+)"(?: if [a-z_ ]+ else "([a-z_]+)")?', file.read_text())
        for kind in kinds
        if kind
    }
    kinds = written - {"{what}_refused", "{kind}_recorded", "leg_{state}"}
    kinds |= {f"leg_{state}" for state in (DONE, PARKED, NOT_DONE, VOID)}
    kinds |= {f"{what}_refused" for what in ("decision", "revision", "consent", "withdrawal", "settlement")}
    kinds |= {f"{kind}_recorded" for kind in ("revise", "settle", "withdraw")} | {"refund_received"}

    assert kinds - _SENTENCES.keys() == set(), "say it in words, in cli/ledger_view.py"
    assert len(kinds) >= 24
