"""The sandbox's truth: one SQLite file, one connection, one transaction a request.

Everything runs on the event loop's thread and no statement is awaited, so a transaction is never interleaved with another
one. WAL with synchronous=NORMAL loses nothing that was committed when the process is killed (it may when the machine is).
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.sandbox.clock import Clock
from deploy.sandbox.objects import Body, reveal_reference
from deploy.sandbox.scopes import PLATFORM, is_live

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, created INTEGER NOT NULL,
    charge TEXT, payment_intent TEXT, customer TEXT, type TEXT, source TEXT, hidden INTEGER NOT NULL DEFAULT 0,
    body TEXT NOT NULL, extra TEXT NOT NULL DEFAULT '{}', scope TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS objects_order ON objects (kind, created, seq);
CREATE INDEX IF NOT EXISTS objects_charge ON objects (charge, kind, created, seq) WHERE charge IS NOT NULL;
CREATE INDEX IF NOT EXISTS objects_intent ON objects (payment_intent, kind, created, seq) WHERE payment_intent IS NOT NULL;
CREATE TABLE IF NOT EXISTS idempotency (
    key TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, method TEXT NOT NULL, path TEXT NOT NULL, params TEXT NOT NULL,
    status INTEGER NOT NULL, body TEXT NOT NULL, request_id TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_age ON idempotency (created_ms);
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY, op TEXT NOT NULL, time_ms INTEGER NOT NULL, idempotency_key TEXT, params TEXT NOT NULL,
    payment_intent TEXT, answered TEXT, made TEXT, replayed INTEGER NOT NULL DEFAULT 0, scope TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS requests_intent ON requests (payment_intent, op, seq);
CREATE TABLE IF NOT EXISTS faults (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, times INTEGER);
CREATE TABLE IF NOT EXISTS schedule (seq INTEGER PRIMARY KEY, due_ms INTEGER NOT NULL, id TEXT NOT NULL, action TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS schedule_due ON schedule (due_ms, seq);
CREATE TABLE IF NOT EXISTS deliveries (
    seq INTEGER PRIMARY KEY, event TEXT NOT NULL, due_ms INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (due_ms, seq) WHERE state = 'due';
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_SCOPED = ("objects", "requests")
"""Tables that files of an earlier version have without the column `scope`."""
TABLES = ("objects", "idempotency", "requests", "faults", "schedule", "deliveries")
LINKS = ("charge", "payment_intent", "customer", "type", "source")


@dataclass(slots=True)
class Stored:
    """One object as Stripe shows it (`body`) and what only the sandbox knows about it (`extra`)."""

    body: Body
    extra: dict[str, Any]


@dataclass(slots=True, frozen=True)
class Page:
    """Which part of a list is wanted. `created` holds gt, gte, lt, lte in seconds."""

    limit: int = 10
    after: tuple[int, int] | None = None
    before: tuple[int, int] | None = None
    created: dict[str, int] = field(default_factory=dict)


class State:
    """Reads and writes objects and settings. Safe to open on a file that a killed sandbox left behind.

    The file is locked while it is open: a second sandbox on it gets sqlite3.OperationalError.

    `scope` says whose objects are seen and made (`deploy.sandbox.scopes`): those of the platform in test mode unless :meth:`acting_for` says otherwise.
    """

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self.db.executescript(
            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=4000;" + _SCHEMA
        )
        self._grow()
        self.scope = PLATFORM
        self.next_due_ms: int | None = self._earliest()
        self.clock = Clock(self.setting("clock_shift_ms", 0))

    def close(self) -> None:
        self.db.close()

    def _grow(self) -> None:
        for table in _SCOPED:
            if not any(row[1] == "scope" for row in self.db.execute(f"PRAGMA table_info({table})")):
                self.db.execute(f"ALTER TABLE {table} ADD COLUMN scope TEXT NOT NULL DEFAULT ''")

    @contextmanager
    def acting_for(self, scope: str) -> Iterator[None]:
        """Inside, objects are seen and made in another scope. Not to be awaited in."""
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def scope_of(self, object_id: str) -> str:
        """Whose an object is; the platform's for one that is not there."""
        row = self.db.execute("SELECT scope FROM objects WHERE id = ?", (object_id,)).fetchone()
        return PLATFORM if row is None else row[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is kept or nothing is. Not to be awaited in, not to be nested."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def setting(self, name: str, default: Any) -> Any:
        row = self.db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set_setting(self, name: str, value: Any) -> None:
        self.db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))

    def insert(self, body: Body, extra: dict[str, Any] | None = None, **links: str | None) -> None:
        if "livemode" in body:
            body["livemode"] = is_live(self.scope)
        self.db.execute(
            "INSERT INTO objects (id, kind, created, charge, payment_intent, customer, type, source, body, extra, scope) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                body["id"],
                body["object"],
                body["created"],
                *(links.get(name) for name in LINKS),
                dumps(body),
                "{}" if extra is None else dumps(extra),
                self.scope,
            ),
        )

    def save(self, body: Body) -> None:
        self.db.execute("UPDATE objects SET body = ? WHERE id = ?", (dumps(body), body["id"]))

    def save_extra(self, object_id: str, extra: dict[str, Any]) -> None:
        self.db.execute("UPDATE objects SET extra = ? WHERE id = ?", (dumps(extra), object_id))

    def find(self, kind: str, object_id: str) -> Stored | None:
        row = self.db.execute("SELECT body, extra, kind FROM objects WHERE id = ? AND scope = ?", (object_id, self.scope)).fetchone()
        if row is None or row[2] != kind:
            return None
        return Stored(self._load(row[0]), json.loads(row[1]))

    def get(self, kind: str, object_id: str) -> Body | None:
        row = self.db.execute("SELECT body, kind FROM objects WHERE id = ? AND scope = ?", (object_id, self.scope)).fetchone()
        return None if row is None or row[1] != kind else self._load(row[0])

    def expect(self, kind: str, object_id: str) -> Body:
        """An object that another one refers to, so that it must be there."""
        body = self.get(kind, object_id)
        if body is None:
            raise LookupError(f"{kind} {object_id} is referred to and not stored")
        return body

    def by_id(self, object_id: str) -> Body | None:
        row = self.db.execute("SELECT body FROM objects WHERE id = ? AND scope = ?", (object_id, self.scope)).fetchone()
        return None if row is None else self._load(row[0])

    def position(self, kind: str, object_id: str) -> tuple[int, int] | None:
        """Where an object stands in lists of its kind (newest first by created, then by insertion)."""
        row = self.db.execute(
            "SELECT created, seq FROM objects WHERE id = ? AND kind = ? AND scope = ?", (object_id, kind, self.scope)
        ).fetchone()
        return None if row is None else (row[0], row[1])

    def page(self, kind: str, links: dict[str, str | list[str]], page: Page) -> tuple[list[Body], bool]:
        """Newest first, and whether more follow in the direction asked for. Hidden refunds are left out."""
        where, values = ["kind = ?", "hidden = 0", "+scope = ?"], [kind, self.scope]
        for name, value in links.items():
            choices = [value] if isinstance(value, str) else value
            where.append(f"{name} IN ({', '.join('?' * len(choices))})" if len(choices) > 1 else f"{name} = ?")
            values.extend(choices)
        direction = "ASC" if page.before is not None else "DESC"
        rows: list[tuple[str]] = []
        for stretch, bounds in _stretches(page):
            rows += self.db.execute(
                f"SELECT body FROM objects WHERE {' AND '.join([*where, stretch])} ORDER BY created {direction}, seq {direction} LIMIT ?",
                (*values, *bounds, page.limit + 1 - len(rows)),
            ).fetchall()
            if len(rows) > page.limit:
                break
        found = [self._load(row[0]) for row in rows[: page.limit]]
        if page.before is not None:
            found.reverse()
        return found, len(rows) > page.limit

    def every(self, kind: str, **links: str) -> list[Body]:
        """All objects of a kind, oldest first, hidden ones too: the truth, not what a list shows."""
        return self._all("+scope = ? AND kind = ?", (self.scope, kind), links)

    def everywhere(self, kind: str, **links: str) -> list[Body]:
        """The same, whosever they are: of every account, in both modes."""
        return self._all("kind = ?", (kind,), links)

    def _all(self, where: str, values: tuple[str, ...], links: dict[str, str]) -> list[Body]:
        narrowed = "".join(f" AND {name} = ?" for name in links)
        rows = self.db.execute(f"SELECT body FROM objects WHERE {where}{narrowed} ORDER BY seq", (*values, *links.values()))
        return [self._load(row[0]) for row in rows]

    def is_known_in(self, scope: str, object_id: str) -> bool:
        return self.db.execute("SELECT 1 FROM objects WHERE id = ? AND scope = ?", (object_id, scope)).fetchone() is not None

    def payment_intent_of(self, object_id: str) -> str | None:
        """The PaymentIntent that an object belongs to, by any id; a charge without one stands for itself."""
        if object_id.startswith("pi_"):
            return object_id
        return self.intent_of(object_id) or (
            object_id if self.by_id(object_id) is not None and object_id.startswith(("ch_", "py_")) else None
        )

    def intent_of(self, object_id: str) -> str | None:
        row = self.db.execute("SELECT payment_intent FROM objects WHERE id = ?", (object_id,)).fetchone()
        return None if row is None else row[0]

    def plan(self, due_ms: int, object_id: str, action: dict[str, Any]) -> None:
        """Something that happens by itself later, such as a pending refund that fails."""
        self.db.execute("INSERT INTO schedule (due_ms, id, action) VALUES (?, ?, ?)", (due_ms, object_id, dumps(action)))
        self.next_due_ms = due_ms if self.next_due_ms is None else min(self.next_due_ms, due_ms)

    def _earliest(self) -> int | None:
        return self.db.execute("SELECT min(due_ms) FROM schedule").fetchone()[0]

    def is_due(self) -> bool:
        """Whether something planned may be due. Costs no statement, so that it can be asked all the time."""
        return self.next_due_ms is not None and self.next_due_ms <= self.clock.now_ms()

    def settled(self) -> None:
        """To be called once everything due was done: looks up what comes next."""
        self.next_due_ms = self._earliest()

    def wipe(self) -> None:
        """Forgets everything but whose account this is."""
        for table in TABLES:
            self.db.execute(f"DELETE FROM {table}")
        self.db.execute("DELETE FROM settings WHERE name <> 'account'")

    def _load(self, body: str) -> Body:
        loaded = json.loads(body)
        if loaded["object"] == "refund":
            reveal_reference(loaded, self.clock.now())
        return loaded


def _stretches(page: Page) -> list[tuple[str, tuple[int, int]]]:
    """Where a page lies, as conditions that an index seeks by: behind a cursor first the rest of its second, then what is beyond that second.

    One condition on (created, seq), or the window's bound beside the cursor's, would make SQLite read all pages before this one again.
    """
    first = max([-_EVER, *(bound + (name == "gt") for name, bound in page.created.items() if name in ("gt", "gte"))])
    last = min([_EVER, *(bound - (name == "lt") for name, bound in page.created.items() if name in ("lt", "lte"))])
    cursor, sign = (page.before, ">") if page.before is not None else (page.after, "<")
    if cursor is None:
        return [("created BETWEEN ? AND ?", (first, last))]
    created, seq = cursor
    beyond = (max(first, created + 1), last) if page.before is not None else (first, min(last, created - 1))
    same_second = [(f"created = ? AND seq {sign} ?", (created, seq))] if first <= created <= last else []
    return [*same_second, ("created BETWEEN ? AND ?", beyond)]


_EVER = 2**62
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def dumps(value: Any) -> str:
    return _encoder.encode(value)
