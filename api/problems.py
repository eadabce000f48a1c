"""Errors as people and programs read them: RFC 9457 ``application/problem+json``, every code from the one catalogue (``refunds.errors``)."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from refunds.errors import CATALOGUE, Code, RefundError
from refunds.logs import logger
from refunds.naming import shown_name
from refunds.wording import in_words
from store.sealing import Unreadable

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1
"""What 503 and 429 ask the caller to wait when nothing better is known."""

_RESERVED = frozenset({"type", "title", "status", "detail", "code", "retryable", "field", "errors", "remedy", "request_id"})
_UNKNOWN_FIELD_TYPES = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_OF_THE_DOMAIN = {code.value: code for code in Code}
_MOST_PROBLEMS = 20
_log = logger(__name__)


class InvalidBody(RefundError):
    """A body or query that does not fit its model, with every problem found in it; the first one gives the code and the field."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        first = found[0]
        super().__init__(Code(first["code"]), first["detail"], field=first.get("field"))
        self.found = found


def invalid(error: ValidationError | RequestValidationError, *, skip: int = 0, fields: Iterable[str] = ()) -> InvalidBody:
    """Translate pydantic's errors, the first twenty. No input is repeated: it may be customer text; of names that are not ours, only plain ones are.
    ``skip`` drops leading parts of the place, such as ``query``.

    A check across fields has no place of its own; its message begins with one of ``fields``, which is then named.
    """
    raw = error.errors() if isinstance(error, RequestValidationError) else error.errors(include_input=False, include_url=False)
    found: list[dict[str, Any]] = []
    for one in raw[:_MOST_PROBLEMS]:
        field = place_of(one["loc"][skip:])
        code = Code.UNKNOWN_FIELD if one["type"] in _UNKNOWN_FIELD_TYPES else _OF_THE_DOMAIN.get(one["type"], Code.INVALID_FIELD)
        if code.value == one["type"]:  # a check of the domain with a code of its own, which says which part of its object it is about
            field = ".".join(part for part in (field, one.get("ctx", {})["field"]) if part)
        detail = "This field is not known here." if code is Code.UNKNOWN_FIELD else in_words(one["type"], one["msg"], one.get("ctx", {}))
        start = detail.split(maxsplit=1)[0].rstrip(":") if detail else ""
        if not field and start.split(".")[0] in fields:
            field = start
        found.append({"field": field, "code": code.value, "detail": clean(detail)})
    if more := len(raw) - len(found):
        found.append({"field": "", "code": found[0]["code"], "detail": f"There are {more} more problems; correct these first."})
    return InvalidBody(found)


def place_of(parts: Iterable[str | int]) -> str:
    """Where in a body something stands, such as ``lines.0.price``. Names may be the caller's own, and are repeated only if they are plain."""
    return clean(".".join(shown_name(part) if isinstance(part, str) else str(part) for part in parts))


def clean(text: str) -> str:
    """Text that came from outside, made safe to repeat: short, and encodable."""
    return text[:200].encode("utf-8", "replace").decode()


def http_status(code: Code) -> int:
    """The status of an error answer; a code that is usually no HTTP error is a conflict when a call meets it."""
    return CATALOGUE[code].http or 409


def problem(error: RefundError, request_id: str) -> Response:
    """The answer for a refusal."""
    status = http_status(error.code)
    body: dict[str, Any] = {
        "type": f"urn:durable-refunds:problem:{error.code}",
        "title": error.meaning.meaning,
        "status": status,
        "detail": error.detail,
        "code": error.code.value,
        "retryable": error.meaning.retryable,
        "remedy": error.meaning.remedy,
        "request_id": request_id,
    }
    if error.field:
        body["field"] = error.field
    body["errors"] = error.found if isinstance(error, InvalidBody) else _only(error)
    body |= {name: value for name, value in error.ids.items() if name not in _RESERVED}
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="refunds"'
    if error.code is Code.AMBIGUOUS_HEADER:
        headers["Connection"] = "close"  # what follows on it may be the tail of a body that somebody else measured otherwise
    if status in (429, 503):
        headers["Retry-After"] = str(error.ids.get("retry_after", RETRY_AFTER_S))
    return Response(json.dumps(body, default=str), status, headers, MEDIA_TYPE)


def _only(error: RefundError) -> list[dict[str, str]]:
    return [{"field": error.field, "code": error.code.value, "detail": error.detail}] if error.field else []


def request_id_of(request: Request) -> str:
    """The id this request is logged and answered under."""
    return request.scope.get("state", {}).get("request_id", "")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefundError)
    request.scope["state"]["code"] = error.code.value
    return problem(error, request_id_of(request))


async def _invalid_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _refused(request, invalid(error, skip=1))


_BY_HTTP_STATUS = {404: Code.NOT_FOUND, 405: Code.METHOD_NOT_ALLOWED}


class _NoRoute:
    """Answers calls that no route takes."""

    def __init__(self, routes: Sequence[APIRoute]) -> None:
        self._routes = routes

    async def __call__(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        answer = await _refused(request, RefundError(_BY_HTTP_STATUS.get(error.status_code, Code.MALFORMED_JSON)))
        if error.status_code == 405:
            # The framework names the methods of the first route at this address only.
            here = [route for route in self._routes if route.matches(request.scope)[0] is not Match.NONE]
            answer.headers["Allow"] = ", ".join(sorted({method for route in here for method in route.methods or ()}))
        return answer


async def _gone(request: Request, error: Exception) -> Response:
    # Nobody reads this answer; it only keeps a caller who hung up from looking like a fault of ours.
    return await _refused(request, RefundError(Code.MALFORMED_JSON, "The body ended before its end."))


async def _unreadable(request: Request, error: Exception) -> Response:
    # It names the place and the key by its hash, and no value.
    _log.error("sealed_unreadable", request_id=request_id_of(request), what=str(error))
    return await _refused(request, RefundError(Code.SEALED_UNREADABLE, f"{error}."))


async def _unexpected(request: Request, error: Exception) -> Response:
    # Where it happened, but not what it said: an error's message may repeat parameters, and with them customer text.
    places: list[str] = []
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        places.append(f"{'/'.join(Path(code.co_filename).parts[-2:])}:{frame.tb_lineno} {code.co_name}")
        frame = frame.tb_next
    _log.error("unexpected_error", request_id=request_id_of(request), error=type(error).__qualname__, at=places[-12:])
    answer = await _refused(request, RefundError(Code.INTERNAL))
    answer.headers["X-Request-Id"] = request_id_of(request)  # this one is answered outside the middleware that adds it
    return answer


def install(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Answer every kind of error as a problem."""
    app.add_exception_handler(RefundError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid_query)
    app.add_exception_handler(HTTPException, _NoRoute(routes))
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Unreadable, _unreadable)
    app.add_exception_handler(Exception, _unexpected)
