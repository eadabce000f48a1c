"""``python -m api``: serve the HTTP API on ``API_HOST`` and ``API_PORT`` until it is told to stop (SIGTERM or SIGINT).

Exits 1 with one sentence when the database cannot be used or a setting is missing.
"""

import asyncio
import logging
import signal
import sys
from datetime import timedelta

import uvicorn
from temporalio.client import Client

from api.app import create_app
from api.orchestrator import from_environment
from refunds import logs, points
from refunds.clock import Clock, ShiftedClock, SystemClock
from refunds.errors import RefundError
from refunds.memory import settle_down
from refunds.settings import Settings, SettingsError
from store.db import SchemaMismatch, connect


class _WithoutTraceback(logging.Filter):
    """Unexpected errors are logged by us, without their messages; the server would print them once more, with whatever text they repeat."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None


def _clock(settings: Settings) -> Clock:
    return ShiftedClock(timedelta(seconds=settings.clock_shift_s)) if settings.clock_shift_s else SystemClock()


def _already_stopped(_number: int, _frame: object) -> None:
    """Told to stop, and stopped."""


async def _serve(settings: Settings) -> int:
    database = connect(settings.database_url.get_secret_value(), _clock(settings), settings, name="api")
    try:
        await database.check_revision()
        client = await from_environment()  # does not connect yet; a configuration that cannot be read stops the start

        async def connected() -> Client:
            return client

        app = create_app(settings, database, connected)
        config = uvicorn.Config(
            app,
            host=settings.api_host,
            port=settings.api_port,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=10,
        )
        server = uvicorn.Server(config)
        settle_down()
        for number in (signal.SIGTERM, signal.SIGINT):
            # The server takes these over while it serves and raises them again once it has stopped: by then there is nothing left to end.
            signal.signal(number, _already_stopped)
        await server.serve()
        return 0 if server.started else 1
    finally:
        await database.close()
        await asyncio.sleep(0.2)  # the SDK's core must finish closing its last client before the interpreter goes (sdk-python#300)


def main() -> int:
    """Serve until stopped."""
    try:
        settings = Settings.load()
    except SettingsError as error:
        print(f"The API cannot start: {error}", file=sys.stderr)
        return 1
    logs.configure(settings, program="api")
    points.arm(settings.crash_points)
    logging.getLogger("uvicorn.error").addFilter(_WithoutTraceback())
    try:
        return asyncio.run(_serve(settings))
    except (SchemaMismatch, RefundError, RuntimeError) as error:
        print(f"The API cannot start: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
