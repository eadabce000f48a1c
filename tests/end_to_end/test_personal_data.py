"""Nothing that tells of a person, and no secret, is where it is not meant to be (promise P9): marks are planted in every field of every call, and looked for everywhere.

In Temporal (histories, memo, search attributes, what its pages show, its files), the logs of every process, metrics, the ledger, what the processor was sent, every
answer that refuses, every column of every table as text and as bytes, and the database's own files. What may hold a mark is named below, with the reason.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest
from psycopg.rows import dict_row
from temporalio.client import Client

from deploy.local.parts import SANDBOX_KEY
from deploy.local.postgres import SUPERUSER
from refunds.clock import SystemClock, rfc3339
from tests.end_to_end.whole import Goods, Whole, eventually, order_of

# What may stand in the clear in the database, and why. Everything else is sealed, keyed, or not kept.
ARTICLE = {"line", "category"}
MAY_HOLD: dict[str, tuple[set[str], str]] = {
    "orders.body": (
        ARTICLE,
        "an article's number and kind: units are counted and rules ask by them; renamed when the customer is forgotten",
    ),
    "order_versions.body": (ARTICLE, "the same, of every version: terms name the one they were quoted on"),
    "refunds.details": (
        {"line", "method", "model"},
        "which articles go back; plain words for how the customer was made sure of, and for a model",
    ),
    "refund_groups.details": ({"method"}, "the same of an order-wide refund"),
    "refunds.channel": ({"channel"}, "a word for the way it came, which rules ask by"),
    "refunds.detail": ({"channel"}, "which word of it no rule covers"),
    "revisions.facts": ({"category", "channel"}, "what the policy judged by"),
    "revisions.decision": ({"category", "channel"}, "what each check observed"),
    "refunds.requested_by": ({"colleague"}, "a colleague who asked: rules compare it with who approves"),
    "refund_groups.requested_by": ({"colleague"}, "the same"),
    "events.facts": (set(), "words and whole numbers of ours only"),
}
QUIET = {"colleague", "line", "category", "channel", "method", "model"}
"""Marks of what is no customer's: these may stand where :data:`MAY_HOLD` says, and in what is shown of it."""


def mark(name: str) -> str:
    """A word that is nowhere by chance."""
    return f"zq{name}qz"


def marks_in(text: str) -> set[str]:
    """The marks in a text, also where it is percent-encoded or in base64 or hex."""
    found = set(re.findall(r"zq([a-z]+)qz", unquote(text).lower()))
    return found | {name for name, forms in _FORMS.items() if any(form in text for form in forms)}


_NAMES = (
    *("order", "customer", "title", "line", "category", "message", "ticket", "conversation", "reasoning", "session", "model", "colleague"),
    *("metadata", "method", "channel", "key", "note", "revision", "withdrawal", "consent", "evidence", "statement", "reference", "refused"),
    *("charge", "pulled", "puller", "imported", "importer", "quoted", "assigned", "grouped", "secret"),
)
# Aligned forms only: a mark in the middle of longer base64 has three, of which these two bytes less are the same.
_FORMS = {name: (mark(name).encode().hex(), base64.b64encode(mark(name).encode()).decode().rstrip("=")[:-2]) for name in _NAMES}


@dataclass
class Planted:
    """What was made, all ended or waiting; and every answer that refused."""

    refunds: list[str] = field(default_factory=list[str])
    payments: list[str] = field(default_factory=list[str])
    answers: list[str] = field(default_factory=list[str])
    customer: str = ""
    pull: str = ""


def words(**more: Any) -> dict[str, Any]:
    """Every field that every way of asking has, marked."""
    return {
        "conversation_context": mark("conversation"),
        "agent_reasoning": mark("reasoning"),
        "agent_session_id": mark("session"),
        "agent_model": mark("model"),
        "requested_by": mark("colleague"),
        "metadata": {mark("metadata"): mark("metadata"), "password": mark("secret")},
        "customer_authentication": {"method": mark("method"), "at": "2026-01-01T00:00:00Z"},
    } | more


@pytest.fixture(scope="module")
async def planted(whole: Whole) -> Planted:
    """Refunds on every way with every field marked, events and pulls with marks, and calls that fail, because what is refused is logged too."""
    made = Planted()
    goods = [await _goods(whole, made) for _ in range(4)]
    line = {"lines": [{"id": mark("line")}]}
    asked = [await whole.asked_for(one, **words(message=f"{mark('message')}, please", **line), key=_key(whole)) for one in goods[:3]]
    approved, revised, parked = asked
    await whole.until(approved, "awaiting_review")
    assigned = await whole.act("mona", approved, "assignment", {"to": "rita", "reason": mark("assigned")})
    assert assigned.is_success, assigned.text
    for given in ({"statement": mark("statement")}, {"reference": mark("reference"), "digest": "0" * 64}):
        attached = await whole.act("rita", approved, "evidence", {"kind": "photo"} | given)
        assert attached.is_success, attached.text
    assert (await whole.decide("rita", approved, note=mark("note"))).status_code == 200
    view = await whole.until(revised, "awaiting_review")
    change = {"terms_hash": view["terms_hash"], "amount": 15_000, "currency": "USD", "note": mark("revision")}
    assert (await whole.act("rita", revised, "revisions", change)).status_code == 201
    assert (await whole.act("shop", revised, "withdrawal", {"note": mark("withdrawal")})).status_code == 200
    await whole.disturb(goods[2].intent, "lose_request", times=None)
    await whole.until(parked, "awaiting_review")
    await whole.decide("rita", parked)
    await whole.until(parked, "parked")
    said = {"outcome": "refunded", "processor_refund_id": "re_none", "evidence": mark("evidence")}
    made.answers.append((await whole.act("sven", parked, "settlement", said)).text)
    body = whole.asked_by(goods[0].customer) | words(message=f"{mark('ticket')}: my order {goods[0].order} is broken, I want $5.00 back")
    in_words = await whole.call("shop", "POST", "/v1/tickets", body, Idempotency_Key=_key(whole))
    assert in_words.status_code == 201, in_words.text
    grouped = await whole.call(
        "shop", "POST", "/v1/refund-groups", whole.asked(goods[3]) | words(message=mark("message")), Idempotency_Key=_key(whole)
    )
    assert grouped.is_success, grouped.text
    ended = await whole.call("shop", "POST", f"/v1/refund-groups/{grouped.json()['id']}/withdrawal", {"note": mark("grouped")})
    assert ended.is_success, ended.text
    quoted = whole.asked(goods[3]) | words(message=mark("quoted"))
    await whole.call("shop", "POST", "/v1/quotes", quoted)
    odd = await whole.asked_for(await _goods(whole, made), channel=mark("channel"))
    await whole.until(odd, "denied")
    await _elsewhere(whole, made)
    await _refusals(whole, goods[0], made)
    await whole.until(approved, "succeeded")
    made.refunds = [*asked, in_words.json()["id"]]
    made.payments = [one.intent for one in goods]
    made.customer = goods[0].customer
    return made


def _key(whole: Whole) -> str:
    return f"{mark('key')}-{whole.number()}"


async def _goods(whole: Whole, made: Planted) -> Goods:
    number = whole.number()
    goods = Goods(f"{mark('order')}-{number}", f"{mark('customer')}-{number}", f"pi_{number}", 20_000, "USD")
    await whole.control("POST", "/payments", {"id": goods.intent, "amount": goods.amount, "currency": "usd"})
    lines = [{"id": mark("line"), "title": mark("title"), "category": mark("category"), "amount": goods.amount}]
    assert (await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, lines=lines))).status_code == 201
    return goods


async def _elsewhere(whole: Whole, made: Planted) -> None:
    """An import, a pull of orders whose metadata is marked, and an event that carries a charge with a name and an address."""
    number = whole.number()
    order = order_of(Goods("", f"{mark('importer')}-{number}", f"pi_{number}", 500, "USD"), lines=[])
    sent = {"orders": [{"order_id": f"{mark('imported')}-{number}", "order": order}]}
    assert (await whole.call("shop", "POST", "/v1/orders/import", sent)).json()["orders"][0]["outcome"] == "created"
    number = whole.number()
    named = {"order_id": f"{mark('pulled')}-{number}", "customer_id": f"{mark('puller')}-{number}"}
    await whole.control("POST", "/payments", {"id": f"pi_{number}", "amount": 700, "currency": "usd", "metadata": named})

    async def pulled() -> str:
        begun = await whole.call("shop", "POST", "/v1/orders/pull", {"since": rfc3339(SystemClock().now())[:11] + "00:00:00Z"})
        where = begun.headers["location"]
        await eventually(lambda: _json(whole, where), lambda seen: seen["finished_at"] is not None)
        return (await whole.call("olga", "GET", f"{where}/payments?limit=500")).text

    report = await eventually(pulled, lambda text: f"pi_{number}" in text, within_s=60)
    assert named["order_id"] in report, "who may see the report sees the merchant's ids"
    charge = {
        "id": f"ch_{number}",
        "object": "charge",
        "payment_intent": f"pi_{number}",
        "billing_details": {"name": mark("charge"), "email": f"{mark('charge')}@example.org", "address": {"line1": mark("charge")}},
        "metadata": {"note": mark("charge")},
        "description": mark("charge"),
        "amount_refunded": 0,
        "currency": "usd",
    }
    event = {
        "id": f"evt_{number}",
        "object": "event",
        "type": "charge.refunded",
        "livemode": False,
        "api_version": "2026-08-26.dahlia",
        "created": int(time.time()),
        "data": {"object": charge},
    }
    secret = (whole.stack.home / "webhook-secret").read_text().strip()
    raw, at = json.dumps(event).encode(), int(time.time())
    signature = hmac.digest(secret.encode(), f"{at}.".encode() + raw, hashlib.sha256).hex()
    taken = await whole.call(None, "POST", "/webhooks/stripe", raw, Stripe_Signature=f"t={at},v1={signature}")
    assert taken.is_success, taken.text
    unsigned = await whole.call(None, "POST", "/webhooks/stripe", raw, Stripe_Signature=f"t={at},v1={'0' * 64}")
    made.answers.append(unsigned.text)


async def _json(whole: Whole, path: str) -> Any:
    return (await whole.call("olga", "GET", path)).json()


async def _refusals(whole: Whole, goods: Goods, made: Planted) -> None:
    asked, word = whole.asked(goods), mark("refused")
    bodies: list[dict[str, Any]] = [
        {"order_id": word},
        {"customer_id": word},
        {word: word},
        {"reason": word},
        {"message": f"{word}\0"},
        {"currency": word},
        {"lines": [{"id": word}]},
        {"channel": f"{word} {word}"},
        {"metadata": {word * 20: word}},
        {"payment_id": word},
    ]
    for changed in bodies:
        answer = await whole.call("shop", "POST", "/v1/refunds", asked | changed, Idempotency_Key=whole.number())
        assert answer.status_code >= 400, answer.text
        made.answers.append(answer.text)
    made.answers.append(
        (await whole.call("shop", "POST", "/v1/refunds", f'{{"message": "{word}'.encode(), Idempotency_Key=whole.number())).text
    )
    conflict = await whole.call("shop", "PUT", f"/v1/orders/{goods.order}", order_of(goods, customer_id=word))
    made.answers.append(conflict.text)
    reused = await whole.call("shop", "POST", "/v1/refunds", asked | {"message": word}, Idempotency_Key=_key(whole))
    made.answers += [reused.text] if reused.status_code >= 400 else []
    paths = [f"/v1/refunds?customer_id={word}", f"/v1/refunds/{word}", f"/v1/orders/{word}", f"/v1/refunds?{word}={word}", f"/{word}"]
    paths += [f"/v1/customers/{word}/export", f"/v1/refund-groups/{word}", f"/v1/refund-groups?customer_id={word}"]
    for path in paths:
        answer = await whole.call("olga", "GET", path)
        made.answers += [answer.text] if answer.status_code >= 400 else []
    erasure = await whole.call("olga", "POST", f"/v1/customers/{word}/erasure", {"reason": "customer_asked"})
    made.answers.append(erasure.text)
    made.answers.append(
        (await whole.call("olga", "POST", f"/v1/customers/{word}/erasure", {"reason": word, "reference": f"{word} {word}"})).text
    )
    made.answers.append((await whole.call(f"rfk_{word}", "GET", "/v1/refunds")).text)


# --- looking -----------------------------------------------------------------------------------------------------------------------------


async def test_no_answer_that_refuses_repeats_any(planted: Planted) -> None:
    assert len(planted.answers) >= 20
    # A plain, short name of a field that nobody knows is repeated, and what should have been a currency's code; no other value ever is.
    said = {text: marks for text in planted.answers if (marks := marks_in(text)) and not re.search("UNKNOWN_FIELD|UNKNOWN_CURRENCY", text)}
    assert said == {}


async def test_temporal_holds_none(whole: Whole, planted: Planted) -> None:
    client = await whole.temporal()
    runs = [run async for run in client.list_workflows()]
    assert {run.id for run in runs} >= {f"refund-{refund}" for refund in planted.refunds}
    for run in runs:
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        history = await handle.fetch_history()
        raw = b"".join(event.SerializeToString() for event in history.events) + run.raw_info.SerializeToString()
        assert marks_in(raw.decode("latin-1")) == set(), run.id
        assert marks_in(str(run.typed_search_attributes)) == set()
        assert marks_in(json.dumps(await run.memo(), default=str)) == set()
    for refund in planted.refunds:
        assert marks_in(await _details(client, refund)) == set(), "what the run's page shows"
    contents = {path: _content(path) for path in _files(whole.stack.home / "temporal")}
    assert any(planted.refunds[0] in content for content in contents.values()), "what is stored there can be read here"
    assert {path: marks for path, content in contents.items() if (marks := marks_in(content) | secrets_in(content, whole))} == {}


async def _details(client: Client, refund: str) -> str:
    return str(await client.get_workflow_handle(f"refund-{refund}").query("__temporal_workflow_metadata"))


def _files(under: Path) -> list[Path]:
    return [path for path in under.rglob("*") if path.is_file()]


def _content(path: Path) -> str:
    """What a file holds; nothing when it has just gone: a running server removes files of its own."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().decode("latin-1")
    return ""


async def test_no_log_holds_any(whole: Whole, planted: Planted) -> None:
    logs = sorted((whole.stack.home / "logs").iterdir())
    assert {log.stem for log in logs} >= {"api", "worker", "postgres", "temporal", "sandbox"}

    texts = {log.name: log.read_text() for log in logs}
    assert {name: marks for name, text in texts.items() if (marks := marks_in(text) | secrets_in(text, whole))} == {}


async def test_metrics_hold_none(whole: Whole, planted: Planted) -> None:
    metrics = (await whole.call(None, "GET", "/metrics")).text
    assert marks_in(metrics) == set()
    assert not re.search(r"\b(rf|cu|or|pay|pr)_[0-9a-z]{26}", metrics), "labels hold no ids"


async def test_the_processor_is_told_ids_only(whole: Whole, planted: Planted) -> None:
    for payment in planted.payments:
        assert marks_in(str(await whole.control("GET", "/truth", payment_intent=payment))) == set()
    [request] = (await whole.truth(planted.payments[0])).creates
    assert planted.refunds[0] in str(request["params"])


async def test_the_ledger_holds_none(whole: Whole, planted: Planted) -> None:
    for row in _rows(whole, "SELECT row_to_json(l)::text AS line FROM ledger l"):
        assert marks_in(row["line"]) == set(), row["line"]
    for row in _rows(whole, "SELECT entry AS line FROM ledger_entries"):
        assert marks_in(row["line"]) == set(), row["line"]


async def test_no_column_of_any_table_holds_one_but_where_it_is_said_why(whole: Whole, planted: Planted) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    columns = _rows(whole, "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'")
    for column in columns:
        name = f"{column['table_name']}.{column['column_name']}"
        shown = f'"{column["column_name"]}"'
        text = f"encode({shown}, 'escape')" if column["data_type"] == "bytea" else f"{shown}::text"
        for row in _rows(whole, f'SELECT DISTINCT {text} AS value FROM "{column["table_name"]}" WHERE {shown} IS NOT NULL'):
            if marks := marks_in(row["value"]) | secrets_in(row["value"], whole):
                found[name] |= marks
    unexpected = {name: more for name, marks in found.items() if (more := marks - MAY_HOLD.get(name, (set(), ""))[0])}
    assert unexpected == {}
    assert {name for name, (may, _) in MAY_HOLD.items() if may and not found[name]} == set(), (
        "what holds none any more has no reason to be named"
    )


async def test_the_files_of_the_database_hold_none_of_a_persons(whole: Whole, planted: Planted) -> None:
    _rows(whole, "SELECT 1 AS one")
    _execute(whole, "CHECKPOINT")
    server = whole.stack.context.postgres
    assert server is not None
    found: dict[str, set[str]] = {}
    seen = 0
    for path in await asyncio.to_thread(_files, server.data):
        content = await asyncio.to_thread(_content, path)
        seen += planted.refunds[0] in content
        if marks := marks_in(content) - QUIET:
            found[str(path.relative_to(server.data))] = marks
    assert seen, "what is stored there can be read here"
    assert found == {}


async def test_who_may_sees_everything_as_it_was_written(whole: Whole, planted: Planted) -> None:
    view = await whole.view(planted.refunds[0], "rita")

    seen = marks_in(json.dumps(view))
    assert seen >= {"message", "conversation", "reasoning", "note", "assigned", "order", "customer", "metadata", "method"}
    assert "secret" not in seen, "and what nobody may keep is nowhere"


async def test_forgetting_leaves_the_figures_the_decisions_and_the_record(whole: Whole, planted: Planted) -> None:
    refund = planted.refunds[0]
    await eventually(lambda: whole.view(refund), lambda view: view["final"])
    tickets = planted.refunds[3]
    open_ones = await whole.call("olga", "POST", f"/v1/customers/{planted.customer}/erasure", {"reason": "customer_asked"})
    if open_ones.status_code == 409:
        assert {one["id"] for one in open_ones.json()["refunds"]} == {tickets}
        assert (await whole.act("shop", tickets, "withdrawal", {})).status_code == 200
    before, record = await whole.view(refund, "rita"), await whole.ledger(refund)

    erased = await whole.call("olga", "POST", f"/v1/customers/{planted.customer}/erasure", {"reason": "customer_asked"})

    assert erased.status_code == 200, erased.text
    after = await whole.view(refund, "rita")
    assert marks_in(json.dumps(after)) <= {"colleague", "category"}, "what was bought is gone; its kind is part of what was judged"
    assert (after["customer_id"], after["texts"]) == (None, {})
    same = ("amount", "status", "terms", "decisions", "processor", "version")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert await whole.ledger(refund) == record
    [line] = (whole.stack.home / "erasures.jsonl").read_text().splitlines()[-1:]
    assert erased.json()["id"] in line and marks_in(line) == set()
    assert (await whole.call("olga", "GET", f"/v1/customers/{planted.customer}/export")).status_code == 410


def secrets_in(text: str, whole: Whole) -> set[str]:
    """Which secrets of the stack stand in a text."""
    known = {**whole.keys, "stripe": SANDBOX_KEY} | {
        name: (whole.stack.home / name).read_text().strip() for name in ("text-key", "webhook-secret")
    }
    return {name for name, secret in known.items() if secret in text}


def _rows(whole: Whole, query: str) -> list[dict[str, Any]]:
    with _connection(whole) as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()


def _execute(whole: Whole, statement: str) -> None:
    with _connection(whole) as connection:
        connection.execute(statement.encode())


def _connection(whole: Whole) -> psycopg.Connection[Any]:
    server = whole.stack.context.postgres
    assert server is not None
    return psycopg.connect(server.url(SUPERUSER).replace("+psycopg", ""), autocommit=True)
