"""Revision 0004 on a database in which things are stopped: whatever kept money back before keeps it back after, in both directions."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from alembic import command
from psycopg.rows import dict_row

from tests.conftest import FreshDatabase
from tests.store.older import at_revision, migrating, moving
from tests.store.world import TEXT_KEY

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
KEY = {"REFUNDS_TEXT_KEY": base64.b64encode(TEXT_KEY).decode()}


def _control(connection: psycopg.Connection, stopped: bool, reason: str, by: str) -> None:
    connection.execute(
        "INSERT INTO controls (scope, stopped, mode, reason, changed_by, changed_at) VALUES ('everything', %s, 'live', %s, %s, %s)",
        [stopped, reason, by, AT],
    )


def _stopped(connection: psycopg.Connection) -> None:
    _control(connection, True, "Something is wrong", "pr_1")
    for number, (processor, lifted) in enumerate((("stripe", AT), ("stripe", None), ("other", None))):
        connection.execute(
            "INSERT INTO halts (id, processor, code, reason, opened_at, lifted_at) VALUES (%s, %s, 'PROCESSOR_KEY_REFUSED', 'refused', %s, %s)",
            [f"hlt_{number}", processor, AT, lifted],
        )


def _running(connection: psycopg.Connection) -> None:
    _control(connection, False, "All is well again", "pr_2")


@pytest.fixture
def stopped(empty_database: FreshDatabase) -> FreshDatabase:
    """At revision 0003: a stop of everything, two halts in force, and one that was lifted."""
    return at_revision(empty_database, "0003", _stopped)


@pytest.fixture
def running(empty_database: FreshDatabase) -> FreshDatabase:
    """At revision 0003: the stop was lifted, and there are no halts."""
    return at_revision(empty_database, "0003", _running)


def rows(database: FreshDatabase, statement: str) -> list[dict[str, Any]]:
    with database.connect("postgres") as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(statement).fetchall()


CONTROLS = "SELECT scope, stopped, reason, stopped_by, stopped_at, stop_reason FROM controls"


def test_a_stop_stays_one_and_says_who_stopped_and_why(stopped: FreshDatabase) -> None:
    ended = migrating(stopped, **KEY)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert rows(stopped, CONTROLS) == [
        {
            "scope": "everything",
            "stopped": True,
            "reason": "Something is wrong",
            "stopped_by": "pr_1",
            "stopped_at": AT,
            "stop_reason": "Something is wrong",
        }
    ]


def test_what_was_resumed_is_not_told_as_a_stop(running: FreshDatabase) -> None:
    ended = migrating(running, **KEY)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert rows(running, CONTROLS) == [
        {
            "scope": "everything",
            "stopped": False,
            "reason": "All is well again",
            "stopped_by": None,
            "stopped_at": None,
            "stop_reason": None,
        }
    ]


def test_a_halt_is_one_of_its_processor_and_what_was_lifted_stays_lifted(stopped: FreshDatabase) -> None:
    migrating(stopped, **KEY)

    assert rows(stopped, "SELECT id, scope, processor, lifted_at FROM halts ORDER BY id") == [
        {"id": "hlt_0", "scope": "processor:stripe", "processor": "stripe", "lifted_at": AT},
        {"id": "hlt_1", "scope": "processor:stripe", "processor": "stripe", "lifted_at": None},
        {"id": "hlt_2", "scope": "processor:other", "processor": "other", "lifted_at": None},
    ]


@pytest.mark.parametrize("scope", ["everything", "agents", "agent:bot"])
def test_going_back_a_halt_that_cannot_be_said_any_more_becomes_a_stop_of_everything(running: FreshDatabase, scope: str) -> None:
    migrating(running, **KEY)
    with running.connect("postgres") as connection:
        connection.execute(
            "INSERT INTO halts (id, scope, code, reason, opened_at) VALUES ('hlt_9', %s, 'BREAKER_OPEN', 'too many', %s)", [scope, AT]
        )
    moving(running, command.downgrade, "0003")

    assert rows(running, "SELECT stopped, reason FROM controls") == [{"stopped": True, "reason": "a halt of a narrower scope was in force"}]
    assert rows(running, "SELECT id FROM halts") == []


def test_going_back_a_halt_that_was_lifted_stops_nothing(running: FreshDatabase) -> None:
    migrating(running, **KEY)
    with running.connect("postgres") as connection:
        connection.execute(
            "INSERT INTO halts (id, scope, code, reason, opened_at, lifted_at) VALUES ('hlt_9', 'agents', 'BREAKER_OPEN', 'too many', %s, %s)",
            [AT, AT],
        )
    moving(running, command.downgrade, "0003")

    assert rows(running, "SELECT stopped FROM controls") == [{"stopped": False}]


def test_going_back_the_oldest_of_several_halts_of_a_processor_stays(stopped: FreshDatabase) -> None:
    migrating(stopped, **KEY)
    with stopped.connect("postgres") as connection:
        connection.execute(
            "INSERT INTO halts (id, scope, processor, code, reason, opened_at)"
            " VALUES ('hlt_9', 'processor:stripe', 'stripe', 'BREAKER_OPEN', 'too many', %s)",
            [AT + timedelta(hours=1)],
        )
    moving(stopped, command.downgrade, "0003")

    assert rows(stopped, "SELECT id, lifted_at IS NULL AS in_force FROM halts ORDER BY id") == [
        {"id": "hlt_0", "in_force": False},
        {"id": "hlt_1", "in_force": True},
        {"id": "hlt_2", "in_force": True},
        {"id": "hlt_9", "in_force": False},
    ]
    assert rows(stopped, "SELECT stopped FROM controls") == [{"stopped": True}]
