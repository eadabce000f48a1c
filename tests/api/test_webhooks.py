"""Events of Stripe's at the door: what is signed is stored once and acknowledged, and everything else is refused and leaves nothing."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import text
from stripe import WebhookSignature

from api.limits import AT_ONCE
from refunds.settings import Settings
from store import snapshots
from tests.api.conftest import Api, running
from tests.conftest import FreshDatabase

OLD, NEW = "whsec_old_secret", "whsec_new_secret"
VERSION = "2026-08-26.dahlia"
OPERATION = "op_06f2wq1s8h9k3m5n7p9r2t4v6x"


@pytest.fixture(scope="module")
async def door(module_database: FreshDatabase) -> AsyncIterator[Api]:
    async with running(module_database, stripe_webhook_secrets=f"{OLD},{NEW}") as started:
        async with started.payments.begin() as connection:
            await snapshots.bind(connection, processor="stripe", account="acct_1", mode="test", at=started.clock.now())
        yield started


@pytest.fixture
async def api(door: Api) -> Api:
    """An application with two secrets, and no event yet."""
    async with door.owner.begin() as connection:
        await connection.execute(text("DELETE FROM events"))
    return door


def refund(**changed: Any) -> dict[str, Any]:
    """A refund as Stripe puts it into an event."""
    return {
        "id": "re_1",
        "object": "refund",
        "status": "succeeded",
        "amount": 3000,
        "currency": "usd",
        "payment_intent": "pi_1",
        "charge": "ch_1",
        "metadata": {"refunds_operation": OPERATION},
        "created": 1_780_000_000,
    } | changed


def event(subject: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    return {
        "id": "evt_1",
        "object": "event",
        "api_version": VERSION,
        "created": 1_780_000_001,
        "type": "refund.created",
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": None, "idempotency_key": None},
        "data": {"object": refund() if subject is None else subject},
    } | changed


def signed(body: bytes, secret: str = NEW, *, ago_s: int = 0) -> str:
    return WebhookSignature.generate_signature_header(body.decode(), secret, int(time.time()) - ago_s)


async def post(api: Api, body: Any, header: str | None = "", **more: str) -> tuple[int, str]:
    """Send an event; signed as it should be unless a header is given (``None``: without any). Returns the status, and the code or what became of it."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json; charset=utf-8"} | more
    if header is not None:
        headers["Stripe-Signature"] = header or signed(raw)
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = await api.http.post("/webhooks/stripe", content=raw, headers=sent)
    return answer.status_code, answer.json().get("code") or answer.json()["received"]


async def stored(api: Api) -> list[dict[str, Any]]:
    return [dict(row) for row in await api.rows("SELECT * FROM events ORDER BY id")]


async def test_a_signed_event_is_stored_with_what_is_needed_and_no_more(api: Api) -> None:
    body = event(refund(destination_details={"card": {"reference": "74521"}}, receipt_number="12", description="for Ann Zweiblum"))

    assert await post(api, body) == (200, "stored")

    [row] = await stored(api)
    assert {name: row[name] for name in ("id", "processor", "type", "livemode", "api_version", "state", "tries", "account")} == {
        "id": "evt_1",
        "processor": "stripe",
        "type": "refund.created",
        "livemode": False,
        "api_version": VERSION,
        "state": "waiting",
        "tries": 0,
        "account": None,
    }
    assert (row["object_id"], row["processor_payment"], row["operation_id"]) == ("re_1", "pi_1", OPERATION)
    assert row["facts"] == {"object": "refund", "status": "succeeded", "amount": 3000, "currency": "USD", "charge": "ch_1"}
    assert "Zweiblum" not in str(row)


async def test_the_same_event_again_is_acknowledged_and_changes_nothing(api: Api) -> None:
    assert await post(api, event()) == (200, "stored")
    before = await stored(api)

    assert await post(api, event(refund(status="failed"))) == (200, "repeated")

    assert await stored(api) == before


@pytest.mark.parametrize("secret", [OLD, NEW])
async def test_old_and_new_secrets_overlap_while_they_are_rotated(api: Api, secret: str) -> None:
    raw = json.dumps(event()).encode()

    assert await post(api, raw, signed(raw, secret)) == (200, "stored")


async def test_a_header_with_several_signatures_needs_one_that_is_right(api: Api) -> None:
    raw = json.dumps(event()).encode()
    stamp, right = signed(raw).split(",")

    assert await post(api, raw, f"{stamp},v0=00,v1=00,{right}") == (200, "stored")


BODY = json.dumps(event()).encode()
FORGED: dict[str, tuple[bytes, Callable[[], str | None], str]] = {
    "no header": (BODY, lambda: None, "SIGNATURE_MISSING"),
    "another secret": (BODY, lambda: signed(BODY, "whsec_somebody_elses"), "SIGNATURE_INVALID"),
    "another body": (BODY + b" ", lambda: signed(BODY), "SIGNATURE_INVALID"),
    "truncated": (BODY[:-9], lambda: signed(BODY), "SIGNATURE_INVALID"),
    "another time": (BODY, lambda: signed(BODY).replace("t=", "t=1"), "SIGNATURE_INVALID"),
    "replayed": (BODY, lambda: signed(BODY, ago_s=301), "SIGNATURE_EXPIRED"),
    "no scheme": (BODY, lambda: signed(BODY).replace("v1=", "v0="), "SIGNATURE_INVALID"),
    "no time": (BODY, lambda: signed(BODY).partition(",")[2], "SIGNATURE_INVALID"),
    "a time of digits that never end": (BODY, lambda: f"t={'9' * 5000},v1=00", "SIGNATURE_INVALID"),
    "words": (BODY, lambda: "trust me", "SIGNATURE_INVALID"),
    "letters that are not ASCII": (BODY, lambda: "t=1,v1=\xe9", "SIGNATURE_INVALID"),
    "bytes that are no text": (b"\xff\xfe{}", lambda: "t=1,v1=00", "SIGNATURE_INVALID"),
    "nothing signed by nothing": (b"", lambda: "t=1,v1=", "SIGNATURE_INVALID"),
}


@pytest.mark.parametrize("kind", FORGED)
async def test_field_24_what_is_not_signed_by_us_is_refused_before_anything_is_read(api: Api, kind: str) -> None:
    body, header, code = FORGED[kind]

    assert await post(api, body, header()) == (400, code)

    assert await stored(api) == []


async def test_a_doubled_signature_is_refused(api: Api) -> None:
    headers = [("Content-Type", "application/json"), ("Stripe-Signature", signed(BODY)), ("Stripe-Signature", "t=1,v1=00")]
    answer = await api.http.post("/webhooks/stripe", content=BODY, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "AMBIGUOUS_HEADER")


async def test_an_unsigned_flood_asks_the_database_nothing(api: Api) -> None:
    pool, used = api.app.state.services.database.engine.sync_engine, list[object]()

    def count(*_: object) -> None:
        used.append(1)

    sqlalchemy_event.listen(pool, "checkout", count)
    try:
        answers = [await post(api, BODY, header) for header in ("t=1,v1=00", None, signed(BODY, ago_s=900)) for _ in range(20)]
    finally:
        sqlalchemy_event.remove(pool, "checkout", count)

    assert {status for status, _ in answers} == {400}
    assert used == []


MISSHAPEN: dict[str, tuple[Any, int, str]] = {
    "nothing": (b"", 400, "MALFORMED_JSON"),
    "no JSON": (b"{", 400, "MALFORMED_JSON"),
    "a number that never ends": (b'{"id": ' + b"9" * 5000 + b"}", 400, "MALFORMED_JSON"),
    "nested without end": (b'{"a":' * 100_000, 400, "MALFORMED_JSON"),
    "a list": (b"[]", 422, "INVALID_FIELD"),
    "null": (b"null", 422, "INVALID_FIELD"),
    "no id": (event() | {"id": None}, 422, "INVALID_FIELD"),
    "an id of something else": (event(id="re_1"), 422, "INVALID_FIELD"),
    "an id with a NUL": (event(id="evt_\x00"), 422, "INVALID_FIELD"),
    "an id with half a pair": (event(id="evt_\ud800"), 422, "INVALID_FIELD"),
    "an id without end": (event(id="evt_" + "1" * 500), 422, "INVALID_FIELD"),
    "no type": (event(type=None), 422, "INVALID_FIELD"),
    "no data": (event(data=None), 422, "INVALID_FIELD"),
    "no object": (event(data={}), 422, "INVALID_FIELD"),
    "livemode in words": (event(livemode="no"), 422, "INVALID_FIELD"),
    "made at no time": (event(created=10**30), 422, "INVALID_FIELD"),
    "made before time": (event(created=-1), 422, "INVALID_FIELD"),
    "not an event": (event(object="refund"), 422, "INVALID_FIELD"),
    "a refund without id": (event(refund(id=None)), 422, "INVALID_FIELD"),
    "a refund of half a cent": (event(refund(amount=0.5)), 422, "INVALID_FIELD"),
    "a refund that takes": (event(refund(amount=-1)), 422, "INVALID_FIELD"),
    "a refund that is no refund": (event(refund(object="charge")), 422, "INVALID_FIELD"),
    "a refund whose metadata is text": (event(refund(metadata="op")), 422, "INVALID_FIELD"),
    "a charge that is a refund": (event(type="charge.refunded"), 422, "INVALID_FIELD"),
    "a dispute without a state": (event({"id": "du_1", "object": "dispute"}, type="charge.dispute.created"), 422, "INVALID_FIELD"),
}


@pytest.mark.parametrize("kind", MISSHAPEN)
async def test_what_is_signed_and_not_as_stripe_sends_it_is_named_and_not_stored(api: Api, kind: str) -> None:
    body, status, code = MISSHAPEN[kind]

    assert await post(api, body) == (status, code)

    assert await stored(api) == []


async def test_a_body_without_end_is_refused_whatever_it_claims(database: FreshDatabase) -> None:
    async with running(database, stripe_webhook_secrets=NEW, api_max_body_bytes=2_000) as api:
        huge = json.dumps(event(padding="x" * 5_000)).encode()

        assert await post(api, huge) == (413, "BODY_TOO_LARGE")

        assert await stored(api) == []


async def test_without_secrets_nothing_is_taken_and_stripe_sends_it_again(database: FreshDatabase) -> None:
    async with running(database) as api:
        assert await post(api, event()) == (503, "WEBHOOKS_NOT_CONFIGURED")
        assert await post(api, event(), None) == (503, "WEBHOOKS_NOT_CONFIGURED")

        assert await stored(api) == []


NOT_OURS: dict[str, tuple[dict[str, Any], str]] = {
    "of the other mode": (event(livemode=True), "mode"),
    "of an account of a platform": (event(account="acct_2"), "account"),
    "of an older version": (event(api_version="2022-11-15"), "api_version"),
    "of no version": (event(api_version=None), "api_version"),
}


@pytest.mark.parametrize("kind", NOT_OURS)
async def test_field_23_what_is_none_of_ours_is_acknowledged_kept_and_never_worked_on(api: Api, kind: str) -> None:
    body, why = NOT_OURS[kind]

    assert await post(api, body) == (200, "ignored")

    [row] = await stored(api)
    assert (row["state"], row["outcome"], row["facts"], row["object_id"]) == ("ignored", why, {}, None)
    assert row["done_at"] is not None


async def test_field_23_an_older_versions_object_may_have_any_shape(api: Api) -> None:
    assert await post(api, event({"id": 7}, api_version="2022-11-15")) == (200, "ignored")


async def test_field_23_the_shape_we_can_use_replaces_the_one_we_could_not(api: Api) -> None:
    """Stripe sends one event to each endpoint, in that endpoint's version: while versions change, either may come first."""
    assert await post(api, event(api_version="2022-11-15")) == (200, "ignored")
    assert await post(api, event()) == (200, "stored")
    assert await post(api, event(api_version="2022-11-15")) == (200, "ignored")

    [row] = await stored(api)
    assert (row["state"], row["api_version"], row["operation_id"], row["done_at"]) == ("waiting", VERSION, OPERATION, None)


async def test_the_bound_account_may_be_named(api: Api) -> None:
    assert await post(api, event(account="acct_1")) == (200, "stored")


async def test_field_23_unknown_fields_are_tolerated(api: Api) -> None:
    assert await post(api, event(refund(surprise={"a": [1.5]}), context="new")) == (200, "stored")


async def test_types_nobody_asked_for_are_acknowledged_and_counted(api: Api) -> None:
    assert await post(api, event({"id": "cus_1", "email": "ann@example.invalid"}, type="customer.updated")) == (200, "unused")

    assert await stored(api) == []
    metrics = (await api.http.get("/metrics")).text
    assert 'refunds_webhook_events_total{outcome="unused"} 1.0' in metrics
    assert 'refunds_webhook_inbox{state="unmatched"} 0.0' in metrics
    assert 'refunds_webhook_inbox{state="waiting"} ' in metrics


async def test_charges_and_disputes_say_which_payment_they_are_about(api: Api) -> None:
    charge = {
        "id": "ch_1",
        "object": "charge",
        "payment_intent": "pi_1",
        "amount_refunded": 700,
        "currency": "usd",
        "billing_details": {"name": "Ann"},
    }
    dispute = {
        "id": "du_1",
        "object": "dispute",
        "charge": "ch_1",
        "payment_intent": "pi_1",
        "status": "lost",
        "amount": 700,
        "currency": "usd",
    }
    await post(api, event(charge, id="evt_1", type="charge.refunded"))
    await post(api, event(dispute, id="evt_2", type="charge.dispute.closed"))
    await post(api, event({k: v for k, v in charge.items() if k != "payment_intent"}, id="evt_3", type="charge.refunded"))

    of_charge, of_dispute, alone = await stored(api)
    assert (of_charge["processor_payment"], of_charge["facts"]["amount_refunded"]) == ("pi_1", 700)
    assert (of_dispute["processor_payment"], of_dispute["facts"]["status"]) == ("pi_1", "lost")
    assert alone["processor_payment"] == "ch_1"
    assert "Ann" not in str(of_charge)


@pytest.mark.parametrize("written", ["op\x00", "x" * 5_000, 7, {"a": 1}, "\ud800"])
async def test_whatever_is_written_into_metadata_is_no_operation(api: Api, written: Any) -> None:
    assert await post(api, event(refund(metadata={"refunds_operation": written}))) == (200, "stored")

    [row] = await stored(api)
    assert row["operation_id"] is None


async def test_field_24_with_the_database_down_nothing_is_acknowledged(api: Api) -> None:
    login = "refunds_api"
    with api.fresh.connect("postgres") as connection:
        connection.execute(f'ALTER DATABASE "{api.fresh.name}" CONNECTION LIMIT 0'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s AND datname = current_database()", [login]
        )

        assert await post(api, event()) == (503, "STORE_UNAVAILABLE")
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)

        connection.execute(f'ALTER DATABASE "{api.fresh.name}" CONNECTION LIMIT -1'.encode())
    assert await post(api, event()) == (200, "stored")


async def test_a_burst_is_sent_again_later_and_keeps_no_other_call_waiting(api: Api) -> None:
    limits = api.app.state.services.limits
    with ExitStack() as busy:
        for _ in range(AT_ONCE):
            busy.enter_context(limits.at_once("Stripe-Signature"))

        assert await post(api, event()) == (429, "RATE_LIMITED")
        assert (await post(api, event(), "t=1,v1=00"))[1] == "SIGNATURE_INVALID"
        assert (await api.call("GET", "/v1/controls", api.administrator)).status_code == 200

    assert await post(api, event()) == (200, "stored")


@pytest.mark.parametrize("secrets", ["sk_test_1", "whsec_1,sk_test_2", "rubbish"])
def test_what_is_no_secret_of_an_endpoint_stops_the_start(secrets: str) -> None:
    with pytest.raises(ValidationError, match="STRIPE_WEBHOOK_SECRETS"):
        Settings(stripe_webhook_secrets=SecretStr(secrets))


def test_secrets_are_masked_and_apart() -> None:
    settings = Settings(stripe_webhook_secrets=SecretStr(f" {OLD} ,, {NEW}"))

    assert settings.webhook_secrets == (OLD, NEW)
    assert OLD not in str(settings.masked())


async def test_the_description_says_how_an_event_is_sent(api: Api) -> None:
    call = (await api.http.get("/openapi.json")).json()["paths"]["/webhooks/stripe"]["post"]

    assert call["security"] == []
    assert [(p["name"], p["in"], p["required"]) for p in call["parameters"]] == [("Stripe-Signature", "header", True)]
    assert set(call["responses"]) == {"200", "400", "413", "415", "422", "429", "500", "503"}
    assert call["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/StripeEvent"}
    assert "SIGNATURE_EXPIRED" in call["responses"]["400"]["description"]


async def test_signatures_are_judged_by_the_clock_on_the_wall(api: Api) -> None:
    """Stripe signs by the true time; a clock that a test has shifted does not decide what is old."""
    api.clock.advance(timedelta(days=30))
    try:
        assert await post(api, event()) == (200, "stored")
    finally:
        api.clock.advance(timedelta(days=-30))
