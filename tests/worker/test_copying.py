"""Copies of checkpoints in files: there whole or not at all, also after a crash in the middle of one."""

from pathlib import Path

import pytest

from refunds.ledger import verifier
from refunds.ledger.notes import SigningKey
from store.checkpoints import Copy
from tests.refunds.ledger.logs import KEY, NEXT_KEY, ORIGIN, Log, keys
from worker.copying import CopyFailed, into_directory, newest_in, onto_file

LOG = Log.of(30)
OTHER_KEY = SigningKey.from_seed(ORIGIN, b"o" * 32)


def copy(target: str, size: int) -> Copy:
    return Copy(size, target, 1, size, LOG.note(size, KEY, NEXT_KEY))


def test_each_checkpoint_is_a_file_of_its_own_in_a_directory_and_the_newest_sorts_last(tmp_path: Path) -> None:
    for size in (9, 10, 30, 30):
        into_directory(copy(f"{tmp_path}/", size))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{size:012d}-{size}.checkpoint" for size in (9, 10, 30)]
    assert max(tmp_path.iterdir()).read_text() == LOG.note(30, KEY, NEXT_KEY)


def test_a_file_grows_by_one_note_a_checkpoint_and_the_same_one_twice_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    for size in (1, 2, 2, 30):
        onto_file(copy(str(path), size))
    assert verifier.split_notes(path.read_bytes()) == [LOG.note(size, KEY, NEXT_KEY).encode() for size in (1, 2, 30)]


def test_what_a_crash_left_half_written_is_cut_off_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    whole = LOG.note(1, KEY, NEXT_KEY).encode()
    torn = b"\n" + LOG.note(2, KEY, NEXT_KEY).encode()
    for cut in range(1, len(torn)):
        path.write_bytes(whole + torn[:cut])
        onto_file(copy(str(path), 2))
        kept = verifier.split_notes(path.read_bytes())
        assert kept[0] == whole and kept[-1] == LOG.note(2, KEY, NEXT_KEY).encode(), cut


@pytest.mark.parametrize("write", [into_directory, onto_file])
def test_a_place_that_is_not_there_is_an_error_of_the_system(tmp_path: Path, write: object) -> None:
    with pytest.raises(FileNotFoundError):
        into_directory(copy(f"{tmp_path}/none/", 1)) if write is into_directory else onto_file(copy(f"{tmp_path}/none/kept", 1))


@pytest.mark.parametrize(
    "words", ["my diary\n", "my diary", LOG.note(1) + "\nmy diary\n", "s\nmy diary", "shop.example/refunds\n" + "diary\n" * 200]
)
def test_a_file_that_holds_anything_else_is_refused_and_left_as_it_is(tmp_path: Path, words: str) -> None:
    path = tmp_path / "kept.txt"
    path.write_text(words)
    with pytest.raises(CopyFailed, match="holds something else than checkpoints of this log"):
        onto_file(copy(str(path), 2))
    assert path.read_text() == words


def test_the_newest_copy_of_a_place_is_the_one_that_signs_most_and_that_we_signed(tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    for target in (f"{tmp_path}/copies/", f"{tmp_path}/kept.txt"):
        write = into_directory if target.endswith("/") else onto_file
        for size in (2, 10, 9):
            write(copy(target, size))
        found = newest_in(target, keys())
        assert (found.size, found.root) == (10, LOG.root(10)) if found else None
        assert newest_in(target, keys(OTHER_KEY)) is None
    assert newest_in("https://copies.example/x", keys()) is None
