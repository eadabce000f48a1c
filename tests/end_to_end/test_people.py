"""Who may do what, and who sees what: separation of duties and visibility, over HTTP."""

import json

import pytest

from tests.end_to_end.whole import Whole, only


@pytest.mark.parametrize("named", ["sam", "uma"])
async def test_who_asked_cannot_approve_with_whatever_roles(whole: Whole, named: str) -> None:
    goods = await whole.goods(20_000)
    refund = await whole.asked_for(goods, who="uma", requested_by=named)
    await whole.until(refund, "awaiting_review")

    only(await whole.decide("uma", refund), 403, "SELF_APPROVAL")

    refused = [entry for entry in await whole.ledger(refund) if entry["type"] == "decision_refused"]
    assert [(entry["actor"], entry["data"]["code"]) for entry in refused] == [(whole.ids["uma"], "SELF_APPROVAL")]
    assert (await whole.decide("rita", refund)).status_code == 200
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])


async def test_whoever_a_system_or_an_agent_asks_for_cannot_approve(whole: Whole) -> None:
    for who, named in (("shop", "rita"), ("bot", "RITA"), ("shop", "Rita of the tests")):
        goods = await whole.goods(20_000)
        refund = await whole.asked_for(goods, who=who, requested_by=named)
        if who == "bot":
            # An agent that names an amount is not the customer who names it.
            await whole.until(refund, "awaiting_consent")
            terms = (await whole.view(refund))["terms_hash"]
            only(await whole.act("bot", refund, "consent", {"agreed": True, "terms_hash": terms}), 403, "PERSON_REQUIRED")
            assert (await whole.agree(refund, "desk")).status_code == 200
        await whole.until(refund, "awaiting_review")

        only(await whole.decide("rita", refund), 403, "SELF_APPROVAL")

        assert (await whole.truth(goods.intent)).creates == []
        assert (await whole.view(refund))["status"] == "awaiting_review"
        # Denying returns no money, so it is open to everybody with the role.
        assert (await whole.decide("rita", refund, "deny")).status_code == 200


async def test_services_and_agents_never_decide_consent_for_agents_or_settle(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000)

    for who in ("shop", "bot", "olga", "anna", "sven"):
        only(await whole.decide(who, refund), 403, "FORBIDDEN")
    only(await whole.act("bot", refund, "withdrawal", {}), 404, "REFUND_NOT_FOUND")
    assert (await whole.view(refund))["status"] == "awaiting_review"
    assert (await whole.truth(goods.intent)).creates == []
    for roles in (["reviewer"], ["manager"], ["settler"], ["fraud"]):
        answer = await whole.call("administrator", "POST", "/v1/keys", {"principal_id": whole.ids["bot"], "roles": roles})
        only(answer, 422, "INVALID_FIELD", "roles")


async def test_two_people_means_two_persons(whole: Whole) -> None:
    goods, refund = await whole.in_review(20_000, category="jewellery")

    assert (await whole.decide("rita", refund)).json()["status"] == "awaiting_review"
    repeated = await whole.decide("rita", refund)
    assert (repeated.status_code, repeated.json()["replayed"], repeated.json()["status"]) == (200, True, "awaiting_review")
    second_key = await whole.call("administrator", "POST", "/v1/keys", {"principal_id": whole.ids["rita"], "roles": ["manager"]})
    again = await whole.decide(second_key.json()["key"], refund)
    assert (again.json()["replayed"], again.json()["status"]) == (True, "awaiting_review"), "another key of hers is still her"
    assert (await whole.truth(goods.intent)).creates == []
    assert (await whole.decide("ravi", refund)).status_code == 200

    view = await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])
    assert [d["recorded_by"]["handle"] for d in view["decisions"] if d["kind"] == "review"] == ["rita", "ravi"]


async def test_the_author_of_a_larger_amount_cannot_approve_it(whole: Whole) -> None:
    goods = await whole.goods(30_000)
    refund = await whole.asked_for(goods, 12_000)
    view = await whole.until(refund, "awaiting_review")

    change = {"terms_hash": view["terms_hash"], "amount": 20_000, "currency": "USD"}
    assert (await whole.act("rita", refund, "revisions", change)).status_code == 201
    await whole.agree(refund)
    await whole.until(refund, "awaiting_review")

    only(await whole.decide("rita", refund), 403, "SELF_APPROVAL")
    assert (await whole.decide("ravi", refund)).status_code == 200
    await whole.assert_ended(refund, "succeeded", goods=goods, creates=1, returned=[20_000])


async def test_one_person_does_not_settle_alone_and_who_is_no_settler_not_at_all(whole: Whole) -> None:
    goods = await whole.goods(4_400)
    await whole.disturb(goods.intent, "lose_request", times=None)
    refund = await whole.asked_for(goods)
    await whole.until(refund, "parked")

    for who in ("rita", "mona", "shop", "bot", "olga"):
        only(await whole.act(who, refund, "settlement", {"outcome": "not_refunded", "evidence": "none"}), 403, "FORBIDDEN")
    for _ in range(2):
        alone = await whole.act("sven", refund, "settlement", {"outcome": "not_refunded", "evidence": "none"})
        assert (alone.status_code, alone.json()["status"]) == (202, "parked")
    assert (await whole.view(refund))["status"] == "parked"


async def test_an_integration_sees_its_own_refunds_only(whole: Whole) -> None:
    goods = await whole.goods(3_000)
    refund = await whole.asked_for(goods)

    for method, path, body in (
        ("GET", "", None),
        ("POST", "/withdrawal", {}),
        ("POST", "/consent", {"agreed": True, "terms_hash": "0" * 64}),
    ):
        only(await whole.call("rival", method, f"/v1/refunds/{refund}{path}", body), 404, "REFUND_NOT_FOUND")
    only(await whole.call("shop", "GET", f"/v1/refunds/{refund}/ledger"), 403, "FORBIDDEN")

    async def listed(who: str) -> list[str]:
        answer = await whole.call(who, "GET", f"/v1/refunds?customer_id={goods.customer}")
        return [found["id"] for found in answer.json()["refunds"]]

    assert {who: await listed(who) for who in ("shop", "rita", "anna", "olga", "rival", "bot")} == {
        **{who: [refund] for who in ("shop", "rita", "anna", "olga")},
        **{who: [] for who in ("rival", "bot")},
    }
    # Another integration's refund of the same payment is counted, and not shown.
    other = await whole.asked_for(goods, 1, who="rival")
    seen = await whole.view(other, "rival")
    assert (seen["code"], seen["context"]["earlier_refunds"]) == ("ALREADY_REFUNDED", [])
    assert refund not in json.dumps(seen)


async def test_the_same_idempotency_key_of_two_integrations_is_two_refunds(whole: Whole) -> None:
    goods, key = await whole.goods(3_000), whole.number()

    mine = await whole.ask(goods, 1_000, key=key)
    theirs = await whole.ask(goods, 1_500, key=key, who="rival")

    assert (mine.status_code, theirs.status_code) == (201, 201)
    assert mine.json()["id"] != theirs.json()["id"]


async def test_text_is_shown_to_those_who_may_read_it_only(whole: Whole) -> None:
    goods = await whole.goods(20_000)
    refund = await whole.asked_for(goods, message="the mug broke")

    assert (await whole.view(refund, "rita"))["texts"] == {"message": "the mug broke"}
    for who in ("shop", "olga", "sven"):
        view = await whole.view(refund, who)
        assert "texts" not in view
        assert "the mug broke" not in json.dumps(view)
