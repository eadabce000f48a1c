"""``python -m tests.chaos [--refunds N] [--faults N] [--seed N]``: hurts the running product, then holds its record against the truth.

Writes what it did and found to ``.local/chaos.json``. Exit code 0 when everything that must be true is, 1 when something is not.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from deploy.local.processes import interruptible
from deploy.local.progress import ConsoleReporter
from deploy.local.tasks import PartFailedError
from refunds.clock import SystemClock
from tests.chaos import report
from tests.chaos.plan import Plan
from tests.chaos.run import Bounds, run
from tests.chaos.stand import ROOT

LEAST_FAULTS = 12


class _Progress(ConsoleReporter):
    """Leaves out what the stack says of itself: its parts end and start again all the time here, as they should."""

    def note(self, text: str) -> None:
        """Say nothing."""


class Given(argparse.Namespace):
    """What is asked for on the command line."""

    refunds: int
    faults: int
    seed: int
    lanes: int
    minutes: float | None
    restore: bool
    keep: bool
    out: Path


def _given(arguments: Sequence[str]) -> Given:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Hurts the running product and checks what became of the money."
    )
    parser.add_argument("--refunds", type=int, default=300, help="how many refunds are asked for (default 300)")
    parser.add_argument(
        "--faults", type=int, default=0, help=f"how many things go wrong (default a tenth of the refunds, at least {LEAST_FAULTS})"
    )
    parser.add_argument("--seed", type=int, default=None, help="the seed of the plan (default a new one, which is printed)")
    parser.add_argument("--lanes", type=int, default=12, help="errands at once (default 12)")
    parser.add_argument(
        "--minutes", type=float, default=None, help="ask for nothing more after so many minutes, and check what was done till then"
    )
    parser.add_argument("--no-restore", dest="restore", action="store_false", help="put no older database back at the end")
    parser.add_argument("--keep", action="store_true", help="keep the stack's files")
    parser.add_argument("--out", type=Path, default=ROOT / ".local" / "chaos.json", help="where the figures go")
    given = parser.parse_args(arguments, namespace=Given())
    if given.refunds < 1:
        parser.error("--refunds is at least 1")
    given.faults = given.faults or max(LEAST_FAULTS, given.refunds // 10)
    given.seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    return given


def _keep(found: dict[str, Any], file: Path) -> None:
    if not file.parent.exists():
        file.parent.mkdir(mode=0o700)
        file.parent.chmod(0o711 if os.geteuid() == 0 else 0o700)  # as the local stack makes it, which comes later to live there
    file.write_text(json.dumps(found, indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run; what to return to the shell."""
    given = _given(arguments)
    console = Console(highlight=False, soft_wrap=True)
    plan = Plan(given.seed, given.refunds, given.faults, restore=given.restore)
    console.print(f"seed {plan.seed}: {plan.refunds} refunds, {plan.faults} faults", markup=False)
    bounds = Bounds(lanes=given.lanes, load_within_s=None if given.minutes is None else given.minutes * 60, keep=given.keep)
    clock, began = SystemClock(), SystemClock().now()

    def say(text: str) -> None:
        console.print(f"{(clock.now() - began).total_seconds():7.1f} s  {text}", markup=False)

    try:
        with interruptible():
            result = asyncio.run(run(plan, bounds, _Progress(console), say))
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except PartFailedError as error:
        console.print(f"Did not work: {error}", markup=False)
        return 1
    found = report.figures(result) | {"at": clock.now().isoformat()}
    _keep(found, given.out)
    report.show(console, found, report.replay(result))
    if given.keep:
        console.print(f"The files are in {result.home}.", markup=False)
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
