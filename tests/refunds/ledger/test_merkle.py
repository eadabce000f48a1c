"""The tree: RFC 9162 by its published vectors, by pymerkle (an implementation of other people), and by what must hold for every size."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree, verify_consistency, verify_inclusion
from pymerkle.hasher import MerkleHasher

from refunds.ledger import verifier
from refunds.ledger.merkle import (
    EMPTY_ROOT,
    STORED_EVERY,
    Frontier,
    Node,
    consistency_spans,
    from_stored,
    inclusion_spans,
    leaf_hash,
    node_hash,
    peaks_of,
    span_hash,
    stored_of,
)

# The eight leaves and the roots over the first n of them that Certificate Transparency's implementations have been held to since RFC 6962.
LEAVES = [
    bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# 196 inclusion and consistency proofs, good and bad in every way, of transparency-dev/merkle (Apache-2.0, at 417fb0c, the directory testdata).
VECTORS = [json.loads(line) for line in (Path(__file__).parent / "proof_vectors.jsonl").read_text().splitlines()]
SIZE = 70


class Kept:
    """Every node of a tree, as it was made, and what of it is stored."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.frontier = Frontier()
        self.roots = [self.frontier.root()]
        self.nodes: dict[Node, bytes] = {}
        for leaf in leaves:
            self.nodes |= {(made.level, made.position): made.hash for made in self.frontier.add(leaf_hash(leaf))}
            self.roots.append(self.frontier.root())
        self.stored = {node: hash_ for node, hash_ in self.nodes.items() if node[0] % STORED_EVERY == 0}

    def proof(self, spans: list[tuple[int, int]]) -> list[bytes]:
        needed = {node: self.stored[node] for node in stored_of(spans)}
        return [span_hash(span, from_stored(needed)) for span in spans]


@pytest.fixture(scope="module")
def tree() -> Kept:
    return Kept([str(index).encode() for index in range(SIZE)])


@pytest.fixture(scope="module")
def theirs() -> InmemoryTree:
    return InmemoryTree.init_from_entries([str(index).encode() for index in range(SIZE)], algorithm="sha256")


def test_the_roots_are_the_published_ones() -> None:
    assert [root.hex() for root in Kept(LEAVES).roots] == ROOTS
    assert EMPTY_ROOT.hex() == ROOTS[0]
    peaks: list[bytes] = []
    for size, leaf in enumerate(LEAVES):
        verifier.add_leaf(peaks, size, verifier.leaf_hash(leaf))
        assert verifier.root_of(peaks).hex() == ROOTS[size + 1]


@pytest.mark.parametrize(("kind", "name", "numbers", "hashes", "proof", "right"), VECTORS, ids=[vector[1] for vector in VECTORS])
def test_the_verifier_judges_published_proofs_as_they_are(
    kind: str, name: str, numbers: list[int], hashes: list[str], proof: list[str], right: bool
) -> None:
    first, second = (bytes.fromhex(text) for text in hashes)
    path = [bytes.fromhex(text) for text in proof]
    if kind == "consistency":
        assert verifier.is_consistent(*numbers, first, second, path) is right
    elif first:  # the one vector of an empty leaf hash cannot be: ours are hashes
        assert (verifier.root_by_inclusion(*numbers, first, path) == second) is right


def test_the_published_proofs_are_all_here() -> None:
    assert (len(VECTORS), sum(vector[5] for vector in VECTORS)) == (196, 12)


def test_roots_and_proofs_are_those_of_pymerkle(tree: Kept, theirs: InmemoryTree) -> None:
    for size in range(1, SIZE + 1):
        assert tree.roots[size] == theirs.get_root(size)
        for index in range(size):
            assert tree.proof(inclusion_spans(index, size)) == theirs.prove_inclusion(index + 1, size).path[1:]


def test_consistency_proofs_are_those_of_the_rfcs_own_recursion_and_pymerkle_finds_the_same_sizes_consistent(
    tree: Kept, theirs: InmemoryTree
) -> None:
    leaves = [tree.nodes[0, index] for index in range(SIZE)]
    for newer in range(1, SIZE + 1):
        for older in range(1, newer + 1):
            mine = tree.proof(consistency_spans(older, newer))
            assert mine == subproof(older, leaves[:newer], whole=True), (older, newer)
            assert verifier.is_consistent(older, newer, tree.roots[older], tree.roots[newer], mine)
            verify_consistency(tree.roots[older], tree.roots[newer], theirs.prove_consistency(older, newer), older, newer)


def subproof(older: int, leaves: list[bytes], *, whole: bool) -> list[bytes]:
    """SUBPROOF of RFC 9162, 2.1.4.1, word for word: slow, and independent of what it is compared with."""
    size = len(leaves)
    if older == size:
        return [] if whole else [mth(leaves)]
    split = next(2**power for power in range(64) if 2**power < size <= 2 ** (power + 1))
    if older <= split:
        return [*subproof(older, leaves[:split], whole=whole), mth(leaves[split:])]
    return [*subproof(older - split, leaves[split:], whole=False), mth(leaves[:split])]


def mth(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162, 2.1.1, over hashes of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    split = next(2**power for power in range(64) if 2**power < len(leaves) <= 2 ** (power + 1))
    return node_hash(mth(leaves[:split]), mth(leaves[split:]))


def test_pymerkle_accepts_what_we_prove_and_we_what_it_proves(tree: Kept, theirs: InmemoryTree) -> None:
    proof = theirs.prove_inclusion(11, SIZE)
    proof.path = [leaf_hash(b"10"), *tree.proof(inclusion_spans(10, SIZE))]
    verify_inclusion(leaf_hash(b"10"), tree.roots[SIZE], proof, index=11, size=SIZE)
    assert MerkleHasher("sha256").hash_buff(b"10") == leaf_hash(b"10")


def test_a_proof_is_of_one_leaf_one_size_and_one_root(tree: Kept) -> None:
    proof = tree.proof(inclusion_spans(10, SIZE))
    leaf = leaf_hash(b"10")
    assert verifier.root_by_inclusion(10, SIZE, leaf, proof) == tree.roots[SIZE]
    assert verifier.root_by_inclusion(11, SIZE, leaf, proof) != tree.roots[SIZE]
    assert verifier.root_by_inclusion(10, SIZE, leaf_hash(b"11"), proof) != tree.roots[SIZE]
    assert verifier.root_by_inclusion(10, SIZE, leaf, proof[:-1]) is None
    assert verifier.root_by_inclusion(10, SIZE, leaf, [*proof, leaf]) is None
    assert verifier.root_by_inclusion(SIZE, SIZE, leaf, proof) is None


def test_the_edge_can_be_taken_up_from_what_is_stored(tree: Kept) -> None:
    for size in range(SIZE):
        peaks = peaks_of((0, size))
        hash_of = from_stored({node: tree.stored[node] for node in stored_of([(0, size)])})
        again = Frontier(size, [hash_of(node) for node in peaks])
        assert again.root() == tree.roots[size]
        again.add(tree.nodes[0, size])
        assert again.root() == tree.roots[size + 1]
    with pytest.raises(ValueError, match="a tree of 5 leaves has 2 peaks, not 1"):
        Frontier(5, [EMPTY_ROOT])


def test_a_copied_edge_goes_its_own_way(tree: Kept) -> None:
    copy = tree.frontier.copy()
    copy.add(leaf_hash(b"other"))
    assert (tree.frontier.size, copy.size) == (SIZE, SIZE + 1)
    assert tree.frontier.root() == tree.roots[SIZE] != copy.root()


def test_a_proof_of_a_large_tree_needs_some_dozens_of_nodes() -> None:
    for size in (100_000, 99_999, 2**20 + 1):
        for index in (0, size // 2, size - 1):
            spans = inclusion_spans(index, size)
            assert len(spans) <= size.bit_length()
            assert len(stored_of(spans)) < 200
            assert all(first < end for first, end in spans)


def test_a_missing_stored_node_is_named() -> None:
    with pytest.raises(KeyError):
        from_stored({})((4, 0))


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (-1, 3)])
def test_no_proof_of_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"a tree of {size} leaves has no leaf {index}"):
        inclusion_spans(index, size)


def test_no_proof_that_a_tree_begins_with_a_larger_one() -> None:
    with pytest.raises(ValueError, match="does not begin with 4"):
        consistency_spans(4, 3)
    assert consistency_spans(0, 3) == consistency_spans(3, 3) == []


@given(st.integers(1, 2**40), st.data())
def test_the_spans_of_a_proof_cover_every_other_leaf_once(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    spans = sorted([*inclusion_spans(index, size), (index, index + 1)])
    assert (spans[0][0], spans[-1][1]) == (0, size)
    assert all(left[1] == right[0] for left, right in pairwise(spans))


@given(st.integers(1, 300), st.data())
def test_both_implementations_agree_at_every_size(size: int, data: st.DataObject) -> None:
    leaves = [bytes([index % 251]) * (index % 5) for index in range(size)]
    kept = Kept(leaves)
    older = data.draw(st.integers(1, size))
    index = data.draw(st.integers(0, size - 1))
    peaks: list[bytes] = []
    for number, leaf in enumerate(leaves):
        verifier.add_leaf(peaks, number, verifier.leaf_hash(leaf))
    assert verifier.root_of(peaks) == kept.roots[size]
    assert verifier.root_by_inclusion(index, size, leaf_hash(leaves[index]), kept.proof(inclusion_spans(index, size))) == kept.roots[size]
    assert verifier.is_consistent(older, size, kept.roots[older], kept.roots[size], kept.proof(consistency_spans(older, size)))


def test_leaves_and_nodes_are_hashed_apart() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert node_hash(left, right) != leaf_hash(left + right)
