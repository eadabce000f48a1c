"""What every call needs, made once a process."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from api.erasure_list import ErasureList
from api.limits import Limits
from api.metrics import Metrics
from api.orchestrator import Orchestrator
from refunds.settings import Settings
from store.db import Database, Listener
from store.texts import Texts


@dataclass(frozen=True)
class Services:
    """The parts the calls work with. Nothing in here belongs to one call."""

    settings: Settings
    database: Database
    texts: Texts
    listener: Listener
    orchestrator: Orchestrator
    metrics: Metrics
    limits: Limits
    erasures: ErasureList | None = None
    simulating: asyncio.Lock = field(default_factory=asyncio.Lock)


def services_of(request: Request) -> Services:
    """The process's services."""
    return request.app.state.services


async def _services(request: Request) -> Services:
    # A coroutine: what is none, the framework would run in another thread, a trip there and back for every call.
    return services_of(request)


TheServices = Annotated[Services, Depends(_services)]
