"""Every row of the error map, over HTTP through the official SDK: did money move, or may it have? (promise P7, field report 7)"""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import stripe

from activities.processors import error_map
from activities.processors.base import SendTooLate, uptime
from activities.processors.stripe import StripeProcessor
from refunds.processor import NotSent, ProcessorError, Refused, Unknown
from tests.activities.processors.conftest import MakeProcessor, answering, listening, request_for, serving, soon
from tests.conftest import ROOT, Sandbox

DOCS = ROOT / "docs" / "processor-errors.md"
UNSPOKEN = {"message": "Words that a person may read.", "type": "invalid_request_error"}


def fault(sandbox: Sandbox, on: str, times: int | None = 1, **given: Any) -> None:
    sandbox.control("POST", "/faults", {"on": on, "times": times, "fault": given})


def paid(sandbox: Sandbox, intent: str = "pi_1", amount: int = 10_000, **more: Any) -> str:
    sandbox.control("POST", "/payments", {"id": intent, "amount": amount, "currency": "usd"} | more)
    return intent


def made(sandbox: Sandbox) -> int:
    return len(sandbox.control("GET", "/truth")["refunds"])


async def error_of(processor: StripeProcessor, intent: str = "pi_1", **more: Any) -> ProcessorError:
    with pytest.raises(ProcessorError) as caught:
        await processor.refund(request_for(intent, **more), send_before=soon())
    return caught.value


# --- answers of the processor ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "kind", "reason"),
    [
        (400, {"code": "charge_already_refunded"}, Refused, "already_refunded"),
        (400, {"code": "charge_disputed"}, Refused, "disputed"),
        (400, {"code": "refund_disputed_payment"}, Refused, "disputed"),
        (400, {"code": "charge_not_refundable"}, Refused, "not_refundable"),
        (400, {"code": "balance_insufficient"}, Refused, "insufficient_funds"),
        (400, {"code": "amount_too_large"}, Refused, "refused"),
        (400, {"code": "parameter_invalid_integer"}, Refused, "refused"),
        (400, {}, Refused, "refused"),
        (400, {"code": "resource_missing"}, Refused, "not_found"),
        (400, {"type": "idempotency_error"}, Unknown, "idempotency_conflict"),
        (400, {"type": "idempotency_error", "code": "a_code_that_comes_later"}, Unknown, "idempotency_conflict"),
        (400, {"type": "api_error"}, Unknown, "server_error"),
        (400, {"type": "a_type_that_comes_later", "code": "charge_disputed"}, Unknown, "unexpected_type"),
        (400, {"code": "lock_timeout"}, Unknown, "lock_timeout"),
        (400, {"code": "secret_key_required"}, NotSent, "key_refused"),
        (400, {"code": "api_key_expired"}, NotSent, "key_refused"),
        (400, {"code": "platform_api_key_expired"}, NotSent, "key_refused"),
        (401, {}, NotSent, "key_refused"),
        (401, {"code": "api_key_expired"}, NotSent, "key_refused"),
        (402, {"type": "card_error", "code": "insufficient_funds"}, Refused, "refused"),
        (403, {}, NotSent, "permission"),
        (403, {"code": "account_invalid"}, NotSent, "account_refused"),
        (403, {"code": "api_key_expired"}, NotSent, "key_refused"),
        (404, {"code": "resource_missing"}, Refused, "not_found"),
        (404, {}, Unknown, "unexpected_status"),
        (409, {"code": "idempotency_key_in_use"}, Unknown, "key_in_use"),
        (409, {}, Unknown, "key_in_use"),
        (429, {"code": "lock_timeout"}, Unknown, "lock_timeout"),
        (429, {"code": "rate_limit"}, NotSent, "rate_limited"),
        (500, {"type": "api_error"}, Unknown, "server_error"),
        (502, {"type": "api_error"}, Unknown, "server_error"),
        (503, {"type": "api_error"}, Unknown, "server_error"),
        (504, {"type": "api_error"}, Unknown, "server_error"),
        (500, {"code": "charge_already_refunded"}, Unknown, "server_error"),
        (302, {}, Unknown, "redirected"),
        (304, {}, Unknown, "redirected"),
        (408, {}, Unknown, "unexpected_status"),
        (418, {}, Unknown, "unexpected_status"),
        (424, {"code": "external_dependency_failed"}, Unknown, "dependency_failed"),
    ],
)
async def test_what_an_error_of_stripe_means(
    processor: StripeProcessor, sandbox: Sandbox, status: int, error: dict[str, str], kind: type[ProcessorError], reason: str
) -> None:
    paid(sandbox)
    fault(sandbox, "refund.create", kind="status", status=status, body={"error": UNSPOKEN | error})

    found = await error_of(processor)

    assert (type(found), found.reason) == (kind, reason)
    assert made(sandbox) == 0


async def test_the_sandbox_s_own_errors_mean_the_same(processor: StripeProcessor, connected: MakeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    sandbox.control("PUT", "/keys", {"key": "sk_test_revoked", "revoked": True})
    sandbox.control("PUT", "/keys", {"key": "rk_test_readonly", "permissions": {"refunds": "read"}})
    found = {
        "too large": await error_of(processor, amount=10_001, key="k1"),
        "unknown payment": await error_of(processor, "pi_unknown", key="k2"),
        "revoked": await error_of(connected(sandbox.url, stripe_api_key="sk_test_revoked"), key="k3"),
        "read only": await error_of(connected(sandbox.url, stripe_api_key="rk_test_readonly"), key="k4"),
    }
    await processor.refund(request_for("pi_1", key="k5"), send_before=soon())
    found["other content"] = await error_of(processor, amount=1, key="k5")

    assert {name: (type(error), error.reason) for name, error in found.items()} == {
        "too large": (Refused, "amount_too_large"),
        "unknown payment": (Refused, "not_found"),
        "revoked": (NotSent, "key_refused"),
        "read only": (NotSent, "permission"),
        "other content": (Unknown, "idempotency_conflict"),
    }
    assert made(sandbox) == 1


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "409 Conflict", "429 Too Many Requests", "451 Unavailable"])
@pytest.mark.parametrize(
    "body",
    [
        "<html>Blocked by the firewall</html>",
        "",
        "{}",
        "[]",
        '{"error": "denied"}',
        '{"error": null}',
        '{"error": [1]}',
        '{"error": {"type": ["x"]}}',
    ],
)
async def test_a_page_of_something_in_between_says_nothing_of_the_key(connected: MakeProcessor, status: str, body: str) -> None:
    """Above all it does not halt submitting, as a key that Stripe itself refuses does, and it does not claim that nothing was sent."""
    async with serving(answering(status, body)) as server:
        found = await error_of(connected(server.url))

    assert type(found) is Unknown
    assert found.reason in ("unexpected_answer", "unexpected_shape")


@pytest.mark.parametrize("code", ["a\0b", "x" * 200, "\ud800", 7, {"a": 1}, ["charge_disputed"]])
async def test_a_code_that_is_no_word_reaches_nobody_s_columns(processor: StripeProcessor, sandbox: Sandbox, code: Any) -> None:
    paid(sandbox)
    fault(sandbox, "refund.create", kind="status", status=400, body=json.dumps({"error": UNSPOKEN | {"code": code}}))

    found = await error_of(processor)

    assert (type(found), found.reason, found.code) == (Refused, "refused", "invalid_request_error")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("99999999", 3_600), ("9" * 5_000, None), ("\xb2", None)],
)
async def test_a_wait_that_the_processor_asks_for_is_kept(connected: MakeProcessor, header: str, seconds: int | None) -> None:
    extra = f"Retry-After: {header}\r\n" if header else ""
    async with serving(answering("429 Too Many Requests", '{"error": {"type": "rate_limit_error"}}', extra=extra)) as server:
        found = await error_of(connected(server.url))

    assert (type(found), found.retry_after) == (NotSent, seconds)


# --- answers nobody can read -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"re_1"',
        "{}",
        '{"id": "re_1"}',
        '{"object": "charge", "id": "ch_1"}',
        "<html>Busy</html>",
        '{"id": null}',
    ],
)
async def test_an_answer_of_another_shape_is_unknown(connected: MakeProcessor, body: str) -> None:
    async with serving(answering("200 OK", body)) as server:
        found = await error_of(connected(server.url))

    assert type(found) is Unknown
    assert found.reason in ("malformed_answer", "unexpected_shape")


async def test_half_an_answer_is_unknown_though_the_refund_was_made(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    fault(sandbox, "refund.create", kind="malformed")

    assert type(await error_of(processor)) is Unknown
    assert made(sandbox) == 1


async def test_a_body_that_is_cut_off_is_unknown(connected: MakeProcessor) -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"id": "re_1", "am')
        await writer.drain()

    async with serving(cut) as server:
        found = await error_of(connected(server.url))

    assert (type(found), found.reason) == (Unknown, "no_answer")


# --- the wire --------------------------------------------------------------------------------------------------------------------------


async def test_a_refused_connection_sent_nothing(connected: MakeProcessor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: the kernel refuses
        found = await error_of(connected(f"http://127.0.0.1:{taken.getsockname()[1]}"))

    assert (type(found), found.reason) == (NotSent, "no_connection")


async def test_a_name_that_does_not_resolve_and_a_wrong_protocol_sent_nothing(connected: MakeProcessor) -> None:
    async def not_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"this is not TLS")

    async with listening(not_tls, "https") as url:
        for address in ("http://nobody.invalid", url):
            assert type(await error_of(connected(address))) is NotSent, address


@pytest.mark.parametrize("kind", ["lose_answer", "lose_request"])
async def test_a_connection_that_breaks_after_sending_is_unknown(processor: StripeProcessor, sandbox: Sandbox, kind: str) -> None:
    paid(sandbox)
    fault(sandbox, "refund.create", kind=kind)

    found = await error_of(processor)

    assert (type(found), found.reason) == (Unknown, "no_answer")
    assert made(sandbox) == (1 if kind == "lose_answer" else 0)


async def test_a_reset_after_sending_is_unknown(connected: MakeProcessor) -> None:
    async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # close at once, with a reset
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with serving(reset) as server:
        found = await error_of(connected(server.url))

    assert (type(found), found.reason) == (Unknown, "no_answer")


async def test_an_answer_that_does_not_come_in_time_is_unknown(connected: MakeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    fault(sandbox, "refund.create", kind="hang", ms=3_000)

    found = await error_of(connected(sandbox.url, stripe_read_timeout_s=0.3))

    assert (type(found), found.reason) == (Unknown, "no_answer")
    assert made(sandbox) == 1


# --- the last moment before a byte leaves ----------------------------------------------------------------------------------------------


async def test_past_its_moment_nothing_is_sent(connected: MakeProcessor) -> None:
    async with serving(answering("200 OK", "{}")) as server:
        with pytest.raises(SendTooLate):
            await connected(server.url).refund(request_for("pi_1"), send_before=uptime())

    assert server.received == []


async def test_connecting_may_not_outlast_the_moment_to_send(connected: MakeProcessor) -> None:
    """The check is made after connecting: here TCP answers at once and the TLS handshake takes longer than is left."""
    sent: list[bytes] = []

    async def slow(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        sent.append(await reader.read(5))
        await asyncio.sleep(0.3)  # the handshake that outlasts the deadline; nothing is waited for here

    async with listening(slow, "https") as url:
        with pytest.raises((SendTooLate, NotSent)):
            await connected(url).refund(request_for("pi_1"), send_before=uptime() + 0.1)

    assert [data[:1] for data in sent] == [b"\x16"], "a TLS greeting is not the request"


async def test_a_slow_connection_is_given_up_when_it_stands(connected: MakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def slowly(*arguments: Any, **options: Any) -> Any:
        connection = await connect(*arguments, **options)
        await asyncio.sleep(0.15)  # longer than the attempt has: this is the slow connection itself
        return connection

    monkeypatch.setattr(loop, "create_connection", slowly)
    async with serving(answering("200 OK", "{}")) as server:
        with pytest.raises(SendTooLate):
            await connected(server.url).refund(request_for("pi_1"), send_before=uptime() + 0.1)

    assert server.received == []


async def test_after_a_void_attempt_the_connections_still_work(processor: StripeProcessor, sandbox: Sandbox) -> None:
    paid(sandbox)
    await processor.account()  # a connection that is kept alive
    for _ in range(3):
        with pytest.raises(SendTooLate):
            await processor.refund(request_for("pi_1"), send_before=uptime())

    refund = await processor.refund(request_for("pi_1"), send_before=soon())

    assert refund.amount == 3_000
    assert len(sandbox.control("GET", "/truth")["create_requests"]) == 1


# --- reading moves nothing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "lose_answer"},
        {"kind": "malformed"},
        {"kind": "rate_limit"},
        {"kind": "status", "status": 500},
        {"kind": "status", "status": 503, "body": "<html>Busy</html>"},
    ],
)
async def test_what_cannot_be_read_was_not_asked(processor: StripeProcessor, sandbox: Sandbox, given: dict[str, Any]) -> None:
    paid(sandbox)
    fault(sandbox, "refund.list", times=None, **given)

    with pytest.raises(NotSent):
        await processor.find("pi_1", "op_1")
    with pytest.raises(NotSent):
        await processor.read_payment("pi_1")


# --- the page ----------------------------------------------------------------------------------------------------------------------------


def test_the_page_prints_the_tables() -> None:
    assert error_map.as_markdown() in DOCS.read_text()
    assert error_map.sentences_as_markdown() in DOCS.read_text()


@pytest.mark.parametrize("sentence", error_map.SENTENCES, ids=lambda sentence: sentence.reason)
@pytest.mark.parametrize(("status", "code"), [(400, None), (404, None), (409, None), (429, "rate_limit"), (500, None)])
def test_a_sentence_names_a_refusal_and_never_makes_one(sentence: error_map.Sentence, status: int, code: str | None) -> None:
    def translated(message: str) -> ProcessorError:
        spoken = {"error": {"type": "invalid_request_error", "message": message} | ({"code": code} if code else {})}
        return error_map.translate(stripe.StripeError(message, http_status=status, json_body=spoken))

    plain, told = translated("Words."), translated(f"Words {sentence.says} words.")

    assert type(told) is type(plain)
    assert told.reason == (sentence.reason if isinstance(told, Refused) else plain.reason)
    assert isinstance(plain, Refused) == (status == 400)


def test_whatever_has_no_row_is_unknown() -> None:
    """Every status and every type of error that Stripe has, with a code that comes later: only what is named is a refusal, or was not sent."""
    kinds = (
        "api_error",
        "card_error",
        "idempotency_error",
        "invalid_request_error",
        "rate_limit_error",
        "authentication_error",
        "a_later_type",
    )
    concluded: dict[type[ProcessorError], set[tuple[int, str]]] = {Refused: set(), NotSent: set(), Unknown: set()}
    for status in range(200, 600):
        for kind in kinds:
            spoken = {"error": {"type": kind, "code": "a_code_that_comes_later", "message": "Words."}}
            error = stripe.StripeError("Words.", http_status=status, json_body=spoken)
            concluded[type(error_map.translate(error))].add((status, kind))

    judged = ("invalid_request_error", "card_error")
    assert concluded[Refused] == {(status, kind) for status in (400, 402) for kind in judged}
    assert concluded[NotSent] == {(status, kind) for status in (401, 403, 429) for kind in kinds if kind != "api_error"}


def test_every_row_is_met_above() -> None:
    source = Path(__file__).read_text()
    assert [row.reason for row in error_map.TABLE if f'"{row.reason}"' not in source] == []
