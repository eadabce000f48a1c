"""A short run of the chaos suite, seeded, with every kind of process killed: nothing lost, nothing twice, nothing guessed.

``make chaos`` is the long one (docs/chaos.md).
"""

import json

import pytest

from deploy.local.progress import Silent
from tests.chaos import report
from tests.chaos.faults import Recovery
from tests.chaos.plan import PARTS, Plan
from tests.chaos.run import Bounds, run

SEED, REFUNDS, FAULTS = 25824, 40, 14
PLAN = Plan(SEED, REFUNDS, FAULTS, mid_calls=1, restore=False)


@pytest.mark.timeout(300)
async def test_forty_refunds_survive_fourteen_faults() -> None:
    told: list[str] = []

    result = await run(PLAN, Bounds(lanes=8), Silent(), told.append)

    found = report.figures(result)
    assert found["violations"] == [], "\n".join(
        [f"seed {SEED}; the same again: {report.replay(result)}", json.dumps(found, indent=1), *told[-20:]]
    )
    # Errands ask for exactly as many as planned; those that meet a killed worker or a refused key come on top.
    met = len(result.done.recoveries) + result.done.void["kill_in_mid_call"] + result.done.kinds["refuse_key"]
    assert found["accepted"] == REFUNDS + met
    assert found["accepted"] == sum(found["endings"].values())
    assert sum(found["faults_by_kind"].values()) == FAULTS
    assert [recovery.calm for recovery in result.done.recoveries].count(True) == 2


def test_the_short_plan_kills_most_kinds_of_process_and_disturbs_the_processor() -> None:
    troubles = PLAN.troubles()

    killed = {fault.details["part"] for fault in troubles if fault.kind.startswith("kill") and "part" in fault.details}
    assert len(killed & set(PARTS)) >= 3, killed
    assert {"disturb_create", "disturb_leg", "disturb_reading", "crash_at", "stop", "refuse_key", "end_run"} <= {
        fault.kind for fault in troubles
    }
    assert {"altered", "sold", "sold_on", "grouped"} <= {errand.kind for errand in PLAN.errands()}


def test_a_report_says_what_was_done_and_how_to_do_it_again() -> None:
    recoveries = [Recovery(f"rf_{number}", float(number), "alone", calm=True) for number in range(1, 101)]

    assert report.quantile([recovery.since_kill_s for recovery in recoveries], 0.5) == 50
    assert report.quantile([recovery.since_kill_s for recovery in recoveries], 0.99) == 99
    assert report.quantile([7.0], 0.99) == 7
    assert report.quantile([], 0.5) is None
