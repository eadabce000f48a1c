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
    if not typer.confirm(question, default=False, err=True):
        raise NotConfirmed("Nothing was sent.")


def instant(text: str | None) -> str | None:
    """A time as the API takes it, or ``None`` as it is. Raises :class:`Misused` for one without a zone, which means nothing."""
    if text is None:
        return None
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Misused(f"{error}.") from error
    return text
