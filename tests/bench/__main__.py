"""``python -m tests.bench [--quick]``: measures and shows the speed, and writes the figures to ``.local/bench.json``.

Exit code 0 when everything did its work, however fast; 1 when something did not.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence

import psutil
from rich.console import Console
from temporalio.client import Client

from deploy.local.progress import ConsoleReporter, Reporter
from refunds.clock import SystemClock
from tests.bench import peer, record, report, simulating
from tests.bench.goods import Goods, prepare
from tests.bench.measure import Contest, Round, contest
from tests.bench.report import Measured
from tests.bench.stand import ROOT, Stand, running
from tests.bench.usage import Memory
from tests.bench.watch import Watch

WIDTH = 150
"""Columns of the table where there is no terminal to ask."""


class _Progress(ConsoleReporter):
    """Leaves out what the stack says of itself while it starts: nobody keeps this one, and its keys go with it."""

    starting = True

    def note(self, text: str) -> None:
        """Show a sentence, once everything runs."""
        if not self.starting:
            super().note(text)


class Plan(argparse.Namespace):
    """How much is measured."""

    quick: bool
    rounds: int
    size: int
    samples: int
    concurrency: int
    dbos_steps: int
    entries: int
    simulated: int


def _plan(arguments: Sequence[str]) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures the speed of the embedded stack.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works; its figures are rough")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds (default 7)")
    parser.add_argument("--size", type=int, default=0, help="refunds a round (default 100)")
    parser.add_argument("--samples", type=int, default=0, help="refunds one at a time (default 40)")
    parser.add_argument("--concurrency", type=int, default=20, help="refunds at once (default 20)")
    parser.add_argument(
        "--dbos-steps",
        type=int,
        choices=peer.WORKFLOWS,
        default=peer.SINGLE,
        help=f"steps the DBOS workflow records for a refund (default {peer.SINGLE}: each store function and each call of the sandbox)",
    )
    parser.add_argument("--entries", type=int, default=0, help="entries of the ledger that is proven and verified (default 100,000)")
    parser.add_argument("--simulated", type=int, default=0, help="recorded requests that a policy is tried on (default 100000)")
    plan = parser.parse_args(arguments, namespace=Plan())
    usual = (3, 30, 10) if plan.quick else (7, 100, 40)
    plan.entries = plan.entries or (10_000 if plan.quick else 100_000)
    plan.rounds, plan.size, plan.samples = (given or its for given, its in zip((plan.rounds, plan.size, plan.samples), usual, strict=True))
    plan.simulated = plan.simulated or (5_000 if plan.quick else simulating.REQUESTS)
    return plan


async def _measure(stand: Stand, plan: Plan, reporter: Reporter) -> Measured:
    memory = Memory()
    client = await Client.connect(stand.url("temporal"))

    async def goods(count: int) -> list[Goods]:
        return await prepare(stand, count)

    async with Watch(stand.postgres_url) as watch:
        at_hand = Contest(stand, client, watch, plan.concurrency)
        reporter.begin("warming up")
        await contest(at_hand, goods, plan.concurrency, 0)
        [first, second] = await goods(2)
        first_refund = await at_hand.automatic(first)
        automatic = await at_hand.history(first_refund)
        approved = await at_hand.history(await at_hand.approved(second))
        reporter.done("warming up", "")
        reporter.begin("alone")
        alone = await at_hand.alone(await goods(plan.samples))
        reporter.done("alone", f"{plan.samples} refunds and bare runs, one at a time")
        rounds: defaultdict[str, list[Round]] = defaultdict(list)
        for number in range(1, plan.rounds + 1):
            reporter.begin(f"round {number}")
            for name, done in (await contest(at_hand, goods, plan.size, number)).items():
                rounds[name].append(done)
            memory.look(stand.pids)
            reporter.done(f"round {number}", ", ".join(f"{name} {done[-1].per_second:.1f}/s" for name, done in sorted(rounds.items())))
    reporter.begin("ledger")
    with stand.connect() as connection:
        template = record.Template.of(connection, first_refund)
    recorded = await record.measure(stand.new_database("record"), stand.pids["postgres"], template, plan.entries)
    reporter.done("ledger", f"{recorded.entries:,} entries chained, proven and verified")
    reporter.begin("simulation")
    simulated = await asyncio.to_thread(simulating.measure, stand, plan.simulated)
    reporter.done("simulation", f"{simulated.requests:,} requests judged under two policies")
    return Measured(
        at=SystemClock().now(),
        machine=f"{os.cpu_count()} cores, {psutil.virtual_memory().total // 2**30} GB, {platform.system()} {platform.machine()}",
        concurrency=plan.concurrency,
        size=plan.size,
        rounds=rounds,
        alone=alone,
        automatic=automatic,
        approved=approved,
        memory=memory.peak,
        dbos_steps=plan.dbos_steps,
        record=recorded,
        simulated=simulated,
    )


def _keep(found: object) -> None:
    home = ROOT / ".local"
    if not home.exists():
        home.mkdir(mode=0o700)
        home.chmod(0o711 if os.geteuid() == 0 else 0o700)  # as the local stack makes it, which comes later to live there
    (home / "bench.json").write_text(json.dumps(found, indent=1) + "\n")


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Measure; what to return to the shell."""
    plan = _plan(arguments)
    os.environ[peer.STEPS] = str(plan.dbos_steps)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = WIDTH
    reporter = _Progress(console)
    signal.signal(signal.SIGTERM, _interrupt)  # so that it unwinds and stops what it started
    code = 0
    try:
        with running(reporter, console.print) as stand:
            reporter.starting = False
            found = report.figures(asyncio.run(_measure(stand, plan, reporter)))
        _keep(found)
        report.show(console, found)
    except* (TimeoutError, OSError, RuntimeError) as problems:
        reporter.end()
        for problem in _leaves(problems):
            console.print(f"Did not work: {problem or type(problem).__name__}")
        code = 1
    except* KeyboardInterrupt:
        reporter.end()
        console.print("Stopped.")
        code = 130
    return code


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
