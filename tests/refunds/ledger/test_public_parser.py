"""What we sign, as a public implementation of C2SP notes and checkpoints reads it (aics-tlog 0.2, which needs a later Python than this project and so one of its own)."""

import base64
import json
import os
import subprocess
from typing import Any

from tests.refunds.ledger.conftest import PYTHON
from tests.refunds.ledger.logs import KEY, NEXT_KEY, ORIGIN, Log

JUDGE = """
import base64, json, sys
from aics_tlog import parse_checkpoint, parse_note, parse_vkey, verify_checkpoint, verify_consistency, verify_leaf_inclusion

def opened(note, vkey):
    try:
        note = parse_note(note)
        found = verify_checkpoint(note, parse_vkey(vkey), expected_origin=ORIGIN)
        checkpoint = parse_checkpoint(note.text)
    except ValueError as error:
        return str(error)
    return [found.log_ok, checkpoint.origin, checkpoint.size, base64.b64encode(checkpoint.root).decode()]

given = json.load(sys.stdin)
ORIGIN = given["origin"]
raw = base64.b64decode
print(json.dumps({
    "opened": [opened(*one) for one in given["notes"]],
    "inclusion": [verify_leaf_inclusion(entry.encode(), index, size, list(map(raw, proof)), raw(root)) for entry, index, size, proof, root in given["inclusion"]],
    "consistency": [verify_consistency(older, newer, raw(first), raw(second), list(map(raw, proof))) for older, newer, first, second, proof in given["consistency"]],
}))
"""


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def judged(**given: Any) -> dict[str, Any]:
    argv = [os.environ[PYTHON], "-I", "-c", JUDGE]
    ended = subprocess.run(argv, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_public_implementation_reads_our_checkpoints_and_agrees_with_our_proofs() -> None:
    log = Log.of(70)
    sizes = (1, 2, 3, 8, 64, 70)
    notes = [(log.note(size, *keys), key.vkey) for size in sizes for keys in ((KEY,), (KEY, NEXT_KEY)) for key in keys]
    inclusion = [
        (
            log.entries[index].entry,
            index,
            size,
            [_text(bytes.fromhex(one)) for one in log.proof(index + 1, size)["hashes"]],
            _text(log.root(size)),
        )
        for size in sizes
        for index in range(size)
    ]
    consistency = [
        (
            older,
            newer,
            _text(log.root(older)),
            _text(log.root(newer)),
            [_text(bytes.fromhex(h)) for h in log.consistency(older, newer)["hashes"]],
        )
        for newer in sizes
        for older in sizes
        if older <= newer
    ]
    found = judged(origin=ORIGIN, notes=notes, inclusion=inclusion, consistency=consistency)
    assert found["opened"] == [[True, ORIGIN, size, _text(log.root(size))] for size in sizes for _ in range(3)]
    assert found["inclusion"] == [True] * len(inclusion)
    assert found["consistency"] == [True] * len(consistency)


def test_a_public_implementation_refuses_what_we_refuse() -> None:
    log = Log.of(70)
    note = log.note()
    changed = [
        note.replace("\n70\n", "\n71\n"),
        note.replace("\n70\n", "\n070\n"),
        note.replace("\u2014", "-"),
        log.note(70, NEXT_KEY),
    ]
    found = judged(origin=ORIGIN, notes=[(one, KEY.vkey) for one in changed], inclusion=[], consistency=[])
    assert not any(isinstance(one, list) and one[0] for one in found["opened"]), found
    entry, wrong = log.entries[6].entry, log.proof(8)["hashes"]
    proof = (entry, 6, 70, [_text(bytes.fromhex(one)) for one in wrong], _text(log.root()))
    assert judged(origin=ORIGIN, notes=[], inclusion=[proof], consistency=[])["inclusion"] == [False]
