"""``python -m worker --role all|refunds|classify|payments|ledger``: runs until SIGTERM or Ctrl-C, then lets calls under way finish."""

import argparse
import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from datetime import timedelta

from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError

from refunds import points
from refunds.clock import Clock, ShiftedClock, SystemClock
from refunds.errors import RefundError
from refunds.logs import configure, logger
from refunds.memory import settle_down
from refunds.processor import ProcessorError
from refunds.settings import Settings
from store.db import SchemaMismatch
from store.snapshots import WrongAccount
from worker.balance import read_for_ever
from worker.inbox import Inbox
from worker.retaining import Retaining
from worker.roles import QUEUES, Parts, WorkerRole, make_workers
from worker.sweep import Sweep

log = logger("worker")
_RETRY_CONNECT_S = (0.2, 0.5, 1, 2, 5)


def clock_for(settings: Settings) -> Clock:
    """The clock this process uses: the machine's, or in tests a shifted one."""
    return ShiftedClock(timedelta(seconds=settings.clock_shift_s)) if settings.clock_shift_s else SystemClock()


async def connect_temporal() -> Client:
    """Connect by Temporal's standard environment configuration, strictly; retried, because a server that has just started is not healthy yet."""
    options = ClientConfig.load_client_connect_config(config_file_strict=True)
    for wait in _RETRY_CONNECT_S:
        try:
            return await Client.connect(**options)
        except (RPCError, RuntimeError) as error:
            log.warning("temporal_not_reached", error=str(error)[:200], again_in_s=wait)
            await asyncio.sleep(wait)
    return await Client.connect(**options)


def roles_of(chosen: str, settings: Settings) -> list[WorkerRole]:
    """The roles that a process is to host. ``all`` leaves out the ledger where no signing key is set: another process keeps it, or ``/readyz`` says how far
    it is behind."""
    if chosen != "all":
        return [WorkerRole(chosen)]
    return [role for role in WorkerRole if role is not WorkerRole.LEDGER or settings.refunds_ledger_key is not None]


async def serve(chosen: str) -> int:
    """Host the chosen roles until told to stop."""
    settings = Settings.load()
    roles = roles_of(chosen, settings)
    configure(settings, program="worker")
    points.arm(settings.crash_points)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        parts = Parts(settings, clock_for(settings), stack)
        client = await connect_temporal() if any(role in QUEUES for role in roles) else None
        for worker in await make_workers(client, parts, roles):
            await stack.enter_async_context(worker)
        if parts.ledger is not None:
            stack.push_async_callback(_cancel, asyncio.create_task(parts.ledger.run_for_ever()))
        if client is not None and parts.refunds is not None:
            sweeping = asyncio.create_task(Sweep(client, parts.refunds, settings).run_for_ever())
            stack.push_async_callback(_cancel, sweeping)
            retaining = asyncio.create_task(Retaining(parts.refunds, settings).run_for_ever())
            stack.push_async_callback(_cancel, retaining)
        if client is not None and parts.payments is not None:
            working = asyncio.create_task(Inbox(client, parts.payments, settings).run_for_ever())
            stack.push_async_callback(_cancel, working)
        if parts.figures is not None:
            reading = asyncio.create_task(read_for_ever(parts.figures, settings))
            stack.push_async_callback(_cancel, reading)
        if parts.keeper is not None:
            keeping = asyncio.create_task(parts.keeper.run_for_ever())
            stack.push_async_callback(_cancel, keeping)
        settle_down()
        log.info("worker_ready", roles=[role.value for role in roles])
        await stop.wait()
        log.info("worker_stopping")
    await asyncio.sleep(0.2)  # the SDK's core must finish closing its last client before the interpreter goes (sdk-python#300)
    return 0


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def main() -> int:
    """Parse the role and serve; a start that cannot succeed says why in one line."""
    parser = argparse.ArgumentParser(prog="worker", description="Hosts refund workflows and activities.")
    parser.add_argument("--role", choices=["all", *WorkerRole], default="all")
    chosen = parser.parse_args().role
    try:
        return asyncio.run(serve(chosen))
    except (SchemaMismatch, WrongAccount, RefundError, ProcessorError, RuntimeError) as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
