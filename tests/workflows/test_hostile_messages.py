"""Messages made to do harm by somebody with access to Temporal: what a payload can be beyond JSON, what PostgreSQL takes no text of, and floods.

A step that the database refuses is repeated for ever, and a handler that raises stops the run, so such a message must be refused before it gets there.
"""

from collections.abc import Mapping

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue

from refunds.messages import Message
from tests.workflows.memory import Plan
from tests.workflows.running import Runs, count
from tests.workflows.test_messages import FORGED, body, raw, still_works

PROTOBUF = b"temporal.api.common.v1.Payload"
HOSTILE: Mapping[str, RawValue] = {
    "bytes": raw(b"approve", "binary/plain"),
    "nothing": raw(b"", "binary/null"),
    "a protobuf message": raw(b"{}", "json/protobuf", messageType=PROTOBUF),
    "a broken protobuf message": raw(b"\xff", "binary/protobuf", messageType=PROTOBUF),
    "a broken JSON protobuf message": raw(b"[]", "json/protobuf", messageType=PROTOBUF),
    "NUL in the id": body(id="dec_\x00"),
    "half a character in the id": body(id="dec_\ud800"),
    "huge id": body(id="x" * 500_000),
}


@pytest.mark.parametrize("argument", HOSTILE.values(), ids=HOSTILE.keys())
async def test_field_64_hostile_signal_is_entered_as_refused(runs: Runs, argument: RawValue) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal("approve", argument)
    await run.entry("message_refused")

    [entry] = [data for type_, data in run.row.ledger if type_ == "message_refused"]
    assert (entry["kind"], entry["code"]) == ("approve", "MESSAGE_MALFORMED")
    assert len(entry["detail"]) <= 200
    await still_works(run, runs)


@pytest.mark.parametrize("argument", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("name", ["decide", "revise", "settle"])
async def test_field_64_hostile_update_is_rejected_and_leaves_no_event(runs: Runs, name: str, argument: RawValue) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    with pytest.raises(WorkflowUpdateFailedError):
        await run.handle.execute_update(name, argument)

    assert count(await run.history(), "WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == 0
    assert run.row.entries("message_refused") == 0
    await still_works(run, runs)


async def test_a_signal_name_with_nul_is_entered_without_it(runs: Runs) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    await run.handle.signal("name\x00with NUL", Message(FORGED))
    await run.entry("message_refused")

    [entry] = [data for type_, data in run.row.ledger if type_ == "message_refused"]
    assert "\x00" not in entry["kind"] + entry["detail"]
    await still_works(run, runs)


@pytest.mark.parametrize("forged", [True, False], ids=["forged", "malformed"])
async def test_a_flood_of_refused_messages_is_bounded(runs: Runs, forged: bool) -> None:
    run = await runs.start(Plan(people=1))
    await run.until("awaiting_review")

    for _ in range(250):  # one after the other: the server sends a task back when more than a hundred events are waiting for it
        await run.handle.signal("approve", args=[Message(FORGED)] if forged else [])

    await still_works(run, runs)
    assert run.row.entries("message_refused") == 100
    assert count(await run.history(), "WORKFLOW_EXECUTION_SIGNALED") == 251
