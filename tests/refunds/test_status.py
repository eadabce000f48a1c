"""The transition table: what is final stays final, what reserves is what can still pay, and the docs show this very table."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.status import BEFORE_OPERATION, FINAL, RESERVING, TRANSITIONS, Event, IllegalTransition, Status, advance, allows, draw

MONEY_MAY_MOVE = {Status.SUBMITTING, Status.PENDING, Status.PARKED}
LATE_TRUTH = {
    (Status.SUCCEEDED, Event.PROCESSOR_FAILED): Status.FAILED,
    (Status.SUCCEEDED, Event.PARK): Status.PARKED,
    (Status.FAILED, Event.PROCESSOR_SUCCEEDED): Status.SUCCEEDED,
    (Status.FAILED, Event.PARK): Status.PARKED,
}


def test_every_status_has_a_row_and_every_event_is_used() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert {event for moves in TRANSITIONS.values() for event in moves} == set(Event)


def test_a_final_status_is_left_only_by_a_later_truth_of_the_processor() -> None:
    left = {(status, event): after for status in FINAL for event, after in TRANSITIONS[status].items()}
    assert left == LATE_TRUTH


def test_what_reserves_is_what_was_promised_and_is_not_over() -> None:
    assert set(Status) == RESERVING | FINAL | {Status.RECEIVED, Status.CLASSIFIED}
    assert not RESERVING & FINAL


def test_before_an_operation_everything_can_still_be_stopped() -> None:
    for status in BEFORE_OPERATION:
        assert allows(status, Event.WITHDRAW)
        assert allows(status, Event.DENY)
    for status in MONEY_MAY_MOVE:
        assert not allows(status, Event.WITHDRAW)
        assert not allows(status, Event.DENY)
        assert not allows(status, Event.EXPIRE)


def test_only_an_approved_refund_is_submitted() -> None:
    assert [status for status in Status if allows(status, Event.SUBMIT)] == [Status.APPROVED]


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("event", list(Event))
def test_a_move_outside_the_table_raises_and_names_both(status: Status, event: Event) -> None:
    if event in TRANSITIONS[status]:
        assert advance(status, event) is TRANSITIONS[status][event]
        return
    with pytest.raises(IllegalTransition, match=f"a refund that is {status} cannot take {event}"):
        advance(status, event)


def test_every_status_is_reached_and_leads_to_an_end() -> None:
    reached, todo = {Status.RECEIVED}, [Status.RECEIVED]
    while todo:
        for after in TRANSITIONS[todo.pop()].values():
            if after not in reached:
                reached.add(after)
                todo.append(after)
    assert reached == set(Status)
    ending = set(FINAL)
    while more := {s for s in Status if s not in ending and ending & set(TRANSITIONS[s].values())}:
        ending |= more
    assert ending == set(Status)


@given(st.lists(st.sampled_from(list(Event)), max_size=40))
def test_no_order_of_events_pays_without_an_approval(events: list[Event]) -> None:
    status, approved = Status.RECEIVED, False
    for event in events:
        if not allows(status, event):
            continue
        status = advance(status, event)
        approved = approved or event is Event.APPROVE
        if status in MONEY_MAY_MOVE | {Status.SUCCEEDED, Status.RELEASED}:
            assert approved


def test_the_docs_show_this_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{draw()}```\n" in page
    for status in Status:
        assert page.count(f"\n| `{status}` | ") == 1
    for event in Event:
        assert page.count(f"\n| `{event}` | ") == 1


def test_the_docs_say_rightly_what_reserves_and_what_is_final() -> None:
    page = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")
    for status in Status:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{status}` | "))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[2].startswith("yes") == (status in RESERVING), row
        assert cells[3].startswith("yes") == (status in FINAL), row
