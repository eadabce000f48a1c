"""Options that several commands share, so that they read the same everywhere."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.output import Output
from cli.problems import Misused, NotConfirmed
from refunds.clock import SystemClock, parse_rfc3339, rfc3339

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
RefundId = Annotated[str, typer.Argument(metavar="REFUND", help="The refund's id, such as rf_06f2...")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")]
File = Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True)]
Note = Annotated[str | None, typer.Option("--note", help="Words for the record.")]


def confirm(out: Output, question: str, *, yes: bool) -> None:
    """Ask before something counts. Raises :class:`NotConfirmed` on a no, and when there is nobody to ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed("Nothing was sent: there is no terminal to confirm on; repeat with --yes.")
    try:
        agreed = typer.confirm(question, default=False, err=True)
    except typer.Abort:
        # Ctrl-C or Ctrl-D at the question; the cursor still stands behind it.
        out.say("")
        agreed = False
    if not agreed:
        raise NotConfirmed("Nothing was sent.")


_AGO = re.compile(r"([0-9]{1,5})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def past(text: str, option: str) -> str:
    """A time that has passed, as the API takes it: so long ago (``2d``, ``36h``, ``90m``), a date (its beginning in UTC), or an RFC 3339 time.

    Raises :class:`Misused`, naming ``option``.
    """
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            moment = SystemClock().now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        elif re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
            moment = parse_rfc3339(f"{text.strip()}T00:00:00Z")
        else:
            moment = parse_rfc3339(text.strip())
    except (ValueError, OverflowError) as error:
        raise Misused(f"{option}: {text!r} is no time; write one such as 2d, 36h, 2026-03-01 or 2026-03-01T09:00:00Z.") from error
    return rfc3339(moment)


def instant(text: str | None, option: str) -> str | None:
    """A time as the API takes it, or ``None`` as it is. Raises :class:`Misused`, naming ``option``, for what is none, or has no zone and means nothing."""
    if text is None:
        return None
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Misused(f"{option}: {text!r} is no time with a time zone; write one such as 2026-03-01T09:00:00Z.") from error
    return text
