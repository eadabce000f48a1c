"""`refunds ledger` beyond one refund: what is written, what is verified, and how each refusal ends."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.commands import ledger
from refunds.ledger import notes, verifier
from tests.cli.conftest import FakeApi, Runner
from tests.refunds.ledger.logs import KEY, NEXT_KEY, Log

LOG = Log.of(12)
CHECKPOINT = {
    "origin": LOG.origin,
    "size": 12,
    "root": "x",
    "note": LOG.note(),
    "made_at": "2026-03-01T10:00:00.000000Z",
    "keys": [KEY.vkey],
    "entries": 14,
    "unnumbered": 2,
    "behind_s": 1,
    "copies": [{"target": "/kept/", "waiting": 3, "last_done_at": None, "last_error": "No such file or directory"}],
}


def page(first: int, last: int) -> dict[str, Any]:
    chosen = LOG.entries[first - 1 : last]
    shown = [{"seq": one.seq, "hash": one.hash.hex(), "entry": json.loads(one.entry)} for one in chosen]
    return {"entries": shown, "size": 12, "next_after": None}


@pytest.fixture
def recorded(api: FakeApi) -> FakeApi:
    api.on("GET", "/v1/ledger/checkpoint", (200, CHECKPOINT))
    api.on("GET", "/v1/ledger/entries", (200, page(1, 5)), (200, page(6, 12)))
    api.on("GET", "/v1/ledger/proofs/7", (200, LOG.proof(7)))
    api.on("GET", "/v1/ledger/consistency", (200, LOG.consistency(5, 12)))
    return api


def test_an_export_is_written_page_by_page_and_is_byte_for_byte_what_was_hashed(recorded: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    ran = refunds("ledger", "export", "-o", str(tmp_path / "ledger.jsonl"))
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "ledger.jsonl").read_bytes() == LOG.export()
    asked = [path for path, _ in recorded.sent("GET") if "entries" in path]
    assert asked == ["/v1/ledger/entries?after=0&limit=12", "/v1/ledger/entries?after=5&limit=7"]
    verified = refunds("ledger", "verify", str(tmp_path / "ledger.jsonl"), "--key", KEY.vkey)
    assert (verified.code, verified.out, verified.err.startswith("12 entries, all of them as signed by ")) == (0, "", True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda answer: answer["entries"][2]["entry"].update(actor="pr_2"),
            "The API gave entry 3 in a form that is not the one that was hashed",
        ),
        (lambda answer: answer["entries"].pop(0), "The API gave entry 1 in a form"),
        (lambda answer: answer["entries"].clear(), "The API has no entry 1, and the checkpoint signs 12"),
    ],
)
def test_an_api_that_gives_something_else_ends_the_export_and_leaves_no_file(
    recorded: FakeApi, refunds: Runner, tmp_path: Path, spoil: Callable[[dict[str, Any]], object], said: str
) -> None:
    answer = page(1, 5)
    spoil(answer)
    recorded.on("GET", "/v1/ledger/entries", (200, answer))
    ran = refunds("ledger", "export", "-o", str(tmp_path / "ledger.jsonl"))
    assert (ran.code, said in ran.err, (tmp_path / "ledger.jsonl").exists()) == (1, True, False)


def test_proofs_go_to_stdout_or_into_a_file_that_verifies(recorded: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    assert json.loads(refunds("ledger", "prove", "7").out) == LOG.proof(7)
    assert refunds("ledger", "prove", "7", "-o", str(tmp_path / "7.json")).code == 0
    assert refunds("ledger", "consistency", "5", "12", "-o", str(tmp_path / "5-12.json")).code == 0
    for name in ("7.json", "5-12.json"):
        ran = refunds("ledger", "verify", str(tmp_path / name), "--key", KEY.vkey, "--json")
        assert (ran.code, json.loads(ran.out)["verified"]) == (0, True), ran.err


def test_a_checkpoint_is_shown_or_kept_and_a_new_one_is_asked_for(recorded: FakeApi, refunds: Runner, tmp_path: Path) -> None:
    shown = refunds("ledger", "checkpoint").out
    assert KEY.vkey in shown and "/kept/ (last one never; 3 wait: No such file or directory)" in shown
    recorded.on("POST", "/v1/ledger/checkpoint", (201, {"checkpoint": CHECKPOINT}), (202, {"checkpoint": None}))
    ran = refunds("ledger", "checkpoint", "--new", "--out", str(tmp_path / "kept"))
    assert (ran.code, (tmp_path / "kept").read_text(), ran.out) == (0, LOG.note(), "")
    assert "It was asked for and is not there yet" in refunds("ledger", "checkpoint", "--new").err


def test_a_kept_checkpoint_that_is_contradicted_ends_with_1_and_one_sentence(refunds: Runner, tmp_path: Path, api: FakeApi) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(LOG.export())
    (tmp_path / "kept").write_text(Log.of(8, actor="pr_2").note())
    ran = refunds("ledger", "verify", str(tmp_path / "ledger.jsonl"), "--key", KEY.vkey, "--checkpoint", str(tmp_path / "kept"), "--json")
    assert (ran.code, json.loads(ran.out)["kind"], json.loads(ran.out)["entry"]) == (1, "forked", 1)
    assert (len(ran.err.splitlines()), "another history than the one that was signed" in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{file}",), 2, "--key: give the verifier key of the log"),
        (("{file}", "--key", "nonsense"), 2, "is not the Ed25519 verifier key"),
        (("{file}", "--key", NEXT_KEY.vkey), 1, "and not by the key that was given"),
        (("{none}", "--key", KEY.vkey), 2, "cannot be read: No such file or directory."),
        (("{file}", "--key", KEY.vkey, "--checkpoint", "{none}"), 2, "cannot be read: No such file or directory."),
    ],
)
def test_what_cannot_be_verified_is_one_line(
    refunds: Runner, tmp_path: Path, api: FakeApi, arguments: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(LOG.export())
    given = [one.format(file=tmp_path / "ledger.jsonl", none=tmp_path / "none") for one in arguments]
    ran = refunds("ledger", "verify", *given)
    assert (ran.code, said in ran.err, len(ran.err.splitlines())) == (code, True, 1), ran.err
    assert api.calls == [], "a file is verified here"


ELSEWHERE = Log.of(12, actor="pr_2")
ELSEWHERE.origin = "elsewhere.example/log"
ELSEWHERE_KEY = notes.SigningKey.from_seed(ELSEWHERE.origin, bytes(32))
TAMPERED = LOG.export().replace(b'"amount":7', b'"amount":8')
CUT_OFF = b"".join(LOG.export().splitlines(keepends=True)[:7])[:-20]
LATE = Log.of(3, at=datetime(2999, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("file", "more", "kind", "entry", "said"),
    [
        (TAMPERED, (), "changed", 8, "Entry 8 was changed"),
        (LOG.export(), ("--key", NEXT_KEY.vkey), "wrong_key", None, "and not by the key that was given"),
        (ELSEWHERE.export(), (), "other_log", None, "elsewhere.example/log"),
        (LOG.export(), ("--key", ELSEWHERE_KEY.vkey, "--checkpoint", "theirs"), "other_log", None, "is of another log"),
        (LATE.export(), (), "future", 1, "Entry 1"),
        (CUT_OFF, (), "truncated", 6, "The file is truncated"),
        (json.dumps(LOG.proof(7)).encode(), ("--seq", "8"), "other_entry", None, "the proof of entry 7, and not of entry 8"),
    ],
    ids=["tampered", "wrong key", "another log", "another log's checkpoint", "from the future", "truncated", "another entry's proof"],
)
def test_each_bad_file_is_named_exactly_in_one_sentence_with_a_code_and_no_trace(
    api: FakeApi, refunds: Runner, tmp_path: Path, file: bytes, more: tuple[str, ...], kind: str, entry: int | None, said: str
) -> None:
    (tmp_path / "given").write_bytes(file)
    (tmp_path / "theirs").write_text(ELSEWHERE.note(12, ELSEWHERE_KEY))
    given = [str(tmp_path / one) if one == "theirs" else one for one in more]
    key = () if kind == "wrong_key" else ("--key", KEY.vkey)

    ran = refunds("ledger", "verify", str(tmp_path / "given"), *key, *given, "--json")

    found = json.loads(ran.out)
    assert (ran.code, found["verified"], found["kind"]) == (1, False, kind), ran.err
    assert entry is None or found["entry"] == entry
    assert said in found["what"] and ran.err == f"{found['what']}\n", "one sentence, the same as is told to programs"
    assert api.calls == []


def test_the_database_needs_an_address_with_the_auditor_s_login(
    refunds: Runner, tmp_path: Path, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL_AUDITOR", raising=False)
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path / "nowhere"))
    ran = refunds("ledger", "verify")
    assert (ran.code, ran.err.startswith("Set DATABASE_URL_AUDITOR to the database's address")) == (2, True)
    monkeypatch.setenv("DATABASE_URL_AUDITOR", "postgresql://nobody@127.0.0.1:1/none")
    assert refunds("ledger", "verify", "--key", KEY.vkey).code == 2


def test_the_file_of_the_verifier_is_what_the_command_uses() -> None:
    assert ledger.verifier is verifier
