"""Structured logs that cannot tell secrets: one line of JSON an event (or readable text on a terminal).

Only named fields are logged, and values under telling names are masked wherever they stand; so is anything that looks like a key. Customer text has no
field here at all.
"""

import logging
import re
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any, cast

import structlog

from refunds.settings import Settings

_TELLING = re.compile(
    r"authorization|api_?key|secret|token|password|cookie|database_url|message_text|reasoning|conversation|e_?mail|phone|address",
    re.IGNORECASE,
)
_LOOKS_SECRET = re.compile(
    r"\b((?:sk|rk)_(?:test|live)_[A-Za-z0-9_]+|rfk_[A-Za-z0-9_-]{10,}|whsec_[A-Za-z0-9+/=_-]+|(?:postgres|postgresql)(?:\+psycopg)?://\S+)"
)
MASK = "********"

_ALLOWED = frozenset({"input_tokens", "output_tokens"})


def redact(value: Any, name: str = "") -> Any:
    """Mask a value by the name it stands under and by what it looks like, through maps and lists."""
    if name and name not in _ALLOWED and _TELLING.search(name):
        return MASK
    if isinstance(value, str):
        return _LOOKS_SECRET.sub(MASK, value)
    if isinstance(value, dict):
        return {key: redact(item, str(key)) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _redacting(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: redact(value, key) for key, value in event.items()}


def _only_places(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Of an exception only its kind and where it came from: what it says may repeat parameters, rows or keys."""
    given: Any = event.pop("exc_info", None)
    error: Any = given
    if isinstance(given, tuple):
        error = cast(tuple[Any, ...], given)[1]
    elif given and not isinstance(given, BaseException):
        error = sys.exc_info()[1]
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        event["exception"] = type(error).__name__
        event["places"] = [f"{frame.filename}:{frame.lineno}" for frame in frames]
    return event


def configure(settings: Settings, *, program: str) -> None:
    """Send all logs, ours and the libraries', through one redacting pipeline to standard error. Call once at the start of a program."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _only_places,
        _redacting,
    ]
    render: Any = structlog.processors.JSONRenderer() if settings.log_format == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for chatty in ("httpx", "httpcore", "stripe", "openai"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.contextvars.bind_contextvars(program=program)


def logger(name: str) -> Any:
    """A logger for a module: ``log.info("event_in_words", refund=..., status=...)``."""
    return structlog.stdlib.get_logger(name)
