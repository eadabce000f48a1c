"""A key that the processor does not accept says nothing about any refund, and everything about us: it halts submitting, whoever meets it first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from activities.processors.error_map import KEY_REFUSED, OTHER_WORLD, PERMISSION
from refunds.errors import Code
from refunds.processor import ProcessorError


class Halts(Protocol):
    """Whatever part of the store can halt the processor."""

    async def halt(self, code: Code, reason: str) -> None:
        """Halt submitting until an operator lifts it; nothing more if it is halted already."""
        ...


CANNOT_LOOK_UP = "cannot_look_up"
"""The reason of an unknown outcome that could not even be looked up; its detail is the reason of that."""

HALTING = {KEY_REFUSED: Code.KEY_REFUSED, PERMISSION: Code.KEY_NOT_PERMITTED, OTHER_WORLD: Code.ANSWER_OF_OTHER_MODE}
"""Reasons of the error map that say something about our key, and the code of the halt for each."""


async def halt_for(store: Halts, error: ProcessorError) -> Code | None:
    """Halt submitting if an error is about our key; returns the halt's code, or ``None`` when it is about something else."""
    reason = error.detail if error.reason == CANNOT_LOOK_UP else error.reason
    code = HALTING.get(reason)
    if code is not None:
        await store.halt(code, f"the processor answered {reason}: {error.code or 'no code'}")
    return code


@asynccontextmanager
async def halting_without_key(store: Halts) -> AsyncIterator[None]:
    """Halt submitting when what the block asks is refused for our key; the error goes on."""
    try:
        yield
    except ProcessorError as error:
        await halt_for(store, error)
        raise
