"""From measurements to figures: the numbers for ``.local/bench.json``, and the table for people."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from refunds.clock import rfc3339
from tests.bench.measure import DBOS, REFUNDS, Alone, History, Round
from tests.bench.record import Recorded
from tests.bench.simulating import Simulated
from tests.bench.stand import BARE, PEERS

PRODUCT = ("api", "worker", "temporal", "postgres", "sandbox")


@dataclass(frozen=True)
class Measured:
    """Everything that one run of the benchmark found. ``rounds`` holds the rounds of each contestant in the order they were run."""

    at: datetime
    machine: str
    concurrency: int
    size: int
    rounds: Mapping[str, Sequence[Round]]
    alone: Alone
    automatic: History
    approved: History
    memory: Mapping[str, int]
    dbos_steps: int
    record: Recorded
    simulated: Simulated


@dataclass(frozen=True)
class Target:
    """What a ratio should be: ``least`` is demanded and ``aim`` is aimed at; for times smaller is better."""

    what: str
    least: float
    aim: float
    smaller: bool = False

    def verdict(self, value: float) -> str:
        """``aim reached``, ``met`` or ``missed``."""
        good = (lambda bar: value <= bar) if self.smaller else (lambda bar: value >= bar)
        return "aim reached" if good(self.aim) else "met" if good(self.least) else "missed"

    def wanted(self) -> str:
        """In words."""
        sign = "at most" if self.smaller else "at least"
        return f"{sign} {self.least:g}, aim {self.aim:g}"


TARGETS = {
    "throughput_vs_bare": Target("Throughput, refunds to bare runs", 1.0, 1.5),
    "latency_vs_bare": Target("Time alone, refund to bare run", 0.7, 0.5, smaller=True),
    "first_answer_vs_bare": Target("First answer with its quote, to bare run", 0.4, 0.25, smaller=True),
    "throughput_vs_dbos": Target("Throughput, refunds to DBOS", 0.9, 1.2),
    "ledger_share": Target("Chaining a refund's entries, of its processor time", 0.1, 0.05, smaller=True),
}
EVENTS_AUTOMATIC, EVENTS_APPROVED = 20, 24


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed (nearest rank). ``values`` must not be empty."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _ratio_of_rounds(measured: Measured, name: str) -> float:
    """The median over rounds of the ratio within each round: neighbours in time suffered the same neighbours on the machine."""
    pairs = zip(measured.rounds[REFUNDS], measured.rounds[name], strict=True)
    return statistics.median(ours.per_second / theirs.per_second for ours, theirs in pairs)


def figures(measured: Measured) -> dict[str, Any]:
    """All figures, as they are written to ``.local/bench.json``: times in milliseconds, memory and history in bytes."""
    alone, rounds, record = measured.alone, measured.rounds, measured.record
    bare_alone = statistics.median(alone.bare_ms)
    under_load = {
        "first_answer": [ms for each in rounds[REFUNDS] for ms in each.first_answer_ms],
        "final": [ms for each in rounds[REFUNDS] for ms in each.final_ms],
    }
    return {
        "ratio": {
            "throughput_vs_bare": _rounded(_ratio_of_rounds(measured, BARE)),
            "latency_vs_bare": _rounded(statistics.median(alone.final_ms) / bare_alone),
            "throughput_vs_dbos": _rounded(_ratio_of_rounds(measured, DBOS)),
            "first_answer_vs_bare": _rounded(statistics.median(alone.first_answer_ms) / bare_alone),
            "ledger_share": _rounded(record.cpu_ms_per_entry * record.per_refund / sum(_cost(measured, REFUNDS, PRODUCT).values())),
        },
        "refunds_per_s": _rounded(_per_second(measured, REFUNDS)),
        "bare_runs_per_s": _rounded(_per_second(measured, BARE)),
        "dbos_refunds_per_s": _rounded(_per_second(measured, DBOS)),
        "latency_ms": {
            "alone": {
                "first_answer": _spread(alone.first_answer_ms),
                "final": _spread(alone.final_ms),
                "bare_run": _spread(alone.bare_ms),
            },
            "under_load": {name: _spread(values) for name, values in under_load.items()},
        },
        "events_per_refund": measured.automatic.events,
        "events_per_approved_refund": measured.approved.events,
        "history_bytes_per_refund": measured.automatic.bytes,
        "history_bytes_per_approved_refund": measured.approved.bytes,
        "cpu_ms_per_refund": _cost(measured, REFUNDS, PRODUCT),
        "cpu_ms_per_bare_run": _cost(measured, BARE, (BARE, "temporal")),
        # The processor's events of its refunds come to the API and the worker, as the others' do.
        "cpu_ms_per_dbos_refund": _cost(measured, DBOS, (*PEERS, "postgres", "sandbox", "api", "worker")),
        "dbos_steps": measured.dbos_steps,
        "ledger": {
            "entries": record.entries,
            "entries_per_refund": record.per_refund,
            "cpu_ms_per_entry": _rounded(record.cpu_ms_per_entry),
            "numbered_per_s": _rounded(record.numbered_per_s),
            "verified_per_s": _rounded(record.verified_per_s),
            "file_verified_per_s": _rounded(record.file_verified_per_s),
            "proof_ms": _spread(record.proof_ms),
        },
        "simulation": {"requests": measured.simulated.requests, "per_s": _rounded(measured.simulated.per_second)},
        "peak_memory_bytes": {name: measured.memory[name] for name in PRODUCT},
        "rounds": {name: [_rounded(each.per_second) for each in done] for name, done in rounds.items()},
        "concurrency": measured.concurrency,
        "refunds_per_round": measured.size,
        "measured_at": rfc3339(measured.at),
        "machine": measured.machine,
    }


def _per_second(measured: Measured, name: str) -> float:
    return statistics.median(each.per_second for each in measured.rounds[name])


def _cost(measured: Measured, name: str, parts: Sequence[str]) -> dict[str, float]:
    return {part: _rounded(statistics.median(each.cpu_ms[part] for each in measured.rounds[name])) for part in parts}


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": _rounded(percentile(values, 0.5)), "p99": _rounded(percentile(values, 0.99))}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}") if abs(value) < 100 else float(round(value))


def show(console: Console, found: Mapping[str, Any]) -> None:
    """Print the figures as one table; plain lines when the output is no terminal."""
    table = Table(title="Speed", title_justify="left", show_edge=False)
    for heading, align in (("", "left"), ("measured", "right"), ("target", "left"), ("", "left")):
        table.add_column(heading, justify="right" if align == "right" else "left")
    for key, target in TARGETS.items():
        table.add_row(target.what, f"{found['ratio'][key]:.2f}", target.wanted(), target.verdict(found["ratio"][key]))
    for what, key, most in (
        ("Events of a refund", "events_per_refund", EVENTS_AUTOMATIC),
        ("Events of a refund with approval", "events_per_approved_refund", EVENTS_APPROVED),
    ):
        table.add_row(what, str(found[key]), f"at most {most}", "met" if found[key] <= most else "missed")
    table.add_section()
    for cells in _beside(found):
        table.add_row(*cells)
    console.print(table)


def _beside(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The rows without a target: what, how much, and what is to be known about it."""
    rounds, latency = found["rounds"], found["latency_ms"]
    rows = [
        (what, f"{found[key]:g} /s", f"rounds: {', '.join(f'{value:g}' for value in rounds[name])}")
        for what, key, name in (
            ("Refunds", "refunds_per_s", REFUNDS),
            ("Bare runs", "bare_runs_per_s", BARE),
            (f"DBOS refunds ({found['dbos_steps']} steps)", "dbos_refunds_per_s", DBOS),
        )
    ]
    for what, load, name in (
        ("First answer with its quote, alone", "alone", "first_answer"),
        ("POST to final, alone", "alone", "final"),
        ("Bare run, alone", "alone", "bare_run"),
        (f"First answer with its quote, {found['concurrency']} at once", "under_load", "first_answer"),
        (f"POST to final, {found['concurrency']} at once", "under_load", "final"),
    ):
        spread = latency[load][name]
        rows.append((what, f"{spread['p50']:g} ms", f"p99 {spread['p99']:g} ms"))
    rows.append(("History of a refund", f"{found['history_bytes_per_refund']:,} bytes", ""))
    rows.append(("History of a refund with approval", f"{found['history_bytes_per_approved_refund']:,} bytes", ""))
    for what, key in (
        ("Processor time of a refund", "cpu_ms_per_refund"),
        ("Processor time of a bare run", "cpu_ms_per_bare_run"),
        ("Processor time of a DBOS refund", "cpu_ms_per_dbos_refund"),
    ):
        parts = found[key]
        rows.append((what, f"{sum(parts.values()):.0f} ms", ", ".join(f"{part} {ms:g}" for part, ms in parts.items())))
    ledger = found["ledger"]
    rows.append(
        (
            "Entries chained",
            f"{ledger['numbered_per_s']:g} /s",
            f"{ledger['entries_per_refund']} a refund, {ledger['cpu_ms_per_entry']:g} ms each",
        )
    )
    rows.append(
        (
            f"Ledger of {ledger['entries']:,} verified",
            f"{ledger['verified_per_s']:g} /s",
            f"a file: {ledger['file_verified_per_s']:g} /s; orientation 20,000",
        )
    )
    rows.append(("Proof of one of them", f"{ledger['proof_ms']['p50']:g} ms", f"p99 {ledger['proof_ms']['p99']:g} ms; orientation 20"))
    tried = found["simulation"]
    minute = f"{tried['requests'] / tried['per_s']:.0f} s; orientation: 100,000 in a minute on two cores"
    rows.append((f"Policy tried on {tried['requests']:,} requests", f"{tried['per_s']:g} /s", minute))
    memory = found["peak_memory_bytes"]
    rows.append(("Memory at most", "MB", ", ".join(f"{part} {used // 1_000_000}" for part, used in memory.items())))
    return rows
