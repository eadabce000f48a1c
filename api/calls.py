"""One call: who makes it, by which key, and the transaction it works in.

A call is authenticated in the same transaction that does its work, so that a revoked key never finishes something, and the hot path makes one trip less.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import Headers

from api.bodies import read_body
from api.services import Services, services_of
from refunds.errors import Code, RefundError
from refunds.ids import Prefix, is_id
from refunds.people import Actor, Role
from store import principals, refusals
from store.changes import enter
from store.db import Connection
from store.orders import OwnershipMismatch

SEE_ALL = (Role.REVIEWER, Role.FRAUD, Role.SETTLER, Role.OPERATOR, Role.AUDITOR)
"""Roles that see every refund; a requester sees those of its own integration."""

READ_TEXT = (Role.REVIEWER, Role.AUDITOR)
"""Roles that read what customers, agents and colleagues wrote."""


_MAY_NOT = frozenset({Code.FORBIDDEN, Code.PERSON_REQUIRED, Code.ROLE_TOO_LOW, Code.SELF_APPROVAL, Code.RESUME_NEEDS_ANOTHER_PERSON})


class Call:
    """A call on its way: give it to an endpoint with ``TheCall``."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.services: Services = services_of(request)
        self._actor: Actor | None = None

    @property
    def actor(self) -> Actor:
        """Who calls. Known once :meth:`begin` was entered."""
        assert self._actor is not None
        return self._actor

    @property
    def sees(self) -> str | None:
        """The integration whose refunds are visible to the caller, or ``None`` for all."""
        return None if self.actor.has(*SEE_ALL) else self.actor.integration

    @property
    def withdraws(self) -> str | None:
        """The integration whose refunds the caller may withdraw, or ``None`` for all: a requester who is an operator too clears up what another one asked for."""
        return None if self.actor.has(Role.OPERATOR) else self.actor.integration

    @property
    def reads_text(self) -> bool:
        """Whether the caller may read what people wrote."""
        return self.actor.has(*READ_TEXT)

    async def body(self) -> bytes:
        """The body, bounded. Read it before :meth:`begin`: a slow sender must not hold a transaction open."""
        return await read_body(self.request, self.services.settings.api_max_body_bytes)

    @asynccontextmanager
    async def begin(self, *roles: Role) -> AsyncIterator[Connection]:
        """Open the call's transaction, for a key that holds one of the roles.

        Raises ``UNAUTHENTICATED``, ``RATE_LIMITED``, ``FORBIDDEN``, and ``STORE_UNAVAILABLE`` (nothing of the block is stored then).
        """
        limits, address = self.services.limits, self.request.client.host if self.request.client else ""
        unambiguous(self.request.headers)
        key = _bearer(self.request.headers)
        if key is None:
            limits.wrong(address)
            raise RefundError(Code.UNAUTHENTICATED)
        limits.before(key)
        with limits.at_once(key):
            async with self.services.database.begin() as connection:
                await self._authenticate(connection, key, address, roles)
                yield connection

    async def _authenticate(self, connection: Connection, key: str, address: str, roles: tuple[Role, ...]) -> None:
        limits = self.services.limits
        try:
            self._actor = await principals.authenticate(connection, key, self.services.database.clock.now())
        except RefundError:
            limits.wrong(address)
            raise
        limits.right(key)
        if not self.actor.has(*roles):
            names = " or ".join(role.value for role in roles)
            raise RefundError(Code.FORBIDDEN, f"This call needs a key with the role {names}.", roles=[role.value for role in roles])

    @asynccontextmanager
    async def auditing(self, what: str, refund_id: str) -> AsyncIterator[None]:
        """Enter a refusal of the block that an auditor will ask about in the refund's ledger, in a transaction of its own."""
        try:
            yield
        except RefundError as error:
            await self.note_refusal(what, refund_id, error)
            raise

    async def note_refusal(self, what: str, refund_id: str, error: RefundError) -> None:
        """Enter a refusal in the refund's ledger, in a transaction of its own, if it is one that an auditor will ask about."""
        if self._actor is None or error.code not in refusals.AUDITED:
            return
        database = self.services.database
        try:
            async with database.begin() as connection:
                await refusals.note_refusal(connection, database.clock, refund_id, self.actor, what, error, sees=self.sees)
        except RefundError as missing:
            if missing.code is not Code.REFUND_NOT_FOUND:
                raise

    @asynccontextmanager
    async def noting_refusal(self, type_: str) -> AsyncIterator[None]:
        """Enter in the ledger that the caller may not do what it asked, in a transaction of its own: for what belongs to no refund."""
        try:
            yield
        except RefundError as error:
            if self._actor is not None and error.code in _MAY_NOT:
                database = self.services.database
                async with database.begin() as connection:
                    scope = error.ids.get("scope")
                    await enter(connection, type_, database.clock.now(), actor=self._actor.principal_id, code=error.code.value, scope=scope)
            raise

    async def note_refusal_of_group(self, what: str, group_id: str, error: RefundError) -> None:
        """The same of a group as a whole, beside the ledgers of its refunds; of a group that does not exist there is nothing to enter."""
        if self._actor is None or error.code not in refusals.AUDITED or not is_id(group_id, Prefix.GROUP):
            return
        database = self.services.database
        async with database.begin() as connection:
            await refusals.note_refusal_of_group(connection, database.clock, group_id, self._actor, what, error)

    @asynccontextmanager
    async def noticing_mismatch(self) -> AsyncIterator[None]:
        """Enter in the ledger that somebody named what is not the customer's; the caller is only told that it is not there (field report 62)."""
        try:
            yield
        except OwnershipMismatch as error:
            database = self.services.database
            async with database.begin() as connection:
                await refusals.note_mismatch(connection, database.clock, self.actor, error.code)
            raise


async def _call(request: Request) -> Call:
    # A coroutine: what is none, the framework would run in another thread, a trip there and back for every call.
    return Call(request)


TheCall = Annotated[Call, Depends(_call)]


_ONCE = ("authorization", "idempotency-key", "content-type", "content-length", "transfer-encoding")


def unambiguous(headers: Headers, *more: str) -> None:
    """Raise ``AMBIGUOUS_HEADER`` for a header that stands twice, or two that contradict each other: a proxy may have believed the other one.

    ``more`` are headers, besides those of every call, that may stand once.
    """
    doubled = next((name for name in (*_ONCE, *more) if len(headers.getlist(name)) > 1), None)
    if doubled is None and "content-length" in headers and "transfer-encoding" in headers:
        doubled = "content-length"
    if doubled is not None:
        raise RefundError(Code.AMBIGUOUS_HEADER, field=doubled)


def _bearer(headers: Mapping[str, str]) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    key = key.strip()
    return key if scheme.lower() == "bearer" and key else None


def refund_id_in(path: str) -> str:
    """A refund's id from the address. Raises ``REFUND_NOT_FOUND`` for what cannot be one, so that nothing odd reaches the database."""
    if not is_id(path, Prefix.REFUND):
        raise RefundError(Code.REFUND_NOT_FOUND)
    return path


def idempotency_key(headers: Mapping[str, str]) -> str:
    """The caller's key for this refund. Raises ``IDEMPOTENCY_KEY_REQUIRED``."""
    key = headers.get("idempotency-key", "")
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise RefundError(Code.IDEMPOTENCY_KEY_REQUIRED, field="Idempotency-Key")
    return key
