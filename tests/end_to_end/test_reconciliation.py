"""No event ever arrives: the reconciliation alone makes the record true again, and says over the API what it found. A stack of its own, for exact figures."""

import csv
import io
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from refunds.clock import SystemClock, rfc3339
from tests.end_to_end.whole import Whole, eventually, only, staffed

RUNS = "/v1/reconciliation/runs"


@pytest.fixture(scope="module")
async def deaf() -> AsyncIterator[Whole]:
    """A running product that hears of nothing by itself."""
    async with staffed() as whole:
        await whole.control("POST", "/faults", {"on": "webhook", "times": None, "fault": {"kind": "drop"}})
        yield whole


async def reconciled(whole: Whole) -> dict[str, Any]:
    """A run that an operator asks for, once it is done."""
    since = rfc3339(SystemClock().now() - timedelta(days=1))
    begun = await whole.call("olga", "POST", RUNS, {"since": since})
    assert begun.status_code == 202, begun.text

    async def look() -> dict[str, Any]:
        return (await whole.call("anna", "GET", begun.headers["location"])).json()

    return await eventually(look, lambda run: run["finished_at"] is not None)


async def test_what_happened_unheard_is_recorded_and_said_to_people(deaf: Whole) -> None:
    whole = deaf
    goods, other = await whole.goods(4_000), await whole.goods(5_000)
    refund = await whole.asked_for(goods)
    await whole.until(refund, "succeeded")
    [made] = (await whole.truth(goods.intent)).refunds
    await whole.control("POST", f"/refunds/{made['id']}", {"status": "failed", "failure_reason": "lost_or_stolen_card"})
    dashboard = await whole.control("POST", "/refunds", {"payment_intent": other.intent, "amount": 2_000})

    run = await reconciled(whole)

    assert (run["phase"], run["compared"], run["elsewhere"], run["differences"], run["imported"]) == ("done", 2, 0, 2, 1)
    assert (await whole.view(refund))["status"] == "failed"
    assert len((await whole.truth(goods.intent)).creates) == 1, "nothing was sent again"
    listed = (await whole.call("anna", "GET", "/v1/reconciliation")).json()
    [discrepancy] = listed["discrepancies"]
    assert (discrepancy["kind"], discrepancy["state"], discrepancy["payment_id"]) == ("external", "explained", other.intent)
    assert (discrepancy["processor_refund_id"], discrepancy["reconciliation_id"]) == (dashboard["id"], run["id"])
    assert listed["runs"][0] == run
    table = await whole.call("anna", "GET", "/v1/reconciliation", Accept="text/csv")
    [row] = csv.DictReader(io.StringIO(table.text, newline=""))
    assert (row["kind"], row["their_amount"], row["their_currency"]) == ("external", "2000", "USD")
    again = await reconciled(whole)
    assert (again["compared"], again["differences"], again["imported"]) == (2, 0, 0)


async def test_a_halt_after_a_restore_is_lifted_by_hand_and_only_after_a_full_reconciliation(deaf: Whole) -> None:
    whole = deaf
    lift = {"scope": "processor:stripe", "state": "running", "reason": "compared"}
    await whole.control("POST", "/faults", {"on": "refund.list", "times": 3, "fault": {"kind": "lose_request"}})
    said = await whole.call("olga", "POST", "/v1/reconciliation/restored", {"reason": "restored to yesterday 18:00"})
    assert said.status_code == 202, said.text
    only(await whole.call("olga", "PUT", "/v1/controls", lift), 409, "RECONCILIATION_REQUIRED")
    goods = await whole.goods()
    refund = await whole.asked_for(goods)
    await whole.until(refund, "held")

    async def run() -> dict[str, Any]:
        return (await whole.call("anna", "GET", said.headers["location"])).json()

    await eventually(run, lambda shown: shown["finished_at"] is not None)
    lifted = await whole.call("olga", "PUT", "/v1/controls", lift)
    assert lifted.status_code == 200, lifted.text
    await whole.until(refund, "succeeded")
    assert len((await whole.truth(goods.intent)).creates) == 1
