"""The verifier that stands alone: it accepts what the writing side made, and names exactly what is wrong with anything else (issue: "Bad input")."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refunds.ledger import verifier
from refunds.ledger.notes import SigningKey
from refunds.ledger.verifier import Kept, Wrong
from tests.conftest import ROOT
from tests.refunds.ledger.logs import KEY, NEXT_KEY, NOW, ORIGIN, START, Log, judged, keys, row, sealed

FILE = ROOT / "refunds" / "ledger" / "verifier.py"
OTHER = "elsewhere.example/log"
OTHER_KEY = SigningKey.from_seed(OTHER, bytes(range(64, 96)))
LOG = Log.of(100)
EXPORT = LOG.export()
LINES = EXPORT.splitlines()


def wrong(data: bytes, *kept: str, **more: Any) -> Wrong:
    with pytest.raises(Wrong) as caught:
        judged(data, *kept, **more)
    return caught.value


def spoiled(change: Callable[[list[bytes]], object]) -> bytes:
    """An export whose lines were changed by somebody who also made its last line right."""
    lines = list(LINES[:-1])
    change(lines)
    return sealed(lines)


def test_it_needs_nothing_but_the_standard_library_and_one_signature_check() -> None:
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(FILE.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    others = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    assert others == {"cryptography"}


def test_an_export_verifies_and_says_by_whom() -> None:
    report = judged(EXPORT, LOG.note(1), LOG.note(64), LOG.note(100))
    assert report.said == f"100 entries, all of them as signed by {ORIGIN}+{KEY.key_id.hex()}."
    assert report.checkpoint.size == 100


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9])
def test_small_logs_verify_too(size: int) -> None:
    assert judged(Log.of(size).export()).checkpoint.size == size


def changed(index: int) -> bytes:
    return spoiled(lambda lines: lines.__setitem__(index, lines[index].replace(b'"pr_1"', b'"pr_2"')))


@pytest.mark.parametrize("seq", [1, 2, 50, 99, 100])
def test_a_changed_entry_is_named(seq: int) -> None:
    found = wrong(changed(seq))
    assert (found.kind, found.seq) == ("changed", seq)
    if seq < 100:
        assert str(found) == f"Entry {seq} was changed: it no longer has the hash that the entries after it and the signatures rest on."
    else:
        assert str(found).startswith("Entry 100 is not the one that was signed, or the history was written anew")


@pytest.mark.parametrize("seq", [2, 50, 99])
def test_an_entry_whose_hash_before_it_was_changed_is_the_one_that_is_named(seq: int) -> None:
    previous = LOG.entries[seq - 2].hash.hex().encode()
    found = wrong(spoiled(lambda lines: lines.__setitem__(seq, lines[seq].replace(previous, b"0" * 64))))
    assert (found.kind, found.seq) == ("changed", seq)


def test_of_the_last_two_the_one_that_was_changed_is_named() -> None:
    previous = LOG.entries[98].hash.hex().encode()
    found = wrong(spoiled(lambda lines: lines.__setitem__(100, lines[100].replace(previous, b"0" * 64))))
    assert (found.kind, found.seq) == ("changed", 100)


@pytest.mark.parametrize(
    ("change", "kind", "seq", "said"),
    [
        (lambda lines: lines.pop(40), "missing", 40, "Entry 40 is missing: entry 41 stands in its place."),
        (lambda lines: lines.pop(1), "missing", 1, "Entry 1 is missing: entry 2 stands in its place."),
        (lambda lines: lines.insert(41, lines.pop(40)), "reordered", 40, "The entries are in another order: entry 40 is not in its place"),
        (lambda lines: lines.insert(90, lines.pop(40)), "reordered", 40, "it comes later"),
        (lambda lines: lines.insert(41, lines[40]), "reordered", 41, "entry 41 is not in its place, it comes later"),
        (
            lambda lines: lines.pop(),
            "truncated",
            100,
            "The file is truncated: entry 100 is cut off or missing, and 100 entries were signed.",
        ),
        (lambda lines: lines.append(lines[-1]), "changed", None, "The last line is not the hash of the file"),
        (
            lambda lines: lines.__setitem__(7, lines[7].replace(b'"seq":7', b'"seq":8')),
            "changed",
            7,
            "Entry 7 was changed: it calls itself 8",
        ),
        (
            lambda lines: lines.__setitem__(7, lines[7].replace(b'"v":1', b'"v":2')),
            "version",
            7,
            "a form that this verifier does not know (2)",
        ),
        (lambda lines: lines.__setitem__(7, lines[7].replace(b'"v":1', b'"v":0')), "changed", 7, "has not the fields of an entry"),
        (lambda lines: lines.__setitem__(7, lines[7].replace(b":", b": ", 1)), "changed", 7, "it is not canonical JSON"),
        (lambda lines: lines.__setitem__(7, b"[" * 100_000), "changed", 7, "it is not canonical JSON"),
        (lambda lines: lines.__setitem__(7, b"17"), "changed", 7, "has not the fields of an entry"),
        (lambda lines: lines.__setitem__(7, lines[7].replace(b'"amount":6', b'"amount":6.5')), "changed", 7, "it is not canonical JSON"),
    ],
)
def test_what_was_done_to_an_export_is_named(change: Callable[[list[bytes]], object], kind: str, seq: int | None, said: str) -> None:
    found = wrong(spoiled(change))
    assert (found.kind, found.seq) == (kind, seq), str(found)
    assert said in str(found)


@pytest.mark.parametrize("cut", [1, 2, 40, 3_000, len(EXPORT) - 5])
def test_a_file_that_ends_early_is_truncated(cut: int) -> None:
    assert wrong(EXPORT[:-cut]).kind == "truncated"


def test_what_follows_the_end_is_noticed() -> None:
    assert str(wrong(EXPORT + b"{}\n")) == "Something follows after the end of the export."


def test_an_entry_from_the_future_is_named() -> None:
    log = Log.of(3)
    log.add(row(3, at=NOW + timedelta(minutes=6)))
    found = wrong(log.export())
    assert (found.kind, found.seq) == ("future", 4)
    assert str(found) == "Entry 4 is from the future: it says 2026-03-02T12:06:00.000000Z, and it is 2026-03-02T12:00:00.000000Z."
    assert judged(log.export(), now=NOW + timedelta(minutes=1)).checkpoint.size == 4, "clocks differ by a little"


def test_a_clock_that_went_backwards_is_no_fault() -> None:
    log = Log.of(3)
    log.add(row(3, at=START - timedelta(days=30)))
    log.add(row(4))
    assert judged(log.export()).checkpoint.size == 5


@pytest.mark.parametrize(
    ("note", "given", "kind", "said"),
    [
        (LOG.note(100, NEXT_KEY), keys(), "wrong_key", "and not by the key that was given"),
        (LOG.note(), keys(NEXT_KEY), "wrong_key", "and not by the key that was given"),
        (LOG.note().replace("\n100\n", "\n101\n"), keys(), "changed", "it was changed"),
        ("no note", keys(), "malformed", "not a signed note"),
    ],
)
def test_a_header_that_does_not_hold_is_named(note: str, given: list[verifier.Key], kind: str, said: str) -> None:
    found = wrong(LOG.export(note), given=given)
    assert (found.kind, said in str(found)) == (kind, True)


def test_a_log_of_somebody_else_is_another_log() -> None:
    other = Log.of(5)
    other.origin = "elsewhere.example/log"
    found = wrong(other.export())
    assert (found.kind, str(found)) == (
        "other_log",
        f"This is a checkpoint of another log: of elsewhere.example/log, while the key is of {ORIGIN}.",
    )


def test_while_a_key_is_replaced_either_one_verifies_an_export() -> None:
    both = LOG.export(LOG.note(100, KEY, NEXT_KEY))
    assert "and by keys that were not given" in judged(both, given=keys(NEXT_KEY)).said
    assert "not given" not in judged(both, given=keys(KEY, NEXT_KEY)).said


def test_a_history_that_was_written_anew_and_signed_again_does_not_agree_with_what_was_kept() -> None:
    anew = Log.of(60)
    for index in range(60, 100):
        anew.add(row(index, actor="pr_forged"))
    assert judged(anew.export()).checkpoint.size == 100
    found = wrong(anew.export(), LOG.note(40), LOG.note(60), LOG.note(80), LOG.note(100))
    assert (found.kind, found.seq) == ("forked", 61)
    assert "a kept checkpoint of 80 entries has another root, so an entry from 61 to 80 was changed after it was signed" in str(found)


def test_a_history_that_was_cut_off_and_signed_again_is_shorter_than_what_was_kept() -> None:
    found = wrong(Log.of(90).export(), LOG.note(80), LOG.note(100))
    assert (found.kind, found.seq) == ("truncated", 91)
    assert str(found) == "Entry 91 and what follows is missing: a kept checkpoint signs 100 entries, and here are 90."


def test_kept_checkpoints_that_contradict_each_other_show_a_fork_by_themselves() -> None:
    other = Log.of(50, actor="pr_2")
    assert wrong(EXPORT, LOG.note(50), other.note(50)).kind == "forked"


def test_a_kept_checkpoint_of_another_log_is_not_called_a_fork() -> None:
    elsewhere = Log.of(50, actor="pr_2")
    elsewhere.origin = OTHER
    for theirs in ((elsewhere.note(50, OTHER_KEY),), (LOG.note(60), elsewhere.note(50, OTHER_KEY))):
        found = wrong(EXPORT, *theirs, given=keys(KEY, OTHER_KEY))
        assert (found.kind, str(found)) == (
            "other_log",
            f"A kept checkpoint of 50 entries is of another log, {OTHER}, and not of {ORIGIN}.",
        )
    longer = Log.of(120)
    longer.origin = OTHER
    assert wrong(EXPORT, longer.note(120, OTHER_KEY), given=keys(KEY, OTHER_KEY)).kind == "other_log"


def test_a_kept_checkpoint_of_another_log_agrees_with_nothing_though_its_entries_are_the_same() -> None:
    twin = Log.of(100)
    twin.origin = OTHER
    for theirs in ((twin.note(50, OTHER_KEY),), (LOG.note(50), twin.note(50, OTHER_KEY))):
        assert wrong(EXPORT, *theirs, given=keys(KEY, OTHER_KEY)).kind == "other_log"


def test_the_key_of_another_log_signs_nothing_of_this_one_though_it_was_given() -> None:
    found = wrong(LOG.export(LOG.note(100, OTHER_KEY)), given=keys(KEY, OTHER_KEY))
    assert (found.kind, "which is a key of another log" in str(found)) == ("wrong_key", True)


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        (
            [{"refund_version": 1}, {"refund_version": 2}, {"refund_version": 4}],
            "missing",
            "Entry 4 is version 4 of refund rf_x, whose version 3 is missing.",
        ),
        ([{"refund_version": 2}], "missing", "Entry 2 is version 2 of refund rf_x, whose version 1 is missing."),
        (
            [{"refund_version": 1}, {"refund_version": 2, "type": "status_changed", "data": '{"from": "approved", "to": "denied"}'}],
            "state",
            "Entry 3 moves refund rf_x from approved, and it stood at received.",
        ),
        ([{"refund_version": 1, "data": "[]"}], "state", "Entry 2 is about a refund and does not say of which, in which version, or what."),
    ],
)
def test_what_was_left_out_before_it_was_numbered_is_named_though_it_is_signed(rows: list[dict[str, Any]], kind: str, said: str) -> None:
    log = Log.of(1)
    for index, changed in enumerate(rows, 1):
        log.add(row(index, **({"refund_id": "rf_x", "type": "noted"} | changed)))
    log.add(row(90))
    found = wrong(log.export())
    assert (found.kind, str(found)) == (kind, said)


def test_what_a_file_says_of_itself_reaches_a_terminal_as_letters() -> None:
    log = Log.of(3)
    log.origin = "evil\x9b2J\u202e/" + "x" * 5_000
    said = str(wrong(log.export()))
    assert said.isprintable() and "evil\ufffd2J\ufffd/x" in said and len(said) <= verifier.MOST_SAID


def test_a_line_that_is_longer_than_any_entry_is_not_read_on() -> None:
    found = wrong(LINES[0] + b"\n" + b"[" * verifier.LONGEST_LINE)
    assert (found.kind, found.seq) == ("changed", 1)
    assert str(found).startswith("A line is longer than 16777216 bytes")


# --- proofs


def proven(body: dict[str, Any], *kept: str, seq: int | None = None) -> verifier.Report:
    return verifier.verify_proof(json.dumps(body).encode(), keys(), verifier.keep((note.encode() for note in kept), keys()), NOW, seq)


def unproven(body: dict[str, Any], *kept: str, seq: int | None = None) -> Wrong:
    with pytest.raises(Wrong) as caught:
        proven(body, *kept, seq=seq)
    return caught.value


def test_the_proof_of_every_entry_holds_in_every_tree() -> None:
    for size in (1, 2, 31, 64, 100):
        for seq in range(1, size + 1):
            assert proven(LOG.proof(seq, size), seq=seq).said.startswith(f"Entry {seq} is one of the {size} entries that were signed by ")


@pytest.mark.parametrize(
    ("change", "asked", "kind", "said"),
    [
        (lambda proof: proof["entry"].update(actor="pr_2"), None, "changed", "The hashes do not lead from entry 40 to what was signed"),
        (lambda proof: proof.update(hashes=LOG.proof(41)["hashes"]), None, "changed", "or they prove another entry"),
        (lambda proof: proof.update(hashes=proof["hashes"][:-1]), None, "changed", "The hashes do not lead"),
        (lambda proof: proof.update(hashes=[*proof["hashes"], "00" * 32]), None, "changed", "The hashes do not lead"),
        (lambda proof: proof.update(entry=LOG.proof(41)["entry"]), None, "other_entry", "made out for 40 and shows entry 41"),
        (lambda proof: proof.update(checkpoint=LOG.note(39)), None, "other_entry", "The checkpoint signs 39 entries, and this is entry 40"),
        (lambda proof: None, 41, "other_entry", "This is the proof of entry 40, and not of entry 41."),
        (lambda proof: proof.update(seq="40"), None, "malformed", "does not say of which entry"),
        (lambda proof: proof.update(hashes="none"), None, "malformed", "The hashes of the proof are none"),
        (lambda proof: proof.update(hashes=["0" * 63]), None, "malformed", "The hashes of the proof are none"),
        (lambda proof: proof.update(checkpoint=17), None, "malformed", "The checkpoint is no text"),
        (lambda proof: proof.update(more=1), None, "malformed", "not a refunds ledger proof"),
        (lambda proof: proof.pop("entry"), None, "malformed", "not a refunds ledger proof"),
        (lambda proof: proof.update(entry=[]), None, "changed", "has not the fields of an entry"),
        (lambda proof: proof["entry"].update(at="2027-01-01T00:00:00.000000Z"), None, "future", "Entry 40 is from the future"),
    ],
)
def test_a_proof_that_does_not_hold_is_named(change: Callable[[dict[str, Any]], object], asked: int | None, kind: str, said: str) -> None:
    proof = LOG.proof(40)
    change(proof)
    found = unproven(proof, seq=asked)
    assert (found.kind, said in str(found)) == (kind, True), str(found)


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        ('"seq": 7', '"seq": 3, "seq": 7'),
        ('"actor": "pr_1"', '"actor": "pr_evil", "actor": "pr_1"'),
        ('"checkpoint":', '"checkpoint": "", "checkpoint":'),
    ],
)
def test_a_proof_that_says_something_twice_is_none(once: str, twice: str) -> None:
    """Of two, another reader would show the one that was not verified."""
    body = json.dumps(LOG.proof(7)).replace(once, twice, 1)
    with pytest.raises(Wrong, match="says something twice"):
        verifier.verify_proof(body.encode(), keys(), Kept([]), NOW)


def test_a_proof_from_a_fork_is_caught_by_a_kept_checkpoint_of_its_size() -> None:
    assert unproven(Log.of(100, actor="pr_2").proof(40), LOG.note(100)).kind == "forked"


def test_consistency_is_proven_between_any_two_and_a_fork_is_named() -> None:
    for older, newer in ((1, 100), (64, 100), (99, 100), (100, 100), (3, 7)):
        said = verifier.verify_consistency(json.dumps(LOG.consistency(older, newer)).encode(), keys(), Kept([])).said
        assert said.startswith(f"The {newer} entries signed begin with the {older} signed earlier")
    forked = LOG.consistency(64, 100) | {"older": Log.of(64, actor="pr_2").note()}
    backwards = LOG.consistency(64, 100) | {"older": LOG.note(100), "newer": LOG.note(64)}
    for body, kind in ((forked, "forked"), (backwards, "truncated")):
        with pytest.raises(Wrong) as caught:
            verifier.verify_consistency(json.dumps(body).encode(), keys(), Kept([]))
        assert caught.value.kind == kind


# --- whatever is given


FILES = (EXPORT, json.dumps(LOG.proof(7)).encode(), json.dumps(LOG.consistency(64, 100)).encode(), LOG.note(100, KEY, NEXT_KEY).encode())


def survived(data: bytes, place: Path) -> None:
    """Whatever it is, it verifies or is wrong, and nothing else comes of it."""
    place.write_bytes(data)
    with suppress(Wrong):
        verifier.verify_file(place, keys(), verifier.keep(verifier.split_notes(data[:200]), keys()), NOW)
    with suppress(Wrong):
        verifier.verify_file(place, keys(), Kept([]), NOW)


@given(st.sampled_from(FILES), st.integers(0), st.binary(max_size=8), st.integers(0, 40))
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_was_damaged_anywhere_is_never_an_accident(tmp_path: Path, file: bytes, at: int, put: bytes, instead_of: int) -> None:
    at %= len(file)
    survived(file[:at] + put + file[at + instead_of :], tmp_path / "file")


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from([LOG.note(), verifier.PROOF, "00" * 32])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*sorted(verifier.FIELDS), "x"]), inner, max_size=12)
    ),
    max_leaves=30,
)


@given(
    st.sampled_from(FILES[1:3]),
    st.dictionaries(st.sampled_from(["seq", "entry", "hashes", "checkpoint", "older", "newer", "format"]), JSON),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_holds_something_else_is_never_an_accident(tmp_path: Path, file: bytes, put: dict[str, Any]) -> None:
    body = json.loads(file)
    survived(json.dumps(body | {name: value for name, value in put.items() if name in body}).encode(), tmp_path / "file")


@pytest.mark.parametrize("entry", ["1e999", "[" * 3_000 + "]" * 3_000, '"\\ud800"', "9" * 5_000, '{"v":1e999}'])
def test_a_proof_of_what_no_entry_can_be_is_never_an_accident(tmp_path: Path, entry: str) -> None:
    proof = json.dumps(LOG.proof(7) | {"entry": "PUT"}).replace('"PUT"', entry)
    (tmp_path / "proof").write_text(proof)
    with pytest.raises(Wrong):
        verifier.verify_file(tmp_path / "proof", keys(), Kept([]), NOW)


# --- every bit


BITS = tuple(1 << bit for bit in range(8))


def test_every_single_bit_that_changes_in_an_export_of_a_thousand_entries_is_found() -> None:
    """Each bit of the file is flipped once, and the verifier's own code judges what it would be given then.

    A flipped entry is hashed by the verifier: another hash than the next entry (or the signed root) rests on is what it names. Where the flip makes or takes
    away the end of a line, it reads the line that comes of it. The header it reads as it is. (The last line is compared as a whole: the small file below.)
    """
    log = Log.of(1_000)
    header, *lines, _trailer = log.export().split(b"\n")[:-1]
    lines, hash_of, flips = lines[:1_000], verifier.leaf_hash, 0
    for seq, (text, entry) in enumerate(zip(lines, log.entries, strict=True), 1):
        line, leaf, ends = bytearray(text), entry.hash, []
        assert hash_of(line) == leaf
        for index in range(len(line)):
            for bit in BITS:
                line[index] ^= bit
                if hash_of(line) == leaf:
                    pytest.fail(f"entry {seq}, byte {index}, bit {bit}")
                if line[index] == 0x0A:
                    ends.append(bytes(line[:index]))
                line[index] ^= bit
                flips += 1
        following = lines[seq] if seq < 1_000 else b'{"sha256":"'
        for line_read in [*ends, *(text + bytes([0x0A ^ bit]) + following for bit in BITS)]:
            with pytest.raises(Wrong):
                verifier.read_entry(line_read, seq, NOW)
        flips += 8
    assert flips == sum(8 * (len(line) + 1) for line in lines)
    line = bytearray(header)
    for index in range(len(line)):
        for bit in BITS:
            line[index] ^= bit
            with pytest.raises(Wrong):
                verifier.read_header(bytes(line), keys())
            line[index] ^= bit


def test_every_single_bit_of_a_small_export_is_found_by_judging_the_whole_file() -> None:
    data = bytearray(Log.of(3).export())
    assert judged(bytes(data)).checkpoint.size == 3
    for index in range(len(data)):
        for bit in BITS:
            data[index] ^= bit
            wrong(bytes(data))
            data[index] ^= bit


# --- as an auditor runs it


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The file alone, in an empty place, without the project on its path."""
    argv = [sys.executable, "-I", str(FILE), *arguments]
    return subprocess.run(argv, cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)


def test_the_file_alone_verifies_and_refuses_with_a_code_and_one_sentence(tmp_path: Path) -> None:
    given = {"export.jsonl": EXPORT, "proof.json": json.dumps(LOG.proof(7), indent=2).encode(), "cut.jsonl": EXPORT[:-2_000]}
    given |= {"consistency.json": json.dumps(LOG.consistency(64, 100)).encode(), "nothing": b"", "garbage": b"\xff\xfe" * 99}
    given |= {"kept": (LOG.note(64) + "\n" + LOG.note(80)).encode(), "kept-cut": LOG.note(64).encode()[:-3]}
    for name, data in given.items():
        (tmp_path / name).write_bytes(data)
    key = ("--key", KEY.vkey)
    kept = ("--checkpoint", str(tmp_path / "kept"))
    for name, arguments, code, said in (
        ("export.jsonl", (*key, *kept), 0, "100 entries, all of them as signed"),
        ("proof.json", (*key, "--seq", "7"), 0, "Entry 7 is one of the 100 entries"),
        ("consistency.json", key, 0, "The 100 entries signed begin with the 64"),
        ("proof.json", (*key, "--seq", "8"), 1, "This is the proof of entry 7, and not of entry 8."),
        ("cut.jsonl", key, 1, "The file is truncated: entry "),
        ("nothing", key, 1, "The file is empty."),
        ("garbage", key, 1, "it is cut off, no JSON, or says something twice"),
        ("export.jsonl", (*key, "--seq", "7"), 1, "This is an export, and not the proof of entry 7."),
        ("consistency.json", (*key, "--seq", "7"), 1, "This is a proof of consistency, and not the proof of entry 7."),
        ("export.jsonl", (*key, "--checkpoint", str(tmp_path / "nothing")), 1, "The file of checkpoints holds none."),
        ("export.jsonl", (*key, "--checkpoint", str(tmp_path)), 2, "cannot be read: Is a directory."),
        ("export.jsonl", ("--key", NEXT_KEY.vkey), 1, "and not by the key that was given"),
        ("export.jsonl", (*key, "--checkpoint", str(tmp_path / "kept-cut")), 1, "The file of checkpoints ends within one."),
        ("export.jsonl", ("--key", "no key"), 2, "is not the Ed25519 verifier key"),
        ("absent", key, 2, "cannot be read: No such file or directory."),
    ):
        ended = ran(str(tmp_path / name), *arguments)
        text = ended.stderr if code else ended.stdout
        assert (ended.returncode, said in text, len(text.splitlines())) == (code, True, 1), (name, ended)
