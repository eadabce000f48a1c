"""What an operator sees in Temporal: runs to find by search attributes, and in words what each waits for, since when, until when, and where to read on."""

from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowExecutionStatus

from refunds.messages import Situation
from tests.end_to_end.whole import Whole, eventually


async def found(whole: Whole, query: str) -> list[str]:
    client = await whole.temporal()
    return [run.id async for run in client.list_workflows(query)]


async def attributes(whole: Whole, refund: str) -> dict[str, Any]:
    client = await whole.temporal()
    shown = await client.get_workflow_handle(f"refund-{refund}").describe()
    return {pair.key.name: pair.value for pair in shown.typed_search_attributes if pair.key.name.startswith("Refund")}


async def details(whole: Whole, refund: str) -> str:
    client = await whole.temporal()
    shown = await client.get_workflow_handle(f"refund-{refund}").query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return shown.current_details


async def test_a_refund_in_review_is_found_and_says_what_it_waits_for(whole: Whole) -> None:
    _, refund = await whole.in_review(20_000)
    view = await whole.view(refund)

    run = await eventually(lambda: attributes(whole, refund), lambda seen: seen.get("RefundStatus") == "awaiting_review")

    assert {name: value for name, value in run.items() if name not in ("RefundReviewBy", "RefundOrder", "RefundPayment")} == {
        **{"RefundStatus": "awaiting_review", "RefundTier": "3", "RefundQueue": "team", "RefundCurrency": "USD", "RefundAmount": 20_000}
    }
    assert run["RefundReviewBy"].isoformat()[:19] == view["deadlines"]["review_by"][:19]
    assert (run["RefundOrder"], run["RefundPayment"]) == (view["terms"]["order"], view["terms"]["payment"])
    for query in (
        f"RefundStatus = 'awaiting_review' AND RefundQueue = 'team' AND RefundPayment = '{run['RefundPayment']}'",
        f"RefundAmount >= 20000 AND RefundCurrency = 'USD' AND RefundTier = '3' AND RefundOrder = '{run['RefundOrder']}'",
    ):
        assert await eventually(lambda query=query: found(whole, query), lambda ids: ids == [f"refund-{refund}"])
    words = await details(whole, refund)
    assert words.startswith("**awaiting_review**\n\nWaits for a decision on $200.00 in queue team until ")
    assert "Since " in words
    assert "Until " in words
    assert "docs/runbooks/review.md" in words
    client = await whole.temporal()
    handle = client.get_workflow_handle(f"refund-{refund}")
    assert await (await handle.describe()).static_summary() == "Refund of $200.00"
    situation = await handle.query("view", result_type=Situation)
    assert (situation.status, situation.terms_hash, situation.amount) == ("awaiting_review", view["terms_hash"], 20_000)
    assert view["run"] == {
        "workflow_id": f"refund-{refund}",
        "url": f"{whole.stack.addresses['ui']}/namespaces/default/workflows/refund-{refund}",
    }
    await whole.decide("rita", refund, "deny")
    await whole.assert_run_completed(refund)
    last = await attributes(whole, refund)
    assert (last["RefundStatus"], last.get("RefundQueue"), last.get("RefundReviewBy")) == ("denied", None, None)


async def test_a_parked_refund_is_found_with_its_runbook(whole: Whole) -> None:
    goods = await whole.goods(4_700)
    await whole.disturb(goods.intent, "lose_request", times=None)
    refund = await whole.asked_for(goods)
    await whole.until(refund, "parked")

    run = await eventually(lambda: attributes(whole, refund), lambda seen: seen.get("RefundStatus") == "parked")

    assert run["RefundQueue"] == "settle"
    words = await details(whole, refund)
    assert words.startswith("**parked** (OUTCOME_UNKNOWN)\n\nWaits for a person to settle $47.00")
    assert "docs/runbooks/parked.md" in words


async def test_what_is_said_while_the_run_is_gone_counts_once_there_is_one_again(whole: Whole) -> None:
    goods = await whole.goods(4_800)
    await whole.disturb(goods.intent, "lose_answer", "hide", times=None)
    refund = await whole.asked_for(goods)
    await whole.until(refund, "parked")
    client = await whole.temporal()
    await client.get_workflow_handle(f"refund-{refund}").terminate("by mistake")
    [made] = (await whole.truth(goods.intent)).refunds

    said = {"outcome": "refunded", "processor_refund_id": made["id"], "evidence": "in the dashboard"}
    answer = await whole.act("sven", refund, "settlement", said)

    assert answer.status_code in (200, 202), answer.text
    await whole.until(refund, "succeeded")
    assert (await whole.truth(goods.intent)).amounts == [4_800]


async def test_access_to_temporal_alone_approves_nothing(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    client = await whole.temporal()
    handle = client.get_workflow_handle(f"refund-{refund}")

    await handle.signal("approve", {"id": "dec_00000000000000000000000000"})
    await handle.signal("approve", "yes")
    await handle.signal("settle", {"id": "ins_00000000000000000000000000"})

    refused = await eventually(lambda: refusals(whole, refund), lambda entries: len(entries) == 3)
    assert [entry["data"]["code"] for entry in refused] == ["MESSAGE_UNBACKED", "MESSAGE_MALFORMED", "MESSAGE_UNBACKED"]
    assert (await whole.view(refund))["status"] == "awaiting_review"
    assert (await whole.truth(goods.intent)).creates == []


async def refusals(whole: Whole, refund: str) -> list[dict[str, Any]]:
    return [entry for entry in await whole.ledger(refund) if entry["type"] == "message_refused"]


async def test_a_run_that_an_operator_terminates_is_started_again_and_goes_on(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)
    client = await whole.temporal()

    await client.get_workflow_handle(f"refund-{refund}").terminate("by mistake")
    assert (await whole.decide("rita", refund)).status_code == 200

    view = await whole.until(refund, "succeeded")
    truth = await whole.truth(goods.intent)
    assert (len(truth.creates), truth.amounts, view["code"]) == (1, [20_000], None)

    async def runs() -> list[WorkflowExecutionStatus | None]:
        return [run.status async for run in client.list_workflows(f"WorkflowId = 'refund-{refund}'")]

    ended = {WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.COMPLETED}
    assert await eventually(runs, lambda seen: len(seen) == 2 and set(seen) == ended)
