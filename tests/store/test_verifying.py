"""Live verification: whatever is changed, taken away or put into the database by somebody who has it in their hands is named (promise P8)."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refunds.clock import SystemClock
from refunds.ledger import verifier
from refunds.ledger.verifier import Wrong
from store import grants
from store.verifying import Verification, Verified
from tests.conftest import ROOT, FreshDatabase
from tests.store.chained import KEY, NEXT_KEY, ORIGIN, Chained
from tests.store.test_record import long_way
from tests.store.world import FixedClock, World

BEHIND = timedelta(seconds=60)


@pytest.fixture
async def ledger(world: World) -> AsyncIterator[Chained]:
    """A refund that went a long way and 40 more entries, all numbered; two checkpoints, the first of which somebody kept."""
    made = Chained(world.database, world.clock)
    await long_way(world)
    await made.numbered()
    await made.signed()
    kept.append(await made.note())
    await made.enter(40, text="plain")
    await made.numbered()
    await made.signed()
    yield made
    kept.clear()
    await made.close()


kept: list[str] = []
"""The note of the first checkpoint, as an auditor has it who put it aside."""


def verified(ledger: Chained, *others: str, key: Any = KEY, **changed: Any) -> Verified:
    keys = [verifier.read_key(key.vkey)]
    seen: list[tuple[int, int]] = []
    with psycopg.connect(ledger.fresh.url(grants.AUDITOR).replace("+psycopg", ""), autocommit=True) as connection:
        now = changed.get("now", ledger.clock.now())
        done = Verification(connection, keys, verifier.keep((note.encode() for note in others), keys), now, BEHIND).run(
            lambda done, total: seen.append((done, total))
        )
    assert seen[-1:] == [(done.entries, done.entries)]
    return done


def named(ledger: Chained, *others: str, **changed: Any) -> Wrong:
    with pytest.raises(Wrong) as caught:
        verified(ledger, *others, **changed)
    return caught.value


def size(ledger: Chained) -> int:
    [(found,)] = ledger.rows("SELECT max(seq) FROM ledger_entries")
    assert isinstance(found, int)
    return found


async def test_an_untouched_ledger_verifies_and_says_what_was_looked_at(ledger: Chained) -> None:
    done = verified(ledger, *kept)
    assert (done.entries, done.signed, done.checkpoints, done.refunds) == (size(ledger), size(ledger), 2, 1)
    assert (done.waiting, done.by_other_keys) == (0, 0)


async def test_rows_that_wait_for_a_number_may_for_a_while(ledger: Chained) -> None:
    await ledger.enter(2)
    assert verified(ledger).waiting == 2
    wrong = named(ledger, now=ledger.clock.now() + timedelta(seconds=61))
    assert (wrong.kind, "2 rows have no number; the oldest, order_recorded, has waited for one since 2026-" in str(wrong)) == (
        "unnumbered",
        True,
    )


SPOILED: dict[str, tuple[str, str, str]] = {
    "a character of an entry": (
        "UPDATE ledger_entries SET entry = replace(entry, 'plain', 'plaim') WHERE seq = {n}",
        "changed",
        "Entry {n} was changed: it no longer has the hash it was numbered with",
    ),
    "an entry and its hash": (
        "UPDATE ledger_entries SET entry = replace(entry, 'plain', 'plaim'),"
        " hash = sha256('\\x00'::bytea || convert_to(replace(entry, 'plain', 'plaim'), 'UTF8')) WHERE seq = {n}",
        "changed",
        "The row that entry {n} was made of was changed afterwards: data is another",
    ),
    "an entry, its hash and its row": (
        'WITH rows AS (UPDATE ledger SET data = \'{{"text": "plaim"}}\' WHERE id = (SELECT ledger_id FROM ledger_entries WHERE seq = {n}))'
        " UPDATE ledger_entries SET entry = replace(entry, 'plain', 'plaim'),"
        " hash = sha256('\\x00'::bytea || convert_to(replace(entry, 'plain', 'plaim'), 'UTF8')) WHERE seq = {n}",
        "changed",
        "Entry {n} was changed: it no longer has the hash that the entries after it and the signatures rest on",
    ),
    "the row of an entry": (
        "UPDATE ledger SET actor = 'pr_2', at = at + interval '1 microsecond' WHERE id = (SELECT ledger_id FROM ledger_entries WHERE seq = {n})",
        "changed",
        "The row that entry {n} was made of was changed afterwards: actor and at is another",
    ),
    "the row of an entry is gone": (
        "DELETE FROM ledger WHERE id = (SELECT ledger_id FROM ledger_entries WHERE seq = {n})",
        "missing",
        "The row that entry {n} was made of is missing",
    ),
    "an entry is gone": (
        "DELETE FROM ledger_entries WHERE seq = {n}",
        "missing",
        "Entry {n} is missing: entry {after} follows entry {before}",
    ),
    "an entry and its row are gone": (
        "WITH gone AS (DELETE FROM ledger_entries WHERE seq = {n} RETURNING ledger_id) DELETE FROM ledger WHERE id = (SELECT ledger_id FROM gone)",
        "missing",
        "Entry {n} is missing",
    ),
    "what is kept as the hash before": (
        "UPDATE ledger_entries SET previous = '\\x00' WHERE seq = {n}",
        "changed",
        "Entry {n} was changed: what is kept beside it as the hash before it is another",
    ),
    "a node of the tree": (
        "UPDATE ledger_nodes SET hash = '\\x00' WHERE level = 4 AND position = 1",
        "tree",
        "What is stored of the tree over the entries 17 to 32",
    ),
    "a node too many": (
        "INSERT INTO ledger_nodes VALUES (8, 0, '\\x00')",
        "truncated",
        "the stored tree goes on after entry {size}",
    ),
    "the end of the chain": (
        "DELETE FROM ledger_entries WHERE seq > {n}",
        "truncated",
        "and what follows is missing",
    ),
    "the status of a refund": ("UPDATE refunds SET status = 'succeeded'", "state", "is succeeded at version"),
    "the version of a refund": ("UPDATE refunds SET version = version + 1", "state", "and its entries make it"),
    "a refund is gone": ("DELETE FROM refunds", "state", "has entries, and is not there"),
    "a checkpoint": ("UPDATE ledger_checkpoints SET note = replace(note, E'\\n', E'\\n ') ", "malformed", "The checkpoint"),
    "the size beside a checkpoint": ("UPDATE ledger_checkpoints SET size = size - 1", "changed", "The checkpoint kept as that of"),
}


@pytest.mark.parametrize("what", SPOILED)
async def test_what_was_done_to_the_database_is_named(ledger: Chained, what: str) -> None:
    statement, kind, said = SPOILED[what]
    n = size(ledger) - 5
    ledger.spoil(statement.format(n=n))
    wrong = named(ledger)
    assert (wrong.kind, said.format(n=n, before=n - 1, after=n + 1, size=size(ledger)) in str(wrong)) == (kind, True), str(wrong)
    if "{n}" in said:
        assert wrong.seq == n


BEYOND_ITS_CONSTRAINTS: tuple[tuple[str, str, str, str], ...] = (
    (
        "ledger_entries",
        "ALTER TABLE ledger_entries ALTER entry DROP NOT NULL; UPDATE ledger_entries SET entry = NULL WHERE seq = 5",
        "changed",
        "Entry 5",
    ),
    (
        "ledger_entries",
        "ALTER TABLE ledger_entries ALTER hash DROP NOT NULL; UPDATE ledger_entries SET hash = NULL WHERE seq = 5",
        "changed",
        "Entry 5",
    ),
    ("ledger", "ALTER TABLE ledger ALTER data DROP NOT NULL; UPDATE ledger SET data = NULL WHERE id = 5", "changed", "data is another"),
    ("ledger", "UPDATE ledger SET at = 'infinity' WHERE id = 5", "changed", "at is another"),
    ("ledger", "UPDATE ledger SET at = '4000-01-01 BC' WHERE id = 5", "changed", "at is another"),
    ("ledger", "INSERT INTO ledger (at, type, actor, data) VALUES ('infinity', 'x', 'y', '{}')", "future", "A row without a number, x,"),
    ("ledger", "INSERT INTO ledger (at, type, actor, data) VALUES ('2090-01-01Z', 'x', 'y', '{}')", "future", "A row without a number, x,"),
    (
        "ledger",
        "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES ('2026-06-01Z', 'status_changed', 'rf_x', 1, 'y', '[]')",
        "state",
        "does not say of which",
    ),
    (
        "ledger_nodes",
        "ALTER TABLE ledger_nodes ALTER hash DROP NOT NULL; UPDATE ledger_nodes SET hash = NULL",
        "tree",
        "over the entries 1 to 16",
    ),
    (
        "ledger_checkpoints",
        "ALTER TABLE ledger_checkpoints ALTER note DROP NOT NULL; UPDATE ledger_checkpoints SET note = NULL",
        "malformed",
        "not a signed note",
    ),
    ("ledger_checkpoints", "UPDATE ledger_checkpoints SET root = '\\x00'", "changed", "What is kept beside the checkpoint"),
    ("ledger_checkpoints", "UPDATE ledger_checkpoints SET origin = 'other'", "changed", "What is kept beside the checkpoint"),
    ("ledger_checkpoints", "UPDATE ledger_checkpoints SET keys = '[7]'", "changed", "What is kept beside the checkpoint"),
    (
        "ledger_checkpoints",
        f"UPDATE ledger_checkpoints SET keys = '[\"{NEXT_KEY.vkey}\"]'",
        "changed",
        "What is kept beside the checkpoint",
    ),
    ("ledger_checkpoints", "DELETE FROM ledger_checkpoints", "missing", "none of them is in the database any more"),
)

RECORDS: tuple[tuple[str, str, str], ...] = (
    ("revisions", "UPDATE revisions SET amount = amount + 1 WHERE revision = 1", "revision {refund} 1 is not what its entry says: amount."),
    (
        "revisions",
        "UPDATE revisions SET policy_hash = 'x' WHERE revision = 1",
        "revision {refund} 1 is not what its entry says: policy hash.",
    ),
    (
        "revisions",
        "UPDATE revisions SET terms = jsonb_set(terms, '{amount}', '1') WHERE revision = 1",
        "The terms of the revision {refund} 1 is not what was entered: its hash is another.",
    ),
    (
        "revisions",
        "UPDATE revisions SET decision = jsonb_set(decision, '{checks,0,result}', '\"passed by hand\"') WHERE revision = 2",
        "The facts or checks of the revision {refund} 2 is not what was entered: its hash is another.",
    ),
    ("revisions", "UPDATE revisions SET facts = facts - 'base' WHERE revision = 2", "The facts or checks of the revision {refund} 2"),
    ("decisions", "UPDATE decisions SET verdict = 'deny' WHERE kind = 'review'", "is not what its entry says: verdict."),
    (
        "decisions",
        "UPDATE decisions SET role = 'manager', terms_hash = '' WHERE kind = 'review'",
        "is not what its entry says: terms hash, role.",
    ),
    (
        "decisions",
        "UPDATE decisions SET principal_id = (SELECT id FROM principals WHERE handle = 'mia') WHERE kind = 'review'",
        "is not what its entry says: whose it is.",
    ),
    ("decisions", "DELETE FROM decisions WHERE kind = 'review'", "has an entry, and is not there."),
    (
        "decisions",
        "UPDATE decisions SET id = 'dec_0' WHERE kind = 'review'",
        "The decision dec_0 has no entry: it was put into the database past the program.",
    ),
    ("refunds", "UPDATE refunds SET amount = amount + 1", "refund {refund} is not what its newest revision says."),
    ("refunds", "UPDATE refunds SET revision = 1", "refund {refund} is not what its newest revision says."),
    ("refunds", "UPDATE refunds SET requester_id = (SELECT id FROM principals WHERE handle = 'ann')", "its entry says: who asked."),
    ("refunds", "UPDATE refunds SET body_hash = 'x'", "its entry says: the fingerprint of its body."),
    ("refunds", "UPDATE refunds SET customer_id = 'cu_other'", "its entry says: whose it is."),
    (
        "operations",
        "UPDATE operations SET request = jsonb_set(request, '{params,amount}', '1')",
        "The request of the operation op_",
    ),
    ("operations", "UPDATE operations SET amount = 1", "is not what its revision says."),
    ("operations", "UPDATE operations SET kind = 'release'", "is not what its entry says: kind."),
    ("consumed_decisions", "DELETE FROM consumed_decisions", "has an entry, and is not there."),
    ("attempts", "UPDATE attempts SET number = 2", "is not what its entry says: number."),
    ("attempts", "DELETE FROM attempts", "has an entry, and is not there."),
    ("policy_versions", "UPDATE policy_versions SET source = source || ' '", "policy version 1 is not what its entry says: text."),
    ("api_keys", "UPDATE api_keys SET roles = '{operator}'", "is not what its entry says: roles."),
    ("api_keys", "UPDATE api_keys SET revoked_at = now()", "is not what its entries say: whether it was revoked."),
    ("principals", "UPDATE principals SET kind = 'person'", "is not what its entry says: kind."),
)


@contextmanager
def kept_of(ledger: Chained, table: str) -> Iterator[None]:
    """What is done to a table within the block is undone after it."""
    ledger.spoil(f"CREATE TABLE kept_rows AS TABLE {table}")
    yield
    ledger.spoil(f"DELETE FROM {table}")
    ledger.spoil(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM kept_rows")
    ledger.spoil("DROP TABLE kept_rows")


async def test_what_no_row_can_hold_is_named_and_ends_in_no_trace(ledger: Chained) -> None:
    for table, statements, kind, said in BEYOND_ITS_CONSTRAINTS:
        with kept_of(ledger, table):
            for statement in statements.split("; "):
                ledger.spoil(statement)
            wrong = named(ledger)
            assert (wrong.kind, said in str(wrong)) == (kind, True), (statements, str(wrong))
    assert verified(ledger).checkpoints == 2


async def test_a_record_that_is_another_than_its_entry_says_is_named(ledger: Chained) -> None:
    """What the audit view shows of a refund cannot be another than what was entered when it happened."""
    [(refund,)] = ledger.rows("SELECT id FROM refunds")
    for table, statement, said in RECORDS:
        with kept_of(ledger, table):
            assert ledger.spoil(statement) > 0, statement
            wrong = named(ledger)
            assert (wrong.kind, said.format(refund=refund) in str(wrong)) == ("record", True), (statement, str(wrong))
    assert verified(ledger).refunds == 1


async def test_two_entries_that_changed_places_are_named(ledger: Chained) -> None:
    n = size(ledger) - 5
    for old, new in ((n, 0), (n + 1, n), (0, n + 1)):
        ledger.spoil("UPDATE ledger_entries SET seq = %s WHERE seq = %s", new, old)
    assert (named(ledger).kind, named(ledger).seq) == ("reordered", n)


def rewritten(ledger: Chained, since: int) -> None:
    """Write the history anew from an entry on, every hash after it and the tree included, as somebody can who has the database."""
    ledger.spoil("DELETE FROM ledger_checkpoints")
    ledger.spoil("UPDATE ledger SET actor = 'pr_forged' WHERE id = (SELECT ledger_id FROM ledger_entries WHERE seq = %s)", since)
    ledger.spoil("DELETE FROM ledger_entries")
    ledger.spoil("DELETE FROM ledger_nodes")


async def test_a_history_written_anew_with_the_signing_key_agrees_with_itself_and_not_with_a_kept_checkpoint(ledger: Chained) -> None:
    rewritten(ledger, 3)
    await ledger.numbered()
    await ledger.signed()
    assert verified(ledger).entries == size(ledger)

    wrong = named(ledger, *kept)
    assert (wrong.kind, "This is another history than the one that was signed" in str(wrong)) == ("forked", True)


async def test_a_ledger_that_was_cut_off_and_signed_again_is_caught_by_a_kept_checkpoint(ledger: Chained) -> None:
    newest = await ledger.note()
    n = size(ledger) - 10
    ledger.spoil("DELETE FROM ledger_checkpoints")
    ledger.spoil("DELETE FROM ledger WHERE id IN (SELECT ledger_id FROM ledger_entries WHERE seq > %s)", n)
    ledger.spoil("DELETE FROM ledger WHERE id NOT IN (SELECT ledger_id FROM ledger_entries)")
    ledger.spoil("DELETE FROM ledger_entries WHERE seq > %s", n)
    ledger.spoil("DELETE FROM ledger_nodes WHERE (position + 1) * (1 << (level::int)) > %s", n)
    await ledger.signed()
    assert verified(ledger, *kept).entries == n
    wrong = named(ledger, newest)
    assert (wrong.kind, wrong.seq) == ("truncated", n + 1)


async def test_a_version_of_a_refund_that_vanished_before_it_was_numbered_is_named(ledger: Chained) -> None:
    for version in (1, 2, 4):
        ledger.spoil(
            "INSERT INTO ledger (at, type, refund_id, refund_version, actor, data) VALUES (%s, 'x', 'rf_new', %s, 'test', '{}')",
            ledger.clock.now(),
            version,
        )
    await ledger.numbered()
    wrong = named(ledger)
    assert (wrong.kind, "version 4 of refund rf_new, whose version 3 is missing" in str(wrong)) == ("missing", True)


async def test_an_entry_from_the_future_is_named(ledger: Chained) -> None:
    wrong = named(ledger, now=ledger.clock.now() - timedelta(minutes=6))
    assert (wrong.kind, wrong.seq) == ("future", 1)


async def test_another_key_does_not_verify_and_an_older_key_s_checkpoints_are_compared_by_their_roots(ledger: Chained) -> None:
    assert named(ledger, key=NEXT_KEY).kind == "wrong_key"
    await ledger.signed(KEY, NEXT_KEY)
    assert verified(ledger, key=NEXT_KEY).by_other_keys == 2
    await ledger.numbered()
    await ledger.signed(NEXT_KEY)
    done = verified(ledger, key=NEXT_KEY)
    assert (done.by_other_keys, done.newest.signed_by if done.newest else None) == (2, (f"{ORIGIN}+{NEXT_KEY.key_id.hex()}",))


async def test_the_auditor_s_login_reads_what_it_needs_and_nobody_s_words(ledger: Chained) -> None:
    for statement in ("SELECT * FROM texts", "SELECT details FROM refunds", "SELECT * FROM customers", "UPDATE refunds SET version = 1"):
        with ledger.fresh.connect(grants.AUDITOR) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


def program(today: Chained, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "DATABASE_URL": today.fresh.url(grants.AUDITOR),
    } | env
    argv = [sys.executable, "-m", "store.verify", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
async def today(database: FreshDatabase) -> AsyncIterator[Chained]:
    """A ledger of today: the program takes the machine's time."""
    made = Chained(database, FixedClock(SystemClock().now()))
    kept.clear()
    for _ in range(2):
        await made.enter(30, text="plain")
        await made.numbered()
        await made.signed()
        kept.append(await made.note())
    yield made
    kept.clear()
    await made.close()


async def test_the_program_says_what_it_verified_and_what_is_wrong_in_one_sentence(today: Chained, tmp_path: Path) -> None:
    file = tmp_path / "kept.txt"
    file.write_text(kept[0])
    ended = program(today, "--key", KEY.vkey, "--checkpoint", str(file))
    assert (ended.returncode, ended.stdout.startswith(f"{size(today)} entries verified in ")) == (0, True), ended.stderr
    assert f"{size(today)} of {size(today)} entries (" in ended.stderr

    without = program(today)
    assert (without.returncode, "give the key you kept" in without.stderr) == (0, True)

    today.spoil("UPDATE ledger_entries SET entry = replace(entry, 'plain', 'plaim') WHERE seq = 40")
    ended = program(today, "--key", KEY.vkey, "--json")
    assert (ended.returncode, '"kind": "changed", "entry": 40' in ended.stdout) == (1, True)
    assert ended.stderr.strip().splitlines()[-1].startswith("Entry 40 was changed")
    assert "Traceback" not in ended.stderr


async def test_a_key_a_file_or_a_database_that_is_none_is_one_sentence(today: Chained, tmp_path: Path) -> None:
    for arguments, env, said in (
        (("--key", "nonsense"), {}, "is not the Ed25519 verifier key"),
        (("--key", KEY.vkey, "--checkpoint", str(tmp_path / "none")), {}, "cannot be read: No such file"),
        ((), {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}, "The ledger cannot be verified: "),
    ):
        ended = program(today, *arguments, **env)
        assert (ended.returncode, said in ended.stderr, len(ended.stderr.splitlines())) == (2, True, 1), ended.stderr
