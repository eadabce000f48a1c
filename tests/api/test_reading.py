"""What the API shows: a refund whole, lists page by page, the ledger, orders, the policy."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.people import PrincipalKind, Role
from tests.api.conftest import Api


async def test_a_refund_shows_everything_a_reviewer_needs(api: Api) -> None:
    order = await api.order(lines=[{"id": "l1", "amount": 20_000}, {"id": "l2", "amount": 10_000}])
    view = await api.in_review(order, message=None, requested_by="uwe", metadata={"case": "77"}, lines=[{"id": "l1"}])

    assert (view["amount"], view["currency"], view["amount_text"]) == (20_000, "USD", "$200.00")
    assert view["terms"]["amount_text"] == "$200.00"
    assert view["terms"]["expires_at"] == view["deadlines"]["terms_expire_at"]
    assert view["sources"]["amount"] == "person"
    assert view["sources"]["payment"] == "system_of_record"
    ceiling = next(check for check in view["policy"]["checks"] if check["result"] == "require_review")
    assert set(ceiling) == {"id", "text", "observed", "limit", "result"}
    assert (view["policy"]["version"], len(view["policy"]["hash"])) == (1, 64)
    assert view["policy"]["needs"]["review"]["people"] == 1
    assert [(d["kind"], d["verdict"], d["role"]) for d in view["decisions"]] == [("consent", "approve", "customer")]
    assert view["deadlines"]["review_by"] == view["answer_by"]
    assert view["deadlines"]["consent_by"] is None
    assert view["next_step"].startswith("a decision on $200.00 in queue team until ")
    assert view["for_customer"] == "A colleague is looking at your request for $200.00."
    assert view["context"]["refundable_besides_this"]["remaining_text"] == "$300.00"
    assert view["context"]["earlier_refunds"] == []
    assert view["request"] | {"requester": None} == {
        "kind": "refund",
        "order_id": view["order_id"],
        "customer_id": view["customer_id"],
        "payment_id": view["payment_id"],
        "amount": 20_000,
        "currency": "USD",
        "full": False,
        "reason": "product_issue",
        "channel": "email",
        "requested_by": "uwe",
        "requester": None,
        "agent_id": None,
        "lines": [{"id": "l1", "quantity": 1}],
        "shipping": False,
        "metadata": {"case": "77"},
        "customer_authentication": {"method": "password", "at": "2026-09-01T10:00:00Z"},
        "has_message": False,
    }
    assert view["run"]["workflow_id"] == f"refund-{view['id']}"
    assert view["run"]["url"] == f"http://127.0.0.1:8233/namespaces/default/workflows/refund-{view['id']}"


async def test_earlier_refunds_of_the_payment_are_shown_and_reserve(api: Api) -> None:
    order = await api.order()
    first = (await api.ask(api.asked(order))).json()["id"]
    await api.quote(first)
    second = (await api.ask(api.asked(order, amount=10_000))).json()["id"]
    await api.quote(second)

    view = (await api.call("GET", f"/v1/refunds/{second}", await api.reviewer())).json()

    assert [(e["id"], e["status"], e["amount_text"]) for e in view["context"]["earlier_refunds"]] == [(first, "awaiting_review", "$200.00")]
    assert view["context"]["refundable_besides_this"]["remaining"] == 10_000
    assert view["context"]["refundable_besides_this"]["reserved"] == 20_000


async def test_a_denied_request_says_why_and_what_can_be_done(api: Api) -> None:
    order = await api.order(delivered_at=(api.clock.now() - timedelta(days=400)).isoformat())
    refund_id = (await api.ask(api.asked(order))).json()["id"]
    await api.quote(refund_id)

    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.shop())).json()

    assert (view["status"], view["final"], view["code"]) == ("denied", True, "OUTSIDE_WINDOW")
    assert view["meaning"] == "The return window is over."
    assert view["remedy"].startswith("See the checks")
    assert view["for_customer"] == f"We cannot refund this request. {view['policy']['appeal']}"
    assert view["policy"]["appeal"].startswith("If you do not agree")
    assert view["policy"]["governance"]["financial_ceiling"] == "$10,000.00"


async def test_lists_come_in_pages_newest_first(api: Api) -> None:
    order = await api.order()
    made = [(await api.ask(api.asked(order, amount=100 + n))).json()["id"] for n in range(5)]
    shop = await api.shop()

    found: list[str] = []
    cursor, pages = "", 0
    while cursor is not None:
        page = (await api.call("GET", f"/v1/refunds?limit=2{cursor}", shop)).json()
        found += [refund["id"] for refund in page["refunds"]]
        cursor = f"&cursor={page['next_cursor']}" if page["next_cursor"] else None
        pages += 1

    assert (found, pages) == (made[::-1], 3)


async def test_lists_are_narrowed_by_what_the_merchant_knows(api: Api) -> None:
    shop, rita = await api.shop(), await api.reviewer()
    view = await api.in_review()
    agent = await api.caller("bot", Role.REQUESTER, kind=PrincipalKind.AGENT)
    order = await api.order()
    by_agent = (await api.ask(api.asked(order), caller=agent)).json()

    async def found(query: str, caller: Any = rita) -> list[str]:
        return [r["id"] for r in (await api.call("GET", f"/v1/refunds?{query}", caller)).json()["refunds"]]

    assert await found("status=awaiting_review") == [view["id"]]
    assert await found("queue=team") == [view["id"]]
    assert await found("queue=elsewhere") == []
    assert await found(f"order_id={view['order_id']}") == [view["id"]]
    assert await found(f"customer_id={order['customer_id']}") == [by_agent["id"]]
    assert await found("agent_id=bot") == [by_agent["id"]]
    assert await found("created_after=2030-01-01T00:00:00Z") == []
    assert await found("created_after=2020-01-01T00:00:00Z") == [by_agent["id"], view["id"]]
    assert await found("", shop) == [view["id"]]
    assert await found("", agent) == [by_agent["id"]]


async def test_the_ledger_of_a_refund_has_no_gap_and_no_text(api: Api) -> None:
    view = await api.in_review(requested_by="uwe")

    answer = await api.call("GET", f"/v1/refunds/{view['id']}/ledger", await api.caller("otto", Role.AUDITOR))

    entries = answer.json()["entries"]
    assert [entry["refund_version"] for entry in entries] == list(range(1, len(entries) + 1))
    assert entries[-1]["refund_version"] == view["version"]
    assert [entry["type"] for entry in entries][:3] == ["refund_received", "status_changed", "quoted"]
    assert view["customer_id"] not in answer.text


async def test_an_order_is_versioned_by_its_content(api: Api) -> None:
    shop, order = await api.shop(), await api.order()
    body = {name: value for name, value in order.items() if name != "order_id"}
    path = f"/v1/orders/{order['order_id']}"

    same = await api.call("PUT", path, shop, body)
    changed = await api.call("PUT", path, shop, body | {"shipping": 500})
    shown = await api.call("GET", path, shop)

    assert (same.status_code, same.json()["version"]) == (200, 1)
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert shown.json() == changed.json()
    assert shown.json()["order"]["shipping"] == 500


@pytest.mark.parametrize(
    ("changed", "status", "code", "field"),
    [
        ({"customer_id": "somebody-else"}, 409, "ORDER_CONFLICT", "customer_id"),
        ({"currency": "XXX"}, 422, "UNKNOWN_CURRENCY", "currency"),
        ({"shipping": 1.5}, 422, "INVALID_FIELD", "shipping"),
        ({"shipping": -1}, 422, "INVALID_FIELD", "shipping"),
        ({"lines": [{"id": "a", "amount": 1}, {"id": "a", "amount": 1}]}, 422, "INVALID_FIELD", "lines"),
        ({"payments": [{"id": "cash", "amount": 1, "currency": "USD"}]}, 422, "INVALID_FIELD", "payments.0.id"),
        ({"payments": [{"id": "pi_other", "amount": True, "currency": "USD"}]}, 422, "INVALID_FIELD", "payments.0.amount"),
        ({"delivered_at": "2019-01-01T00:00:00Z"}, 422, "INVALID_FIELD", "delivered_at"),
        ({"placed_at": "0001-01-01T00:00:00+14:00", "delivered_at": None}, 422, "INVALID_FIELD", "placed_at"),
        ({"colour": "red"}, 422, "UNKNOWN_FIELD", "colour"),
    ],
)
async def test_a_wrong_order_names_the_field(shared_api: Api, changed: dict[str, Any], status: int, code: str, field: str) -> None:
    api = shared_api
    order = await api.order()
    body = {name: value for name, value in order.items() if name != "order_id"} | changed

    answer = await api.call("PUT", f"/v1/orders/{order['order_id']}", await api.shop(), body)

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (status, code, field)


async def test_an_unknown_order_is_not_found(api: Api) -> None:
    answer = await api.call("GET", "/v1/orders/nothing%20here", await api.shop())

    assert (answer.status_code, answer.json()["code"]) == (404, "ORDER_NOT_FOUND")


async def test_the_policy_is_read_and_published_whole(api: Api) -> None:
    now = (await api.call("GET", "/v1/policy", api.administrator)).json()
    new = {"source": now["source"].replace("Sample policy", "Ours"), "note": "our own"}

    published = await api.call("POST", "/v1/policy/versions", api.administrator, new)
    later = await api.call(
        "POST",
        "/v1/policy/versions",
        api.administrator,
        {"source": now["source"].replace("Sample policy", "Ours from tomorrow"), "note": "later"}
        | {"effective_from": (api.clock.now() + timedelta(days=1)).isoformat()},
    )

    assert (now["version"], published.status_code, published.json()["version"]) == (1, 201, 2)
    assert published.json()["hash"] != now["hash"]
    assert later.json()["version"] == 3
    assert (await api.call("GET", "/v1/policy", api.administrator)).json()["version"] == 2
    api.clock.advance(timedelta(days=2))
    assert (await api.call("GET", "/v1/policy", api.administrator)).json()["version"] == 3


async def test_a_policy_that_cannot_be_used_names_line_and_field(api: Api) -> None:
    now = (await api.call("GET", "/v1/policy", api.administrator)).json()
    source = now["source"].replace("terms_valid_for: 24h", "terms_valid_for: soon")

    answer = await api.call("POST", "/v1/policy/versions", api.administrator, {"source": source, "note": "x"})

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "INVALID_FIELD", "source")
    [problem] = answer.json()["errors"]
    assert problem["path"] == "terms_valid_for"
    assert source.splitlines()[problem["line"] - 1].startswith("terms_valid_for: soon")
    assert await api.count("policy_versions") == 1


async def test_a_policy_cannot_take_effect_in_the_past(api: Api) -> None:
    now = (await api.call("GET", "/v1/policy", api.administrator)).json()
    body = {"source": now["source"], "note": "x", "effective_from": "2020-01-01T00:00:00Z"}

    answer = await api.call("POST", "/v1/policy/versions", api.administrator, body)

    assert (answer.status_code, answer.json()["field"]) == (422, "effective_from")
