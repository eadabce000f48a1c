"""``python -m api``: serve the HTTP API on ``API_HOST`` and ``API_PORT`` until it is told to stop (SIGTERM or SIGINT).

Exits 1 with one sentence when the database cannot be used or a setting is missing.
"""

import asyncio
import logging
import sys
from datetime import timedelta

import uvicorn

from api.app import create_app
from refunds import logs
from refunds.clock import Clock, ShiftedClock, SystemClock
from refunds.errors import RefundError
from refunds.settings import Settings
from store.db import SchemaMismatch, connect


class _WithoutTraceback(logging.Filter):
    """Unexpected errors are logged by us, without their messages; the server would print them once more, with whatever text they repeat."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None


def _clock(settings: Settings) -> Clock:
    return ShiftedClock(timedelta(seconds=settings.clock_shift_s)) if settings.clock_shift_s else SystemClock()


async def _serve(settings: Settings) -> int:
    database = connect(settings.database_url.get_secret_value(), _clock(settings), settings, name="api")
    try:
        await database.check_revision()
        app = create_app(settings, database)
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
        await server.serve()
        return 0 if server.started else 1
    finally:
        await database.close()


def main() -> int:
    """Serve until stopped."""
    settings = Settings()
    logs.configure(settings, program="api")
    logging.getLogger("uvicorn.error").addFilter(_WithoutTraceback())
    try:
        return asyncio.run(_serve(settings))
    except (SchemaMismatch, RefundError, RuntimeError) as error:
        print(f"The API cannot start: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
