"""Decisions, revisions, consent, withdrawal and settlement: recorded whatever becomes of their delivery, and refused visibly."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from refunds.people import PrincipalKind, Role
from tests.api.conftest import Api, Caller


async def decide(api: Api, view: dict[str, Any], caller: Caller, verdict: str = "approve", **more: Any) -> Any:
    body = {"verdict": verdict, "terms_hash": view["terms_hash"]} | more
    return await api.call("POST", f"/v1/refunds/{view['id']}/decisions", caller, body)


async def test_an_approval_counts_although_nobody_delivers_it(api: Api) -> None:
    view = await api.in_review()

    answer = await decide(api, view, await api.reviewer(), note="photo seen")

    assert answer.status_code == 200
    said = answer.json()
    assert (said["status"], said["delivered"], said["replayed"]) == ("approved", False, False)
    assert (said["decision"]["verdict"], said["decision"]["terms_hash"]) == ("approve", view["terms_hash"])
    assert said["decision"]["recorded_by"]["handle"] == "rita"
    assert said["refund"]["texts"] == {f"note:{said['decision']['id']}": "photo seen"}
    waiting = await api.rows("SELECT body FROM outbox WHERE refund_id = :id AND kind = 'signal'", id=view["id"])
    assert [row["body"] for row in waiting] == [{"name": "approve", "message": said["decision"]["id"]}]
    assert b"photo" not in b"".join(bytes(row["sealed"]) for row in await api.rows("SELECT sealed FROM texts"))


async def test_a_decision_by_signal_is_answered_202(api: Api) -> None:
    view = await api.in_review()

    answer = await decide(api, view, await api.reviewer(), "deny", deliver="signal")

    assert (answer.status_code, answer.json()["status"], answer.json()["delivered"]) == (202, "denied", False)
    assert answer.json()["refund"]["code"] == "REVIEWER_DENIED"


async def test_field_59_the_same_decision_again_gets_the_same_answer(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()

    answers = await asyncio.gather(*(decide(api, view, rita) for _ in range(4)))
    later = await decide(api, view, rita)

    assert [a.status_code for a in (*answers, later)] == [200] * 5
    assert len({a.json()["decision"]["id"] for a in (*answers, later)}) == 1
    assert [a.json()["replayed"] for a in answers].count(False) == 1
    assert len(await api.rows("SELECT id FROM decisions WHERE kind = 'review'")) == 1


async def test_the_first_decision_stands(api: Api) -> None:
    view = await api.in_review()
    await decide(api, view, await api.reviewer())

    other = await decide(api, view, await api.reviewer("olga"), "deny")

    assert (other.status_code, other.json()["code"]) == (409, "ALREADY_DECIDED")
    assert (await api.ledger(view["id"]))[-1] == "decision_refused"


async def test_what_was_withdrawn_after_its_approval_is_not_said_to_be_decided_so(api: Api) -> None:
    view = await api.in_review()
    await decide(api, view, await api.reviewer())
    await api.call("POST", f"/v1/refunds/{view['id']}/withdrawal", await api.shop(), {})

    late = (await decide(api, view, await api.reviewer("olga"), "deny")).json()

    assert (late["code"], late["detail"]) == ("NOT_AWAITING_REVIEW", "It is withdrawn.")


@pytest.mark.parametrize("terms_hash", [None, "0" * 64])
async def test_field_59_a_decision_on_terms_nobody_sees_any_more_is_refused(shared_api: Api, terms_hash: str | None) -> None:
    api = shared_api
    view = await api.in_review()

    answer = await decide(api, view | {"terms_hash": terms_hash}, await api.reviewer())

    assert (answer.status_code, answer.json()["code"]) == (409, "TERMS_CHANGED")
    assert answer.json()["terms_hash"] == view["terms_hash"]
    assert (await api.ledger(view["id"]))[-1] == "decision_refused"


async def test_a_decision_before_the_quote_is_refused(api: Api) -> None:
    refund_id = await api.received()

    answer = await decide(api, {"id": refund_id, "terms_hash": "0" * 64}, await api.reviewer())

    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_AWAITING_REVIEW")


async def test_field_56_who_asked_cannot_approve_at_any_amount(api: Api) -> None:
    uwe = await api.caller("uwe", Role.REQUESTER, Role.REVIEWER)
    asked_by_uwe = await api.ask(api.asked(await api.order()), caller=uwe)
    await api.quote(asked_by_uwe.json()["id"])
    own = (await api.call("GET", f"/v1/refunds/{asked_by_uwe.json()['id']}", uwe)).json()
    for_uwe = await api.in_review(requested_by="Uwe")

    for view in (own, for_uwe):
        answer = await decide(api, view, uwe)
        assert (answer.status_code, answer.json()["code"]) == (403, "SELF_APPROVAL")
        entries = await api.rows("SELECT data FROM ledger WHERE refund_id = :id ORDER BY id DESC LIMIT 1", id=view["id"])
        assert entries[0]["data"] == {"code": "SELF_APPROVAL"}
    assert (await decide(api, for_uwe, await api.reviewer("vera"))).json()["status"] == "approved"


async def test_field_56_an_agent_or_service_cannot_decide_and_its_try_is_recorded(api: Api) -> None:
    view = await api.in_review()
    agent = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT)

    for caller in (agent, await api.shop()):
        answer = await decide(api, view, caller)
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    # The shop's try is in the refund's record. The stranger's is entered beside it: who cannot see a refund cannot lengthen its record either.
    assert (await api.ledger(view["id"])).count("decision_refused") == 1


async def test_above_the_ceiling_a_manager_decides(api: Api) -> None:
    order = await api.order(payments=[{"id": "pi_dear", "amount": 90_000, "currency": "USD"}])
    refund_id = (await api.ask(api.asked(order, amount=60_000))).json()["id"]
    await api.quote(refund_id)
    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()

    low = await decide(api, view, await api.reviewer())
    silent = await decide(api, view, await api.caller("mia", Role.MANAGER))
    high = await decide(api, view, await api.caller("mia", Role.MANAGER), note="the parcel came back")

    assert (low.status_code, low.json()["code"]) == (403, "ROLE_TOO_LOW")
    assert (silent.status_code, silent.json()["code"], silent.json()["field"]) == (422, "REASON_REQUIRED", "note")
    assert (high.json()["status"], high.json()["decision"]["role"]) == ("approved", "manager")


async def test_field_57_a_decision_after_the_deadline_is_refused_and_the_queue_leaves_it_out(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    queue = f"/v1/refunds?queue={view['queue']}"
    assert [r["id"] for r in (await api.call("GET", queue, rita)).json()["refunds"]] == [view["id"]]

    api.clock.advance(timedelta(days=30))

    assert (await api.call("GET", queue, rita)).json()["refunds"] == []
    assert (await api.call("GET", "/v1/refunds?status=awaiting_review", rita)).json()["refunds"] == []
    assert len((await api.call("GET", "/v1/refunds", rita)).json()["refunds"]) == 1
    await api.expire(view["id"])
    await api.expire(view["id"])
    api.clock.advance(timedelta(days=30))
    await api.expire(view["id"])
    late = await decide(api, view, rita)
    assert (late.status_code, late.json()["code"]) == (409, "REVIEW_EXPIRED")
    assert (await api.ledger(view["id"]))[-1] == "decision_refused"
    shown = (await api.call("GET", f"/v1/refunds/{view['id']}", rita)).json()
    assert (shown["status"], shown["code"], shown["decisions"][-1]["kind"]) == ("expired", "REVIEW_EXPIRED", "consent")


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "verdict", "INVALID_FIELD"),
        ({"verdict": "maybe"}, "verdict", "INVALID_FIELD"),
        ({"verdict": "approve", "terms_hash": "ABC"}, "terms_hash", "INVALID_FIELD"),
        ({"verdict": "approve", "deliver": "pigeon"}, "deliver", "INVALID_FIELD"),
        ({"verdict": "approve", "note": "n" * 5_001}, "note", "INVALID_FIELD"),
        ({"verdict": "approve", "amount": 1}, "amount", "UNKNOWN_FIELD"),
    ],
)
async def test_field_64_a_malformed_decision_is_told_so(shared_api: Api, body: dict[str, Any], field: str, code: str) -> None:
    api = shared_api
    view = await api.in_review()
    before = await api.ledger(view["id"])

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/decisions", await api.reviewer(), body)

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
    assert await api.ledger(view["id"]) == before


async def test_a_revision_is_recorded_and_the_old_terms_can_no_longer_be_decided(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    path = f"/v1/refunds/{view['id']}/revisions"

    answer = await api.call("POST", path, rita, {"terms_hash": view["terms_hash"], "amount": 15_000, "currency": "USD", "note": "half"})
    refused = await decide(api, view, await api.reviewer("olga"))

    assert answer.status_code == 202
    [instruction] = answer.json()["instructions"]
    assert (instruction["kind"], instruction["applied_at"], instruction["by"]["handle"]) == ("revise", None, "rita")
    assert answer.json()["texts"] == {f"note:{instruction['id']}": "half"}
    assert (refused.status_code, refused.json()["code"]) == (409, "TERMS_CHANGED")


async def test_the_same_revision_again_gets_the_same_answer(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    path, body = (
        f"/v1/refunds/{view['id']}/revisions",
        {"terms_hash": view["terms_hash"], "amount": 15_000, "currency": "USD", "note": "half"},
    )

    first = await api.call("POST", path, rita, body)
    waiting = await api.call("POST", path, rita, body)
    [instruction] = first.json()["instructions"]
    await api.revise(view["id"], instruction["id"])
    done = await api.call("POST", path, rita, body)
    other = await api.call("POST", path, await api.reviewer("olga"), body)

    assert (first.status_code, waiting.status_code, done.status_code) == (202, 202, 200)
    assert done.headers["idempotent-replayed"] == "true"
    assert (done.json()["terms"]["amount"], done.json()["revision"], len(done.json()["instructions"])) == (15_000, 2, 1)
    assert (other.status_code, other.json()["code"]) == (409, "TERMS_CHANGED")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"amount": 20_000, "currency": "USD"}, 422, "TERMS_UNCHANGED"),
        ({}, 422, "TERMS_UNCHANGED"),
        ({"amount": 0, "currency": "USD"}, 422, "AMOUNT_NOT_POSITIVE"),
        ({"amount": 10.5, "currency": "USD"}, 422, "AMOUNT_NOT_INTEGER"),
        ({"amount": 100, "full": True}, 422, "AMOUNT_AND_FULL"),
        ({"amount": 100}, 422, "UNKNOWN_CURRENCY"),
        ({"payment_id": "pi_nine"}, 404, "PAYMENT_NOT_FOUND"),
        ({"terms_hash": "1" * 64, "amount": 100, "currency": "USD"}, 409, "TERMS_CHANGED"),
    ],
)
async def test_a_revision_that_is_none_is_refused(shared_api: Api, change: dict[str, Any], status: int, code: str) -> None:
    api = shared_api
    view = await api.in_review()

    answer = await api.call(
        "POST", f"/v1/refunds/{view['id']}/revisions", await api.reviewer(), {"terms_hash": view["terms_hash"]} | change
    )

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await api.call("GET", f"/v1/refunds/{view['id']}", await api.reviewer())).json()["instructions"] == []


async def waiting_for_consent(api: Api) -> dict[str, Any]:
    """A refund whose customer has not agreed yet: everything was asked for, no amount was named."""
    order = await api.order(payments=[{"id": "pi_small", "amount": 9_000, "currency": "USD"}])
    body = {name: value for name, value in api.asked(order, full=True).items() if name != "amount"}
    refund_id = (await api.ask(body)).json()["id"]
    await api.quote(refund_id)
    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.shop())).json()
    assert view["status"] == "awaiting_consent", view
    return view


async def test_consent_to_exact_terms_lets_a_small_refund_go(api: Api) -> None:
    view, shop = await waiting_for_consent(api), await api.shop()
    body = {"agreed": True, "terms_hash": view["terms_hash"]}

    first = await api.call("POST", f"/v1/refunds/{view['id']}/consent", shop, body)
    again = await api.call("POST", f"/v1/refunds/{view['id']}/consent", shop, body)

    assert (first.status_code, first.json()["status"], first.json()["amount_text"]) == (200, "approved", "$90.00")
    assert (again.status_code, again.json()["status"]) == (200, "approved")
    assert [d["kind"] for d in first.json()["decisions"]] == ["consent", "policy"]


async def test_a_customer_who_declines_ends_it(api: Api) -> None:
    view = await waiting_for_consent(api)

    answer = await api.call(
        "POST", f"/v1/refunds/{view['id']}/consent", await api.shop(), {"agreed": False, "terms_hash": view["terms_hash"]}
    )

    assert (answer.json()["status"], answer.json()["code"]) == ("withdrawn", "CONSENT_DECLINED")


async def test_consent_is_refused_to_other_terms_by_agents_and_when_nobody_asked(api: Api) -> None:
    view, shop = await waiting_for_consent(api), await api.shop()
    agent = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT, integration=shop.id)
    in_review = await api.in_review()

    other = await api.call("POST", f"/v1/refunds/{view['id']}/consent", shop, {"agreed": True, "terms_hash": "0" * 64})
    by_agent = await api.call("POST", f"/v1/refunds/{view['id']}/consent", agent, {"agreed": True, "terms_hash": view["terms_hash"]})
    unasked = await api.call("POST", f"/v1/refunds/{in_review['id']}/consent", shop, {"agreed": False, "terms_hash": "0" * 64})

    assert (other.status_code, other.json()["code"]) == (409, "TERMS_CHANGED")
    assert (by_agent.status_code, by_agent.json()["code"]) == (403, "PERSON_REQUIRED")
    assert (unasked.status_code, unasked.json()["code"]) == (409, "NOT_AWAITING_CONSENT")
    assert (await api.ledger(view["id"]))[-2:] == ["consent_refused", "consent_refused"]


async def test_a_withdrawal_stops_it_and_repeats_safely(api: Api) -> None:
    view, shop = await api.in_review(), await api.shop()

    answers = [await api.call("POST", f"/v1/refunds/{view['id']}/withdrawal", shop, body) for body in ({"note": "mistake"}, {}, None)]

    assert [(a.status_code, a.json()["status"]) for a in answers] == [(200, "withdrawn")] * 3
    assert (await api.ledger(view["id"]))[-3:] == ["withdraw_recorded", "status_changed", "note_kept"]
    late = await decide(api, view, await api.reviewer())
    assert (late.status_code, late.json()["code"]) == (409, "NOT_AWAITING_REVIEW")


async def test_an_operator_clears_up_what_another_requester_left_and_nobody_else_does(api: Api) -> None:
    view = await api.in_review()
    path = f"/v1/refunds/{view['id']}/withdrawal"
    colleague = await api.caller("colleague", Role.REQUESTER, Role.REVIEWER)
    alone = await api.caller("alone", Role.OPERATOR)
    olga = await api.caller("olga", Role.OPERATOR, Role.REQUESTER)

    refused = [await api.call("POST", path, caller, {}) for caller in (colleague, alone)]
    assert [(one.status_code, one.json()["code"]) for one in refused] == [(404, "REFUND_NOT_FOUND"), (403, "FORBIDDEN")]
    done = await api.call("POST", path, olga, {"note": "the agent ran away"})

    assert (done.status_code, done.json()["status"]) == (200, "withdrawn")
    [entry] = await api.rows("SELECT actor FROM ledger WHERE refund_id = :refund AND type = 'withdraw_recorded'", refund=view["id"])
    assert entry["actor"] == olga.id


async def test_what_is_over_cannot_be_withdrawn(api: Api) -> None:
    view = await api.in_review()
    await decide(api, view, await api.reviewer(), "deny")

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/withdrawal", await api.shop(), {})

    assert (answer.status_code, answer.json()["code"]) == (409, "TOO_LATE")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"outcome": "refunded", "evidence": "seen"}, "processor_refund_id"),
        ({"outcome": "not_refunded", "processor_refund_id": "re_1", "evidence": "seen"}, "processor_refund_id"),
        ({"outcome": "refunded", "processor_refund_id": "re 1", "evidence": "seen"}, "processor_refund_id"),
        ({"outcome": "refunded", "processor_refund_id": "re_1"}, "evidence"),
        ({"outcome": "perhaps", "evidence": "seen"}, "outcome"),
    ],
)
async def test_a_settlement_says_how_and_why(shared_api: Api, body: dict[str, str], field: str) -> None:
    api = shared_api
    view = await api.in_review()

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/settlement", await api.caller("sven", Role.SETTLER), body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_only_a_parked_refund_is_settled(api: Api) -> None:
    view = await api.in_review()
    body = {"outcome": "refunded", "processor_refund_id": "re_1", "evidence": "seen in the dashboard"}

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/settlement", await api.caller("sven", Role.SETTLER), body)

    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_PARKED")
    assert (await api.ledger(view["id"]))[-1] == "settlement_refused"
