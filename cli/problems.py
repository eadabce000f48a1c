"""What can go wrong in the terminal: one clear line each, and an exit code that scripts can rely on."""

from enum import IntEnum
from typing import Any

from refunds.errors import CATALOGUE, Code, RefundError


class Exit(IntEnum):
    """The exit codes of every command (printed by ``refunds --help``)."""

    DONE = 0
    REFUSED = 1
    MISUSED = 2
    UNREACHABLE = 3
    NOT_CONFIRMED = 4


class Problem(Exception):
    """Ends a command with one line on stderr and an exit code."""

    def __init__(self, line: str, exit_code: Exit) -> None:
        super().__init__(line)
        self.line = line
        self.exit_code = exit_code


class Refused(Problem):
    """The API refused. ``body`` is its problem+json object (RFC 9457); ``code`` is from the catalogue in ``refunds.errors``."""

    def __init__(self, http_status: int, body: dict[str, Any]) -> None:
        self.http_status = http_status
        self.body = body
        self.code = str(body.get("code") or "")
        super().__init__(_line(http_status, body), Exit.REFUSED)


class Unreachable(Problem):
    """Nothing answered: the line says what to start or to set."""

    def __init__(self, line: str) -> None:
        super().__init__(line, Exit.UNREACHABLE)


class Misused(Problem):
    """The command cannot be carried out as it was written."""

    def __init__(self, line: str) -> None:
        super().__init__(line, Exit.MISUSED)


class NotConfirmed(Problem):
    """A person said no, or nobody could be asked. Nothing was sent."""

    def __init__(self, line: str) -> None:
        super().__init__(line, Exit.NOT_CONFIRMED)


class SeenEnough(Problem):
    """Whoever read the output has gone. Nothing is wrong."""

    def __init__(self) -> None:
        super().__init__("", Exit.DONE)


def misuse(error: RefundError) -> Misused:
    """A rule of the domain that what was typed breaks: the same line as the API would give."""
    return Misused(_line(0, {"code": error.code.value, "field": error.field, "detail": error.detail}))


def _line(http_status: int, body: dict[str, Any]) -> str:
    """``CODE (field): what is wrong. What to do.`` The remedy comes from the answer, or from the catalogue that the API prints as well."""
    code, field = str(body.get("code") or f"HTTP {http_status}"), body.get("field")
    detail = str(body.get("detail") or body.get("title") or "The API gave no reason.").strip()
    remedy = body.get("remedy") or (CATALOGUE[Code(code)].remedy if code in CATALOGUE else "")
    if code == Code.UNAUTHENTICATED:
        # The API speaks of the header that a program sends; here it is a setting.
        remedy = "Set REFUNDS_API_KEY to a current key."
    head = f"{code} ({field})" if field else code
    others = [str(other.get("field")) for other in body.get("errors") or () if other.get("field") != field]
    also = f" Also wrong: {', '.join(dict.fromkeys(others))}." if others else ""
    return f"{head}: {_sentence(detail.rstrip('.') + _which(body))} {_sentence(str(remedy))}".strip() + also


def _which(body: dict[str, Any]) -> str:
    """The refunds that an answer names beside its words, which speak of them."""
    named = [one for one in body.get("refunds") or () if isinstance(one, dict) and "id" in one]
    told = ", ".join(f"{one['id']} ({one['status']})" if one.get("status") else str(one["id"]) for one in named)
    return f": {told}" if told else ""


def plainly(text: str) -> str:
    """Without the words that a library for checking values puts before what the value itself says."""
    return text.replace("Value error, ", "")


def _sentence(text: str) -> str:
    text = plainly(" ".join(text.split()))
    return text if not text or text[-1] in ".!?" else text + "."
