"""Signed notes and checkpoints: the examples that are published by others, read and written byte for byte, and what is none.

The public implementation that ours are held to is Go's ``golang.org/x/mod/sumdb/note`` (BSD), the origin of the format: the keys, notes and refusals of its
tests, and of the C2SP specification. No implementation on the package index is light enough to be a dependency of tests.
"""

import base64
from typing import Any

import pytest

from refunds.ledger import notes, verifier
from refunds.ledger.origin import check_name
from tests.refunds.ledger.logs import KEY, NEXT_KEY, ORIGIN, Log, keys

PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETER_SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
ENOCH = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
BY_PETER = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
BY_ENOCH = "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
# c2sp.org/signed-note, "Example", and c2sp.org/tlog-checkpoint
FOO = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
FOO_NOTE = """This is an example message.

— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=
"""
SOFA = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
"""
# What Sigstore's public log signed, with ECDSA: a kind of signature that is not ours.
REKOR = (
    "rekor.sigstore.dev - 2605736670972794746\n75441653\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n\n— rekor.sigstore.dev "
    "wNI9ajBGAiEA5perJLLm94gCQOQT5/vO29OXWNZ1SoengZDZ/U6vsOUCIQDBL0BIkCjWGR6V622znnVpXF5D1g0jPgajBlHh8uSc8g==\n"
)


def verified(note: str, *given: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return verifier.verify_note(note.encode(), [verifier.read_key(key) for key in given])


def test_the_published_notes_verify_with_their_keys() -> None:
    assert verified(f"{TEXT}\n{BY_PETER}", PETER) == (TEXT, ("PeterNeumann+c74f20a3",), ())
    assert verified(f"{TEXT}\n{BY_PETER}{BY_ENOCH}", PETER, ENOCH)[1] == ("PeterNeumann+c74f20a3", "EnochRoot+af0cfe78")
    assert verified(FOO_NOTE, FOO) == ("This is an example message.\n", ("example.com/foo+530d903a",), ())


def test_we_write_the_published_note_from_its_key() -> None:
    secret = base64.b64decode(PETER_SECRET.split("+", 4)[4])
    key = notes.SigningKey.from_seed("PeterNeumann", secret[1:])
    assert key.vkey == PETER
    assert notes.signed(TEXT, [key]) == f"{TEXT}\n{BY_PETER}"


def test_a_signature_of_a_key_that_was_not_given_is_passed_over_and_shown() -> None:
    assert verified(f"{TEXT}\n{BY_PETER}{BY_ENOCH}{BY_ENOCH}", PETER)[1:] == (("PeterNeumann+c74f20a3",), ("EnochRoot+af0cfe78",))
    assert verified(f"{TEXT}\n{BY_ENOCH}", PETER)[1:] == ((), ("EnochRoot+af0cfe78",))


def test_a_known_key_whose_signature_is_wrong_spoils_the_whole_note() -> None:
    wrong = BY_PETER.replace("x08go/ZJku", "x08go/ZJkv")
    for signatures in (wrong, BY_ENOCH + wrong):
        with pytest.raises(verifier.Wrong, match=r"not what the key PeterNeumann\+c74f20a3 signed") as caught:
            verified(f"{TEXT}\n{signatures}", PETER, ENOCH)
        assert caught.value.kind == "changed"


@pytest.mark.parametrize(
    "note",
    [
        TEXT,
        f"{TEXT}\n",
        f"{TEXT}\n{BY_PETER[:-1]}",
        f"\x01{TEXT}\n{BY_PETER}",
        f"{TEXT}\r\n{BY_PETER}",
        f"{TEXT}\n— Bad Name x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n",
        f"{TEXT}\n— a+b x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n",
        f"{TEXT}\n{BY_PETER}Unexpected line.\n",
        f"{TEXT}\n— PeterNeumann\n",
        f"{TEXT}\n— PeterNeumann x08g\n",
        f"{TEXT}\n{BY_PETER.replace('JnAM=', 'JnAN=')}",  # the same bytes, written in a way that no encoder writes
        f"{TEXT}\n{BY_PETER * 101}",
        "",
        "\n\n",
    ],
)
def test_what_is_no_note_is_refused(note: str) -> None:
    with pytest.raises(verifier.Wrong) as caught:
        verified(note, PETER)
    assert caught.value.kind == "malformed"


def test_bytes_that_are_no_text_are_no_note() -> None:
    with pytest.raises(verifier.Wrong, match="not UTF-8"):
        verifier.read_note(b"\xff" + TEXT.encode() + b"\n" + BY_PETER.encode())


def test_every_part_of_a_key_and_every_changed_character_is_no_key() -> None:
    parts = [PETER[first:end] for first in range(len(PETER)) for end in range(first + 1, len(PETER) + 1)]
    parts.remove(PETER)
    mangled = [PETER[:index] + chr(ord(character) + 1) + PETER[index + 1 :] for index, character in enumerate(PETER)]
    for text in [
        *parts,
        *mangled,
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",  # of another length, with the id of that
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",  # of another kind, with the id of that
    ]:
        with pytest.raises(verifier.Wrong) as caught:
            verifier.read_key(text)
        assert caught.value.kind == "key"


@pytest.mark.parametrize(
    ("note", "origin", "size", "root"),
    [
        (SOFA, "example.com/behind-the-sofa", 20_852_163, "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="),
        (REKOR, "rekor.sigstore.dev - 2605736670972794746", 75_441_653, "uAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4="),
    ],
)
def test_checkpoints_of_other_logs_are_read(note: str, origin: str, size: int, root: str) -> None:
    text, [(name, _, _)] = verifier.read_note(note.encode())
    assert verifier.read_text(text) == verifier.Checkpoint(origin, size, base64.b64decode(root))
    assert name in origin


@pytest.mark.parametrize(
    "text",
    [  # golang.org/x/mod and transparency-dev/formats refuse the same
        "Head\n9944\n",
        "\n9944\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n",
        "Log\n123\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=",
        "Log\nbananas\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n",
        "Log\n-34\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n",
        "Log\n012\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n",
        "Log\n3438945738945739845734895735\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\n",
        "Log\n123\nThisIsn'tBase64\n",
        "Log\n123\nYmFuYW5hcw==\n",  # base64, and no hash
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(verifier.Wrong, match="does not say which log") as caught:
        verifier.read_text(text)
    assert caught.value.kind == "malformed"


def test_lines_after_the_root_are_allowed() -> None:
    assert verifier.read_text("Log\n1\nuAqI3id6JHPMMNUltHIKHuX1kVHpm5y7jSfnbaRO+E4=\nmore\nlines\n").size == 1


def test_a_checkpoint_is_opened_by_the_key_of_its_log() -> None:
    log = Log.of(5)
    opened = verifier.open_checkpoint(log.note().encode(), keys())
    assert opened == verifier.Checkpoint(ORIGIN, 5, log.root(), (f"{ORIGIN}+{KEY.key_id.hex()}",))


def test_while_a_key_is_replaced_either_one_verifies() -> None:
    both = Log.of(5).note(5, KEY, NEXT_KEY)
    for given, other in ((KEY, NEXT_KEY), (NEXT_KEY, KEY)):
        opened = verifier.open_checkpoint(both.encode(), keys(given))
        assert (opened.signed_by, opened.unknown) == ((f"{ORIGIN}+{given.key_id.hex()}",), (f"{ORIGIN}+{other.key_id.hex()}",))
    assert len(verifier.open_checkpoint(both.encode(), keys(KEY, NEXT_KEY)).signed_by) == 2


def test_a_kind_of_signature_of_tomorrow_does_not_disturb() -> None:
    witnessed = Log.of(5).note() + f"— witness.example {base64.b64encode(bytes(2_500)).decode()}\n"
    assert verifier.open_checkpoint(witnessed.encode(), keys()).unknown == ("witness.example+00000000",)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda log: log.note(5, NEXT_KEY), "wrong_key", "and not by the key that was given"),
        (lambda log: setattr(log, "origin", "other.example/log") or log.note(), "other_log", "of another log: of other.example/log, while"),
        (lambda log: log.note().replace("\n5\n", "\n6\n"), "changed", "not what the key"),
        (lambda log: log.note()[:-9], "malformed", "not a signed note"),
    ],
)
def test_a_checkpoint_that_does_not_hold_is_named(change: Any, kind: str, said: str) -> None:
    with pytest.raises(verifier.Wrong, match=said) as caught:
        verifier.open_checkpoint(change(Log.of(5)).encode(), keys())
    assert caught.value.kind == kind


def test_a_file_of_checkpoints_is_split_and_one_cut_off_is_noticed() -> None:
    log = Log.of(5)
    written = [log.note(2).encode(), log.note(4, KEY, NEXT_KEY).encode(), log.note(5).encode()]
    assert verifier.split_notes(b"\n".join(written)) == verifier.split_notes(b"".join(written)) == written
    assert verifier.split_notes(b"") == []
    whole = b"\n".join(written)
    for cut in (1, 100, len(whole) - len(written[2]) + 40):
        with pytest.raises(verifier.Wrong, match="ends within one"):
            verifier.split_notes(whole[:-cut] if cut < 200 else whole[:cut])


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b", "a\x07b"])
def test_a_name_that_no_key_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no white space and no plus sign"):
        check_name(name)
    with pytest.raises(ValueError, match="no white space"):
        notes.SigningKey.from_seed(name, bytes(32))


def test_nothing_is_signed_without_a_key_or_without_a_last_newline() -> None:
    for text, signers in (("a\n", []), ("a", [KEY])):
        with pytest.raises(ValueError, match="lines of text and at least one signature"):
            notes.signed(text, signers)
