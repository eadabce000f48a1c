"""Commands about this installation: the local stack, the settings, the database."""

import os
import subprocess
import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from cli.options import Json
from cli.output import Output
from cli.problems import Exit, Misused
from refunds.settings import Settings


def up(parts: Annotated[list[str] | None, typer.Argument(metavar="[PART]...", help="Only these parts; all by default.")] = None) -> None:
    """Run PostgreSQL, Temporal, the sandbox, the API and the worker here, until Ctrl-C.

    What DATABASE_URL, TEMPORAL_ADDRESS or STRIPE_API_KEY name is used instead of started. Data is kept under .local (or REFUNDS_HOME).
    """
    # Importing it brings Temporal's SDK along, which no other command needs.
    from cli import up as running

    try:
        raise typer.Exit(running.run(parts or None))
    except ValueError as error:
        raise Misused(str(error)) from error


def config(as_json: Json = False) -> None:
    """Print every setting as this process sees it, secrets masked."""
    out = Output(as_json)
    try:
        masked = Settings().masked()
    except ValidationError as error:
        what = "; ".join(
            f"{'.'.join(map(str, e['loc'])).upper() or 'settings'}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()
        )
        raise Misused(f"The settings contradict themselves or cannot be read: {what}.") from None
    if as_json:
        out.json(masked)
    else:
        out.fields([(name.upper(), "not set" if value in (None, "None", "") else value) for name, value in masked.items()])


def migrate() -> None:
    """Bring the database that DATABASE_URL names to the revision of this program, as its owner. Safe to repeat."""
    if not os.environ.get("DATABASE_URL"):
        raise Misused("Set DATABASE_URL to the database's address with its owner's login; the local stack migrates its own by itself.")
    # A program of its own: this one never speaks SQL.
    done = subprocess.run([sys.executable, "-P", "-m", "store.migrate"], check=False)
    raise typer.Exit(Exit.DONE if done.returncode == 0 else Exit.REFUSED)


def demo() -> None:
    """Start everything afresh under .local/demo, send sample refunds, and show what becomes of them.

    Keeps serving until Ctrl-C. With EXIT=1 in the environment, or without a terminal to press keys at, it stops by itself.
    """
    from cli.demo import run

    raise typer.Exit(run.run())
