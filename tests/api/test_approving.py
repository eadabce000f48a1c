"""Approving over HTTP: who stands in for whom, who looks at it, what it needs, and that every refused attempt is entered once (field reports 56, 57, 59)."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from refunds.people import PrincipalKind, Role
from tests.api.conftest import Api, Caller
from tests.api.test_groups import paid, quoted

WHY = {"reason": "she knows the customer"}


async def decide(api: Api, view: dict[str, Any], caller: Caller, verdict: str = "approve", **more: Any) -> httpx.Response:
    body = {"verdict": verdict, "terms_hash": view["terms_hash"], "note": "looked at it"} | more
    return await api.call("POST", f"/v1/refunds/{view['id']}/decisions", caller, body)


async def managed(api: Api, **asked: Any) -> dict[str, Any]:
    """A refund that waits for a manager."""
    order = await api.order(payments=[{"id": f"pi_dear{await api.count('orders')}", "amount": 90_000, "currency": "USD"}])
    refund_id = (await api.ask(api.asked(order, amount=60_000, **asked))).json()["id"]
    await api.quote(refund_id)
    return await shown(api, refund_id)


async def shown(api: Api, refund_id: str, caller: Caller | None = None) -> dict[str, Any]:
    return (await api.call("GET", f"/v1/refunds/{refund_id}", caller or await api.reviewer())).json()


async def delegation(api: Api, of: Caller, to: str, *, role: str = "manager", days: float = 10, **more: Any) -> httpx.Response:
    ends = (api.clock.now() + timedelta(days=days)).isoformat()
    return await api.call("POST", "/v1/delegations", of, {"to": to, "role": role, "ends_at": ends} | more)


async def refusals(api: Api, view: dict[str, Any], what: str = "decision") -> list[tuple[str, str]]:
    """Who was refused what of a refund, from its ledger."""
    query = f"SELECT actor, data FROM ledger WHERE refund_id = :id AND type = '{what}_refused' ORDER BY refund_version"
    return [(row["actor"], row["data"]["code"]) for row in await api.rows(query, id=view["id"])]


async def entries(api: Api, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a kind that belong to no refund."""
    rows = await api.rows("SELECT actor, data FROM ledger WHERE type = :kind AND refund_id IS NULL ORDER BY id", kind=kind)
    return [(row["actor"], row["data"]) for row in rows]


async def test_a_stand_in_is_named_recorded_and_shown(api: Api) -> None:
    view, rita, mia = await managed(api), await api.reviewer(), await api.caller("mia", Role.MANAGER)

    made = await delegation(api, mia, "RITA")
    listed = await api.call("GET", "/v1/delegations?mine=true&in_force=true", rita)
    answer = await decide(api, view, rita, on_behalf_of="mia")

    assert (made.status_code, made.json()["state"], made.json()["from"]["handle"], made.json()["to"]["handle"]) == (
        201,
        "in_force",
        "mia",
        "rita",
    )
    assert [one["id"] for one in listed.json()["delegations"]] == [made.json()["id"]]
    said = answer.json()["decision"]
    assert (answer.status_code, answer.json()["status"]) == (200, "approved")
    assert (said["recorded_by"]["handle"], said["on_behalf_of"]["handle"], said["role"], said["delegation"]) == (
        "rita",
        "mia",
        "manager",
        made.json()["id"],
    )


async def test_a_delegation_is_ended_by_either_or_by_an_operator_and_stays_in_the_list(api: Api) -> None:
    view, rita, mia = await managed(api), await api.reviewer(), await api.caller("mia", Role.MANAGER)
    olga = await api.reviewer("olga")
    made = (await delegation(api, mia, "rita")).json()
    address = f"/v1/delegations/{made['id']}"

    stranger = await api.call("DELETE", address, olga)
    ended = await api.call("DELETE", address, rita)
    again = await api.call("DELETE", address, api.administrator)

    assert (stranger.status_code, stranger.json()["code"]) == (404, "NOT_FOUND")
    assert (ended.json()["state"], ended.json()["ended_by"]["handle"]) == ("ended", "rita")
    assert again.json() == ended.json()
    assert [one["state"] for one in (await api.call("GET", "/v1/delegations", olga)).json()["delegations"]] == ["ended"]
    late = await decide(api, view, rita, on_behalf_of="mia")
    assert (late.status_code, late.json()["code"]) == (403, "DELEGATION_INVALID")
    assert await refusals(api, view) == [(rita.id, "DELEGATION_INVALID")]


async def test_what_nobody_may_hand_over_is_refused_and_entered(api: Api) -> None:
    rita, shop = await api.reviewer(), await api.shop()
    await api.reviewer("olga")

    higher = await delegation(api, rita, "olga", role="manager")
    service = await delegation(api, shop, "olga", role="reviewer")

    assert (higher.status_code, higher.json()["code"], higher.json()["field"]) == (403, "ROLE_TOO_LOW", "role")
    assert (service.status_code, service.json()["code"]) == (403, "FORBIDDEN")
    assert await entries(api, "delegation_refused") == [(rita.id, {"code": "ROLE_TOO_LOW"}), (shop.id, {"code": "FORBIDDEN"})]
    assert await api.count("delegations") == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to": "olga", "role": "operator"}, "role"),
        ({"to": "olga", "role": "reviewer", "ends_at": "2020-01-01T00:00:00Z"}, "ends_at"),
        ({"to": "olga", "role": "reviewer", "ends_at": "tomorrow"}, "ends_at"),
        ({"to": "olga", "role": "reviewer", "queue": "No Queue"}, "queue"),
        ({"to": "ghost", "role": "reviewer"}, "to"),
        ({"to": "rita", "role": "reviewer"}, "to"),
    ],
)
async def test_a_delegation_that_is_none_is_told_so(api: Api, body: dict[str, Any], field: str) -> None:
    await api.reviewer("olga")
    ends = {"ends_at": (api.clock.now() + timedelta(days=1)).isoformat()}

    answer = await api.call("POST", "/v1/delegations", await api.reviewer(), ends | body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert await api.count("delegations") == 0


async def test_a_manager_gives_it_to_somebody_and_it_is_seen(api: Api) -> None:
    view, rita, mia = await api.in_review(), await api.reviewer(), await api.caller("mia", Role.MANAGER)
    olga = await api.reviewer("olga")
    address = f"/v1/refunds/{view['id']}/assignment"

    by_a_reviewer = await api.call("POST", address, rita, WHY | {"to": "olga"})
    given = await api.call("POST", address, mia, WHY | {"to": "Olga"})
    again = await api.call("POST", address, mia, WHY | {"to": olga.id})

    assert (by_a_reviewer.status_code, by_a_reviewer.json()["code"]) == (403, "FORBIDDEN")
    assert await refusals(api, view, "assignment") == [(rita.id, "FORBIDDEN")]
    now = given.json()
    assert (now["assigned_to"], now["review"]["assigned_to"], now["deadlines"]) == ("olga", "olga", view["deadlines"])
    [instruction] = again.json()["instructions"]
    assert (instruction["kind"], instruction["by"]["handle"], instruction["applied_at"] is not None) == ("assign", "mia", True)
    assert given.json()["texts"] == {f"note:{instruction['id']}": WHY["reason"]}
    for who, found in (("olga", [view["id"]]), (olga.id, [view["id"]]), ("rita", [])):
        listed = await api.call("GET", f"/v1/refunds?assigned_to={who}", rita)
        assert [one["id"] for one in listed.json()["refunds"]] == found
    assert (await decide(api, view, rita)).json()["status"] == "approved"
    assert (await shown(api, view["id"]))["assigned_to"] is None


@pytest.mark.parametrize(
    ("body", "field"), [({}, "to"), ({"to": "ghost"}, "to"), ({"queue": "vip"}, "queue"), ({"to": "olga", "reason": " "}, "reason")]
)
async def test_giving_it_to_nobody_there_is_told_so(api: Api, body: dict[str, Any], field: str) -> None:
    view = await api.in_review()

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/assignment", await api.caller("mia", Role.MANAGER), WHY | body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def with_evidence(api: Api) -> None:
    """A policy that asks for a photo of what a customer sends back."""
    source = (await api.call("GET", "/v1/policy", api.administrator)).json()["source"]
    asked = source.replace("  any_other: review\n", "  any_other: review\n  evidence:\n    product_issue: [photo]\n", 1)
    answer = await api.call("POST", "/v1/policy/versions", api.administrator, {"source": asked, "note": "photos"})
    assert answer.status_code == 201, answer.text


async def test_missing_evidence_is_named_attached_shown_and_enough(api: Api) -> None:
    await with_evidence(api)
    view, rita, shop = await api.in_review(), await api.reviewer(), await api.shop()
    bot = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT, integration=shop.id)
    address = f"/v1/refunds/{view['id']}/evidence"

    early = await decide(api, view, rita)
    by_the_agent = await api.call("POST", address, bot, {"kind": "photo", "statement": "the agent saw a crack"})
    still = await decide(api, view, rita)
    attached = await api.call("POST", address, shop, {"kind": "photo", "reference": "https://files.example/1", "digest": "ab" * 32})

    assert view["review"]["evidence_missing"] == ["photo"]
    assert (early.status_code, early.json()["code"], early.json()["missing"]) == (409, "EVIDENCE_MISSING", ["photo"])
    assert (by_the_agent.status_code, still.json()["code"]) == (201, "EVIDENCE_MISSING")
    now = await shown(api, view["id"])
    assert (attached.status_code, now["review"]["evidence_missing"]) == (201, [])
    assert [(one["by"]["handle"], one["counts"], one["digest"]) for one in now["evidence"]] == [
        ("bot", False, None),
        ("shop", True, "ab" * 32),
    ]
    words = [now["texts"][f"evidence:{one['id']}"] for one in now["evidence"]]
    assert words == ["the agent saw a crack", "https://files.example/1"]
    assert "texts" not in attached.json()
    assert (await decide(api, view, rita)).json()["status"] == "approved"
    assert await refusals(api, view) == [(rita.id, "EVIDENCE_MISSING")] * 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kind": "photo"}, "statement"),
        ({"kind": "photo", "statement": "a", "reference": "b", "digest": "ab" * 32}, "statement"),
        ({"kind": "photo", "reference": "https://files.example/1"}, "digest"),
        ({"kind": "photo", "statement": "a", "digest": "ab" * 32}, "digest"),
        ({"kind": "Photo!", "statement": "a"}, "kind"),
        ({"kind": "photo", "reference": "x", "digest": "AB"}, "digest"),
    ],
)
async def test_evidence_that_is_none_is_told_so(shared_api: Api, body: dict[str, Any], field: str) -> None:
    api = shared_api
    view = await api.in_review()

    answer = await api.call("POST", f"/v1/refunds/{view['id']}/evidence", await api.shop(), body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_what_somebody_may_approve_is_set_by_another_operator(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    max_ = await api.caller("max", Role.OPERATOR, Role.REVIEWER)
    body = {"approves_up_to": {"usd": 19_999}}

    own = await api.call("PUT", f"/v1/people/{max_.id}/approving", max_, body)
    by_a_reviewer = await api.call("PUT", f"/v1/people/{max_.id}/approving", rita, body)
    given = await api.call("PUT", f"/v1/people/{rita.id}/approving", max_, body)
    refused, denied = await decide(api, view, rita), await decide(api, view, rita, "deny")

    assert (own.status_code, own.json()["code"]) == (403, "SELF_APPROVAL")
    assert (by_a_reviewer.status_code, by_a_reviewer.json()["code"]) == (403, "FORBIDDEN")
    assert await entries(api, "approving_refused") == [(max_.id, {"code": "SELF_APPROVAL"}), (rita.id, {"code": "FORBIDDEN"})]
    assert (given.status_code, given.json()["approves_up_to"]) == (200, {"USD": 19_999})
    assert (refused.status_code, refused.json()["code"], refused.json()["limit"]) == (403, "ABOVE_OWN_LIMIT", 19_999)
    assert "PUT /v1/people/{id}/approving" in refused.json()["remedy"]
    assert denied.json()["status"] == "denied"


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (PrincipalKind.AGENT, {"approves_up_to": {"USD": 1}}, "approves_up_to"),
        (PrincipalKind.SERVICE, {"operates_classifier": True}, "operates_classifier"),
        (PrincipalKind.SERVICE, {"owner": "rita"}, "owner"),
        (PrincipalKind.AGENT, {"owner": "ghost"}, "owner"),
        (PrincipalKind.PERSON, {"approves_up_to": {"USD": -1}}, "approves_up_to.USD"),
        (PrincipalKind.PERSON, {"approves_up_to": {"USD": 1.5}}, "approves_up_to.USD"),
        (PrincipalKind.PERSON, {"approves_up_to": {"XXX": 1}}, "approves_up_to"),
        (PrincipalKind.PERSON, {"approves_up_to": {"USD": 1, "usd": 99}}, "approves_up_to"),
    ],
)
async def test_what_nobody_can_approve_is_not_set(api: Api, kind: PrincipalKind, body: dict[str, Any], field: str) -> None:
    await api.reviewer()
    somebody = await api.caller("somebody", Role.REQUESTER, kind=kind)

    answer = await api.call("PUT", f"/v1/people/{somebody.id}/approving", api.administrator, body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_field_56_whoever_an_agent_acts_for_is_nobody_to_approve(api: Api) -> None:
    rita = await api.reviewer()
    bot = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT)
    await api.call("PUT", f"/v1/people/{bot.id}/approving", api.administrator, {"owner": "rita"})
    asked = await api.ask(api.asked(await api.order()), caller=bot)
    await api.quote(asked.json()["id"])
    view = await shown(api, asked.json()["id"])
    if view["status"] == "awaiting_consent":
        shop = await api.caller("owner-desk", Role.REQUESTER, kind=PrincipalKind.SERVICE, integration=bot.id)
        await api.call("POST", f"/v1/refunds/{view['id']}/consent", shop, {"agreed": True, "terms_hash": view["terms_hash"]})

    answer = await decide(api, view, rita)

    assert (answer.status_code, answer.json()["code"]) == (403, "SELF_APPROVAL")
    assert await refusals(api, view) == [(rita.id, "SELF_APPROVAL")]
    assert (await decide(api, view, await api.reviewer("olga"))).json()["status"] == "approved"


async def test_field_59_a_decision_for_another_refunds_terms_changes_nothing_and_is_entered(api: Api) -> None:
    one, other, rita = await api.in_review(), await api.in_review(), await api.reviewer()

    answer = await decide(api, one | {"terms_hash": other["terms_hash"]}, rita)

    assert (answer.status_code, answer.json()["code"], answer.json()["terms_hash"]) == (409, "TERMS_CHANGED", one["terms_hash"])
    assert "terms_hash" in answer.json()["remedy"]
    assert await refusals(api, one) == [(rita.id, "TERMS_CHANGED")]
    assert await refusals(api, other) == []
    assert {(await shown(api, each["id"]))["status"] for each in (one, other)} == {"awaiting_review"}


async def test_field_57_at_the_very_instant_of_the_deadline_it_is_too_late_and_entered_once(api: Api) -> None:
    view, mia = await managed(api), await api.caller("mia", Role.MANAGER)
    api.clock.advance(timedelta(hours=48))

    answer = await decide(api, view, mia)

    assert (answer.status_code, answer.json()["code"]) == (409, "REVIEW_EXPIRED")
    assert await refusals(api, view) == [(mia.id, "REVIEW_EXPIRED")]


async def test_a_refusal_of_a_whole_group_is_entered_once_for_the_group(api: Api) -> None:
    group = await quoted(api, await paid(api, 10_000, 15_000), 20_000)
    bot = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT)
    mate = await api.caller("mate", Role.REQUESTER, kind=PrincipalKind.AGENT, integration=(await api.shop()).id)
    address = f"/v1/refund-groups/{group['id']}"

    decided = await api.call("POST", f"{address}/decisions", bot, {"verdict": "approve", "terms": group["decide"]})
    agreed = await api.call("POST", f"{address}/consent", mate, {"agreed": True, "terms": group["decide"]})
    nowhere = await api.call("POST", f"/v1/refund-groups/rg_{'0' * 26}/decisions", bot, {"verdict": "approve", "terms": group["decide"]})

    assert (decided.json()["code"], agreed.json()["code"], nowhere.json()["code"]) == ("FORBIDDEN", "PERSON_REQUIRED", "FORBIDDEN")
    assert await entries(api, "decision_refused") == [(bot.id, {"code": "FORBIDDEN", "group": group["id"]})]
    assert await entries(api, "consent_refused") == [(mate.id, {"code": "PERSON_REQUIRED", "group": group["id"]})]


async def test_trying_something_on_what_is_anothers_is_entered_beside_it_and_what_is_nowhere_is_not(api: Api) -> None:
    view = await api.in_review()
    rival = await api.caller("rival", Role.REQUESTER, kind=PrincipalKind.SERVICE)
    said = {
        "consent": {"agreed": True, "terms_hash": view["terms_hash"]},
        "withdrawal": {},
        "evidence": {"kind": "photo", "statement": "mine"},
    }

    for what, body in said.items():
        for refund in (view["id"], f"rf_{'0' * 26}"):
            answer = await api.call("POST", f"/v1/refunds/{refund}/{what}", rival, body)
            assert (answer.status_code, answer.json()["code"]) == (404, "REFUND_NOT_FOUND")
        assert await refusals(api, view, what) == []
        assert await entries(api, f"{what}_refused") == [(rival.id, {"code": "REFUND_NOT_FOUND", "out_of_sight": view["id"]})]
    assert (await shown(api, view["id"]))["status"] == "awaiting_review"


async def test_a_group_counts_whole_against_the_ceiling_of_who_decides(api: Api) -> None:
    rita = await api.reviewer()
    await api.call("PUT", f"/v1/people/{rita.id}/approving", api.administrator, {"approves_up_to": {"USD": 19_999}})
    group = await quoted(api, await paid(api, 10_000, 15_000), 20_000)

    answer = await api.call("POST", f"/v1/refund-groups/{group['id']}/decisions", rita, {"verdict": "approve", "terms": group["decide"]})

    assert (answer.status_code, answer.json()["code"], answer.json()["amount"]) == (403, "ABOVE_OWN_LIMIT", 20_000)
    assert await refusals(api, {"id": answer.json()["refund"]}) == [(rita.id, "ABOVE_OWN_LIMIT")]
    await api.call("PUT", f"/v1/people/{rita.id}/approving", api.administrator, {"approves_up_to": {"USD": 20_000}})
    again = await api.call("POST", f"/v1/refund-groups/{group['id']}/decisions", rita, {"verdict": "approve", "terms": group["decide"]})
    assert again.status_code == 200, again.text


async def test_the_review_says_who_when_and_what_silence_does(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    first = view["review"]
    api.clock.advance(timedelta(hours=5))
    await api.expire(view["id"])
    reminded = (await shown(api, view["id"]))["review"]
    api.clock.advance(timedelta(hours=20))
    await api.expire(view["id"])
    last = await shown(api, view["id"], rita)

    assert (first["queue"], first["role"], first["people"], first["rung"], first["rungs"]) == ("team", "reviewer", 1, 1, 2)
    assert (first["reminded"], first["decide_by"], first["then"], first["then_to"]) == (
        False,
        view["deadlines"]["review_by"],
        "escalates",
        "managers",
    )
    assert (reminded["reminded"], reminded["remind_at"], reminded["rung"]) == (True, None, 1)
    assert (reminded["role"], last["review"]["role"]) == ("reviewer", "manager")
    assert (last["review"]["rung"], last["review"]["then"], last["review"]["then_to"]) == (2, "expires", None)


async def test_what_a_revision_changed_is_shown_with_it(api: Api) -> None:
    view, rita = await api.in_review(), await api.reviewer()
    body = {"terms_hash": view["terms_hash"], "amount": 15_000, "currency": "USD"}
    made = await api.call("POST", f"/v1/refunds/{view['id']}/revisions", rita, body)
    await api.revise(view["id"], made.json()["instructions"][-1]["id"])

    first, second = (await shown(api, view["id"]))["revisions"]

    assert first["changes"] == []
    assert second["changes"] == [
        {"field": "amount", "before": 20_000, "after": 15_000, "words": "The amount is $150.00; it was $200.00."},
    ]
