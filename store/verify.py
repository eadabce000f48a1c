"""``python -m store.verify``: verify the ledger in the database that DATABASE_URL names, with the auditor's login, and say what is wrong if anything is.

Exit code 0: everything holds. 1: it does not; one sentence says what and where. 2: it cannot be verified.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg

from refunds.clock import SystemClock
from refunds.ledger import verifier
from refunds.ledger.verifier import Wrong
from refunds.settings import Settings, SettingsError
from store.db import psycopg_url
from store.verifying import Progress, Verification, Verified

_SAY_EVERY_S = 1.0


def keys_in(connection: psycopg.Connection) -> list[str]:
    """The keys that the database itself names: good to see that nothing was damaged, no proof against whoever could change it."""
    with connection.transaction():
        row = connection.execute("SELECT keys FROM ledger_checkpoints ORDER BY size DESC, id DESC LIMIT 1").fetchone()
    return list(row[0]) if row else []


def in_words(done: Verified, seconds: float) -> str:
    """What was verified, in a few sentences."""
    said = [
        f"{done.entries} entries verified in {seconds:.1f} s: every one is as it was numbered, and the {done.refunds} refunds stand as their entries say.",
    ]
    if done.newest is not None:
        said.append(f"{done.signed} of them are signed by {' and '.join(done.newest.signed_by)}; {done.checkpoints} checkpoints agree.")
    else:
        said.append("No checkpoint was made yet, so nothing is signed.")
    if done.by_other_keys:
        said.append(f"{done.by_other_keys} earlier checkpoints are signed by keys that were not given; only their roots were compared.")
    if done.waiting:
        said.append(f"{done.waiting} rows wait for a number, as long as they may.")
    return " ".join(said)


def shown(to_terminal: bool) -> Progress:
    """Show progress on stderr: a line that changes on a terminal, elsewhere a line a second."""
    since, last = time.monotonic(), 0.0

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < (0.1 if to_terminal else _SAY_EVERY_S):
            return
        last = now
        line = f"{done} of {total} entries ({int(done / max(now - since, 0.001))} a second)"
        print(f"\r{line}" if to_terminal else line, end="\n" if done == total or not to_terminal else "", file=sys.stderr, flush=True)

    return show


def _verified(connection: psycopg.Connection, given: argparse.Namespace, note: Callable[[str], None]) -> Verified:
    named = given.key or keys_in(connection)
    if not given.key and named:
        note(
            "The key was read from the database itself. To be sure that nobody rewrote all of it, give the key you kept: --key " + named[0]
        )
    keys = [verifier.read_key(key) for key in named]
    kept = verifier.keep((one for path in given.checkpoint for one in verifier.kept_notes(path.read_bytes())), keys)
    behind = timedelta(seconds=given.behind_s)
    return Verification(connection, keys, kept, SystemClock().now(), behind).run(shown(sys.stderr.isatty()))


def main() -> int:
    """Verify, and say how it went."""
    parser = argparse.ArgumentParser(prog="refunds ledger verify", description="Verify the ledger in PostgreSQL.")
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("--checkpoint", action="append", type=Path, default=[])
    parser.add_argument("--behind-s", type=float, default=None)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    started = time.monotonic()
    try:
        settings = Settings.load()
        given.behind_s = settings.ledger_behind_s if given.behind_s is None else given.behind_s
        address = psycopg_url(settings.database_url.get_secret_value()).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, connect_timeout=10) as connection:
            done = _verified(connection, given, lambda line: print(line, file=sys.stderr))
    except Wrong as wrong:
        if given.json:
            print(json.dumps({"verified": False, "kind": wrong.kind, "entry": wrong.seq, "what": str(wrong)}))
        print(wrong, file=sys.stderr)
        return 2 if wrong.kind == "key" else 1
    except (psycopg.Error, SettingsError) as error:
        print(f"The ledger cannot be verified: {(str(error).splitlines() or [type(error).__name__])[0]}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or 'A file of checkpoints'} cannot be read: {error.strerror}.", file=sys.stderr)
        return 2
    seconds = time.monotonic() - started
    if given.json:
        figures = {"entries": done.entries, "signed": done.signed, "checkpoints": done.checkpoints, "refunds": done.refunds}
        print(json.dumps({"verified": True, **figures, "waiting": done.waiting, "by_other_keys": done.by_other_keys}))
    else:
        print(in_words(done, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
