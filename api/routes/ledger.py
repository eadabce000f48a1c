"""The ledger for whoever wants to see for themselves: entries, proofs, checkpoints."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api import ledger as shapes
from api import presenting
from api.bodies import parse
from api.calls import Call, TheCall, refund_id_in
from api.contract import errors, takes
from refunds.errors import Code, RefundError
from refunds.people import Role
from store import chain, checkpoints, views
from store.db import Connection

router = APIRouter(prefix="/v1", tags=["ledger"])
SEES_CHECKPOINTS = (Role.AUDITOR, Role.REVIEWER, Role.OPERATOR)
_ASK_EVERY_S = 0.1

Number = Annotated[int, Field(ge=1, le=2**53)]


class RecordQuery(BaseModel):
    """Whether the proofs are wanted as well."""

    model_config = ConfigDict(extra="forbid")

    proofs: bool = False


class EntriesQuery(BaseModel):
    """Which entries: those after a number, in their order."""

    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class ProofQuery(BaseModel):
    """Against which checkpoint: the newest, or the one that signs so many entries."""

    model_config = ConfigDict(extra="forbid")

    size: Number | None = None


class ConsistencyQuery(BaseModel):
    """Between which checkpoints, by how many entries they sign; the newer is the newest when it is left out."""

    model_config = ConfigDict(extra="forbid")

    older: Number
    newer: Number | None = None


@router.get(
    "/refunds/{refund_id}/ledger",
    summary="The record of a refund",
    responses={200: {"model": shapes.LedgerView}, **errors(Code.REFUND_NOT_FOUND, Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def record(refund_id: str, query: Annotated[RecordQuery, Query()], call: TheCall) -> Response:
    """Its ledger entries, in order: one for every change, with who did it. With `proofs=true` each with its proof, as `/v1/ledger/proofs` gives it."""
    async with call.begin(Role.AUDITOR, Role.REVIEWER) as connection:
        await views.check_visible(connection, refund_id_in(refund_id), integration=call.sees)
        entries = await chain.of_refund(connection, refund_id, proofs=query.proofs)
    return presenting.answer({"refund": refund_id, "entries": entries})


@router.get(
    "/ledger/checkpoint",
    summary="The newest signed checkpoint of the ledger",
    responses={200: {"model": shapes.CheckpointView}, **errors(Code.CHECKPOINT_NOT_FOUND)},
)
async def checkpoint(call: TheCall) -> Response:
    """With how far the chain has gone since, and where copies of checkpoints go. Keep it somewhere else: it fixes what had happened by then."""
    async with call.begin(*SEES_CHECKPOINTS) as connection:
        found = await chain.newest_checkpoint(connection)
        if found is None:
            raise RefundError(Code.CHECKPOINT_NOT_FOUND, "No checkpoint was made yet.")
        return presenting.answer(await _shown(call, connection, found))


@router.post(
    "/ledger/checkpoint",
    status_code=201,
    summary="Have a checkpoint made now",
    responses={
        201: {"model": shapes.CheckpointAsked, "description": "Made; it signs everything that was entered before."},
        202: {"model": shapes.CheckpointAsked, "description": "Asked for; the sequencer makes it as soon as it has come so far."},
        **errors(body=True),
    },
    openapi_extra=takes(shapes.NewCheckpoint),
)
async def ask_for_checkpoint(call: TheCall) -> Response:
    """Entered in the ledger; the checkpoint signs that entry and all before it. Answered as soon as it is there, or after a few seconds."""
    raw = await call.body()
    database = call.services.database
    async with call.begin(Role.AUDITOR, Role.OPERATOR) as connection:
        parse(shapes.NewCheckpoint, raw)
        asked = await checkpoints.request(connection, database.clock.now(), actor=call.actor.principal_id)
    until = time.monotonic() + call.services.settings.api_decision_wait_s
    while True:
        async with database.read() as connection:
            found = await checkpoints.covering(connection, asked)
            if found is not None:
                return presenting.answer({"checkpoint": await _shown(call, connection, found)}, 201)
        if time.monotonic() >= until:
            return presenting.answer({"checkpoint": None}, 202)
        await asyncio.sleep(_ASK_EVERY_S)


@router.get(
    "/ledger/entries",
    summary="Entries of the ledger, in order, a page at a time",
    responses={200: {"model": shapes.EntryPage}, **errors(Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def entries(query: Annotated[EntriesQuery, Query()], call: TheCall) -> Response:
    """Give `next_after` as `after` for the next page."""
    async with call.begin(Role.AUDITOR) as connection:
        size = (await chain.standing(connection)).size
        found = await chain.entries(connection, after=query.after, until=size, limit=query.limit)
    last = found[-1]["seq"] if found else query.after
    return presenting.answer(
        {"entries": [shapes.numbered(row) for row in found], "size": size, "next_after": last if found and last < size else None}
    )


@router.get(
    "/ledger/proofs/{seq}",
    summary="The proof of one entry, as a file to take away",
    responses={
        200: {"model": shapes.ProofFile},
        **errors(Code.LEDGER_ENTRY_NOT_FOUND, Code.CHECKPOINT_NOT_FOUND, Code.INVALID_FIELD, Code.UNKNOWN_FIELD),
    },
)
async def proof(seq: Number, query: Annotated[ProofQuery, Query()], call: TheCall) -> Response:
    """The entry, the hashes up to the root, and the checkpoint that signs it. It shows nothing of other entries, and so nothing of other customers."""
    async with call.begin(Role.AUDITOR, Role.REVIEWER) as connection:
        return presenting.answer(await chain.proof_of(connection, seq, query.size))


@router.get(
    "/ledger/consistency",
    summary="The proof that one checkpoint continues another",
    responses={200: {"model": shapes.ConsistencyFile}, **errors(Code.CHECKPOINT_NOT_FOUND, Code.INVALID_FIELD, Code.UNKNOWN_FIELD)},
)
async def consistency(query: Annotated[ConsistencyQuery, Query()], call: TheCall) -> Response:
    """Whoever kept the older one can tell by it that nothing which it signs was changed since."""
    async with call.begin(*SEES_CHECKPOINTS) as connection:
        return presenting.answer(await chain.consistency_between(connection, query.older, query.newer))


async def _shown(call: Call, connection: Connection, row: chain.Row) -> dict[str, object]:
    standing, copies = await chain.standing(connection), await chain.copies(connection)
    return shapes.checkpoint(row, standing, copies, call.services.database.clock.now())
