"""The policy: its versions, new ones, and what another one would have made of past requests."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from api import policies as views
from api import presenting, simulations
from api.bodies import parse
from api.calls import TheCall
from api.contract import errors, streams, takes
from api.problems import InvalidBody
from refunds.errors import Code, RefundError
from refunds.orders import Instant
from refunds.people import Role
from refunds.policy import PolicyError
from refunds.policy.probing import ready_to_publish
from store import policies, rates
from store.db import Connection
from store.simulating import Period, extent

router = APIRouter(prefix="/v1/policy", tags=["policy"])
READS = (Role.OPERATOR, Role.AUDITOR, Role.REVIEWER)


class PolicyQuery(BaseModel):
    """When: the version that was, is or will be in force then; now, when left out."""

    model_config = ConfigDict(extra="forbid")

    at: Instant | None = None


class VersionsQuery(BaseModel):
    """Which page of the versions."""

    model_config = ConfigDict(extra="forbid")

    before: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@router.get(
    "",
    summary="The policy in force, now or at a date",
    responses={200: {"model": views.PolicyView}, **errors(Code.NOT_FOUND, Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def show(query: Annotated[PolicyQuery, Query()], call: TheCall) -> Response:
    """Its source, version, hash, author, note and since when it holds."""
    async with call.begin(*READS) as connection:
        now = call.services.database.clock.now()
        row = await policies.version_in_force(connection, query.at or now)
        current = await policies.in_force(connection, now)
    return presenting.answer(views.shown(row, in_force=current.version, now=now))


@router.get(
    "/versions",
    summary="Every version there is",
    responses={200: {"model": views.PolicyVersions}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def versions(query: Annotated[VersionsQuery, Query()], call: TheCall) -> Response:
    """The last published first, without their texts."""
    async with call.begin(*READS) as connection:
        now = call.services.database.clock.now()
        current = await policies.in_force(connection, now)
        rows = await policies.versions(connection, before=query.before, limit=query.limit + 1)
    page, more = rows[: query.limit], len(rows) > query.limit
    return presenting.answer(
        {
            "in_force": current.version,
            "versions": [views.shown(row, in_force=current.version, now=now) for row in page],
            "next_before": page[-1]["version"] if more else None,
        }
    )


@router.get(
    "/versions/{version}",
    summary="One version with its text",
    responses={200: {"model": views.PolicyView}, **errors(Code.NOT_FOUND)},
)
async def version(version: str, call: TheCall) -> Response:
    """As it was published, comments and all, and the hash that refunds judged by it carry."""
    async with call.begin(*READS) as connection:
        now = call.services.database.clock.now()
        row = await policies.version_of(connection, _number(version))
        current = await policies.in_force(connection, now)
    return presenting.answer(views.shown(row, in_force=current.version, now=now))


@router.post(
    "/versions",
    status_code=201,
    summary="Publish a version",
    responses={
        200: {
            "model": views.PolicyPublished,
            "description": "The version that would be in force then has this content; nothing was published.",
        },
        201: {"model": views.PolicyPublished, "description": "Published."},
        **errors(Code.POLICY_DATE_TAKEN, body=True),
    },
    openapi_extra=takes(views.NewVersion),
)
async def publish(call: TheCall) -> Response:
    """Checked whole before it is stored. Refunds that were quoted keep the version they were quoted under, orders the return rules they were placed under.

    Safe to repeat: a version with the content that would be in force then anyway is not published again.
    """
    raw = await call.body()
    clock = call.services.database.clock
    async with call.noting_refusal("policy_refused"), call.begin(Role.OPERATOR) as connection:
        new = parse(views.NewVersion, raw)
        await _check(connection, new, clock.now())
        published = await policies.publish(
            connection,
            clock,
            source=new.source,
            effective_from=new.effective_from,
            author_id=call.actor.principal_id,
            note=new.note,
        )
        now = clock.now()
        current = await policies.in_force(connection, now)
    view = views.shown(published.row, in_force=current.version, now=now)
    return presenting.answer(view | {"published": published.new}, 201 if published.new else 200)


async def _check(connection: Connection, new: views.NewVersion, now: Instant) -> None:
    """Raise :class:`api.problems.InvalidBody` for a text that is no policy, or that names a currency nobody can count."""
    try:
        # On the side: a large file takes a second to read, and a stop does not wait for it.
        policy = await asyncio.to_thread(ready_to_publish, new.source, new.effective_from or now)
    except PolicyError as error:
        raise InvalidBody(views.problems(error)) from None
    if policy.base is None:
        return
    instead_of = (await policies.in_force(connection, max(now, new.effective_from or now))).policy
    rated = await rates.held(connection, policy.base, now)
    if found := views.without_a_rate(policy, new.source, instead_of=instead_of, rated=rated):
        raise InvalidBody(found)


@router.post(
    "/simulations",
    summary="Try a policy on past requests",
    responses={
        200: {"description": "A stream of JSON lines.", **streams(simulations.SimulationLine, simulations.MEDIA_TYPE)},
        **errors(Code.NOT_FOUND, Code.SIMULATION_RUNNING, body=True),
    },
    openapi_extra=takes(views.NewSimulation),
    response_class=StreamingResponse,
)
async def simulate(call: TheCall) -> Response:
    """Each request of the time is judged under both versions on the facts that were recorded when it came. It writes nothing, not even that it ran.

    Every line is a JSON object; the last one is the `result`, or the `error` that it ended with.
    """
    raw = await call.body()
    database, running = call.services.database, call.services.simulating
    async with call.begin(Role.OPERATOR) as connection:
        wanted = parse(views.NewSimulation, raw)
        now = database.clock.now()
        period = Period(wanted.since, min(wanted.until or now, now))
        contest = await _contest(connection, wanted, now)
        found = await extent(connection, period)
    if running.locked():
        raise RefundError(Code.SIMULATION_RUNNING)

    async def stream() -> AsyncIterator[bytes]:
        if running.locked():
            yield simulations.refused(RefundError(Code.SIMULATION_RUNNING))
            return
        async with running:
            async for line in simulations.lines(database, contest, period, found):
                yield line

    return StreamingResponse(stream(), media_type=simulations.MEDIA_TYPE, headers={"Cache-Control": "no-store"})


async def _contest(connection: Connection, wanted: views.NewSimulation, now: Instant) -> simulations.Contest:
    if wanted.against is None:
        before = await policies.version_in_force(connection, now)
    else:
        before = await policies.version_of(connection, wanted.against)
    if wanted.source is None:
        assert wanted.version is not None  # one of the two is given
        after = await policies.version_of(connection, wanted.version)
        return simulations.Contest(_named(before), before["source"], _named(after), after["source"])
    try:
        name = (await asyncio.to_thread(ready_to_publish, wanted.source)).name
    except PolicyError as error:
        raise InvalidBody(views.problems(error)) from None
    return simulations.Contest(_named(before), before["source"], {"version": None, "name": name}, wanted.source)


def _named(row: Any) -> dict[str, Any]:
    return {"version": row["version"], "hash": row["hash"]}


def _number(path: str) -> int:
    """A version's number from the address. Raises ``NOT_FOUND`` for what cannot be one."""
    if not (path.isascii() and path.isdigit() and 0 < len(path) < 10):
        raise RefundError(Code.NOT_FOUND, "A policy version is named by its number; list them all: GET /v1/policy/versions.")
    return int(path)
