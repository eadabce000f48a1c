"""Copies of checkpoints in files: there whole or not at all, also after a crash in the middle of one."""

from pathlib import Path

import pytest

from refunds.ledger import verifier
from store.checkpoints import Copy
from tests.refunds.ledger.logs import KEY, NEXT_KEY, Log
from worker.copying import into_directory, onto_file

LOG = Log.of(30)


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
