"""Personal data and secrets stay where they are meant to be (promise P9): markers are planted in every text, and then looked for everywhere."""

import asyncio
import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import unquote

import pytest

from deploy.local.parts import SANDBOX_KEY
from deploy.local.postgres import BINARIES, SUPERUSER, wheel_directory
from tests.end_to_end.whole import Goods, Whole, order_of

PG_DUMP = wheel_directory() / BINARIES / "pg_dump"
# What people write: encrypted in the database, and nowhere else.
WRITTEN = ("message", "ticket", "conversation", "reasoning", "note", "revision", "withdrawal", "evidence", "refused")
# What the merchant chose: in clear in the columns that are meant for it, and nowhere outside the database.
CHOSEN = ("order", "customer", "sam", "title", "metadata", "line", "method", "session", "model", "key")
MERCHANT_COLUMNS = {
    "customers.external_ref": {"customer"},
    "orders.external_ref": {"order"},
    "orders.body": {"customer", "title", "line"},
    "order_versions.body": {"customer", "title", "line"},
    "refunds.requested_by": {"sam"},
    "refunds.details": {"metadata", "line", "method", "session", "model"},
    "refunds.idempotency_key": {"key"},
}


def mark(name: str) -> str:
    """A word that is nowhere by chance."""
    return f"zq{name}qz"


@dataclass(frozen=True)
class Planted:
    """A refund of each kind with marks everywhere, all ended or waiting."""

    refunds: list[str]
    payments: list[str]


@pytest.fixture(scope="module")
async def planted(whole: Whole) -> Planted:
    """Refunds on every way, with every text marked; and calls that fail, because what is refused is logged too."""
    ways = [whole.number() for _ in range(3)]
    goods = [Goods(f"{mark('order')}-{n}", f"{mark('customer')}-{n}", f"pi_{n}", 20_000, "USD") for n in ways]
    for one in goods:
        await whole.control("POST", "/payments", {"id": one.intent, "amount": one.amount, "currency": "usd"})
        lines = [{"id": mark("line"), "title": mark("title"), "amount": one.amount}]
        assert (await whole.call("shop", "PUT", f"/v1/orders/{one.order}", order_of(one, lines=lines))).status_code == 201
    texts = {
        "message": f"{mark('message')}, please",
        "conversation_context": mark("conversation"),
        "agent_reasoning": mark("reasoning"),
        "agent_session_id": mark("session"),
        "agent_model": mark("model"),
        "requested_by": mark("sam"),
        "metadata": {mark("metadata"): mark("metadata")},
        "customer_authentication": {"method": mark("method"), "at": "2026-01-01T00:00:00Z"},
        "lines": [{"id": mark("line")}],
    }
    approved, revised, parked = [await whole.asked_for(one, **texts, key=f"{mark('key')}-{whole.number()}") for one in goods]
    await whole.until(approved, "awaiting_review")
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
    assert (await whole.act("sven", parked, "settlement", said)).status_code == 409
    ticket = whole.asked_by(goods[0].customer) | {"message": f"{mark('ticket')}: my order {goods[0].order} is broken, I want $5.00 back"}
    in_words = await whole.call("shop", "POST", "/v1/tickets", ticket, Idempotency_Key=f"{mark('key')}-{whole.number()}")
    assert in_words.status_code == 201, in_words.text
    await _refusals(whole, goods[0])
    await whole.until(approved, "succeeded")
    return Planted([approved, revised, parked, in_words.json()["id"]], [one.intent for one in goods])


async def _refusals(whole: Whole, goods: Goods) -> None:
    asked, word = whole.asked(goods), mark("refused")
    refused = [
        asked | {"order_id": word},
        asked | {word: word},
        asked | {"reason": word},
        asked | {"message": f"{word}\0"},
        asked | {"currency": word},
    ]
    for body in refused:
        assert (await whole.call("shop", "POST", "/v1/refunds", body, Idempotency_Key=whole.number())).status_code >= 400
    await whole.call("shop", "POST", "/v1/refunds", f'{{"message": "{word}'.encode(), Idempotency_Key=whole.number())
    for path in (f"/v1/refunds?customer_id={word}", f"/v1/refunds/{word}", f"/v1/orders/{word}", f"/v1/refunds?{word}={word}", f"/{word}"):
        await whole.call("shop", "GET", path)
    await whole.call(f"rfk_{word}", "GET", "/v1/refunds")
    await whole.call("anna", "GET", f"/v1/refunds?customer_id={goods.customer}&order_id={goods.order}")


def marks_in(text: str) -> set[str]:
    return set(re.findall(r"zq([a-z]+)qz", text.lower()))


async def test_no_history_and_no_file_of_temporal_holds_any(whole: Whole, planted: Planted) -> None:
    client = await whole.temporal()

    runs = [run async for run in client.list_workflows()]
    assert {run.id for run in runs} >= {f"refund-{refund}" for refund in planted.refunds}
    for run in runs:
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        raw = b"".join(event.SerializeToString() for event in history.events) + run.raw_info.SerializeToString()
        assert marks_in(raw.decode("latin-1")) == set(), run.id
        assert secrets_in(raw.decode("latin-1"), whole) == set(), run.id
    contents = {path: path.read_bytes().decode("latin-1") for path in (whole.stack.home / "temporal").rglob("*") if path.is_file()}
    assert any(planted.refunds[0] in content for content in contents.values()), "what is stored there can be read here"
    assert {path: marks for path, content in contents.items() if (marks := marks_in(content))} == {}


async def test_no_log_holds_any(whole: Whole, planted: Planted) -> None:
    logs = sorted((whole.stack.home / "logs").iterdir())
    assert {log.stem for log in logs} >= {"api", "worker", "postgres", "temporal", "sandbox"}

    found = {log.name: marks_in(unquote(log.read_text())) for log in logs}
    secret = {log.name: secrets_in(log.read_text(), whole) for log in logs}

    assert {name: marks for name, marks in found.items() if marks} == {}
    assert {name: marks for name, marks in secret.items() if marks} == {}


async def test_the_processor_is_told_ids_only(whole: Whole, planted: Planted) -> None:
    for payment in planted.payments:
        truth = await whole.truth(payment)
        assert marks_in(str(truth)) == set()
    [request] = (await whole.truth(planted.payments[0])).creates
    told = {name: value for name, value in request["params"].items() if name.startswith("metadata")}
    assert planted.refunds[0] in str(told)


async def test_metrics_and_the_ledger_hold_none(whole: Whole, planted: Planted) -> None:
    metrics = (await whole.call(None, "GET", "/metrics")).text
    assert marks_in(metrics) == set()
    assert not re.search(r"\b(rf|cu|or|pay|pr)_[0-9a-z]{26}", metrics), "labels hold no ids"
    for refund in planted.refunds:
        assert marks_in(str(await whole.ledger(refund))) == set()


async def test_a_dump_of_the_database_holds_them_only_where_the_merchants_ids_belong(whole: Whole, planted: Planted) -> None:
    dump = await asyncio.to_thread(dumped, whole)

    found: dict[str, set[str]] = defaultdict(set)
    table, columns = "", []
    for line in dump.splitlines():
        if copied := re.match(r"COPY public\.(\w+) \((.*)\) FROM stdin;", line):
            table, columns = copied[1], [name.strip('" ') for name in copied[2].split(",")]
        elif marks := marks_in(line):
            for column, value in zip(columns, line.split("\t"), strict=True):
                if marks & marks_in(value):
                    found[f"{table}.{column}"] |= marks_in(value)
    assert found == MERCHANT_COLUMNS
    # The texts are there, but sealed.
    assert dump.count("\\\\x") > len(WRITTEN)
    assert secrets_in(dump, whole) == set()
    shown = (await whole.view(planted.refunds[0], "rita"))["texts"]
    assert marks_in(str(shown)) == {"message", "conversation", "reasoning", "note"}


def dumped(whole: Whole) -> str:
    """The whole database, as a backup has it."""
    server = whole.stack.context.postgres
    assert server is not None
    command = [PG_DUMP, "--dbname", server.url(SUPERUSER).replace("+psycopg", "")]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env={"PATH": os.environ["PATH"]}).stdout


def secrets_in(text: str, whole: Whole) -> set[str]:
    """Which secrets of the stack stand in a text."""
    known = {**whole.keys, "stripe": SANDBOX_KEY, "text key": (whole.stack.home / "text-key").read_text().strip()}
    return {name for name, secret in known.items() if secret in text}
