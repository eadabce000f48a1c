"""Simulations as they are streamed: JSON lines, of which the last says how it ended.

Judging is done by processes of their own, reading in short transactions that can write nothing; the caller going away ends both.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.schemas import Shape
from refunds.clock import rfc3339
from refunds.errors import CATALOGUE, Code, RefundError
from refunds.policy.judges import BATCH, JudgeFailed, batch_of, judged
from refunds.policy.simulation import Tally
from store.db import Database
from store.simulating import Extent, Period, page, reading_only

MEDIA_TYPE = "application/x-ndjson"


class SimulationLine(Shape):
    """One line of the stream. ``progress`` comes again and again, ``changed`` once for each request that would have gone otherwise, and one ``result`` or
    ``error`` is the last line: a stream without either broke off.
    """

    type: Literal["progress", "changed", "result", "error"]
    done: int | None = None
    total: int | None = None
    changed: Annotated[dict[str, Any] | None, Field(description="The request, and how it would have gone before and after.")] = None
    result: Annotated[dict[str, Any] | None, Field(description="The sums; docs/policy.md names each.")] = None
    code: Code | None = None
    detail: str | None = None
    at: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Two policies, each with words for it and its text: a published version, or a file."""

    before: dict[str, Any]
    before_source: str
    after: dict[str, Any]
    after_source: str


async def lines(database: Database, contest: Contest, period: Period, extent: Extent) -> AsyncIterator[bytes]:
    """The whole stream. Never raises once it has begun: what goes wrong is its last line."""
    tally = Tally()
    for why, requests in ((_NEVER_JUDGED, extent.never_judged), (_DENIED_OTHERWISE, extent.denied_otherwise)):
        if requests:
            tally.leave_out(why, "", requests)
    apart = sum(left["requests"] for left in tally.left_out.values())
    yield _line({"type": "progress", "done": 0, "total": extent.requests})
    try:
        async with aclosing(judged(contest.before_source, contest.after_source, _batches(database, period))) as results:
            async for result in results:
                tally.merge(result["tally"])
                for changed in result["changed"]:
                    yield _line({"type": "changed", "changed": changed})
                done = tally.requests + sum(left["requests"] for left in tally.left_out.values()) - apart
                yield _line({"type": "progress", "done": done, "total": extent.requests})
    except RefundError as error:
        yield refused(error)
        return
    except JudgeFailed:
        yield _line({"type": "error", "code": Code.INTERNAL.value, "detail": CATALOGUE[Code.INTERNAL].remedy})
        return
    yield _line({"type": "result", "result": _result(contest, period, extent, tally), "at": rfc3339(database.clock.now())})


def refused(error: RefundError) -> bytes:
    """The last line of a simulation that cannot be made, or not to its end."""
    return _line({"type": "error", "code": error.code.value, "detail": f"{error.detail} {error.meaning.remedy}"})


_NEVER_JUDGED = "never judged: nobody could tell the payment, or it is still being read"
_DENIED_OTHERWISE = "denied for what no policy says, such as lines of which nothing is left or a payment that is not there"


def _result(contest: Contest, period: Period, extent: Extent, tally: Tally) -> dict[str, Any]:
    since = None if period.since is None else rfc3339(period.since)
    return {
        "before": contest.before,
        "after": contest.after,
        "since": since,
        "until": rfc3339(period.until),
        "parts_of_groups": extent.parts,
        **tally.summary(),
    }


async def _batches(database: Database, period: Period) -> AsyncGenerator[str]:
    after = ""
    while True:
        async with reading_only(database) as connection:
            requests = await page(connection, period, after=after, limit=BATCH)
        if not requests:
            return
        yield batch_of(requests)
        after = requests[-1][0]


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
