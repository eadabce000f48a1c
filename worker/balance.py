"""Reading what refunds took from the balance, beside the ``payments`` role: nobody waits for it, and it waits for everybody else."""

import asyncio

from activities.figures import Figures
from refunds.errors import RefundError
from refunds.logs import logger
from refunds.settings import Settings

log = logger(__name__)


async def read_for_ever(figures: Figures, settings: Settings) -> None:
    """Read some at intervals. An outage is logged and tried again."""
    while True:
        await asyncio.sleep(settings.sweep_every_s)
        try:
            await figures.lately()
        except RefundError as error:
            log.warning("figures_interrupted", error=str(error)[:300])
