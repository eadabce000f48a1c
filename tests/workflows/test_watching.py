"""The watch over a payment, inside the SDK's import sandbox: hints coalesce, none is lost, and nothing that anybody sends can harm it."""

from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from tests.replay.record import environment
from tests.workflows.running import count, failures
from tests.workflows.watched import LONG_SOON, Processor, a_payment, crowded, ended, hint, hosting, looked
from workflows.watching import PaymentWatchWorkflow


@pytest.fixture
def client(temporal_client: Client) -> Client:
    """A server whose payments queue no other test of this directory hosts."""
    return temporal_client


async def test_one_hint_is_one_look(client: Client) -> None:
    processor, payment = Processor(), a_payment()
    processor.gate.set()
    async with hosting(client, processor):
        found = await ended(await hint(client, payment))

    assert processor.looks == [payment]
    assert found == {"payment": payment, "imported": 1, "moved": 0, "discrepancies": 0}


@pytest.mark.parametrize("cached", [100, 0])
async def test_hints_during_a_look_are_answered_together_by_one_more(client: Client, cached: int) -> None:
    processor, payment = Processor(), a_payment()
    async with hosting(client, processor, cached=cached):
        handle = await hint(client, payment)
        await looked(processor, 1)
        runs = {(await hint(client, payment)).first_execution_run_id for _ in range(5)}
        processor.gate.set()
        await ended(handle)

    assert len(processor.looks) == 2
    assert len(runs - {None}) <= 1, "no second run beside the first"
    history = await handle.fetch_history()
    assert failures(history) == []
    assert count(history, "WORKFLOW_EXECUTION_SIGNALED") == 6


async def test_a_hint_after_the_end_begins_another_watch(client: Client) -> None:
    processor, payment = Processor(), a_payment()
    processor.gate.set()
    async with hosting(client, processor):
        await ended(await hint(client, payment))
        await ended(await hint(client, payment))

    assert processor.looks == [payment] * 2


async def test_a_crowd_of_hints_while_it_ends_loses_none(client: Client) -> None:
    """Whenever a hint was taken, a look began after it: also when it came while the run was about to complete."""
    processor, payment = Processor(), a_payment()
    processor.gate.set()
    async with hosting(client, processor):
        for _ in range(25):
            before = len(processor.looks)
            handle = await hint(client, payment)
            await looked(processor, before + 1)
            await ended(handle)


async def test_a_processor_that_is_away_is_waited_for(client: Client) -> None:
    processor, payment = Processor(fails=2), a_payment()
    processor.gate.set()
    async with hosting(client, processor):
        handle = await hint(client, payment)
        await ended(handle)

    assert len(processor.looks) == 3


@pytest.mark.parametrize(
    ("name", "arguments"), [("look", ("a word", 7)), ("nonsense", ()), ("look", (b"\x00\xff",)), ("payment_event", ({"a": [1]},))]
)
async def test_whatever_is_sent_is_a_hint_and_nothing_more(client: Client, name: str, arguments: tuple[Any, ...]) -> None:
    processor, payment = Processor(), a_payment()
    async with hosting(client, processor):
        handle = await hint(client, payment)
        await looked(processor, 1)
        await handle.signal(name, args=list(arguments))
        processor.gate.set()
        await ended(handle)

    assert len(processor.looks) == 2
    assert failures(await handle.fetch_history()) == []


@pytest.mark.parametrize("cached", [100, 0])
async def test_a_long_history_goes_on_as_a_new_run_and_no_hint_is_lost(cached: int) -> None:
    async with await environment(LONG_SOON) as env:
        processor, payment = Processor(), a_payment()
        async with hosting(env.client, processor, cached=cached):
            handle = await hint(env.client, payment)
            await looked(processor, 1)
            await crowded(env.client, payment)
            processor.gate.set()
            found = await ended(handle)

        assert processor.looks == [payment] * 2, "the hints that came during the first look are answered by one of the second run"
        assert found == {"payment": payment, "imported": 2, "moved": 0, "discrepancies": 0}
        first = await env.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id).fetch_history()
        second = await handle.fetch_history()
        assert (count(first, "WORKFLOW_EXECUTION_CONTINUED_AS_NEW"), count(second, "WORKFLOW_EXECUTION_COMPLETED")) == (1, 1)
        assert len(second.events) < 20, "what was over is not carried along"
        assert failures(first) == failures(second) == []
        for history in (first, second):
            await Replayer(workflows=[PaymentWatchWorkflow]).replay_workflow(history)


async def test_its_history_replays(client: Client) -> None:
    processor, payment = Processor(fails=1), a_payment()
    async with hosting(client, processor):
        handle = await hint(client, payment)
        await looked(processor, 1)
        await hint(client, payment)
        processor.gate.set()
        await ended(handle)

    await Replayer(workflows=[PaymentWatchWorkflow]).replay_workflow(await handle.fetch_history())
