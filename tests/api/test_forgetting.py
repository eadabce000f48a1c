"""Forgetting a customer over the API: what goes, what stays, what is refused, and what is written down outside the database first."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from activities.classifiers.rules import RuleClassifier
from refunds.erasure import read_line
from refunds.people import Role
from store.classifying import Classifying
from store.db import connect
from tests.api.conftest import Api, running
from tests.conftest import FreshDatabase

ASKED = {"reason": "customer_asked", "reference": "DSR-17"}
MARK = "zqpersonqz"


@pytest.fixture
def listed(open_home: Path) -> Path:
    return open_home / "erasures.jsonl"


@pytest.fixture
async def api(database: FreshDatabase, listed: Path) -> AsyncIterator[Api]:
    """An installation with a list of erasures."""
    async with running(database, erasure_list=str(listed)) as started:
        yield started


def written(list_: Path) -> list[str]:
    """The lines of the list."""
    return list_.read_text().splitlines() if list_.exists() else []


def signing(api: Api) -> bytes:
    """What the list's lines are signed with."""
    vault = api.app.state.services.database.vault
    return vault.keys.erasures()


async def forget(api: Api, customer: str, body: dict[str, Any] | None = None) -> Any:
    """Ask for it, as an operator."""
    return await api.call("POST", f"/v1/customers/{customer}/erasure", api.administrator, ASKED if body is None else body)


async def withdrawn(api: Api, order: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """A refund that was asked for with every kind of text, and withdrawn."""
    texts = {
        "message": f"I am {MARK}",
        "agent_reasoning": MARK,
        "conversation_context": MARK,
        "metadata": {MARK: MARK},
        "agent_session_id": MARK,
    }
    refund_id = await api.received(order, **(texts | changed))
    await read(api, refund_id)
    await api.quote(refund_id)
    gone = await api.call("POST", f"/v1/refunds/{refund_id}/withdrawal", await api.shop(), {"note": MARK})
    assert gone.status_code == 200, gone.text
    view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()
    assert (view["status"], view["reading"]["failure"]) == ("withdrawn", None)
    return view


async def read(api: Api, refund_id: str) -> None:
    """Play the classify role: read the text by the rules."""
    pool = connect(api.fresh.url("refunds_classify"), api.clock, api.settings, name="test")
    try:
        store = Classifying(pool, api.app.state.services.texts)
        unread = await store.unread(refund_id)
        assert unread is not None
        await store.save(refund_id, await RuleClassifier().classify(unread[0]))
    finally:
        await pool.close()


async def everything(api: Api) -> str:
    """Every column of every table, as text; of bytes also what they hold."""
    tables = await api.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1")
    found = [str([dict(row) for row in await api.rows(f'SELECT * FROM "{table["table_name"]}"')]) for table in tables]
    return "\n".join(found)


async def test_nothing_that_leads_to_the_person_is_left_and_the_figures_are(api: Api) -> None:
    order = await api.order(lines=[{"id": MARK, "title": MARK, "amount": 30_000}], customer_id=f"{MARK}-customer")
    before = await withdrawn(api, order, lines=[{"id": MARK}])
    assert MARK in await everything(api)

    answer = await forget(api, order["customer_id"])

    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["removed"]["keys"], body["removed"]["orders"], body["listed"]) == (1, 1, True)
    left = await everything(api)
    assert MARK not in left
    assert [row["account_created_at"] for row in await api.rows("SELECT account_created_at FROM customers")] == [None]
    assert [row["body_hash"] for row in await api.rows("SELECT body_hash FROM refunds")] == [""]
    assert order["customer_id"] not in left and order["order_id"] not in left
    after = (await api.call("GET", f"/v1/refunds/{before['id']}", await api.reviewer())).json()
    assert after["customer_forgotten_at"] == body["forgotten_at"]
    assert (after["customer_id"], after["order_id"], after["texts"], after["request"]["metadata"]) == (None, None, {}, {})
    same = ("id", "status", "amount", "currency", "payment_id", "terms", "policy", "decisions", "revisions", "deadlines", "version")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert [line["amount"] for line in after["breakdown"]["lines"]] == [line["amount"] for line in before["breakdown"]["lines"]]
    assert after["terms_hash"] == before["terms_hash"]
    page = await api.call("GET", "/v1/refunds", await api.reviewer())
    assert [(one["id"], one["customer_id"]) for one in page.json()["refunds"]] == [(before["id"], None)]


async def test_it_is_one_entry_that_names_our_own_id_only(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    earlier = (await api.rows("SELECT max(id) AS last FROM ledger"))[0]["last"]

    erased = (await forget(api, order["customer_id"])).json()

    [entry] = await api.rows("SELECT type, refund_id, data FROM ledger WHERE id > :last", last=earlier)
    assert (entry["type"], entry["refund_id"]) == ("customer_forgotten", None)
    assert entry["data"] == {
        "customer": erased["customer"],
        "erasure": erased["id"],
        "forgotten_at": erased["forgotten_at"],
        "reason": "customer_asked",
        "reference": "DSR-17",
        "removed": erased["removed"],
    }


async def test_another_customer_keeps_everything(api: Api) -> None:
    one, other = await api.order(), await api.order()
    await withdrawn(api, one)
    kept = await withdrawn(api, other)

    await forget(api, one["customer_id"])

    assert (await api.call("GET", f"/v1/refunds/{kept['id']}", await api.reviewer())).json() == kept


async def test_twice_answers_the_same_and_enters_nothing(api: Api, listed: Path) -> None:
    order = await api.order()
    await withdrawn(api, order)
    first = (await forget(api, order["customer_id"])).json()
    entries, lines = await api.count("ledger"), written(listed)

    again = await forget(api, order["customer_id"], {"reason": "no_longer_needed"})

    assert again.status_code == 200
    assert again.json() == first | {"removed": {"keys": 0, "texts": 0, "orders": 0}}
    assert (await api.count("ledger"), written(listed)) == (entries, lines)


async def test_at_once_from_several_places_it_is_one_erasure(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)

    answers = await asyncio.gather(*(forget(api, order["customer_id"]) for _ in range(6)))

    assert [answer.status_code for answer in answers] == [200] * 6
    assert len({(answer.json()["id"], answer.json()["forgotten_at"]) for answer in answers}) == 1
    assert sum(answer.json()["removed"]["keys"] for answer in answers) == 1
    assert [row["type"] for row in await api.rows("SELECT type FROM ledger WHERE type = 'customer_forgotten'")] == ["customer_forgotten"]


async def test_an_unknown_customer_is_not_found_and_not_written_down(api: Api, listed: Path) -> None:
    answer = await forget(api, f"{MARK}-nobody")

    assert (answer.status_code, answer.json()["code"]) == (404, "CUSTOMER_NOT_FOUND")
    assert MARK not in answer.text
    assert written(listed) == []
    assert await api.count("erasures") == 0


async def test_refunds_under_way_are_named_and_nothing_is_touched(api: Api, listed: Path) -> None:
    order = await api.order()
    view = await api.in_review(order, agent_reasoning="still needed")
    before = await everything(api)

    answer = await forget(api, order["customer_id"])

    assert (answer.status_code, answer.json()["code"]) == (409, "CUSTOMER_HAS_OPEN_REFUNDS")
    assert answer.json()["refunds"] == [{"id": view["id"], "status": "awaiting_review"}]
    assert await everything(api) == before
    assert written(listed) == []


async def test_the_same_id_later_is_a_new_customer(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    first = (await forget(api, order["customer_id"])).json()

    later = await api.order(customer_id=order["customer_id"])
    await withdrawn(api, later)
    second = (await forget(api, order["customer_id"])).json()

    assert second["customer"] != first["customer"]
    assert second["removed"]["keys"] == 1
    assert await api.count("erasures") == 2


async def test_an_order_of_the_forgotten_that_is_sent_again_cannot_be_refunded_twice(api: Api) -> None:
    order = await api.order()
    await withdrawn(api, order)
    await forget(api, order["customer_id"])
    sent = {name: value for name, value in order.items() if name != "order_id"}

    again = await api.call("PUT", f"/v1/orders/{order['order_id']}", await api.shop(), sent)

    assert (again.status_code, again.json()["code"], again.json()["field"]) == (409, "ORDER_CONFLICT", "payments.0.id")
    asked = await api.ask(api.asked(order))
    assert (asked.status_code, asked.json()["code"]) == (404, "ORDER_NOT_FOUND")


async def test_what_is_written_after_forgetting_goes_with_the_next_call(api: Api) -> None:
    order = await api.order()
    view = await withdrawn(api, order)
    first = (await forget(api, order["customer_id"])).json()
    async with api.owner.begin() as connection:
        await connection.execute(
            text("INSERT INTO texts (refund_id, kind, customer_id, sealed, recorded_at) VALUES (:r, 'note:late', :c, 'x', now())"),
            {"r": view["id"], "c": first["customer"]},
        )

    again = (await forget(api, order["customer_id"])).json()

    assert (again["id"], again["removed"]["texts"]) == (first["id"], 1)
    assert await api.count("texts") == 0
    assert len(await api.rows("SELECT 1 FROM ledger WHERE type = 'customer_forgotten'")) == 2, "what was taken away is entered"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reason"),
        ({"reason": "because Ann Smith wrote"}, "reason"),
        ({"reason": "customer_asked", "reference": "Ann Smith"}, "reference"),
        ({"reason": "customer_asked", "reference": "ann@example.org"}, "reference"),
        ({"reason": "customer_asked", "customer": "x"}, "customer"),
    ],
)
async def test_a_reason_that_could_name_the_person_is_not_taken(api: Api, body: dict[str, Any], field: str) -> None:
    order = await api.order()

    answer = await forget(api, order["customer_id"], body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert await api.count("erasures") == 0


async def test_only_an_operator_forgets(api: Api) -> None:
    order = await api.order()
    for role in Role:
        caller = await api.caller(f"one-{role}", role)
        answer = await api.call("POST", f"/v1/customers/{order['customer_id']}/erasure", caller, {})
        assert answer.status_code == (422 if role is Role.OPERATOR else 403), role
    assert await api.count("erasures") == 0


async def test_ids_with_odd_characters_are_whole(api: Api) -> None:
    for odd in ("a/b", "a/erasure", "ü ñ?#&", "../x"):
        order = await api.order(customer_id=odd)
        await withdrawn(api, order)
        quoted = "".join(f"%{byte:02X}" for byte in odd.encode())
        answer = await forget(api, quoted)
        assert answer.status_code == 200, (odd, answer.text)
        assert answer.json()["removed"]["orders"] == 1


# --- the list outside


async def test_what_was_done_is_on_the_list_without_the_person(api: Api, listed: Path) -> None:
    order = await api.order(customer_id=MARK)
    await withdrawn(api, order)

    erased = (await forget(api, MARK)).json()

    [line] = written(listed)
    read = read_line(line, signing(api))
    assert (read.id, read.customer, read.reason, read.reference) == (erased["id"], erased["customer"], "customer_asked", "DSR-17")
    assert MARK not in line and order["order_id"] not in line


async def test_an_order_wide_refund_of_the_forgotten_is_shown_with_its_figures(api: Api) -> None:
    goods = [{"id": MARK, "title": MARK, "amount": 15_000}]
    cards = [{"id": f"pi_forgotten{n}", "amount": amount, "currency": "USD"} for n, amount in enumerate((10_000, 5_000))]
    order = await api.order(payments=cards, lines=goods)
    body = api.asked(order, amount=15_000, metadata={MARK: MARK}, message=MARK)
    made = (await api.call("POST", "/v1/refund-groups", await api.shop(), body, Idempotency_Key="group")).json()
    assert (await api.call("POST", f"/v1/refund-groups/{made['id']}/withdrawal", await api.shop(), {})).status_code == 200
    before = (await api.call("GET", f"/v1/refund-groups/{made['id']}", await api.reviewer())).json()

    assert (await forget(api, order["customer_id"])).status_code == 200

    after = (await api.call("GET", f"/v1/refund-groups/{made['id']}", await api.reviewer())).json()
    assert (after["customer_id"], after["order_id"]) == (None, None)
    assert after["customer_forgotten_at"] is not None
    [group] = await api.rows("SELECT body_hash, details FROM refund_groups")
    assert (group["body_hash"], group["details"]["customer_authentication"].keys()) == ("", {"at"}), (
        "that, and not how they were made sure of"
    )
    same = ("allocation", "sums", "final", "asked")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert MARK not in await everything(api) and MARK not in json.dumps(after)
    assert (await api.call("GET", "/v1/refund-groups", await api.reviewer())).status_code == 200
