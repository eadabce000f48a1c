"""What the figures mean, on measurements that are made up: the benchmark itself asserts no times."""

import json
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from tests.bench import report
from tests.bench.measure import Alone, History, Round
from tests.bench.record import Recorded
from tests.bench.report import Measured, Target
from tests.bench.simulating import Simulated

CPU = {"api": 1.0, "worker": 2.0, "temporal": 3.0, "postgres": 4.0, "sandbox": 5.0, "bare": 6.0, "dbos-1": 7.0, "dbos-2": 8.0}


def rounds(*per_second: float) -> list[Round]:
    return [Round(each, first_answer_ms=[40.0], final_ms=[100.0], cpu_ms=CPU) for each in per_second]


@pytest.fixture
def measured() -> Measured:
    return Measured(
        at=datetime(2026, 9, 1, tzinfo=UTC),
        machine="2 cores",
        concurrency=20,
        size=150,
        # A machine that slows down by half between rounds: only neighbours may be compared.
        rounds={"refunds": rounds(30, 14, 15), "bare": rounds(20, 10, 10), "dbos": rounds(40, 20, 20)},
        alone=Alone(first_answer_ms=[30.0, 25.0, 99.0], final_ms=[50.0, 60.0, 40.0], bare_ms=[100.0, 90.0, 300.0]),
        automatic=History(13, 3_700),
        approved=History(22, 6_200),
        memory=dict.fromkeys(CPU, 100_000_000),
        dbos_steps=6,
        record=Recorded(
            100_000, 10, 3_000, cpu_ms_per_entry=0.075, verified_per_s=21_000, file_verified_per_s=31_000, proof_ms=[3.0, 2.0, 9.0]
        ),
        simulated=Simulated(100_000, 17_000, seconds=50.0),
    )


def test_ratios_compare_rounds_with_their_neighbours_and_take_the_median(measured: Measured) -> None:
    assert report.figures(measured)["ratio"] == {
        "throughput_vs_bare": 1.5,
        "latency_vs_bare": 0.5,
        "throughput_vs_dbos": 0.75,
        "first_answer_vs_bare": 0.3,
        "ledger_share": 0.05,
    }


def test_figures_are_json_and_hold_what_is_asked_for(measured: Measured) -> None:
    found = json.loads(json.dumps(report.figures(measured)))

    assert found["refunds_per_s"] == 15
    assert found["latency_ms"]["alone"]["final"] == {"p50": 50, "p99": 60}
    assert found["latency_ms"]["under_load"]["first_answer"] == {"p50": 40, "p99": 40}
    assert (found["events_per_refund"], found["events_per_approved_refund"]) == (13, 22)
    assert found["cpu_ms_per_refund"] == {"api": 1, "worker": 2, "temporal": 3, "postgres": 4, "sandbox": 5}
    assert found["cpu_ms_per_dbos_refund"] == {"dbos-1": 7, "dbos-2": 8, "postgres": 4, "sandbox": 5, "api": 1, "worker": 2}
    assert found["dbos_steps"] == 6
    assert found["ledger"]["proof_ms"] == {"p50": 3, "p99": 9}
    assert (found["ledger"]["entries_per_refund"], found["ledger"]["verified_per_s"]) == (10, 21_000)
    assert found["cpu_ms_per_bare_run"] == {"bare": 6, "temporal": 3}
    assert set(found["peak_memory_bytes"]) == {"api", "worker", "temporal", "postgres", "sandbox"}
    assert found["simulation"] == {"requests": 100_000, "per_s": 2_000}
    assert found["measured_at"].startswith("2026-09-01T00:00:00")


def test_table_names_each_target_and_whether_it_is_met(measured: Measured) -> None:
    out = StringIO()
    report.show(Console(file=out, width=150), report.figures(measured))

    line = {text.split("│")[0].strip(): text for text in out.getvalue().splitlines() if "│" in text}
    assert "1.50" in line["Throughput, refunds to bare runs"] and "aim reached" in line["Throughput, refunds to bare runs"]
    assert "met" in line["First answer with its quote, to bare run"]
    assert "missed" in line["Throughput, refunds to DBOS"]
    assert "aim reached" in line["Chaining a refund's entries, of its processor time"]
    assert "21000 /s" in line["Ledger of 100,000 verified"]
    assert "at most 20" in line["Events of a refund"] and "met" in line["Events of a refund"]


@pytest.mark.parametrize(
    ("target", "value", "verdict"),
    [
        (Target("more", 1.0, 1.5), 1.5, "aim reached"),
        (Target("more", 1.0, 1.5), 1.0, "met"),
        (Target("more", 1.0, 1.5), 0.99, "missed"),
        (Target("less", 0.7, 0.5, smaller=True), 0.5, "aim reached"),
        (Target("less", 0.7, 0.5, smaller=True), 0.7, "met"),
        (Target("less", 0.7, 0.5, smaller=True), 0.71, "missed"),
    ],
)
def test_a_target_is_met_on_its_bound(target: Target, value: float, verdict: str) -> None:
    assert target.verdict(value) == verdict


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.99, 4.0), (0.25, 1.0), (1.0, 4.0)])
def test_percentiles_are_values_that_were_seen(share: float, value: float) -> None:
    assert report.percentile([4.0, 1.0, 3.0, 2.0], share) == value
