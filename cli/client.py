"""The API over HTTP, as the commands use it: JSON in, JSON out, and every failure a :class:`cli.problems.Problem`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from cli.connection import START, Connection, connection
from cli.problems import Misused, Refused, Unreachable

# The API waits for a quote or a decision for a few seconds at most; after this something is wrong.
TIMEOUT_SECONDS = 30
PAGE = 100
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Api:
    """A thin client. Safe to call again: what changes something is either idempotent at the API or named by ``terms_hash``."""

    def __init__(self, to: Connection | None = None) -> None:
        self._to = to or connection()
        if not (self._to.key.isascii() and self._to.key.isprintable()):
            raise Misused("REFUNDS_API_KEY is not a key: it has characters that no key has.")
        try:
            host = httpx.URL(self._to.url).host
            self._http = httpx.Client(
                base_url=self._to.url,
                headers={"Authorization": f"Bearer {self._to.key}", "User-Agent": "refunds-cli"},
                timeout=TIMEOUT_SECONDS,
                # A proxy is for the world outside; it could not even reach this machine's own loopback address.
                trust_env=host not in LOOPBACK,
            )
        except httpx.InvalidURL as error:
            raise Misused(f"REFUNDS_API_URL is not an address: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET; parameters that are ``None`` are left out."""
        return self._call("GET", path, params={name: value for name, value in params.items() if value is not None})

    def text(self, path: str, **params: Any) -> Iterator[str]:
        """GET something that is no JSON, part by part as it comes; parameters that are ``None`` are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        with self._reaching(), self._http.stream("GET", path, params=given) as answer:
            if not answer.is_success:
                answer.read()
                raise _refusal(answer)
            yield from answer.iter_text()

    def lines(self, path: str, body: Any) -> Iterator[dict[str, Any]]:
        """POST a JSON body and read the answer's JSON lines, each as it comes."""
        with self._reaching(), self._http.stream("POST", path, json=body) as answer:
            if not answer.is_success:
                answer.read()
                raise _refusal(answer)
            for line in answer.iter_lines():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise Unreachable(f"{self._to.url} broke off in the middle of a line; repeat the command.") from error

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """POST a JSON body."""
        return self._call("POST", path, json=body, headers=headers)

    def put(self, path: str, body: Any) -> Any:
        """PUT a JSON body."""
        return self._call("PUT", path, json=body)

    def delete(self, path: str) -> Any:
        """DELETE."""
        return self._call("DELETE", path)

    def refund(self, refund_id: str) -> dict[str, Any]:
        """One refund with everything about it."""
        return self.get(f"/v1/refunds/{segment(refund_id)}")

    def act(self, refund_id: str, what: str, body: dict[str, Any]) -> Any:
        """POST to one of a refund's own addresses (``decisions``, ``revisions``, ...); absent values are left out."""
        return self.post(f"/v1/refunds/{segment(refund_id)}/{what}", {k: v for k, v in body.items() if v is not None})

    def _call(self, method: str, path: str, **given: Any) -> Any:
        with self._reaching():
            answer = self._http.request(method, path, **given)
        if answer.is_success:
            return _json(answer) if answer.content else None
        raise _refusal(answer)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise Unreachable(f"Nothing answers at {self._to.url}; {START}, or correct REFUNDS_API_URL.") from error
        except httpx.TimeoutException as error:
            raise Unreachable(
                f"{self._to.url} did not answer within {TIMEOUT_SECONDS} s; read how it stands before you repeat it."
            ) from error
        except httpx.TransportError as error:
            raise Unreachable(f"The connection to {self._to.url} broke ({error}); read how it stands before you repeat it.") from error


def segment(identifier: str) -> str:
    """An id as one segment of a path: one with a slash or a question mark in it must not reach another address."""
    return quote(identifier, safe="")


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        raise Unreachable(f"{answer.url} does not answer with JSON; is REFUNDS_API_URL the address of the refunds API?") from error


def _refusal(answer: httpx.Response) -> Refused | Unreachable:
    if "json" not in answer.headers.get("content-type", ""):
        return Unreachable(f"{answer.url} answered {answer.status_code} without JSON; is REFUNDS_API_URL the address of the refunds API?")
    body = _json(answer)
    return Refused(answer.status_code, body if isinstance(body, dict) else {"detail": str(body)})
