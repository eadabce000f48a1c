"""Pulls over HTTP: who may begin and see one, what is refused, and what is shown. The workers are away; their part is played through the store."""

from datetime import timedelta
from typing import Any

import pytest

from refunds.clock import rfc3339
from refunds.people import PrincipalKind, Role
from refunds.pulls import ListedPayment, PaymentPage
from store.pulling import Pulling
from tests.api.conftest import Api

PATH = "/v1/orders/pull"
NOBODY = "pull_00000000000000000000000000"


async def begun(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.call("POST", PATH, await api.shop(), body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"{PATH}/{answer.json()['id']}"
    return answer.json()


def listed(number: int, order: str | None, customer: str | None = "anna", captured: int = 3_000) -> ListedPayment:
    return ListedPayment(f"pi_pulled{number}", "succeeded", captured, "USD", None, order, customer)


async def carried(api: Api, pull_id: str, *payments: ListedPayment) -> None:
    """Play the worker over its login."""
    store = Pulling(api.payments)
    pull = await store.keep(await store.read(pull_id), PaymentPage(payments, None))
    while not pull.is_over:
        pull = await store.make(pull)


async def test_a_pull_is_stored_shown_and_reported_by_payment(api: Api) -> None:
    pull = await begun(api)
    assert (pull["phase"], pull["since"], pull["dry_run"], pull["finished_at"]) == ("reading", None, False, None)
    assert (pull["order_field"], pull["customer_field"]) == ("order_id", "customer_id")
    await carried(api, pull["id"], listed(1, "p-1"), listed(2, "p-1", captured=500), listed(3, None), listed(4, "p-2", None))

    olga = await api.caller("olga", Role.OPERATOR)
    done = (await api.call("GET", f"{PATH}/{pull['id']}", olga)).json()
    assert (done["phase"], done["payments"], done["judged"], done["pages"]) == ("done", 4, 4, 1)
    assert done["counts"] == {"created": 2, "new_version": 0, "unchanged": 0, "skipped": 2, "error": 0}
    order = await api.call("GET", "/v1/orders/p-1", await api.shop())
    assert [paid["amount"] for paid in order.json()["order"]["payments"]] == [3_000, 500]

    first = (await api.call("GET", f"{PATH}/{pull['id']}/payments?limit=3", olga)).json()
    rest = (await api.call("GET", f"{PATH}/{pull['id']}/payments?limit=3&cursor={first['next_cursor']}", olga)).json()
    shown = first["payments"] + rest["payments"]
    assert [(one["payment_id"], one["order_id"], one["outcome"], one["version"], one["code"]) for one in shown] == [
        ("pi_pulled1", "p-1", "created", 1, None),
        ("pi_pulled2", "p-1", "created", 1, None),
        ("pi_pulled3", None, "skipped", None, "NO_ORDER_ID"),
        ("pi_pulled4", "p-2", "skipped", None, "NO_CUSTOMER_ID"),
    ]
    assert shown[2]["remedy"] == "Send the order yourself, or set the metadata and pull again."
    assert (len(first["payments"]), rest["next_cursor"]) == (3, None)
    skipped = (await api.call("GET", f"{PATH}/{pull['id']}/payments?outcome=skipped", olga)).json()
    assert [one["payment_id"] for one in skipped["payments"]] == ["pi_pulled3", "pi_pulled4"]
    entries = await api.rows("SELECT type, data FROM ledger WHERE type LIKE 'orders_pull%' ORDER BY id")
    assert [entry["type"] for entry in entries] == ["orders_pull_requested", "orders_pull_finished"]
    assert "anna" not in str([entry["data"] for entry in entries])


async def test_a_page_that_nobody_was_given_is_refused(api: Api) -> None:
    answer = await api.call("GET", f"{PATH}/opl_00000000000000000000000000/payments?cursor=%00", await api.caller("olga", Role.OPERATOR))
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_FIELD")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"since": "yesterday"}, "INVALID_FIELD", "since"),
        ({"since": 1_700_000_000}, "INVALID_FIELD", "since"),
        ({"since": "2026-01-01"}, "INVALID_FIELD", "since"),
        ({"since": "2999-01-01T00:00:00Z"}, "INVALID_FIELD", "since"),
        ({"dry_run": "yes"}, "INVALID_FIELD", "dry_run"),
        ({"dry_run": 1}, "INVALID_FIELD", "dry_run"),
        ({"until": "2026-01-01T00:00:00Z"}, "UNKNOWN_FIELD", "until"),
    ],
)
async def test_what_cannot_be_pulled_is_refused_by_name_and_stores_nothing(
    shared_api: Api, body: dict[str, Any], code: str, field: str
) -> None:
    before = await shared_api.count("order_pulls")
    answer = await shared_api.call("POST", PATH, await shared_api.shop(), body)
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, field)
    assert await shared_api.count("order_pulls") == before


async def test_bodies_that_are_none_and_pulls_that_are_not_there(shared_api: Api) -> None:
    api, shop = shared_api, await shared_api.shop()
    assert (await api.call("POST", PATH, shop, b"[]")).json()["code"] == "MALFORMED_JSON"
    for path in (f"{PATH}/{NOBODY}", f"{PATH}/nonsense", f"{PATH}/{NOBODY}/payments", f"{PATH}/rf_00000000000000000000000000"):
        answer = await api.call("GET", path, shop)
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), path
    pull = await begun(api, since=rfc3339(api.clock.now() - timedelta(days=1)), dry_run=True)
    for query, field in (("outcome=gone", "outcome"), ("limit=0", "limit"), ("limit=501", "limit"), ("order=1", "order")):
        answer = await api.call("GET", f"{PATH}/{pull['id']}/payments?{query}", shop)
        assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_only_integrators_and_operators_pull_and_look(shared_api: Api) -> None:
    api = shared_api
    pull = await begun(api)
    for role in Role:
        caller = await api.caller(f"only-{role.value}", role, kind=PrincipalKind.PERSON)
        allowed = role in (Role.INTEGRATOR, Role.OPERATOR)
        assert (await api.call("POST", PATH, caller, {})).status_code == (202 if allowed else 403), role
        for path in (f"{PATH}/{pull['id']}", f"{PATH}/{pull['id']}/payments"):
            assert (await api.call("GET", path, caller)).status_code == (200 if allowed else 403), role
    assert (await api.call("POST", PATH, None, {})).status_code == 401


async def test_an_order_may_be_called_pull(shared_api: Api) -> None:
    shop = await shared_api.shop()
    body = {"customer_id": "anna", "currency": "USD"}
    assert (await shared_api.call("PUT", PATH, shop, body)).status_code == 201
    assert (await shared_api.call("GET", PATH, shop)).json()["order_id"] == "pull"
