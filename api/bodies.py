"""Reading what callers send: bounded in size and depth, plain JSON without its traps, then strictly the call's model."""

import json
import re
from datetime import datetime
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from api.problems import InvalidBody, clean, invalid, place_of
from refunds.errors import Code, RefundError

Model = TypeVar("Model", bound=BaseModel)

_JSON = "application/json"
_DRAINED = 16
"""An oversized body is read on (and thrown away) up to this many times the cap, so that its sender reads the answer and not a broken connection."""

_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")


async def read_body(request: Request, cap: int) -> bytes:
    """The body, of at most ``cap`` bytes whatever its headers say. Raises ``BODY_TOO_LARGE``, or ``UNSUPPORTED_MEDIA_TYPE`` for a header that says it is no JSON.

    Without the header it is taken for JSON: it can be nothing else here, and RFC 9110 (section 8.3) leaves that to the recipient.
    """
    is_json = _says_json(request.headers.get("content-type", _JSON))
    too_large = _declared(request) > cap
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        too_large = too_large or size > cap
        if size > cap * _DRAINED:
            break
        if not too_large:
            chunks.append(chunk)
    if too_large:
        raise RefundError(Code.BODY_TOO_LARGE, f"The body is larger than {cap} bytes.", largest_bytes=cap)
    if not is_json:
        raise RefundError(Code.UNSUPPORTED_MEDIA_TYPE, field="Content-Type")
    return b"".join(chunks)


def _says_json(content_type: str) -> bool:
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [value.strip('"') for name, _, value in (one.partition("=") for one in parameters) if name.strip() == "charset"]
    return media_type == _JSON and all(charset in ("utf-8", "utf8", "us-ascii") for charset in charsets)


def _declared(request: Request) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 20 else 0


def parse(model: type[Model], raw: bytes) -> Model:
    """Read one JSON object strictly as ``model``: no conversions, no unknown fields, no duplicate ones, no NaN, no NUL in text.

    Raises ``MALFORMED_JSON``, :class:`api.problems.InvalidBody` with every problem found, or what the model's own checks raise.
    """
    text = check_json(raw)
    try:
        value = model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise invalid(error, fields=model.model_fields) from None
    check_instants(value)
    return value


def check_instants(value: object, place: str = "") -> None:
    """Refuse instants that no refund is about: at the ends of the calendar a change of zone already overflows. Raises ``INVALID_FIELD``."""
    if isinstance(value, datetime):
        if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            raise _bad(place, f"The year must be from {_FIRST_YEAR} to {_LAST_YEAR}.")
    elif isinstance(value, BaseModel):
        for name, item in value:
            check_instants(item, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_instants(item, f"{place}.{index}")


def check_json(raw: bytes) -> str:
    """Check what a model cannot see any more, and return the text."""
    text, plain = read_object(raw)
    if "\\u" in text:  # a NUL or half a surrogate pair can only arrive escaped
        _check_text(plain)
    return text


def read_object(raw: bytes) -> tuple[str, dict[str, Any]]:
    """One JSON object, as text and as it is; what its text contains is not looked at. Raises ``MALFORMED_JSON``, or ``INVALID_FIELD`` for a doubled one."""
    try:
        text = raw.decode()
        plain = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RefundError(Code.MALFORMED_JSON, "The body is not UTF-8.") from None
    except RecursionError:
        raise RefundError(Code.MALFORMED_JSON, "The body is nested too deeply.") from None
    except ValueError as error:
        raise RefundError(Code.MALFORMED_JSON, f"The body is not JSON: {clean(str(error))}.") from None
    if not isinstance(plain, dict):
        raise RefundError(Code.MALFORMED_JSON, "The body is JSON but not an object.")
    return text, plain


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) == len(pairs):
        return known
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _bad(place_of([name]), "This field is there twice; which one is meant cannot be told.")
        seen.add(name)
    raise AssertionError("fewer names than pairs means one is repeated")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _check_text(plain: dict[str, Any]) -> None:
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), plain)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            if _BAD_TEXT.search(value):
                raise _bad(place_of(place), "Text must not contain NUL or half a surrogate pair.")
        elif isinstance(value, dict):
            for name, item in value.items():
                if _BAD_TEXT.search(name):
                    raise _bad(place_of(place), "A name must not contain NUL or half a surrogate pair.")
                waiting.append(((*place, name), item))
        elif isinstance(value, list):
            waiting += [((*place, index), item) for index, item in enumerate(value)]


def _bad(field: str, detail: str) -> InvalidBody:
    return InvalidBody([{"field": clean(field), "code": Code.INVALID_FIELD.value, "detail": detail}])
