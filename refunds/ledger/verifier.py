"""Check the ledger of a refunds installation, from its files and its public key alone.

    python verifier.py FILE --key KEY [--checkpoint KEPT]... [--seq NUMBER]

FILE is what ``refunds ledger export``, ``refunds ledger prove`` or ``refunds ledger consistency`` wrote. KEY is the log's verifier key
(name+id+base64): take it from somewhere the operator of the log cannot change. KEPT is a file of checkpoints you put aside earlier; what was signed then
must still be true. Exit code 0: it holds. 1: it does not, and one sentence says what and where. 2: there is nothing to check.

This file stands alone: Python's standard library and ``cryptography`` for one signature check. It is meant to be read. What it checks:

- An entry is a line of RFC 8785 canonical JSON, with its number and the hash of the entry before it.
- The hash of an entry is SHA-256 over 0x00 and the line (RFC 9162, 2.1.1), which is both what the next entry names and a leaf of the Merkle tree.
- A checkpoint is a C2SP signed note (c2sp.org/signed-note, c2sp.org/tlog-checkpoint): the log's name, how many entries, the root over them, Ed25519.
"""

import argparse
import base64
import binascii
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

EXPORT, PROOF, CONSISTENCY = "refunds ledger export 1", "refunds ledger proof 1", "refunds ledger consistency 1"
FIELDS = {"v", "seq", "at", "type", "refund", "refund_version", "actor", "on_behalf_of", "data", "commitments", "previous"}
AHEAD = timedelta(minutes=5)
"""How far the clock that wrote an entry may be before the clock that reads it."""
LONGEST_LINE = 16 * 1024 * 1024
MOST_SAID = 1_000
MOST_SIGNATURES = 100
EXACT = 2**53 - 1
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIZE = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)


class Wrong(Exception):
    """What is wrong, as a sentence; of which kind, in a word; and the first entry it is about, when it is about one."""

    def __init__(self, kind: str, sentence: str, seq: int | None = None) -> None:
        # What a file says of itself is in some sentences: it must not reach a terminal as anything but letters.
        super().__init__("".join(one if one.isprintable() else "\ufffd" for one in sentence[:MOST_SAID]))
        self.kind, self.seq = kind, seq


# --- the tree (RFC 9162, 2.1)


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(peaks: Sequence[bytes]) -> bytes:
    """The root over complete subtrees, given from the largest to the smallest."""
    if not peaks:
        return hashlib.sha256(b"").digest()
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def add_leaf(peaks: list[bytes], size: int, leaf: bytes) -> None:
    """Put a leaf at the end of a tree of ``size`` leaves: two subtrees of equal size become one."""
    while size & 1:
        leaf, size = node_hash(peaks.pop(), leaf), size >> 1
    peaks.append(leaf)


def root_by_inclusion(index: int, size: int, leaf: bytes, hashes: Sequence[bytes]) -> bytes | None:
    """The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); ``None`` when it has not as many hashes as it must have."""
    node, last, root = index, size - 1, leaf
    if not 0 <= index < size:
        return None
    for one in hashes:
        if last == 0:
            return None
        if node & 1 or node == last:
            root = node_hash(one, root)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            root = node_hash(root, one)
        node, last = node >> 1, last >> 1
    return root if last == 0 else None


def is_consistent(older: int, newer: int, old_root: bytes, new_root: bytes, hashes: Sequence[bytes]) -> bool:
    """Whether a consistency proof shows that the newer tree begins with the older one (RFC 9162, 2.1.4.2)."""
    if not 0 < older <= newer:
        return False
    if older == newer:
        return not hashes and old_root == new_root
    path = [old_root, *hashes] if older & (older - 1) == 0 else list(hashes)
    if not path:
        return False
    node, last = older - 1, newer - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old = new = path[0]
    for one in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old, new = node_hash(one, old), node_hash(one, new)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, one)
        node, last = node >> 1, last >> 1
    return last == 0 and old == old_root and new == new_root


# --- keys, notes and checkpoints


@dataclass(frozen=True)
class Key:
    """A verifier key."""

    name: str
    id: bytes
    public: bytes

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}"


@dataclass(frozen=True)
class Checkpoint:
    """What a log signed: so many entries have this root. ``unknown`` are signatures by keys that were not given, of whatever kind; they prove nothing here."""

    origin: str
    size: int
    root: bytes
    signed_by: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_key(text: str) -> Key:
    """Read a verifier key. Raises :class:`Wrong`."""
    name, _, rest = text.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    public = _base64(encoded)
    if not _is_name(name) or public is None or len(public) != 33 or public[0] != 1:
        raise Wrong("key", f"{text.strip()[:100]!r} is not the Ed25519 verifier key of a log, which is name+id+base64.")
    if hashlib.sha256(name.encode() + b"\n" + public).digest()[:4].hex() != key_id:
        raise Wrong("key", f"The id in the verifier key of {name} does not belong to it: the key was not copied exactly.")
    return Key(name, bytes.fromhex(key_id), public[1:])


def read_note(note: bytes) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """The text of a signed note, and the name, key id and signature of each of its lines. Raises :class:`Wrong`; verifies nothing."""
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise Wrong("malformed", "The checkpoint is not UTF-8 text.") from None
    head, blank, tail = whole.rpartition("\n\n")
    if not blank or not head or not tail.endswith("\n") or any(character < " " and character != "\n" for character in whole):
        raise Wrong("malformed", "The checkpoint is not a signed note: lines of text, an empty line, and signatures.")
    signatures: list[tuple[str, bytes, bytes]] = []
    for line in tail[:-1].split("\n"):
        dash, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        signature = _base64(encoded)
        if dash != "\u2014" or not _is_name(name) or signature is None or len(signature) < 5:
            raise Wrong("malformed", "The checkpoint has a signature line that is none.")
        signatures.append((name, signature[:4], signature[4:]))
    if len(signatures) > MOST_SIGNATURES:
        raise Wrong("malformed", f"The checkpoint has more than {MOST_SIGNATURES} signatures.")
    return head + "\n", signatures


def read_text(text: str) -> Checkpoint:
    """Read the text of a checkpoint. Raises :class:`Wrong`; verifies nothing."""
    origin, size, root, *_ = [*text.split("\n"), "", "", ""]
    decoded = _base64(root)
    if text.count("\n") < 3 or not origin or not _SIZE.fullmatch(size) or decoded is None or len(decoded) != 32:
        raise Wrong("malformed", "The checkpoint does not say which log, how many entries and which root.")
    return Checkpoint(origin, int(size), decoded)


def verify_note(note: bytes, keys: Sequence[Key]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The text of a note that one of the keys signed, by which, and whose other signatures it carries. Raises :class:`Wrong`."""
    text, signatures = read_note(note)
    known = {(key.name, key.id): key for key in keys}
    signed_by: list[str] = []
    unknown: list[str] = []
    for name, key_id, signature in signatures:
        key = known.get((name, key_id))
        if key is None:
            unknown.append(f"{name}+{key_id.hex()}")
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.public).verify(signature, text.encode())
        except InvalidSignature:
            raise Wrong("changed", f"The checkpoint is not what the key {key} signed: it was changed.") from None
        signed_by.append(str(key))
    return text, tuple(dict.fromkeys(signed_by)), tuple(dict.fromkeys(unknown))


def open_checkpoint(note: bytes, keys: Sequence[Key]) -> Checkpoint:
    """A checkpoint that one of the keys signed, for the log of that key. Raises :class:`Wrong`."""
    text, signed_by, unknown = verify_note(note, keys)
    read = read_text(text)
    if read.origin not in {key.name for key in keys}:
        given = ", ".join(sorted({key.name for key in keys}))
        raise Wrong("other_log", f"This is a checkpoint of another log: of {read.origin}, while the key is of {given}.")
    if not signed_by:
        given = ", ".join(str(key) for key in keys)
        raise Wrong("wrong_key", f"The checkpoint was signed by {', '.join(unknown)} and not by the key that was given, {given}.")
    if not any(key.name == read.origin and str(key) in signed_by for key in keys):
        raise Wrong("wrong_key", f"The checkpoint of {read.origin} was signed by {', '.join(signed_by)}, which is a key of another log.")
    return Checkpoint(read.origin, read.size, read.root, signed_by, unknown)


def split_notes(data: bytes) -> list[bytes]:
    """The notes of a file of one or more, one after the other. Raises :class:`Wrong` when the last one is cut off."""
    notes: list[bytes] = []
    current: list[bytes] = []
    dash = "\u2014 ".encode()
    for line in data.splitlines(keepends=True):
        if current and current[-1].startswith(dash) and not line.startswith(dash):
            notes.append(b"".join(current))
            current = []
        if current or line.strip():
            current.append(line)
    if current:
        if not current[-1].startswith(dash) or not current[-1].endswith(b"\n"):
            raise Wrong("truncated", "The file of checkpoints ends within one.")
        notes.append(b"".join(current))
    return notes


def kept_notes(data: bytes) -> list[bytes]:
    """The notes of a file that somebody kept. Raises :class:`Wrong` also where there is none: an empty file must not pass for a check that was made."""
    notes = split_notes(data)
    if not notes:
        raise Wrong("malformed", "The file of checkpoints holds none.")
    return notes


def _base64(text: str) -> bytes | None:
    """Decode, if it is the one way to write these bytes: else a bit could change without a trace."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if base64.b64encode(decoded).decode() == text else None


def _is_name(name: str) -> bool:
    return bool(name) and name.isprintable() and "+" not in name and " " not in name


# --- entries


_AS_GIVEN = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_SORTED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)


def canonical(value: Any) -> bytes:
    """RFC 8785 canonical JSON of objects, lists, texts, integers, true, false and null."""
    plain = _SORTED.encode(value)
    return plain.encode() if plain.isascii() else _AS_GIVEN.encode(_in_order(value)).encode()


def _in_order(value: Any) -> Any:
    """Names in the order of their UTF-16 units, which is not Python's beyond the first 65,536 characters."""
    if _is_object(value):
        return {name: _in_order(value[name]) for name in sorted(value, key=_units)}
    return [_in_order(item) for item in value] if _is_list(value) else value


def _units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _no_fraction(text: str) -> NoReturn:
    raise ValueError(f"{text} is not an integer")


def _exact(text: str) -> int:
    value = int(text) if len(text) < 20 else EXACT + 1
    if abs(value) > EXACT:
        raise ValueError("an integer that not every reader keeps")
    return value


_READER = json.JSONDecoder(parse_float=_no_fraction, parse_constant=_no_fraction, parse_int=_exact)


def read_json(line: bytes) -> Any:
    """Read a line that must be canonical JSON. Raises ``ValueError``."""
    try:
        value = _READER.decode(line.decode())
        if canonical(value) != line:
            raise ValueError("not canonical")
    except RecursionError:
        raise ValueError("too deep") from None
    return value


def read_entry(line: bytes, seq: int, now: datetime) -> dict[str, Any]:
    """Read the line that is entry ``seq``, which must be well formed and not of the future. Raises :class:`Wrong`."""
    try:
        entry = read_json(line)
    except ValueError:
        raise Wrong("changed", f"Entry {seq} was changed: it is not canonical JSON.", seq) from None
    if _is_object(entry) and type(entry.get("v")) is int and entry["v"] > 1:
        raise Wrong("version", f"Entry {seq} has a form that this verifier does not know ({entry['v']}); use a newer one.", seq)
    if (
        not _is_object(entry)
        or entry.keys() != FIELDS
        or entry["v"] != 1
        or type(entry["seq"]) is not int
        or not _matches(_TIME, entry["at"])
        or not _matches(_HASH, entry["previous"])
    ):
        raise Wrong("changed", f"Entry {seq} was changed: it has not the fields of an entry.", seq)
    if entry["at"] > _latest(now):
        raise Wrong("future", f"Entry {seq} is from the future: it says {entry['at']}, and it is {_written(now)}.", seq)
    return entry


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


@lru_cache(maxsize=1)
def _latest(now: datetime) -> str:
    return _written(now + AHEAD)


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Chain:
    """The entries from the first on: each is added as its line, and must follow the one before."""

    def __init__(self, now: datetime) -> None:
        self.size = 0
        self._now = now
        self._head = hashlib.sha256(b"").digest()
        self._peaks: list[bytes] = []
        self._before: list[bytes] = []  # the peaks before the last entry, and before the last but one
        self._earlier: list[bytes] = []
        self._torn: str | None = None

    def root(self) -> bytes:
        """The root over what was added."""
        return root_of(self._peaks)

    def add(self, line: bytes) -> dict[str, Any]:
        """Add the next entry and return its fields. Raises :class:`Wrong`, naming the first entry that is not what it was.

        An entry that was changed no longer has the hash which its successor names. Which of the two was changed is seen one entry later.
        """
        seq = self.size + 1
        entry = read_entry(line, seq, self._now)
        previous = entry["previous"]
        if self._torn is not None:
            self._name_torn(intact=previous == self._head.hex())
        if previous != self._head.hex():
            if entry["seq"] != seq:
                raise Wrong("order", f"Entry {seq} is missing: entry {entry['seq']} stands in its place.", seq)
            if seq == 1:
                raise Wrong("changed", "Entry 1 was changed: it names a hash before it, and it is the first.", 1)
            self._torn = previous
        elif entry["seq"] != seq:
            raise Wrong("changed", f"Entry {seq} was changed: it calls itself {entry['seq']}.", seq)
        self._head = leaf_hash(line)
        self._earlier, self._before = self._before, list(self._peaks)
        add_leaf(self._peaks, self.size, self._head)
        self.size = seq
        return entry

    def end(self, root: bytes | None) -> None:
        """No entry follows; ``root`` is what was signed over all of them, if anything was. Raises :class:`Wrong` when the last two do not fit together."""
        if self._torn is not None and root is None:
            raise Wrong("changed", f"Entry {self.size - 1} or the one after it, which is the last, was changed.", self.size - 1)
        if self._torn is not None:
            peaks = list(self._earlier)  # as they would be, had the last but one the hash that the last one names
            add_leaf(peaks, self.size - 2, bytes.fromhex(self._torn))
            add_leaf(peaks, self.size - 1, self._head)
            self._name_torn(intact=root_of(peaks) == root)

    def _name_torn(self, *, intact: bool) -> NoReturn:
        seq = self.size - 1 if intact else self.size
        raise Wrong(
            "changed", f"Entry {seq} was changed: it no longer has the hash that the entries after it and the signatures rest on.", seq
        )


# --- files


@dataclass(frozen=True)
class Report:
    """What was verified, in a sentence."""

    said: str
    checkpoint: Checkpoint


class Kept:
    """Checkpoints that were put aside earlier: what they signed must still be so."""

    def __init__(self, checkpoints: Iterable[Checkpoint]) -> None:
        self._by_size: dict[int, Checkpoint] = {}
        self._all = sorted(checkpoints, key=lambda one: one.size)
        self._agreed = 0
        for one in self._all:
            other = self._by_size.setdefault(one.size, one)
            if other.root != one.root:
                self.belong_to(other.origin)
                raise Wrong("forked", f"Two kept checkpoints sign different histories of the same {one.size} entries: the log was forked.")

    def belong_to(self, log: str) -> None:
        """Raise :class:`Wrong` unless all are of this log: another one's say nothing about it, and be it that they agree."""
        for one in self._all:
            if one.origin != log:
                raise Wrong("other_log", f"A kept checkpoint of {one.size} entries is of another log, {one.origin}, and not of {log}.")

    @property
    def newest(self) -> int:
        """The largest size that was signed."""
        return max(self._by_size, default=0)

    def get(self, size: int) -> Checkpoint | None:
        """The one of that size."""
        return self._by_size.get(size)

    def compare(self, size: int, root: bytes) -> None:
        """Hold a root against the kept checkpoint of that size, if there is one. Raises :class:`Wrong`."""
        if (wrong := self.differs(size, root)) is not None:
            raise wrong

    def differs(self, size: int, root: bytes) -> Wrong | None:
        """What is wrong if the kept checkpoint of that size has another root. Ask by rising sizes: what agreed before bounds what did not."""
        kept = self._by_size.get(size)
        if kept is not None and kept.root != root:
            first = self._agreed + 1
            said = (
                f"This is another history than the one that was signed: a kept checkpoint of {size} entries has another root,"
                f" so an entry from {first} to {size} was changed after it was signed."
            )
            return Wrong("forked", said, first)
        self._agreed = size if kept is not None else self._agreed
        return None

    def reaches(self, size: int) -> None:
        """Raise :class:`Wrong` when more entries were signed than there are."""
        if self.newest > size:
            said = f"Entry {size + 1} and what follows is missing: a kept checkpoint signs {self.newest} entries, and here are {size}."
            raise Wrong("truncated", said, size + 1)


class Standing:
    """Where entries leave each refund: its versions have no gap (a row that vanished before it was numbered leaves one), and each move begins where it stood."""

    def __init__(self) -> None:
        self.of: dict[str, tuple[int, str]] = {}

    def follow(self, seq: int | None, entry: dict[str, Any]) -> None:
        """Carry a refund on by one of its entries, or (without ``seq``) by a row that waits for a number. Raises :class:`Wrong`."""
        what = f"Entry {seq}" if seq else "A row without a number"
        refund, version, data = entry["refund"], entry["refund_version"], entry["data"]
        if refund is None and version is None:
            return
        if not isinstance(refund, str) or type(version) is not int or not _is_object(data):
            raise Wrong("state", f"{what} is about a refund and does not say of which, in which version, or what.", seq)
        before, status = self.of.get(refund, (0, ""))
        if version != before + 1:
            raise Wrong("missing", f"{what} is version {version} of refund {refund}, whose version {before + 1} is missing.", seq)
        if entry["type"] == "status_changed":
            if data.get("from") != status:
                raise Wrong("state", f"{what} moves refund {refund} from {data.get('from')}, and it stood at {status or 'nothing'}.", seq)
            status = str(data.get("to"))
        self.of[refund] = version, status or "received"


def keep(notes: Iterable[bytes], keys: Sequence[Key]) -> Kept:
    """Open checkpoints that were kept. Raises :class:`Wrong`."""
    return Kept(open_checkpoint(note, keys) for note in notes)


def verify_export(lines: Iterable[bytes], keys: Sequence[Key], kept: Kept, now: datetime) -> Report:
    """Verify an export: a header with the checkpoint, every entry from the first to the last that it signs, and the hash of all of that.

    ``lines`` are the file's, each with its newline. Raises :class:`Wrong`.
    """
    rest, digest = iter(lines), hashlib.sha256()
    checkpoint = read_header(_whole(next(rest, b""), digest, "The file ends within its first line."), keys)
    chain, standing = Chain(now), Standing()
    kept.belong_to(checkpoint.origin)
    forked: Wrong | None = None
    lost: Wrong | None = None
    while chain.size < checkpoint.size:
        seq = chain.size + 1
        said = f"The file is truncated: entry {seq} is cut off or missing, and {checkpoint.size} entries were signed."
        line = _whole(next(rest, b""), digest, said, seq)
        if line.startswith(b'{"sha256"'):
            raise Wrong("truncated", said, seq)
        try:
            entry = chain.add(line)
        except Wrong as wrong:
            raise (_told_apart(wrong, rest) if wrong.kind == "order" else wrong) from None
        if lost is None:
            lost = _lost(standing, chain.size, entry)
        if kept.get(chain.size) is not None and forked is None:
            forked = kept.differs(chain.size, chain.root())
    chain.end(checkpoint.root)  # an entry that no longer fits explains more than a root does
    if forked is not None:
        raise forked
    kept.reaches(chain.size)
    if chain.root() != checkpoint.root:
        raise Wrong(
            "changed",
            f"Entry {chain.size} is not the one that was signed, or the history was written anew from an earlier entry on.",
            chain.size,
        )
    _read_trailer(next(rest, b""), digest)
    if next(rest, b""):
        raise Wrong("malformed", "Something follows after the end of the export.")
    if lost is not None:  # every entry is as it was signed, and so it was signed
        raise lost
    return Report(f"{chain.size} entries, all of them as signed{_by(checkpoint)}.", checkpoint)


def _lost(standing: Standing, seq: int, entry: dict[str, Any]) -> Wrong | None:
    try:
        standing.follow(seq, entry)
    except Wrong as wrong:
        return wrong
    return None


def _whole(line: bytes, digest: Any, otherwise: str, seq: int | None = None) -> bytes:
    if len(line) >= LONGEST_LINE:
        raise Wrong("changed", f"A line is longer than {LONGEST_LINE} bytes, which nothing is that a ledger wrote.", seq)
    if not line.endswith(b"\n"):
        raise Wrong("truncated", otherwise, seq)
    digest.update(line)
    return line[:-1]


def read_header(line: bytes, keys: Sequence[Key]) -> Checkpoint:
    """The first line of an export, and the checkpoint in it. Raises :class:`Wrong`."""
    header = _fields(line, {"format", "checkpoint"}, EXPORT)
    return open_checkpoint(_text(header["checkpoint"]), keys)


def _read_trailer(line: bytes, digest: Any) -> None:
    if line != canonical({"sha256": digest.hexdigest()}) + b"\n":
        raise Wrong(
            "truncated" if not line.endswith(b"\n") else "changed", "The last line is not the hash of the file: it was cut off or changed."
        )


def _told_apart(wrong: Wrong, rest: Iterator[bytes]) -> Wrong:
    """Whether the entry that is not in its place comes later, or not at all."""
    for line in rest:
        try:
            later = read_json(line.rstrip(b"\n"))
        except ValueError:
            continue
        if _is_object(later) and later.get("seq") == wrong.seq:
            return Wrong(
                "reordered", f"The entries are in another order: entry {wrong.seq} is not in its place, it comes later.", wrong.seq
            )
    return Wrong("missing", str(wrong), wrong.seq)


def verify_proof(data: bytes, keys: Sequence[Key], kept: Kept, now: datetime, seq: int | None = None) -> Report:
    """Verify that one entry is in the log: its file has the entry, the hashes up to the root, and the checkpoint. Raises :class:`Wrong`."""
    proof = _fields(data, {"format", "seq", "entry", "hashes", "checkpoint"}, PROOF)
    number = proof["seq"]
    if type(number) is not int or number < 1:
        raise Wrong("malformed", "The proof does not say of which entry it is.")
    if seq is not None and number != seq:
        raise Wrong("other_entry", f"This is the proof of entry {number}, and not of entry {seq}.", number)
    try:
        line = canonical(proof["entry"])
    except (ValueError, RecursionError):
        raise Wrong("changed", f"Entry {number} was changed: it holds what no entry can.", number) from None
    entry = read_entry(line, number, now)
    if entry["seq"] != number:
        raise Wrong("other_entry", f"The proof is for another entry: it is made out for {number} and shows entry {entry['seq']}.", number)
    checkpoint = open_checkpoint(_text(proof["checkpoint"]), keys)
    if number > checkpoint.size:
        raise Wrong("other_entry", f"The checkpoint signs {checkpoint.size} entries, and this is entry {number}.", number)
    if root_by_inclusion(number - 1, checkpoint.size, leaf_hash(line), _hashes(proof["hashes"])) != checkpoint.root:
        raise Wrong(
            "changed",
            f"The hashes do not lead from entry {number} to what was signed: it was changed, or they prove another entry.",
            number,
        )
    kept.belong_to(checkpoint.origin)
    kept.compare(checkpoint.size, checkpoint.root)
    return Report(f"Entry {number} is one of the {checkpoint.size} entries that were signed{_by(checkpoint)}.", checkpoint)


def verify_consistency(data: bytes, keys: Sequence[Key], kept: Kept) -> Report:
    """Verify that what a later checkpoint signs begins with what an earlier one signed. Raises :class:`Wrong`."""
    proof = _fields(data, {"format", "older", "newer", "hashes"}, CONSISTENCY)
    newer = open_checkpoint(_text(proof["newer"]), keys)
    older = open_checkpoint(_text(proof["older"]), keys)
    kept.belong_to(newer.origin)
    for one in (older, newer):
        kept.compare(one.size, one.root)
    if older.size > newer.size:
        raise Wrong(
            "truncated", f"The later checkpoint signs {newer.size} entries, fewer than the {older.size} of the earlier.", newer.size + 1
        )
    if not is_consistent(older.size, newer.size, older.root, newer.root, _hashes(proof["hashes"])):
        raise Wrong(
            "forked", f"The log was forked: what was signed as {newer.size} entries does not begin with the {older.size} signed before."
        )
    return Report(f"The {newer.size} entries signed begin with the {older.size} signed earlier{_by(newer)}.", newer)


def verify_file(path: Path, keys: Sequence[Key], kept: Kept, now: datetime, seq: int | None = None) -> Report:
    """Verify a file of whichever kind. Raises :class:`Wrong`, and ``OSError`` when it cannot be read."""
    with path.open("rb") as file:
        first = file.readline(LONGEST_LINE)
        if not first:
            raise Wrong("malformed", "The file is empty.")
        if first.startswith(b'{"checkpoint":'):
            if seq is not None:
                raise Wrong("other_entry", f"This is an export, and not the proof of entry {seq}.")
            return verify_export(_and(first, file), keys, kept, now)
        data = first + file.read(4 * LONGEST_LINE)
    if f'"{CONSISTENCY}"'.encode() in data:
        if seq is not None:
            raise Wrong("other_entry", f"This is a proof of consistency, and not the proof of entry {seq}.")
        return verify_consistency(data, keys, kept)
    return verify_proof(data, keys, kept, now, seq)


def _and(first: bytes, file: Any) -> Iterator[bytes]:
    yield first
    while line := file.readline(LONGEST_LINE):
        yield line


def _fields(data: bytes, names: set[str], format_: str) -> dict[str, Any]:
    """The fields of a file's object, which is laid out for reading in proofs and canonical in exports."""
    try:
        read = read_json(data) if format_ == EXPORT else json.loads(data.decode(), object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise Wrong("malformed", "The file is not what a ledger wrote: it is cut off, no JSON, or says something twice.") from None
    if not _is_object(read) or read.keys() != names or read["format"] != format_:
        raise Wrong("malformed", f"The file is not a {format_.rpartition(' ')[0]} in a form that this verifier knows.")
    return read


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are each there once: of two, another reader would show the one that was not verified."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise Wrong("malformed", "The checkpoint is no text.")
    return value.encode("utf-8", "surrogatepass")


def _hashes(value: object) -> list[bytes]:
    if not _is_list(value) or len(value) > 128 or not all(_matches(_HASH, one) for one in value):
        raise Wrong("malformed", "The hashes of the proof are none.")
    return [bytes.fromhex(one) for one in value]


def _by(checkpoint: Checkpoint) -> str:
    unknown = f" (and by keys that were not given: {', '.join(checkpoint.unknown)})" if checkpoint.unknown else ""
    return f" by {' and '.join(checkpoint.signed_by)}{unknown}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify the file that the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(description="Verify an export or a proof of a refunds ledger.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", action="append", required=True, help="the log's verifier key, name+id+base64; may be given again")
    parser.add_argument(
        "--checkpoint", action="append", type=Path, default=[], help="a file of checkpoints kept earlier; may be given again"
    )
    parser.add_argument("--seq", type=int, help="the entry that the proof must be of")
    given = parser.parse_args(arguments)
    try:
        keys = [read_key(key) for key in given.key]
        kept = keep((note for path in given.checkpoint for note in kept_notes(path.read_bytes())), keys)
        print(verify_file(given.file, keys, kept, datetime.now(UTC), given.seq).said)  # noqa: TID251 - an auditor's own clock
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 2 if wrong.kind == "key" else 1
    except OSError as error:
        print(f"{error.filename or given.file} cannot be read: {error.strerror}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
