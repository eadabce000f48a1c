"""The connections below the SDK: what is sent, how much is read, TLS, a proxy, and connections that idle (promise P7)."""

import asyncio
import contextlib
import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpcore
import pytest
import stripe
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activities.processors import transport
from activities.processors.base import SendTooLate, uptime
from activities.processors.sockets import Network
from refunds.marketplace import LegKind
from refunds.processor import NotSent, Unknown
from tests.activities.processors.conftest import MakeProcessor, Serve, answering, listening, request_for, serving, soon
from tests.activities.processors.test_foreign_answers import REFUND
from tests.activities.shop import API_KEY

ACCOUNT = '{"object": "account", "id": "acct_1"}'
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def answer(body: str, extra: str = "") -> bytes:
    """A whole answer on a connection that is kept."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n{body}".encode()


async def request_on(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
    return head + await reader.readexactly(length)


def keeping(requests: list[bytes], *bodies: str, then: bytes = b"", stay: bool = False) -> Serve:
    """Answer so many requests on one connection, then say something unasked, then close."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in bodies:
            requests.append(await request_on(reader))
            writer.write(answer(body))
        writer.write(then)
        await writer.drain()
        if stay:
            await reader.read()

    return serve


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop go on until the condition holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the other side's bytes set no event of ours
            await asyncio.sleep(0)


# --- what is sent ------------------------------------------------------------------------------------------------------------------------


async def test_the_frozen_request_leaves_as_it_is(connected: MakeProcessor) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND))) as server:
        await connected(server.url).refund(request_for("pi_1", reverse_transfer=True), send_before=soon())

    head, _, body = server.received[0].decode().partition("\r\n\r\n")
    line, *fields = head.split("\r\n")
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    assert line == "POST /v1/refunds HTTP/1.1"
    assert body == "payment_intent=pi_1&amount=3000&metadata[refunds_operation]=op_1&reverse_transfer=true"
    assert headers["idempotency-key"] == "refunds-refund-test-op_1"
    assert headers["stripe-version"] == "2026-08-26.dahlia"
    assert headers["authorization"] == f"Bearer {API_KEY}"
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    assert headers["host"] == server.url.removeprefix("http://")
    assert headers["accept-encoding"] == "identity"


async def test_a_cancellation_carries_its_key_and_nothing_else(connected: MakeProcessor) -> None:
    body = json.dumps({"object": "payment_intent", "id": "pi_1", "status": "canceled"})
    async with serving(answering("200 OK", body)) as server:
        await connected(server.url).cancel(request_for("pi_1"), send_before=soon())

    head, _, sent = server.received[0].decode().partition("\r\n\r\n")
    assert head.startswith("POST /v1/payment_intents/pi_1/cancel HTTP/1.1\r\n")
    assert "\r\nIdempotency-Key: refunds-refund-test-op_1\r\n" in head
    assert sent == ""


async def test_an_id_stays_one_segment_of_the_path(connected: MakeProcessor) -> None:
    async with serving(answering("200 OK", "{}")) as server:
        with pytest.raises(NotSent):
            await connected(server.url).returned_of(LegKind.REVERSE_TRANSFER, "../x?y#z")

    assert server.received[0].startswith(b"GET /v1/transfers/..%2Fx%3Fy%23z/reversals")


@pytest.mark.parametrize("typed", ["", "../account", "re_1/cancel", "re 1", "re_" + "x" * 300, "rückzahlung"])
async def test_what_cannot_be_an_id_is_not_looked_up(connected: MakeProcessor, typed: str) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND))) as server:
        assert await connected(server.url).retrieve(typed) is None
        assert await connected(server.url).read_payment(typed) is None

    assert server.received == []


async def test_the_key_goes_to_the_configured_address_only(connected: MakeProcessor) -> None:
    processor = connected("http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="configured address"):
        await processor._transport.request_async("get", "http://127.0.0.1:12/v1/account", {})


async def test_a_redirect_is_not_followed(connected: MakeProcessor) -> None:
    async with serving(answering("200 OK", json.dumps(REFUND))) as other:
        elsewhere = answering("307 Temporary Redirect", "", extra=f"Location: {other.url}/v1/refunds\r\n")
        async with serving(elsewhere) as server:
            with pytest.raises(Unknown):
                await connected(server.url).refund(request_for("pi_1"), send_before=soon())

    assert (len(server.received), len(other.received)) == (1, 0)


# --- how much is read ------------------------------------------------------------------------------------------------------------------


async def test_an_answer_that_does_not_end_is_given_up(connected: MakeProcessor) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" " * 65_536)
                await writer.drain()

    async with serving(endless) as server:
        with pytest.raises(Unknown) as caught:
            await connected(server.url).refund(request_for("pi_1"), send_before=soon())

    assert (caught.value.reason, caught.value.detail) == ("no_answer", "AnswerTooLong")


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
async def test_the_bound_is_exact(connected: MakeProcessor, more: int, whole: bool) -> None:
    body = ACCOUNT + " " * (transport.ANSWER_LIMIT - len(ACCOUNT) + more)
    async with serving(answering("200 OK", body)) as server:
        if whole:
            assert await connected(server.url).account() == "acct_1"
        else:
            with pytest.raises(NotSent, match="AnswerTooLong"):
                await connected(server.url).account()


async def test_a_list_that_does_not_end_is_given_up(connected: MakeProcessor) -> None:
    body = json.dumps({"object": "list", "data": [REFUND], "has_more": True})
    async with serving(answering("200 OK", body)) as server:
        with pytest.raises(NotSent, match="unexpected_shape"):
            await connected(server.url).find("pi_1", "op_2")

    assert len(server.received) == 2


# --- connections that idle -------------------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again(connected: MakeProcessor) -> None:
    requests: list[bytes] = []
    async with listening(keeping(requests, ACCOUNT, ACCOUNT, stay=True)) as url:
        processor = connected(url)
        assert [await processor.account(), await processor.account()] == ["acct_1", "acct_1"]
        await processor.close()

    assert len(requests) == 2


@pytest.mark.parametrize("unasked", [b"", answer('{"object": "account", "id": "acct_stale"}')])
async def test_a_connection_that_ended_or_spoke_while_idle_is_not_used(connected: MakeProcessor, unasked: bytes) -> None:
    """Bytes that nobody asked for, such as the 408 of a proxy, are never read as the answer to the next request."""
    requests: list[bytes] = []
    async with listening(keeping(requests, ACCOUNT, then=unasked)) as url:
        processor = connected(url)
        await processor.account()
        pool = processor._transport._pool
        await until(lambda: all(kept.has_expired() for kept in pool.connections))

        assert await processor.account() == "acct_1"

    assert len(requests) == 2


async def test_a_connection_that_ends_under_the_request_is_unknown(connected: MakeProcessor) -> None:
    """The server closes an idle connection at the moment a request leaves on it: nobody can tell whether it was read."""
    requests: list[bytes] = []

    async def one_and_a_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await keeping(requests, ACCOUNT)(reader, writer)
        await reader.read(1)

    async with listening(one_and_a_half) as url:
        processor = connected(url)
        await processor.account()
        with pytest.raises(Unknown, match="no_answer"):
            await processor.refund(request_for("pi_1"), send_before=soon())

    assert len(requests) == 1


async def test_a_wait_for_a_connection_is_bounded_and_sent_nothing(connected: MakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MAX_CONNECTIONS", 1)
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await request_on(reader)
        asked.set()
        await reader.read()

    async with listening(silent) as url:
        processor = connected(url, stripe_connect_timeout_s=0.2)
        first = asyncio.create_task(processor.account())
        await asked.wait()
        with pytest.raises(NotSent) as caught:
            await processor.refund(request_for("pi_1"), send_before=soon())
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    assert (caught.value.reason, caught.value.detail) == ("no_connection", "PoolTimeout")


async def test_what_was_not_sent_when_a_call_ended_is_dropped() -> None:
    """A request that waits in a buffer when its time is over must not leave later."""
    sent = 0
    go_on = asyncio.Event()

    async def late(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal sent
        await go_on.wait()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                sent += len(data)

    async with listening(late) as url:
        stream = await Network().connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))
        with pytest.raises(httpcore.WriteTimeout):
            await stream.write(b"x" * 50_000_000, timeout=0.1)
        await stream.aclose()
        go_on.set()

    assert sent < 50_000_000


# --- TLS -------------------------------------------------------------------------------------------------------------------------------


def certificate(path: Path, name: str) -> ssl.SSLContext:
    """A server's context with a certificate of its own for this name or address, written to ``path``."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.mark.parametrize(
    ("name", "trusted", "answered"), [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("127.0.0.2", True, False)]
)
async def test_only_a_trusted_certificate_of_the_right_name_is_spoken_to(
    connected: MakeProcessor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, trusted: bool, answered: bool
) -> None:
    requests: list[bytes] = []
    context = certificate(tmp_path / "server.pem", name)
    if trusted:
        monkeypatch.setattr(stripe, "ca_bundle_path", str(tmp_path / "server.pem"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                requests.append(await request_on(reader))
                writer.write(answer(json.dumps(REFUND)))
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with listener:
        processor = connected(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        for _ in range(2):
            if answered:
                assert (await processor.refund(request_for("pi_1"), send_before=soon())).id == "re_1"
            else:
                with pytest.raises(NotSent, match="no_connection"):
                    await processor.refund(request_for("pi_1"), send_before=soon())
        if answered:
            with pytest.raises(SendTooLate):
                await processor.refund(request_for("pi_1"), send_before=uptime())
        await processor.close()

    assert len(requests) == (2 if answered else 0)


async def test_what_was_said_before_the_handshake_is_not_believed() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(ACCOUNT))
        await writer.drain()
        await reader.read()

    async with listening(early) as url:
        stream = await Network().connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))
        await until(lambda: stream.get_extra_info("is_readable"))
        with pytest.raises(httpcore.ConnectError):
            await stream.start_tls(ssl.create_default_context(), "127.0.0.1", timeout=5)


# --- the proxy -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "scheme", "host", "proxy"),
    [
        ({}, "https", "api.stripe.com", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https", "api.stripe.com", b"http://proxy:3128/"),
        ({"https_proxy": "proxy:3128"}, "https", "api.stripe.com", b"http://proxy:3128/"),
        ({"ALL_PROXY": "https://proxy"}, "https", "api.stripe.com", b"https://proxy/"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "https", "api.stripe.com", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com,.stripe.com"}, "https", "api.stripe.com", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, "https", "api.stripe.com", None),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "127.0.0.1"}, "http", "127.0.0.1:8080", None),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], scheme: str, host: str, proxy: bytes | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    found = transport.proxy_for(scheme, host)

    assert (bytes(found.url) if found else None) == proxy


def test_the_proxy_s_own_name_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:a%40b@proxy:3128")

    found = transport.proxy_for("https", "api.stripe.com")

    assert found is not None
    assert found.auth == (b"me", b"a@b")


def test_a_proxy_of_another_kind_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy:1080")

    with pytest.raises(RuntimeError, match="http://"):
        transport.proxy_for("https", "api.stripe.com")


async def test_a_proxy_that_refuses_sent_nothing(connected: MakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answering("407 Proxy Authentication Required", "")) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(NotSent) as caught:
            await connected("https://api.stripe.test").refund(request_for("pi_1"), send_before=soon())

    assert (caught.value.reason, caught.value.detail) == ("no_connection", "ProxyError")
    assert [data.partition(b"\r\n")[0] for data in proxy.received] == [b"CONNECT api.stripe.test:443 HTTP/1.1"]
    assert API_KEY.encode() not in proxy.received[0]


async def test_through_a_proxy(connected: MakeProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answering("200 OK", ACCOUNT)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        found: Any = await connected("http://stripe.test").account()

    assert found == "acct_1"
    assert proxy.received[0].startswith(b"GET http://stripe.test/v1/account HTTP/1.1\r\n")
