"""Everything that is held of a customer, for the person who asks: whole, opened, recorded, and of nobody else."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.customers import CustomerExport
from refunds.people import Role
from store import disclosing
from tests.api.conftest import Api, running
from tests.api.test_forgetting import MARK, forget, withdrawn
from tests.conftest import FreshDatabase

OTHERS = "zqothersqz"


@pytest.fixture
async def api(database: FreshDatabase) -> AsyncIterator[Api]:
    async with running(database) as started:
        yield started


async def exported(api: Api, customer: str) -> dict[str, Any]:
    answer = await api.call("GET", f"/v1/customers/{customer}/export", api.administrator)
    assert answer.status_code == 200, answer.text
    CustomerExport.model_validate_json(answer.content)
    return json.loads(answer.text)


async def test_it_holds_everything_of_the_person_and_nothing_of_another(api: Api) -> None:
    order = await api.order(lines=[{"id": "mug-1", "title": "Blue Mug", "amount": 30_000}])
    view = await withdrawn(api, order, lines=[{"id": "mug-1"}], channel="chat")
    other = await api.order(customer_id=OTHERS, lines=[{"id": OTHERS, "title": OTHERS, "amount": 30_000}])
    await withdrawn(api, other, metadata={OTHERS: OTHERS})

    found = await exported(api, order["customer_id"])

    assert OTHERS not in json.dumps(found)
    assert found["customer"]["customer_id"] == order["customer_id"]
    assert found["counts"] == {"orders": 1, "refunds": 1, "groups": 0, "texts": len(view["texts"]) + 1}
    [its_order], [refund] = found["orders"], found["refunds"]
    assert (its_order["order_id"], its_order["order"]["lines"][0]["title"]) == (order["order_id"], "Blue Mug")
    assert [payment["payment_id"] for payment in its_order["payments"]] == [view["payment_id"]]
    assert {kind: words for kind, words in refund["texts"].items() if kind != "reading"} == view["texts"]
    assert refund["texts"]["message"] == f"I am {MARK}"
    assert refund["details"]["metadata"] == {MARK: MARK}
    committed = {kind: value for entry in refund["ledger"] for kind, value in (entry["commitments"] or {}).items()}
    for kind, words in refund["texts"].items():
        name = kind if kind in committed else kind.partition(":")[0]
        assert hashlib.sha256(bytes.fromhex(refund["salts"][kind]) + words.encode()).hexdigest() in (
            committed.get(name),
            committed.get(kind),
        )
    assert [entry["version"] for entry in refund["ledger"]] == list(range(1, view["version"] + 1))
    assert refund["revisions"][0]["facts"]["customer"] == view["context"]["customer"]
    assert [decision["role"] for decision in refund["decisions"]] == [decision["role"] for decision in view["decisions"]]
    assert found["summary"][0] == f"1 order, 1 refund and {len(view['texts']) + 1} texts are held."
    assert found["summary"][-1] == f"{view['status']}: 1 refund, {view['amount_text']} ({view['currency']})."


async def test_colleagues_stand_in_it_by_their_roles_only(api: Api) -> None:
    order = await api.order()
    view = await api.in_review(order, requested_by="Gwendolyn")
    body = {"verdict": "deny", "terms_hash": view["terms_hash"], "note": "not ours"}
    assert (await api.call("POST", f"/v1/refunds/{view['id']}/decisions", await api.reviewer("Rosalind"), body)).is_success

    found = await exported(api, order["customer_id"])

    assert "Gwendolyn" not in json.dumps(found), "who of the merchant's asked"
    assert "Rosalind" not in json.dumps(found) and api.callers["Rosalind"].id not in json.dumps(found)
    assert [decision["role"] for decision in found["refunds"][0]["decisions"]][-1] == "reviewer"
    assert "not ours" in str(found["refunds"][0]["texts"])


async def test_that_it_was_handed_out_is_entered_without_the_person(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)

    found = await exported(api, order["customer_id"])

    [entry] = await api.rows("SELECT actor, data FROM ledger WHERE type = 'customer_exported'")
    assert entry["data"] == {"customer": found["customer"]["our_id"], "held": found["counts"]}


async def test_much_is_read_a_page_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disclosing, "PAGE", 2)
    monkeypatch.setattr("api.disclosing.PAGE", 2)
    orders = [await api.order(customer_id="many") for _ in range(5)]
    asked = [await api.received(order) for order in orders[:4]]

    found = await exported(api, "many")

    assert [one["order_id"] for one in found["orders"]] == [order["order_id"] for order in orders]
    assert [one["id"] for one in found["refunds"]] == sorted(asked)


async def test_an_unknown_one_is_not_found_and_a_forgotten_one_is_gone(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    await forget(api, order["customer_id"])

    unknown = await api.call("GET", f"/v1/customers/{MARK}/export", api.administrator)
    gone = await api.call("GET", f"/v1/customers/{order['customer_id']}/export", api.administrator)

    assert (unknown.status_code, unknown.json()["code"]) == (404, "CUSTOMER_NOT_FOUND")
    assert MARK not in unknown.text
    assert (gone.status_code, gone.json()["code"]) == (410, "CUSTOMER_FORGOTTEN")
    assert await api.rows("SELECT 1 FROM ledger WHERE type = 'customer_exported'") == []


async def test_a_text_that_cannot_be_opened_keeps_the_rest_from_nobody(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    with api.fresh.connect("postgres") as connection:
        connection.execute("UPDATE texts SET sealed = sealed || 'x' WHERE kind = 'message'")

    [refund] = (await exported(api, order["customer_id"]))["refunds"]

    assert (refund["texts"], refund["texts_unreadable"]) == (None, True)
    assert refund["status"] == "withdrawn"


async def test_only_an_operator_exports(api: Api) -> None:
    order = await api.order()
    for role in Role:
        caller = await api.caller(f"one-{role}", role)
        answer = await api.call("GET", f"/v1/customers/{order['customer_id']}/export", caller)
        assert answer.status_code == (200 if role is Role.OPERATOR else 403), role
