"""A worker that cannot do its work refuses to start, says why in one line, and shows no secret."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.activities.shop import API_KEY, TEXT_KEY
from tests.conftest import ROOT, FreshDatabase, Sandbox, TemporalServer
from tests.worker.site import environment

LIVE_KEY = "sk_live_a_secret_that_must_not_be_shown"
Refuse = Callable[..., str]


@pytest.fixture
def refused(database: FreshDatabase, temporal_server: TemporalServer, sandbox: Sandbox, open_home: Path) -> Refuse:
    """A function that starts a worker with a changed environment (``None`` takes a name away) and returns what it says when it refuses."""

    def start(role: str, **changed: str | None) -> str:
        env = environment(role, database, temporal_server, sandbox, open_home) | changed
        given = {name: value for name, value in env.items() if value is not None}
        argv = [sys.executable, "-m", "worker", "--role", role]
        ended = subprocess.run(argv, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False)
        everything = ended.stdout + ended.stderr
        assert ended.returncode == 1, everything
        assert "worker_ready" not in everything
        secrets = [API_KEY, TEXT_KEY, LIVE_KEY, *(url.split("@")[0].split(":")[-1] for url in (database.url("refunds_payments"),))]
        assert [secret for secret in secrets if secret in everything] == []
        [line] = ended.stderr.splitlines()
        return line

    return start


def test_a_key_is_missing(refused: Refuse) -> None:
    assert "STRIPE_API_KEY" in refused("payments", STRIPE_API_KEY=None)


def test_a_live_key_in_test_mode(refused: Refuse) -> None:
    line = refused("payments", STRIPE_API_KEY=LIVE_KEY)
    assert "STRIPE_API_KEY is a live key" in line
    assert "REFUNDS_MODE" in line


def test_a_test_key_in_live_mode(refused: Refuse) -> None:
    assert "test key" in refused("payments", REFUNDS_MODE="live", STRIPE_API_BASE=None)


def test_the_key_of_texts_is_missing_or_no_key(refused: Refuse) -> None:
    assert "REFUNDS_TEXT_KEY" in refused("classify", REFUNDS_TEXT_KEY=None)
    assert "REFUNDS_TEXT_KEY" in refused("classify", REFUNDS_TEXT_KEY="short")


def test_a_setting_that_is_no_number_is_named(refused: Refuse) -> None:
    assert "SUBMIT_MAX_ATTEMPTS" in refused("payments", SUBMIT_MAX_ATTEMPTS="many").upper()


@pytest.mark.parametrize("revision", ["0000", None])
def test_another_schema_revision(refused: Refuse, database: FreshDatabase, revision: str | None) -> None:
    with database.connect() as connection:
        if revision is None:
            connection.execute("DELETE FROM alembic_version")
        else:
            connection.execute("UPDATE alembic_version SET version_num = %s", (revision,))

    line = refused("refunds")
    assert f"revision {revision or 'none'}" in line
    assert "refunds migrate" in line


def test_a_password_that_is_wrong(refused: Refuse, database: FreshDatabase) -> None:
    head, tail = database.url("refunds_payments").split("@")
    assert refused("payments", DATABASE_URL_PAYMENTS=f"{head}x@{tail}")


def test_another_processor_account_or_mode(refused: Refuse, database: FreshDatabase) -> None:
    """A database belongs to one account and mode for ever: a restore to the wrong place must not send real money."""
    with database.connect() as connection:
        connection.execute("INSERT INTO processor_binding VALUES ('stripe', 'acct_other', 'test', now())")
    assert "acct_other" in refused("payments")
    with database.connect() as connection:
        connection.execute("UPDATE processor_binding SET mode = 'live'")
    assert "live mode" in refused("payments")


def test_a_key_the_processor_refuses(refused: Refuse, sandbox: Sandbox) -> None:
    sandbox.control("PUT", "/keys", {"key": "sk_test_revoked", "revoked": True})
    assert "key_refused" in refused("payments", STRIPE_API_KEY="sk_test_revoked")
