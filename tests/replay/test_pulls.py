"""Pulls of orders outlive releases: the recorded histories replay on today's code, and the corpus notices code that does something else."""

from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from refunds.messages import PULL_WORKFLOW, PullInput
from tests.replay.pulls import HISTORIES, PATHS
from workflows.pulling import OrdersPullWorkflow


@workflow.defn(name=PULL_WORKFLOW)
class Impatient:
    """A pull that sleeps before it begins, which no recorded one did."""

    @workflow.run
    async def run(self, request: PullInput) -> None:
        await workflow.sleep(1)


def history(name: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(f"orders-{name}", (HISTORIES / f"{name}.json").read_text())


def test_every_path_has_its_history() -> None:
    assert sorted(Path(file).stem for file in HISTORIES.glob("*.json")) == sorted(PATHS)


@pytest.mark.parametrize("name", sorted(PATHS))
async def test_it_replays(name: str) -> None:
    await Replayer(workflows=[OrdersPullWorkflow]).replay_workflow(history(name))


@pytest.mark.parametrize("name", sorted(PATHS))
async def test_the_corpus_notices_code_that_does_something_else(name: str) -> None:
    result = await Replayer(workflows=[Impatient]).replay_workflow(history(name), raise_on_replay_failure=False)

    assert result.replay_failure is not None
