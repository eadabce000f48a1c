"""The audit view of a refund: the whole chain behind it, and nothing for those who may not see it."""

import hashlib
from typing import Any

import rfc8785

from refunds.classification import Classification, Intent, Reading, Source
from refunds.people import PrincipalKind, Role
from refunds.processor import DisputeState, PaymentState, PaymentStatus, ProcessorRefund, RefundState
from refunds.reasons import Reason
from store.classifying import Classifying
from store.db import connect
from store.operations import Payments
from store.progress import Steps
from store.snapshots import save
from tests.api.conftest import Api, Caller

READING = Classification(
    reading=Reading(intent=Intent.REFUND, reason=Reason.PRODUCT_ISSUE, confidence=91, rationale="says broken"),
    source=Source.MODEL,
    classifier="model",
    model="openai:reader",
    version="reader-2026",
    prompt_hash="ab" * 32,
    provider="openai",
    region="eu",
    sent=["message"],
    input_tokens=900,
    output_tokens=50,
    duration_ms=800,
    cost_micros=325,
    cost_currency="USD",
)


async def auditor(api: Api) -> Caller:
    return await api.caller("audrey", Role.AUDITOR)


async def audited(api: Api, refund: str) -> dict[str, Any]:
    answer = await api.call("GET", f"/v1/refunds/{refund}/audit", await auditor(api))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def asked_by_an_agent(api: Api) -> str:
    """A refund that an agent asked for and a model read, which waits for a reviewer."""
    agent = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT, integration="front")
    body = api.asked(
        await api.order(),
        message="It came broken",
        agent_session_id="session-7",
        agent_model="agents-own-model",
        agent_reasoning="The photo shows a crack.",
        conversation_context="Customer: it is broken",
    )
    refund = (await api.ask(body, caller=agent)).json()["id"]
    pool = connect(api.fresh.url("refunds_classify"), api.clock, api.settings, name="test")
    try:
        await Classifying(pool, api.app.state.services.texts).save(refund, READING)
    finally:
        await pool.close()
    await api.quote(refund)
    return refund


async def paid(api: Api) -> str:
    """One that two people looked at, a reviewer by revising it, and that the processor then made."""
    refund = await asked_by_an_agent(api)
    seen = (await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())).json()
    revision = {"amount": 15_000, "currency": "USD", "terms_hash": seen["terms_hash"], "note": "half of it"}
    revised = await api.call("POST", f"/v1/refunds/{refund}/revisions", await api.reviewer("ravi"), revision)
    [instruction] = [one["id"] for one in (await audited(api, refund))["instructions"]]
    assert revised.status_code == 202, revised.text
    await api.revise(refund, instruction)
    new = (await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())).json()
    front = await api.caller("front", Role.REQUESTER, kind=PrincipalKind.SERVICE, integration="front")
    consent = await api.call("POST", f"/v1/refunds/{refund}/consent", front, {"terms_hash": new["terms_hash"], "agreed": True})
    assert consent.status_code == 200, consent.text
    decision = {"verdict": "approve", "terms_hash": new["terms_hash"], "note": "looked at the photo"}
    answer = await api.call("POST", f"/v1/refunds/{refund}/decisions", await api.reviewer(), decision)
    assert answer.status_code in (200, 202), answer.text
    return refund


async def made_by_the_processor(api: Api, refund: str) -> None:
    """Play the payments role up to the processor's answer."""
    payments = Payments(api.payments, api.settings, "test-worker")
    seen = await payments.standing(refund)
    [row] = await api.rows("SELECT payment_id FROM refunds WHERE id = :id", id=refund)
    state = PaymentState(
        processor_payment=seen.processor_payment,
        status=PaymentStatus.CAPTURED,
        currency="USD",
        captured=30_000,
        capturable=0,
        refunds=(),
        dispute=DisputeState.NONE,
        risk_level="normal",
        read_at=api.clock.now(),
    )
    async with api.payments.begin() as connection:
        await save(connection, row["payment_id"], state, now=state.read_at)
    opened = await payments.open_attempt(seen, state)
    assert isinstance(opened, tuple), opened
    operation, attempt = opened
    made = ProcessorRefund("re_1", seen.processor_payment, 15_000, "USD", RefundState.SUCCEEDED, "succeeded", operation.id)
    await payments.receipt(operation, made, attempt=attempt)


async def test_the_whole_chain_is_there(api: Api) -> None:
    refund = await paid(api)
    await made_by_the_processor(api, refund)

    view = await audited(api, refund)

    assert (view["refund"], view["status"], view["readable"]) == (refund, "succeeded", True)
    assert view["asked"]["agent"] == {
        "id": "bot",
        "session": "session-7",
        "model": "agents-own-model",
        "reasoning": "The photo shows a crack.",
        "conversation": "Customer: it is broken",
    }
    assert view["asked"]["message"] == "It came broken"
    assert view["asked"]["sources"]["amount"] == "agent"
    reading = view["reading"]
    assert reading | {"recorded_at": ""} == READING.model_dump(mode="json", exclude={"reading"}) | {
        "answer": READING.model_dump(mode="json")["reading"],
        "recorded_at": "",
    }
    first, second = view["revisions"]
    for one in (first, second):
        assert hashlib.sha256(rfc8785.dumps(one["terms"])).hexdigest() == one["terms_hash"]
        assert one["policy"]["checks"]
        assert (one["policy"]["version"], len(one["policy"]["hash"])) == (1, 64)
    assert (first["amount"], second["amount"], second["author"]["handle"]) == (20_000, 15_000, "ravi")
    assert (first["sources"]["amount"], second["sources"]["amount"], second["sources"]["reason"]) == ("agent", "person", "agent")
    approved = [(d["kind"], d["recorded_by"]["handle"], d["role"], d["revision"]) for d in view["decisions"] if d["kind"] == "review"]
    assert approved == [("review", "rita", "reviewer", 2)]
    [operation] = view["processor"]["operations"]
    assert operation["request"]["amount"] == 15_000
    assert operation["idempotency_key"]
    assert operation["terms_hash"] == second["terms_hash"]
    assert {d["id"] for d in view["decisions"] if d["revision"] == 2} == set(operation["approvals"])
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["answered"]
    assert (operation["answer"]["refund_id"], operation["answer"]["raw_state"]) == ("re_1", "succeeded")
    moments = view["times"]
    order = ["requested", "read", "quoted", "decided", "submitted", "answered", "settled", "final"]
    assert [moments[name] for name in order] == sorted(moments[name] for name in order)


async def test_each_commitment_is_opened_by_the_value_and_salt_that_are_shown(api: Api) -> None:
    view = await audited(api, await paid(api))

    opened = {one["name"]: one for one in view["commitments"]}

    assert {"message", "agent_reasoning", "conversation", "details", "reading", "customer", "order"} <= set(opened)
    for one in opened.values():
        assert hashlib.sha256(bytes.fromhex(one["salt"]) + one["value"].encode()).hexdigest() == one["commitment"], one["name"]
    assert opened["order"]["value"] == view["order_id"]
    committed = [(e["id"], name) for e in view["entries"] for name in e["commitments"] or {}]
    assert sorted((one["entry"], one["name"]) for one in view["commitments"]) == sorted(committed)


async def test_the_agents_model_is_never_taken_for_ours(api: Api) -> None:
    view = await audited(api, await asked_by_an_agent(api))

    assert (view["asked"]["agent"]["model"], view["reading"]["model"]) == ("agents-own-model", "openai:reader")


async def test_a_refund_that_was_only_received_shows_what_there_is(api: Api) -> None:
    view = await audited(api, await api.received())

    assert (view["reading"], view["revisions"], view["decisions"], view["processor"]["operations"]) == (None, [], [], [])
    assert view["asked"]["agent"] is None
    assert {name for name, at in view["times"].items() if at} == {"requested"}


async def test_the_parts_of_an_order_wide_refund_say_so_and_show_what_was_asked_for_as_a_whole(api: Api) -> None:
    card = {"id": "pi_parts", "amount": 10_000, "currency": "USD"}
    order = await api.order(
        payments=[card, {"processor": "manual", "tender": "gift_card", "id": "gc-1", "amount": 5_000, "currency": "USD"}]
    )
    body = api.asked(order, amount=12_000)
    made = (await api.call("POST", "/v1/refund-groups", await api.shop(), body, Idempotency_Key="whole")).json()
    await Steps(api.worker, api.settings).prepare(made["refunds"][1]["id"])

    for part, amount in zip(made["refunds"], (10_000, 2_000), strict=True):
        found = await audited(api, part["id"])
        assert found["asked"]["group"] == made["id"]
        [asked] = [entry for entry in found["entries"] if entry["type"] == "group_received"]
        assert (asked["refund_id"], asked["data"]["group"], found["asked"]["request"]["amount"]) == (None, made["id"], amount)
    assert [revision["amount"] for revision in found["revisions"]] == [2_000]
    assert (found["processor"]["name"], found["processor"]["operations"]) == ("manual", [])
    assert (await audited(api, (await api.received())))["asked"]["group"] is None


async def test_looking_changes_nothing(api: Api) -> None:
    refund = await paid(api)
    before = await api.count("ledger"), await api.count("outbox")

    await audited(api, refund)

    assert (await api.count("ledger"), await api.count("outbox")) == before


async def test_a_support_system_and_an_operator_see_none_of_it(api: Api) -> None:
    refund = await api.received()

    for caller in (await api.shop(), await api.caller("olga", Role.OPERATOR), await api.caller("sid", Role.SETTLER)):
        assert (await api.call("GET", f"/v1/refunds/{refund}/audit", caller)).status_code == 403
    gone = await api.call("GET", "/v1/refunds/rf_00000000000000000000000000/audit", await auditor(api))
    assert gone.json()["code"] == "REFUND_NOT_FOUND"


async def test_of_a_forgotten_customer_the_chain_stays_without_the_person(api: Api) -> None:
    order = await api.order()
    refund = await api.received(order, metadata={"case": "77"})
    await api.quote(refund)
    await api.call("POST", f"/v1/refunds/{refund}/withdrawal", await api.shop(), {})
    operator = await api.caller("olga", Role.OPERATOR)
    forgotten = await api.call("POST", f"/v1/customers/{order['customer_id']}/erasure", operator, {"reason": "customer_asked"})
    assert forgotten.status_code == 200, forgotten.text

    view = await audited(api, refund)

    assert view["customer_forgotten_at"]
    assert (view["order_id"], view["customer_id"], view["asked"]["request"]["metadata"]) == (None, None, {})
    assert view["commitments"]
    assert {(one["value"], one["salt"]) for one in view["commitments"]} == {(None, None)}
    assert len(view["revisions"]) == 1
