"""Refusing what is never paid in the merchant's own words."""

from typing import TypeVar

from pydantic import BaseModel

from api.bodies import parse
from refunds.clock import Clock
from refunds.errors import Code, RefundError
from store import policies
from store.db import Connection

Model = TypeVar("Model", bound=BaseModel)


async def parse_asked(connection: Connection, clock: Clock, model: type[Model], raw: bytes) -> Model:
    """Read what is asked for, as :func:`api.bodies.parse` does. A refusal with ``OUT_OF_SCOPE`` quotes what the policy in force says of it."""
    try:
        return parse(model, raw)
    except RefundError as error:
        if error.code is not Code.OUT_OF_SCOPE or "asked" not in error.ids:
            raise
        policy = (await policies.in_force(connection, clock.now())).policy
        words = getattr(policy.out_of_scope, error.ids["asked"])
        raise RefundError(error.code, f"{error.detail} {words}", field=error.field, **error.ids) from None
