"""The Merkle tree over the ledger's entries, as RFC 9162 (section 2.1) defines it: SHA-256, leaves and inner nodes hashed apart.

A *node* is a complete subtree: the hash over the 2^level leaves from position * 2^level on. Such a node never changes again, so the store keeps every
:data:`STORED_EVERY`-th level of them; the root of any size and every proof are made from a few dozen stored nodes. A *span* is a run of leaves, from the
first to before the last, as the RFC's recursion cuts the tree.

Nothing here judges a proof: that is :mod:`refunds.ledger.verifier`, which shares no code with this module on purpose.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

EMPTY_ROOT = hashlib.sha256(b"").digest()
"""The root of a tree without leaves; also what the first entry names as its previous hash."""

STORED_EVERY = 4
"""Every so manieth level above the leaves is stored (and the leaves themselves, with their entries). What lies between is made of at most eight of them."""

Node = tuple[int, int]
"""A complete subtree: its level (0 is a leaf) and its position in that level."""

Span = tuple[int, int]
"""Leaves from the first number to before the second."""

HashOf = Callable[[Node], bytes]
"""Gives the hash of a complete subtree."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf: over 0x00 and the entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node: over 0x01 and its two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Made:
    """A subtree that became complete, and its hash."""

    level: int
    position: int
    hash: bytes


class Frontier:
    """The right edge of a tree: enough to add leaves and to tell the root, in memory that grows with the logarithm of the size."""

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        """``peaks`` are the hashes of :func:`peaks_of` for that size, in order. Raises ``ValueError`` when they are not as many."""
        self.size = size
        self._peaks = list(peaks)
        if len(self._peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} peaks, not {len(self._peaks)}")

    def copy(self) -> "Frontier":
        """The same edge again, to go on from without changing this one."""
        return Frontier(self.size, self._peaks)

    def add(self, leaf: bytes) -> list[Made]:
        """Add the hash of a leaf; returns every subtree that it completes, the leaf itself first."""
        position, level, node = self.size, 0, leaf
        made = [Made(0, position, node)]
        while self.size >> level & 1:
            node, level, position = node_hash(self._peaks.pop(), node), level + 1, position >> 1
            made.append(Made(level, position, node))
        self._peaks.append(node)
        self.size += 1
        return made

    def root(self) -> bytes:
        """The root of the tree as it is now."""
        return _folded(self._peaks)


def peaks_of(span: Span) -> list[Node]:
    """The complete subtrees that a span consists of, from left to right. The span must begin where the RFC's recursion lets one begin."""
    first, end = span
    found: list[Node] = []
    while first < end:
        level = (end - first).bit_length() - 1
        found.append((level, first >> level))
        first += 1 << level
    return found


def inclusion_spans(index: int, size: int) -> list[Span]:
    """The spans whose hashes are the inclusion proof of the leaf ``index`` (from 0) in a tree of ``size`` leaves, in the RFC's order.

    Raises ``ValueError`` for a leaf outside the tree.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    first, end = 0, size
    spans: list[Span] = []
    while end - first > 1:
        middle = first + _split(end - first)
        if index < middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((first, middle))
            first = middle
    return spans[::-1]


def consistency_spans(older: int, newer: int) -> list[Span]:
    """The spans whose hashes prove that the tree of ``newer`` leaves begins with that of ``older``, in the RFC's order; none when either is all there is.

    Raises ``ValueError`` when the older one is the larger.
    """
    if not 0 <= older <= newer:
        raise ValueError(f"a tree of {newer} leaves does not begin with {older}")
    if older in (0, newer):
        return []
    first, end, whole = 0, newer, True
    spans: list[Span] = []
    while older != end:
        middle = first + _split(end - first)
        if older <= middle:
            spans.append((middle, end))
            end = middle
        else:
            spans.append((first, middle))
            first, whole = middle, False
    if not whole:
        spans.append((first, end))
    return spans[::-1]


def span_hash(span: Span, hash_of: HashOf) -> bytes:
    """The hash of the subtree over a span."""
    return _folded([hash_of(node) for node in peaks_of(span)])


def stored_of(spans: Iterable[Span]) -> set[Node]:
    """The stored nodes from which the hashes of these spans are made."""
    found: set[Node] = set()
    for span in spans:
        for level, position in peaks_of(span):
            below = level % STORED_EVERY
            found |= {(level - below, (position << below) + offset) for offset in range(1 << below)}
    return found


def from_stored(stored: Mapping[Node, bytes]) -> HashOf:
    """Tell the hash of any node whose parts are stored. Raises ``KeyError`` naming the stored node that is missing."""

    def hash_of(node: Node) -> bytes:
        level, position = node
        if level % STORED_EVERY == 0:
            return stored[node]
        return node_hash(hash_of((level - 1, 2 * position)), hash_of((level - 1, 2 * position + 1)))

    return hash_of


def _split(width: int) -> int:
    """The largest power of two below a width of at least two."""
    return 1 << (width - 1).bit_length() - 1


def _folded(peaks: list[bytes]) -> bytes:
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root
