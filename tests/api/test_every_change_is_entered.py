"""Every call that changes something, done once on a real database: it leaves exactly the entries it should, and when they cannot be written nothing is changed.

A call of the API that is not here fails the first test: there is no way to add one without saying what it enters (promise P8).
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from api.app import ROUTES
from refunds.discrepancies import Kind
from refunds.erasure import Because, Erasure
from refunds.errors import Code
from refunds.ids import Prefix, new_id
from refunds.people import Role
from refunds.policy.load import sample_policy_text
from refunds.processor import DisputeState, PaymentState, PaymentStatus
from store import discrepancies
from store.operations import Payments
from store.snapshots import save
from tests.api.conftest import Api
from tests.api.test_forgetting import signing
from tests.witness import RECORD

NOTHING = {
    "POST /v1/quotes": "stores nothing",
    "POST /v1/policy/simulations": "stores nothing",
    "POST /webhooks/stripe": "the inbox: an event is a hint, and what is believed because of it is entered when it is",
}
"""Calls that change nothing of the record, and why."""

Call = tuple[str, Any, Any]
"""An address, who calls, and the body."""


async def waiting(api: Api) -> dict[str, Any]:
    return await api.in_review(message=None)


async def ask_refund(api: Api) -> Call:
    return "/v1/refunds", await api.shop(), api.asked(await api.order())


async def ask_ticket(api: Api) -> Call:
    order = await api.order()
    return "/v1/tickets", await api.shop(), {"message": "It broke", "customer_id": order["customer_id"], "order_id": order["order_id"]}


async def decide(api: Api) -> Call:
    view = await waiting(api)
    body = {"verdict": "approve", "terms_hash": view["terms_hash"], "note": "looked"}
    return f"/v1/refunds/{view['id']}/decisions", await api.reviewer(), body


async def revise(api: Api) -> Call:
    view = await waiting(api)
    body = {"amount": 15_000, "currency": "USD", "terms_hash": view["terms_hash"]}
    return f"/v1/refunds/{view['id']}/revisions", await api.reviewer(), body


async def consent(api: Api) -> Call:
    refund = await api.received(customer_authentication=None)
    await api.quote(refund)
    view = (await api.call("GET", f"/v1/refunds/{refund}", await api.reviewer())).json()
    return f"/v1/refunds/{refund}/consent", await api.shop(), {"terms_hash": view["terms_hash"], "agreed": True}


async def withdraw(api: Api) -> Call:
    return f"/v1/refunds/{(await waiting(api))['id']}/withdrawal", await api.shop(), {}


async def settle(api: Api) -> Call:
    """Play the workers up to a refund of which nobody knows."""
    view = await waiting(api)
    path, by, body = (
        f"/v1/refunds/{view['id']}",
        await api.reviewer(),
        {"verdict": "approve", "terms_hash": view["terms_hash"], "note": "x"},
    )
    await api.call("POST", f"{path}/decisions", by, body)
    payments = Payments(api.payments, api.settings, "test-worker")
    seen = await payments.standing(view["id"])
    state = PaymentState(
        **{"processor_payment": seen.processor_payment, "status": PaymentStatus.CAPTURED, "currency": "USD", "captured": 30_000},
        **{"capturable": 0, "refunds": (), "dispute": DisputeState.NONE, "risk_level": "normal", "read_at": api.clock.now()},
    )
    [row] = await api.rows("SELECT payment_id FROM refunds WHERE id = :id", id=view["id"])
    async with api.payments.begin() as connection:
        await save(connection, row["payment_id"], state, now=state.read_at)
    opened = await payments.open_attempt(seen, state)
    assert isinstance(opened, tuple), opened
    await payments.park(opened[0], Code.OUTCOME_UNKNOWN, "test")
    settler = await api.caller("sid", Role.SETTLER)
    return f"{path}/settlement", settler, {"outcome": "refunded", "processor_refund_id": "re_1", "evidence": "seen"}


async def assign(api: Api) -> Call:
    view = await waiting(api)
    await api.reviewer()
    return f"/v1/refunds/{view['id']}/assignment", await api.caller("mia", Role.MANAGER), {"to": "rita", "reason": "knows it"}


async def attach(api: Api) -> Call:
    return f"/v1/refunds/{(await waiting(api))['id']}/evidence", await api.reviewer(), {"kind": "photo", "statement": "a crack"}


async def group(api: Api, **changed: Any) -> dict[str, Any]:
    """A group of two parts that were both quoted."""
    order = await api.order()
    more = await api.order(
        payments=[{"id": f"pi_{order['order_id'].removeprefix('order-')}part{n}", "amount": 15_000, "currency": "USD"} for n in range(2)]
    )
    body = api.asked(more, amount=25_000, **changed)
    made = await api.call("POST", "/v1/refund-groups", await api.shop(), body, Idempotency_Key=more["order_id"])
    for part in made.json()["refunds"]:
        await api.quote(part["id"])
    return (await api.call("GET", f"/v1/refund-groups/{made.json()['id']}", await api.reviewer())).json()


async def ask_group(api: Api) -> Call:
    order = await api.order()
    more = await api.order(
        payments=[{"id": f"pi_{order['order_id'].removeprefix('order-')}part{n}", "amount": 15_000, "currency": "USD"} for n in range(2)]
    )
    return "/v1/refund-groups", await api.shop(), api.asked(more, amount=25_000)


async def decide_group(api: Api) -> Call:
    made = await group(api)
    return f"/v1/refund-groups/{made['id']}/decisions", await api.reviewer(), {"verdict": "approve", "terms": made["decide"], "note": "x"}


async def agree_group(api: Api) -> Call:
    made = await group(api, customer_authentication=None)
    return f"/v1/refund-groups/{made['id']}/consent", await api.shop(), {"agreed": True, "terms": made["agree"]}


async def withdraw_group(api: Api) -> Call:
    return f"/v1/refund-groups/{(await group(api))['id']}/withdrawal", await api.shop(), {}


def to(path: str, body: Any, *roles: Role) -> Callable[[Api], Awaitable[Call]]:
    async def made(api: Api) -> Call:
        return path, await api.caller("-".join(roles), *roles), body

    return made


async def put_order(api: Api) -> Call:
    return "/v1/orders/o-1", await api.shop(), ORDER


ORDER = {"customer_id": "c-1", "currency": "USD", "payments": [{"id": "pi_o1", "amount": 3_000, "currency": "USD"}]}


async def import_orders(api: Api) -> Call:
    orders = [{"order_id": f"i-{n}", "order": ORDER | {"payments": [{"id": f"pi_i{n}", "amount": 1, "currency": "USD"}]}} for n in range(2)]
    return "/v1/orders/import", await api.shop(), {"orders": orders}


async def forget(api: Api) -> Call:
    order = await api.order()
    return f"/v1/customers/{order['customer_id']}/erasure", await api.caller("olga", Role.OPERATOR), {"reason": "customer_asked"}


async def replay_erasures(api: Api) -> Call:
    """After a restore: somebody on the list is known again, and another one is not."""
    order = await api.order()
    shown = (await api.call("GET", f"/v1/orders/{order['order_id']}", await api.shop())).json()
    [row] = await api.rows("SELECT customer_id FROM orders WHERE id = :id", id=shown["id"])
    by = await api.caller("olga", Role.OPERATOR)
    ids = (row["customer_id"], new_id(Prefix.CUSTOMER))
    lines = [
        Erasure(new_id(Prefix.ERASURE), customer, api.clock.now(), by.id, Because.CUSTOMER_ASKED).line(signing(api)) for customer in ids
    ]
    return "/v1/erasures/replays", by, {"lines": lines, "complete": True}


async def retain(api: Api) -> Call:
    """Something has had its time: the mark of who was forgotten, two months ago."""
    path, by, body = await forget(api)
    forgotten = (await api.call("POST", path, by, body)).json()
    async with api.owner.begin() as connection:
        await connection.execute(text("UPDATE erasures SET forgotten_at = forgotten_at - interval '60 days' WHERE id = :id"), forgotten)
    return "/v1/retention/runs", by, {}


async def settle_leg(api: Api) -> Call:
    """A refund whose leg waits for a person."""
    path, settler, _ = await settle(api)
    [operation] = await api.rows("SELECT id FROM operations WHERE refund_id = :id", id=path.split("/")[3])
    leg = {"id": new_id(Prefix.LEG), "refund": path.split("/")[3], "operation": operation["id"], "at": api.clock.now()}
    async with api.owner.begin() as connection:
        await connection.execute(text(PARKED_LEG), leg)
    body = {"outcome": "reversed", "reversal_id": "trr_1", "evidence": "made by hand"}
    return path.replace("settlement", f"legs/{leg['id']}/settlement"), settler, body


PARKED_LEG = """
    INSERT INTO legs (id, refund_id, operation_id, number, kind, target, account, amount, currency, request, idempotency_key, state, state_since, created_at)
    VALUES (:id, :refund, :operation, 1, 'reverse_transfer', 'tr_1', 'acct_2', 100, 'USD', '{}', :id, 'parked', :at, :at)
"""


async def judge(api: Api) -> Call:
    async with api.payments.begin() as connection:
        given: dict[str, Any] = {"kind": Kind.AMOUNT, "processor": "stripe", "processor_refund": "re_9"}
        evidence = {"ours": {"amount": 3, "currency": "USD"}, "theirs": {"amount": 2, "currency": "USD", "state": "succeeded"}}
        await discrepancies.note(connection, api.clock.now(), evidence=evidence, **given)
    [row] = await api.rows("SELECT id FROM discrepancies")
    path = f"/v1/reconciliation/discrepancies/{row['id']}"
    return path, await api.caller("olga", Role.OPERATOR), {"state": "explained", "note": "a case"}


async def approving(api: Api) -> Call:
    return f"/v1/people/{(await api.reviewer()).id}/approving", await api.caller("olga", Role.OPERATOR), {"approves_up_to": {"USD": 5}}


async def new_key(api: Api) -> Call:
    body = {"principal_id": (await api.reviewer()).id, "roles": ["reviewer"]}
    return "/v1/keys", await api.caller("olga", Role.OPERATOR), body


async def revoke_key(api: Api) -> Call:
    [row] = await api.rows("SELECT id FROM api_keys WHERE principal_id = :id", id=(await api.reviewer("rob")).id)
    return f"/v1/keys/{row['id']}", await api.caller("olga", Role.OPERATOR), None


async def delegate(api: Api) -> Call:
    await api.reviewer("rob2")
    mia = await api.caller("mia", Role.MANAGER)
    return "/v1/delegations", mia, {"to": "rob2", "role": "reviewer", "ends_at": (api.clock.now() + timedelta(days=1)).isoformat()}


async def end_delegation(api: Api) -> Call:
    path, mia, body = await delegate(api)
    made = await api.call("POST", path, mia, body)
    return f"{path}/{made.json()['id']}", mia, None


async def period(api: Api) -> Call:
    now = api.clock.now()
    body = {"from": (now - timedelta(days=1)).isoformat(), "to": now.isoformat()}
    return "/v1/ledger/periods", await api.caller("otto", Role.AUDITOR), body


async def publish(api: Api) -> Call:
    return (
        "/v1/policy/versions",
        await api.caller("olga", Role.OPERATOR),
        {"source": sample_policy_text().replace("terms_valid_for: 24h", "terms_valid_for: 23h"), "note": "x"},
    )


CALLS: dict[str, tuple[Callable[[Api], Awaitable[Call]], list[str]]] = {
    "POST /v1/refunds": (ask_refund, ["refund_received"]),
    "POST /v1/tickets": (ask_ticket, ["refund_received"]),
    "POST /v1/refunds/{refund_id}/decisions": (decide, ["decision_recorded", "note_kept", "status_changed"]),
    "POST /v1/refunds/{refund_id}/revisions": (revise, ["revise_recorded"]),
    "POST /v1/refunds/{refund_id}/consent": (consent, ["decision_recorded", "status_changed"]),
    "POST /v1/refunds/{refund_id}/withdrawal": (withdraw, ["withdraw_recorded", "status_changed"]),
    "POST /v1/refunds/{refund_id}/settlement": (settle, ["note_kept", "settle_recorded"]),
    "POST /v1/refunds/{refund_id}/legs/{leg_id}/settlement": (settle_leg, ["note_kept", "settle_recorded"]),
    "POST /v1/refunds/{refund_id}/assignment": (assign, ["assign_recorded", "note_kept"]),
    "POST /v1/refunds/{refund_id}/evidence": (attach, ["evidence_attached"]),
    "POST /v1/refund-groups": (ask_group, ["group_received", "refund_received", "refund_received"]),
    "POST /v1/refund-groups/{group_id}/decisions": (decide_group, ["decision_recorded", "note_kept", "status_changed"] * 2),
    "POST /v1/refund-groups/{group_id}/consent": (agree_group, ["decision_recorded", "status_changed"] * 2),
    "POST /v1/refund-groups/{group_id}/withdrawal": (withdraw_group, ["withdraw_recorded", "status_changed"] * 2),
    "PUT /v1/orders/{order_id}": (put_order, ["order_recorded"]),
    "POST /v1/orders/import": (import_orders, ["order_recorded", "order_recorded"]),
    "POST /v1/orders/pull": (to("/v1/orders/pull", {}, Role.OPERATOR), ["orders_pull_requested"]),
    "PUT /v1/controls": (to("/v1/controls", {"state": "stopped", "reason": "x"}, Role.OPERATOR), ["control_changed"]),
    "POST /v1/customers/{customer_id:path}/erasure": (forget, ["customer_forgotten"]),
    "POST /v1/erasures/replays": (replay_erasures, ["customer_forgotten", "erasures_replayed"]),
    "POST /v1/retention/runs": (retain, ["retention_applied"]),
    "POST /v1/people": (to("/v1/people", {"kind": "person", "handle": "new", "name": "New"}, Role.OPERATOR), ["principal_created"]),
    "PUT /v1/people/{principal_id}/approving": (approving, ["approving_set"]),
    "POST /v1/keys": (new_key, ["key_created"]),
    "DELETE /v1/keys/{key_id}": (revoke_key, ["key_revoked"]),
    "POST /v1/master-key/rotation": (
        to("/v1/master-key/rotation", {"anew": True}, Role.OPERATOR),
        ["customer_keys_rewrapped", "master_key_rotated"],
    ),
    "POST /v1/delegations": (delegate, ["delegation_made"]),
    "DELETE /v1/delegations/{delegation_id}": (end_delegation, ["delegation_ended"]),
    "POST /v1/policy/versions": (publish, ["policy_published"]),
    "PUT /v1/rates": (to("/v1/rates", {"currency": "EUR", "rate": "1.1", "source": "x"}, Role.OPERATOR), ["rate_recorded"]),
    "POST /v1/reconciliation/runs": (
        to("/v1/reconciliation/runs", {"since": "2026-11-01T00:00:00Z"}, Role.OPERATOR),
        ["reconciliation_requested"],
    ),
    "POST /v1/reconciliation/discrepancies/{discrepancy_id}": (judge, ["discrepancy_changed"]),
    "POST /v1/reconciliation/restored": (to("/v1/reconciliation/restored", {"reason": "x"}, Role.OPERATOR), ["processor_halted"]),
    "POST /v1/ledger/checkpoint": (to("/v1/ledger/checkpoint", {}, Role.AUDITOR), ["checkpoint_requested"]),
    "POST /v1/ledger/periods": (period, ["period_exported"]),
}


def test_every_call_that_changes_something_says_what_it_enters() -> None:
    changing = {
        f"{method} {route.path}" for route in ROUTES for method in route.methods or () if method in ("POST", "PUT", "PATCH", "DELETE")
    }

    assert changing == CALLS.keys() | NOTHING.keys()


async def record(api: Api) -> dict[str, str]:
    """Everything on record, table by table."""
    digests = ", ".join(
        f"(SELECT md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) FROM {table} t) AS {table}" for table in RECORD
    )
    return dict((await api.rows(f"SELECT {digests}"))[0])


async def refusing(api: Api, *, on: bool) -> None:
    """Have the database refuse to store an entry at the very end of its transaction, after everything else was written."""
    with api.fresh.connect("postgres") as connection:
        if not on:
            connection.execute("DROP TRIGGER refuse ON ledger; DROP FUNCTION refuse()")
            return
        connection.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'injected'; END $$")
        connection.execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ledger INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()"
        )


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_is_stored_with_exactly_its_entries_or_not_at_all(shared_api: Api, call: str) -> None:
    api, (prepare, expected) = shared_api, CALLS[call]
    path, caller, body = await prepare(api)
    method, before, last = call.split()[0], await record(api), (await api.rows("SELECT coalesce(max(id), 0) AS id FROM ledger"))[0]["id"]

    await refusing(api, on=True)
    try:
        failed = await api.call(method, path, caller, body, Idempotency_Key=f"key {call}")
        cut_off = failed.status_code == 200 and b'"manifest"' not in failed.content
    finally:
        await refusing(api, on=False)
    assert failed.status_code >= 500 or cut_off, failed.text
    assert await record(api) == before

    done = await api.call(method, path, caller, body, Idempotency_Key=f"key {call}")

    assert done.status_code < 300, done.text
    entered = [row["type"] for row in await api.rows("SELECT type FROM ledger WHERE id > :last ORDER BY id", last=last)]
    assert sorted(entered) == sorted(expected)
