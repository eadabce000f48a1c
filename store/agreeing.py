"""Holding the records against the entries that stand behind them: what the audit view shows of a refund is what was entered when it happened.

Asked by :mod:`store.verifying` over the auditor's login, in its snapshot, after every row of the ledger has been found to be what was numbered. So the rows may be
joined here. Each query gives what does not agree, the least id first: a record that is another than its entries say, one without an entry, an entry without its
record.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refunds.ledger.entry import hash_of, hash_of_json


@dataclass(frozen=True, slots=True)
class Agreement:
    """A kind of record and the entries that stand behind it: ``says`` is what of the record must be what of the entry, both as text (``t`` and ``l``)."""

    what: str
    table: str
    record: str
    types: tuple[str, ...]
    entry: str
    says: tuple[tuple[str, str, str], ...]
    where: str = "true"

    def query(self) -> str:
        """The statement: ``id``, ``record``, ``entered`` (whether each is there) and what differs."""
        differing = (
            " || ".join(f"CASE WHEN {record} IS DISTINCT FROM {entry} THEN ', {name}' ELSE '' END" for name, record, entry in self._said())
            or "''"
        )
        columns = "".join(f", ({record}) AS r{index}" for index, (_, record, _) in enumerate(self.says))
        entries = "".join(f", ({entry}) AS e{index}" for index, (_, _, entry) in enumerate(self.says))
        types = ", ".join(f"'{one}'" for one in self.types)
        return f"""
            WITH records AS (SELECT ({self.record}) AS id{columns} FROM {self.table} t WHERE {self.where}),
                 entries AS (SELECT ({self.entry}) AS id{entries} FROM ledger l WHERE l.type IN ({types}))
            SELECT * FROM (
                SELECT coalesce(records.id, entries.id) AS id, records.id IS NOT NULL AS record, entries.id IS NOT NULL AS entered,
                       substr(CASE WHEN records.id IS NULL OR entries.id IS NULL THEN '' ELSE {differing} END, 3) AS differs
                  FROM records FULL JOIN entries ON entries.id = records.id) AS met
             WHERE id IS NOT NULL AND (NOT record OR NOT entered OR differs <> '') ORDER BY id LIMIT 1"""

    def _said(self) -> Iterator[tuple[str, str, str]]:
        return ((name, f"records.r{index}", f"entries.e{index}") for index, (name, _, _) in enumerate(self.says))


def _same(*names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((name.replace("_", " "), f"t.{name}::text", f"l.data->>'{name}'") for name in names)


AGREEMENTS: Sequence[Agreement] = (
    Agreement(
        "request",
        "refunds",
        "t.id",
        ("refund_received",),
        "l.refund_id",
        (("who asked", "t.requester_id", "l.actor"), ("whose it is", "t.customer_id", "l.on_behalf_of")),
    ),
    Agreement(
        "revision",
        "revisions",
        "t.refund_id || ' ' || t.revision",
        ("quoted",),
        "l.refund_id || ' ' || (l.data->>'revision')",
        (*_same("amount", "currency", "terms_hash", "policy_version", "policy_hash"), ("payment", "t.payment_id", "l.data->>'payment'")),
    ),
    Agreement(
        "decision",
        "decisions",
        "t.id",
        ("decision_recorded",),
        "l.data->>'decision'",
        (
            *_same("revision", "kind", "step", "verdict", "terms_hash", "role"),
            ("refund", "t.refund_id", "l.refund_id"),
            ("whose it is", "coalesce(t.principal_id, t.person)", "l.actor"),
            ("on whose behalf", "t.on_behalf_of", "l.on_behalf_of"),
            ("delegation", "t.delegation_id", "l.data->>'delegation'"),
        ),
    ),
    Agreement(
        "operation",
        "operations",
        "t.id",
        ("intent",),
        "l.data->>'operation'",
        (("refund", "t.refund_id", "l.refund_id"), *_same("kind")),
    ),
    Agreement(
        "use of a decision",
        "consumed_decisions",
        "t.operation_id || ' ' || t.decision_id",
        ("intent",),
        "(l.data->>'operation') || ' ' || jsonb_array_elements_text(l.data->'consumed')",
        (),
    ),
    Agreement(
        "attempt",
        "attempts",
        "t.id",
        ("attempt_opened",),
        "l.data->>'attempt'",
        (("operation", "t.operation_id", "l.data->>'operation'"), *_same("number")),
    ),
    Agreement(
        "answer",
        "processor_refunds",
        "t.id",
        ("receipt", "adopted"),
        "l.data->>'processor_refund'",
        (
            ("amount", "t.amount::text", "l.data->>'amount'"),
            ("currency", "upper(t.currency)", "l.data->>'currency'"),
            ("operation", "t.operation_id", "l.data->>'operation'"),
        ),
        where="t.operation_id IS NOT NULL",
    ),
    Agreement(
        "policy version",
        "policy_versions",
        "t.version::text",
        ("policy_published",),
        "l.data->>'version'",
        (*_same("hash"), ("text", "encode(sha256(convert_to(t.source, 'UTF8')), 'hex')", "l.data->>'text'")),
    ),
    Agreement(
        "key",
        "api_keys",
        "t.id",
        ("key_created",),
        "l.data->>'key'",
        (("principal", "t.principal_id", "l.data->>'principal'"), ("roles", "to_jsonb(t.roles)::text", "l.data->>'roles'")),
    ),
    Agreement("principal", "principals", "t.id", ("principal_created",), "l.data->>'principal'", _same("kind")),
    Agreement(
        "version of an order",
        "order_versions",
        "t.order_id || ' ' || t.version",
        ("order_recorded",),
        "(l.data->>'order') || ' ' || (l.data->>'version')",
        (),
    ),
)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that gives the first record that does not agree, and the sentence about it."""

    text: str
    what: str
    than: str = "what its entry says"

    def said(self, row: Mapping[str, Any]) -> str:
        """What is wrong with that record."""
        name = f"The {self.what} {row['id']}"
        if not row.get("entered", True):
            return f"{name} has no entry: it was put into the database past the program."
        if not row.get("record", True):
            return f"{name} has an entry, and is not there."
        return f"{name} is not {self.than}" + (f": {row['differs']}." if row.get("differs") else ".")


QUERIES: Sequence[Query] = (
    *(Query(one.query(), one.what) for one in AGREEMENTS),
    Query(
        """SELECT r.id FROM refunds r LEFT JOIN LATERAL (SELECT * FROM (SELECT refund_id, revision, payment_id, amount, currency, terms_hash FROM revisions) v
             WHERE v.refund_id = r.id ORDER BY v.revision DESC LIMIT 1) v ON true
            WHERE (r.revision, r.terms_hash) IS DISTINCT FROM (coalesce(v.revision, 0), v.terms_hash)
               OR v.revision IS NOT NULL AND (coalesce(r.amount, 0), r.currency, r.payment_id) IS DISTINCT FROM (v.amount, v.currency, v.payment_id)
            ORDER BY 1 LIMIT 1""",
        "refund",
        "what its newest revision says",
    ),
    Query(
        """SELECT o.id FROM operations o LEFT JOIN revisions v ON (v.refund_id, v.revision) = (o.refund_id, o.revision)
            WHERE (o.terms_hash, o.amount, o.currency, o.payment_id) IS DISTINCT FROM (v.terms_hash, v.amount, v.currency, v.payment_id)
            ORDER BY 1 LIMIT 1""",
        "operation",
        "what its revision says",
    ),
    Query(  # what is left of a fingerprint when the body is forgotten, or has had its time, is nothing
        """SELECT r.id FROM refunds r JOIN ledger l ON l.type = 'refund_received' AND l.refund_id = r.id
            WHERE r.body_hash <> '' AND r.body_hash IS DISTINCT FROM l.data->>'body_hash' ORDER BY 1 LIMIT 1""",
        "request",
        "what its entry says: the fingerprint of its body",
    ),
    Query(
        """SELECT a.id FROM attempts a JOIN ledger l ON l.type = 'attempt_ended' AND l.data->>'attempt' = a.id
            WHERE a.outcome IS DISTINCT FROM l.data->>'outcome'
              AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.type IN ('receipt', 'adopted') AND r.data->>'operation' = a.operation_id)
            ORDER BY 1 LIMIT 1""",
        "attempt",
        "what its entries say: how it ended",
    ),
    Query(
        """SELECT k.id FROM api_keys k WHERE (k.revoked_at IS NULL) IS DISTINCT FROM
            (NOT EXISTS (SELECT 1 FROM ledger l WHERE l.type = 'key_revoked' AND l.data->>'key' = k.id)) ORDER BY 1 LIMIT 1""",
        "key",
        "what its entries say: whether it was revoked",
    ),
    Query(
        """SELECT c.scope AS id FROM controls c JOIN LATERAL (SELECT l.data FROM ledger l WHERE l.type = 'control_changed' AND l.data->>'scope' = c.scope
            ORDER BY l.id DESC LIMIT 1) l ON true
            WHERE (c.stopped::text, c.mode) IS DISTINCT FROM (l.data->>'stopped', l.data->>'mode') ORDER BY 1 LIMIT 1""",
        "control of",
    ),
)

HASHED: Sequence[tuple[str, str]] = (
    (
        "The terms of the revision",
        "SELECT refund_id || ' ' || revision AS id, terms::text AS json, terms_hash AS hash FROM revisions WHERE terms IS NOT NULL ORDER BY 1",
    ),
    (
        "The facts or checks of the revision",
        """SELECT v.refund_id || ' ' || v.revision AS id, jsonb_build_object('facts', v.facts, 'decision', v.decision)::text AS json, l.data->>'judged' AS hash
             FROM revisions v JOIN ledger l ON l.type = 'quoted' AND l.refund_id = v.refund_id AND l.data->>'revision' = v.revision::text ORDER BY 1""",
    ),
    (
        "The request of the operation",
        """SELECT o.id, o.request::text AS json, l.data->>'request' AS hash
             FROM operations o JOIN ledger l ON l.type = 'intent' AND l.data->>'operation' = o.id ORDER BY 1""",
    ),
    (
        "What the classifier answered of refund",
        """SELECT c.refund_id AS id, c.body::text AS json, l.data->>'answer' AS hash
             FROM classifications c JOIN ledger l ON l.type = 'classified' AND l.refund_id = c.refund_id ORDER BY 1""",
    ),
)
"""What is stored whole beside the hash of it that was entered: the name of it, and a statement that gives id, JSON and hash of each."""


def is_another(row: Mapping[str, Any]) -> bool:
    """Whether a row of :data:`HASHED` is not what was entered."""
    return row["json"] is None or row["hash"] != hash_of_json(row["json"])


def judged_hash(facts: Any, decision: Any) -> str:
    """What an entry of a quote holds of the facts it was judged by and of each check: so none of them can be another afterwards."""
    return hash_of({"facts": facts, "decision": decision})
