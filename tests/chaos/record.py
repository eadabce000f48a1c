"""The chained ledger after a storm: the auditor's own program says that it holds, whoever was killed over it."""

import asyncio
from datetime import timedelta

import psycopg

from refunds.clock import SystemClock
from refunds.ledger import verifier
from refunds.ledger.verifier import Wrong
from store.verify import keys_in
from store.verifying import Verification
from tests.chaos.stand import Stand
from tests.chaos.truth import Violation

BEHIND = timedelta(minutes=3)
"""How long a row may wait for its number: one that was passed over is found by the next look at everything (``LEDGER_EVERYWHERE_S``)."""


async def unverified(stand: Stand) -> list[Violation]:
    """What the verification of the whole ledger against the database names, if anything."""
    try:
        await asyncio.to_thread(_verify, stand)
    except Wrong as wrong:
        return [Violation("ledger_unverified", f"entry {wrong.seq}" if wrong.seq else "the ledger", f"{wrong.kind}: {wrong}")]
    return []


def _verify(stand: Stand) -> None:
    server = stand.stack.context.postgres
    assert server is not None
    with psycopg.connect(server.url("refunds_auditor").replace("postgresql+psycopg://", "postgresql://"), autocommit=True) as connection:
        keys = [verifier.read_key(key) for key in keys_in(connection)]
        Verification(connection, keys, verifier.Kept([]), SystemClock().now(), BEHIND).run(lambda done, total: None)
