"""What a run did and found: as plain JSON for ``.local/chaos.json``, and in words."""

from collections import Counter
from typing import Any

from rich.console import Console

from tests.chaos.forgetting import Restored
from tests.chaos.run import Result

SHOWN = 20
RECOVERIES = (("one of two", True), ("alone", True), ("one of two", False), ("both of two", False))
"""By who was killed, and whether nothing else went wrong."""


def quantile(values: list[float], share: float) -> float | None:
    """The value below which that share of the values lies (nearest rank); ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-round(share * 1000) * len(ordered) // 1000) - 1))]


def figures(result: Result) -> dict[str, Any]:
    """Everything about a run, as JSON takes it."""
    return {
        "seed": result.plan.seed,
        "refunds": result.plan.refunds,
        "faults": result.plan.faults,
        "refunds_asked_for": result.book.begun,
        "faults_carried_out": result.done.kinds.total(),
        "accepted": len(result.book.accepted),
        "payments": len(result.book.payments),
        "seconds": result.seconds,
        "faults_by_kind": dict(sorted(result.done.kinds.items())),
        "faults_that_met_nothing": dict(sorted(result.done.void.items())),
        "stops": len(result.book.stops),
        "calls_repeated_by_clients": dict(sorted(result.book.repeated.items())),
        "answers": dict(sorted(result.book.answers.items())),
        "endings": dict(sorted(result.standing.items())),
        "settlements": dict(sorted(result.settled.items())),
        "recovery_after_a_worker_killed_in_mid_call_s": {
            f"{who} {'in calm' if calm else 'among other faults'}": _recovery(
                [each.since_kill_s for each in result.done.recoveries if (each.who, each.calm) == (who, calm)]
            )
            for who, calm in RECOVERIES
        },
        "restore": None if result.restored is None else _restore(result.restored),
        "found_by_reconciliation_only": len(result.late),
        "reconciliation": result.reconciled,
        "violations_by_check": dict(sorted(Counter(violation.check for violation in result.violations).items())),
        "violations": [{"check": v.check, "where": v.where, "what": v.what} for v in result.violations],
    }


def _recovery(seconds: list[float]) -> dict[str, Any]:
    return {
        "samples": len(seconds),
        "p50": quantile(seconds, 0.5),
        "p99": quantile(seconds, 0.99),
        "longest": max(seconds, default=None),
    }


def _restore(restored: Restored) -> dict[str, Any]:
    return {
        "workers_live_on": restored.workers_live_on,
        "seconds": restored.seconds,
        "refunds": dict(sorted(restored.refunds.items())),
        "discrepancies": dict(sorted(restored.discrepancies.items())),
    }


def replay(result: Result) -> str:
    """The command that does the same again."""
    return f"make chaos REFUNDS={result.plan.refunds} FAULTS={result.plan.faults} SEED={result.plan.seed}"


def show(console: Console, found: dict[str, Any], again: str) -> None:
    """The same in words."""

    def line(title: str, values: Any) -> None:
        text = ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, dict) else str(values)
        console.print(f"{title:<22} {text or 'none'}", markup=False)

    line("seed", found["seed"])
    line(
        "refunds",
        f"{found['refunds_asked_for']} of {found['refunds']} asked for, {found['accepted']} accepted, {found['payments']} payments",
    )
    line("ended as", found["endings"])
    line("faults", f"{found['faults_carried_out']} of {found['faults']}")
    line("  by kind", found["faults_by_kind"])
    line("  that met nothing", found["faults_that_met_nothing"])
    line("repeated by clients", found["calls_repeated_by_clients"])
    line("reconciliation", found["reconciliation"] | {"found by it only": found["found_by_reconciliation_only"]})
    line("settled by people", found["settlements"])
    for when, measured in found["recovery_after_a_worker_killed_in_mid_call_s"].items():
        if measured["samples"]:
            text = f"{measured['samples']} times, seconds to the receipt: p50 {measured['p50']}, p99 {measured['p99']}"
            line("worker killed mid-call", f"{when}: {text}")
    if found["restore"] is not None:
        line("older database", {"workers lived on": found["restore"]["workers_live_on"]} | found["restore"]["seconds"])
        line("  forgotten refunds", found["restore"]["refunds"] | found["restore"]["discrepancies"])
    line("seconds", found["seconds"])
    for violation in found["violations"][:SHOWN]:
        console.print(f"WRONG  {violation['check']}  {violation['where']}: {violation['what']}", markup=False)
    if found["violations"]:
        line("wrong", found["violations_by_check"])
        console.print(f"Seed {found['seed']}. The same again: {again}", markup=False)
    else:
        console.print("Nothing lost, nothing twice, nothing guessed.")
