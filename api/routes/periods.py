"""The export of a period: all records of it as files, with a manifest that the ledger stands behind."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from api.bodies import parse
from api.calls import Call, TheCall
from api.contract import errors, streams, takes
from api.shapes import Shape
from refunds import period
from refunds.errors import Code, RefundError
from refunds.orders import Instant, Strict
from refunds.people import Role
from store import periods

router = APIRouter(prefix="/v1/ledger", tags=["ledger"])

_TOGETHER = 200
"""So many records go out in one piece."""


class PeriodRequest(Strict):
    """Which period: from (which belongs to it) to (which does not)."""

    from_: Annotated[Instant, Field(alias="from")]
    to: Instant


class PeriodLine(Shape):
    """One line of the answer: a piece of a file's text, or, as the last one, the manifest and its entry. Whatever ends otherwise was cut off."""

    file: str | None = None
    text: str | None = None
    manifest: dict[str, Any] | None = None
    entry: int | None = None


@router.post(
    "/periods",
    summary="Export a period, as files with a manifest",
    responses={200: streams(PeriodLine, "application/x-ndjson"), **errors(Code.INVALID_FIELD, body=True)},
    openapi_extra=takes(PeriodRequest),
)
async def export(call: TheCall) -> Response:
    """Refunds, decisions, operations, attempts, settlements and ledger entries that began in the period, each kind as JSON Lines and as CSV, as of one moment. The
    manifest holds each file's SHA-256; its own SHA-256 is entered in the ledger in the same transaction, so that the entry's proof (`/v1/ledger/proofs/{seq}`)
    signs all of it. The answer is JSON Lines: pieces of the files, and at the end the manifest and the entry's id. Nothing personal is in it."""
    raw = await call.body()
    async with call.begin(Role.AUDITOR):
        asked = parse(PeriodRequest, raw)
    if asked.from_ >= asked.to:
        raise RefundError(Code.INVALID_FIELD, "The period must end after it begins.", field="to")
    if asked.to > call.services.database.clock.now():
        raise RefundError(Code.INVALID_FIELD, "The period must be over.", field="to")
    return StreamingResponse(_written(call, asked.from_, asked.to), media_type="application/x-ndjson")


async def _written(call: Call, from_: datetime, to: datetime) -> AsyncIterator[str]:
    database, actor, files = call.services.database, call.actor.principal_id, dict[str, dict[str, Any]]()
    async with database.begin() as connection:
        await periods.as_of_one_moment(connection)
        for kind, columns in period.COLUMNS.items():
            lines, table = period.File(f"{kind}.jsonl"), period.File(f"{kind}.csv")
            waiting = [table.add(period.csv_line(list(columns)), record=False)]
            async for record in periods.records(connection, kind, from_, to):
                waiting += (lines.add(period.json_line(record)), table.add(period.csv_line(list(record.values()))))
                if len(waiting) >= _TOGETHER:
                    yield _joined(waiting)
                    waiting = []
            yield _joined(waiting) + _line({"file": lines.name, "text": ""})
            files |= {one.name: one.said() for one in (lines, table)}
        at = database.clock.now()
        manifest = period.manifest(from_, to, at, actor, files)
        records = sum(file["records"] for name, file in files.items() if name.endswith(".jsonl"))
        entry = await periods.note_exported(
            connection, at, actor=actor, from_=from_, to=to, manifest=period.manifest_hash(manifest), records=records
        )
    yield _line({"manifest": manifest, "entry": entry})


def _joined(pieces: list[dict[str, str]]) -> str:
    return "".join(_line(piece) for piece in pieces)


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
