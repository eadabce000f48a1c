"""Groups over HTTP: asked for, shown, decided and withdrawn together, and every answer as the description promises."""

from collections.abc import Mapping
from typing import Any

import httpx

from api.groups import sums
from refunds.people import Role
from store.progress import Steps
from store.settling import Settling
from tests.api.conftest import Api, Caller

GIFT = {"processor": "manual", "tender": "gift_card", "amount": 5_000, "currency": "USD"}


async def paid(api: Api, *amounts: int, gift: bool = False) -> dict[str, Any]:
    """An order paid with cards for these amounts, and with a gift card."""
    number = await api.count("orders")
    cards = [{"id": f"pi_group{number}n{n}", "amount": amount, "currency": "USD"} for n, amount in enumerate(amounts)]
    return await api.order(payments=cards + ([GIFT | {"id": f"gc-{number}"}] if gift else []))


async def ask(api: Api, body: Mapping[str, Any], key: str = "group-1", caller: Caller | None = None) -> httpx.Response:
    return await api.call("POST", "/v1/refund-groups", caller or await api.shop(), dict(body), Idempotency_Key=key)


async def quoted(api: Api, order: dict[str, Any], amount: int, key: str = "group-1") -> dict[str, Any]:
    """A group whose parts were all quoted, as a reviewer sees it."""
    answer = await ask(api, api.asked(order, amount=amount), key)
    assert answer.status_code == 202, answer.text
    for part in answer.json()["refunds"]:
        await api.quote(part["id"]) if part["tender"] is None else await Steps(api.worker, api.settings).prepare(part["id"])
    return await shown(api, answer.json()["id"])


async def shown(api: Api, group: str, caller: Caller | None = None) -> dict[str, Any]:
    answer = await api.call("GET", f"/v1/refund-groups/{group}", caller or await api.reviewer())
    assert answer.status_code == 200, answer.text
    return answer.json()


async def say(api: Api, group: str, what: str, body: dict[str, Any], caller: Caller | None = None) -> httpx.Response:
    return await api.call("POST", f"/v1/refund-groups/{group}/{what}", caller or await api.reviewer(), body)


async def test_field_26_an_order_with_several_payments_points_at_groups(api: Api) -> None:
    order = await paid(api, 10_000, 5_000, gift=True)
    answer = await api.ask(api.asked(order))
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["whole_order"]) == (409, "AMBIGUOUS_PAYMENT", "POST /v1/refund-groups")
    assert "POST /v1/refund-groups" in problem["remedy"]
    assert [one.get("tender") for one in problem["payments"]] == [None, None, "gift_card"]


async def test_a_group_is_stored_answered_and_found_again(api: Api) -> None:
    order = await paid(api, 10_000, 5_000, gift=True)
    body = api.asked(order, amount=18_000)
    first = await ask(api, body)
    made = first.json()
    assert (first.status_code, first.headers["Location"]) == (202, f"/v1/refund-groups/{made['id']}")
    parts = made["allocation"]["parts"]
    assert [(part["amount"], part["tender"]) for part in parts] == [(10_000, None), (5_000, None), (3_000, "gift_card")]
    assert {part["refund_id"] for part in parts} == {refund["id"] for refund in made["refunds"]}
    assert made["asked"]["amount_text"] == "$180.00"

    again = await ask(api, body)
    assert (again.status_code, again.headers["Idempotent-Replayed"], again.json()["id"]) == (200, "true", made["id"])
    other = await ask(api, body | {"amount": 17_999})
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (await api.count("refund_groups"), await api.count("refunds")) == (1, 3)

    listed = (await api.call("GET", f"/v1/refunds?group_id={made['id']}", await api.shop())).json()["refunds"]
    assert {(refund["id"], refund["group_id"]) for refund in listed} == {(refund["id"], made["id"]) for refund in made["refunds"]}


async def test_what_the_payments_do_not_hold_is_a_conflict_that_says_how_much(api: Api) -> None:
    order = await paid(api, 10_000, gift=True)
    answer = await ask(api, api.asked(order, amount=15_001))
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["missing"]) == (409, "GROUP_NOT_COVERED", 1)
    assert problem["detail"] == "The order's payments hold $150.00 of $150.01: $0.01 is missing."
    assert await api.count("refund_groups") == 0


async def test_more_parts_than_can_be_decided_together_are_a_conflict_that_says_how_many(api: Api) -> None:
    paid = [{"id": f"pi_many{n}", "amount": 1_000, "currency": "USD"} for n in range(51)]
    order = await api.order(payments=paid[:50])
    later = {name: value for name, value in order.items() if name != "order_id"} | {"payments": paid[50:]}
    assert (await api.call("PUT", f"/v1/orders/{order['order_id']}", await api.shop(), later)).status_code == 200

    answer = await ask(api, api.asked(order, amount=50_001))

    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["parts"]) == (409, "GROUP_TOO_LARGE", 51)
    assert problem["detail"] == "It would take 51 payments, and a group has at most 50 parts."
    assert await api.count("refund_groups") == 0


async def test_one_answer_decides_every_part_and_a_part_that_moved_on_is_named(api: Api) -> None:
    group = await quoted(api, await paid(api, 10_000, 5_000, gift=True), 20_000)
    assert group["next_step"].count("a decision on") == 3
    assert group["decide"] == {refund["id"]: refund["terms_hash"] for refund in group["refunds"]}
    first, *_ = sorted(group["decide"])
    stale = group["decide"] | {first: "0" * 64}

    refused = await say(api, group["id"], "decisions", {"verdict": "approve", "terms": stale})

    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["refund"], problem["group"]) == (409, "TERMS_CHANGED", first, group["id"])
    assert await api.count("decisions") == len(group["refunds"]), "only that asking for exact amounts was consent"
    assert (await api.ledger(first))[-1] == "decision_refused"

    decided = await say(api, group["id"], "decisions", {"verdict": "approve", "terms": group["decide"], "note": "photos seen"})

    assert (decided.status_code, sorted(decided.json()["refunds"]), decided.json()["replayed"]) == (200, sorted(group["decide"]), False)
    assert {refund["status"] for refund in decided.json()["group"]["refunds"]} == {"approved"}
    assert (await say(api, group["id"], "decisions", {"verdict": "approve", "terms": group["decide"]})).json()["replayed"] is True
    view = (await api.call("GET", f"/v1/refunds/{first}", await api.reviewer())).json()
    assert [text for kind, text in view["texts"].items() if kind.startswith("note:")] == ["photos seen"]


async def test_one_part_alone_is_not_decided(api: Api) -> None:
    group = await quoted(api, await paid(api, 20_000, 5_000), 25_000)
    first, *_ = sorted(group["decide"])
    body = {"verdict": "approve", "terms_hash": group["decide"][first]}
    answer = await api.call("POST", f"/v1/refunds/{first}/decisions", await api.reviewer(), body)
    assert (answer.status_code, answer.json()["code"], answer.json()["group"]) == (409, "DECIDED_TOGETHER", group["id"])


async def test_consent_to_a_group_in_full(api: Api) -> None:
    order = await paid(api, 3_000, 2_000)
    body = api.asked(order, full=True)
    made = (await ask(api, {name: body[name] for name in body if name not in ("amount", "currency")})).json()
    for part in made["refunds"]:
        await api.quote(part["id"])
    group = await shown(api, made["id"], await api.shop())
    assert len(group["agree"]) == 2
    answer = await say(api, group["id"], "consent", {"agreed": True, "terms": group["agree"]}, await api.shop())
    assert (answer.status_code, answer.json()["verdict"]) == (200, "approve")
    assert {refund["status"] for refund in answer.json()["group"]["refunds"]} == {"approved"}


async def test_a_manual_part_waits_in_words_is_settled_and_summed_up(api: Api) -> None:
    group = await quoted(api, await paid(api, 20_000, gift=True), 25_000)
    await say(api, group["id"], "decisions", {"verdict": "approve", "terms": group["decide"]})
    by_hand = next(refund["id"] for refund in group["refunds"] if refund["tender"])
    settling = Settling(api.payments, api.settings, "test")
    await settling.hand_over(by_hand)

    view = (await api.call("GET", f"/v1/refunds/{by_hand}", await api.reviewer())).json()
    assert (view["status"], view["code"], view["group_id"], view["runbook"]) == (
        "parked",
        "MANUAL_PART",
        group["id"],
        "docs/runbooks/manual.md",
    )
    assert view["for_customer"] == "A colleague is giving $50.00 back to you the way it was paid."
    assert view["context"]["refundable_besides_this"]["remaining"] == 5_000
    [sums] = (await shown(api, group["id"]))["sums"]
    assert sums["in_words"] == "$200.00 is under way; $50.00 waits for a person to give it back"

    sven = await api.caller("sven", Role.SETTLER)
    said = {"outcome": "refunded", "evidence": "credited, booking 99812"}
    odd = await api.call("POST", f"/v1/refunds/{by_hand}/settlement", sven, said | {"processor_refund_id": "re_1"})
    assert (odd.status_code, odd.json()["code"], odd.json()["field"]) == (422, "INVALID_FIELD", "processor_refund_id")
    settled = await api.call("POST", f"/v1/refunds/{by_hand}/settlement", sven, said)
    assert settled.status_code == 202, "recorded; the run lets it count"
    contrary = {"outcome": "not_refunded", "evidence": "nothing on the card"}
    late = await api.call("POST", f"/v1/refunds/{by_hand}/settlement", await api.caller("sara", Role.SETTLER), contrary)
    assert (late.status_code, late.json()["code"], late.json()["detail"]) == (
        409,
        "SETTLEMENT_CONTRADICTED",
        "sven has said that it was given back.",
    )
    assert (await api.ledger(by_hand))[-1] == "settlement_refused"
    instruction = await settling.instruction(by_hand, settled.json()["settlement"])
    operation = await settling.operation_of(by_hand)
    assert instruction is not None
    assert operation is not None
    await settling.settle_by_hand(operation, instruction)

    [sums] = (await shown(api, group["id"]))["sums"]
    assert (sums["returned"], sums["under_way"], sums["by_hand"], sums["not_given"]) == (5_000, 20_000, 0, 0)


def test_field_29_a_part_of_which_another_amount_was_made_is_summed_up_by_what_was_made() -> None:
    part = {"currency": "USD", "code": None, "payment_id": "pay_1"}
    members = [
        part | {"id": "rf_1", "status": "succeeded", "amount": 10_845},
        part | {"id": "rf_2", "status": "succeeded", "amount": 5_000},
        part | {"id": "rf_3", "status": "parked", "amount": 1_000},
    ]
    for amount in (16_845, None):
        group = {"amount": amount, "currency": "USD", "allocation": {"parts": []}}
        [found] = sums(group, members, {"rf_1": 50, "rf_3": 50})
        [more] = sums(group, members, {"rf_2": 6_000})
        assert more["returned"] == 16_845

        assert {name: found[name] for name in ("asked", "returned", "under_way", "not_given")} == {
            "asked": 16_845,
            "returned": 5_050,
            "under_way": 1_000,
            "not_given": 10_795,
        }
        assert found["in_words"] == "$50.50 went back; $10.00 is under way; $107.95 was not given"


async def test_a_withdrawal_answers_for_each_part(api: Api) -> None:
    group = await quoted(api, await paid(api, 20_000, 5_000), 25_000)
    answer = await say(api, group["id"], "withdrawal", {}, await api.shop())
    assert answer.status_code == 200, answer.text
    assert {(part["outcome"], part["status"]) for part in answer.json()["parts"]} == {("withdrawn", "withdrawn")}
    [sums] = answer.json()["group"]["sums"]
    assert (sums["not_given"], sums["in_words"]) == (25_000, "$250.00 was not given")


async def test_an_operator_withdraws_the_group_of_another_requester(api: Api) -> None:
    group = await quoted(api, await paid(api, 20_000, 5_000), 25_000)
    olga = await api.caller("olga", Role.OPERATOR, Role.REQUESTER)
    answer = await say(api, group["id"], "withdrawal", {}, olga)
    assert [(part["outcome"], part["status"]) for part in answer.json()["parts"]] == [("withdrawn", "withdrawn")] * 2


async def test_a_withdrawal_that_comes_too_late_is_entered_for_each_part(api: Api) -> None:
    group = await quoted(api, await paid(api, 20_000, 5_000), 25_000)
    await say(api, group["id"], "decisions", {"verdict": "deny", "terms": group["decide"]})
    late = await say(api, group["id"], "withdrawal", {}, await api.shop())
    assert (late.status_code, late.json()["code"]) == (409, "TOO_LATE")
    assert [(await api.ledger(refund))[-1] for refund in group["decide"]] == ["withdrawal_refused"] * 2


async def test_a_group_of_another_integration_is_not_there(api: Api) -> None:
    made = (await ask(api, api.asked(await paid(api, 20_000, 5_000), amount=25_000))).json()
    rival = await api.caller("rival", Role.REQUESTER)
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/consent", {"agreed": True, "terms": {made["refunds"][0]["id"]: "0" * 64}}),
        ("POST", "/withdrawal", {}),
    ):
        answer = await api.call(method, f"/v1/refund-groups/{made['id']}{path}", rival, body)
        assert (answer.status_code, answer.json()["code"]) == (404, "GROUP_NOT_FOUND")
    assert (await api.call("GET", "/v1/refund-groups", rival)).json()["groups"] == []


async def test_groups_are_listed_newest_first_a_page_at_a_time(api: Api) -> None:
    orders = [await paid(api, 20_000, 5_000) for _ in range(3)]
    made = [(await ask(api, api.asked(order, amount=25_000), f"key-{n}")).json()["id"] for n, order in enumerate(orders)]
    shop = await api.shop()
    first = (await api.call("GET", "/v1/refund-groups?limit=2", shop)).json()
    assert [group["id"] for group in first["groups"]] == [made[2], made[1]]
    second = (await api.call("GET", f"/v1/refund-groups?limit=2&cursor={first['next_cursor']}", shop)).json()
    assert ([group["id"] for group in second["groups"]], second["next_cursor"]) == ([made[0]], None)
    one = (await api.call("GET", f"/v1/refund-groups?order_id={orders[0]['order_id']}", shop)).json()
    assert [group["id"] for group in one["groups"]] == [made[0]]
    odd = await api.call("GET", "/v1/refund-groups?cursor=rf_x", shop)
    assert (odd.status_code, odd.json()["field"]) == (422, "cursor")


ODD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no order": ({"order_id": None}, "INVALID_FIELD", "order_id"),
    "a payment": ({"payment_id": "pi_1"}, "UNKNOWN_FIELD", "payment_id"),
    "nothing": ({"amount": None}, "AMOUNT_REQUIRED", "amount"),
    "amount and full": ({"full": True}, "AMOUNT_AND_FULL", "full"),
    "amount and lines": ({"lines": [{"id": "a"}]}, "INVALID_FIELD", "amount"),
    "a float": ({"amount": 1.5}, "AMOUNT_NOT_INTEGER", "amount"),
    "zero": ({"amount": 0}, "AMOUNT_NOT_POSITIVE", "amount"),
    "no currency": ({"currency": None}, "UNKNOWN_CURRENCY", "currency"),
    "the wrong currency of everything": ({"amount": None, "full": True, "currency": "XXX"}, "UNKNOWN_CURRENCY", "currency"),
}


async def test_field_45_what_cannot_be_meant_is_refused_with_nothing_stored(api: Api) -> None:
    order = await paid(api, 20_000, 5_000)
    for what, (changed, code, field) in ODD.items():
        body = {name: value for name, value in (api.asked(order) | changed).items() if value is not None}
        answer = await ask(api, body)
        assert (answer.status_code, answer.json()["code"], answer.json().get("field")) == (422, code, field), (what, answer.text)
    assert (await api.count("refund_groups"), await api.count("refunds")) == (0, 0)
