"""Options that several commands share, so that they read the same everywhere."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.output import Output
from cli.problems import Misused, NotConfirmed
from refunds.clock import parse_rfc3339

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


def instant(text: str | None, option: str) -> str | None:
    """A time as the API takes it, or ``None`` as it is. Raises :class:`Misused`, naming ``option``, for what is none, or has no zone and means nothing."""
    if text is None:
        return None
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Misused(f"{option}: {text!r} is no time with a time zone; write one such as 2026-03-01T09:00:00Z.") from error
    return text
