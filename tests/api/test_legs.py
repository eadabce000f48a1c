"""Legs over HTTP, with the real Temporal, the real workers and the payment sandbox: asked for, shown, sent, and settled by a person."""

import asyncio
import itertools
import time
from typing import Any

import httpx

from refunds.people import Role
from tests.api.conftest import Api
from tests.api.test_with_workers import API_KEY, order_paid_with, say, whole, workers
from tests.conftest import Sandbox

__all__ = ["whole", "workers"]
_numbers = itertools.count(1)
SELLER = "acct_api_seller"


async def sold(sandbox: Sandbox, account: str = SELLER, **more: Any) -> str:
    """A destination charge of 300.00 with a fee of 30.00."""
    sandbox.control("POST", "/accounts", {"id": account, "available": None})
    intent = f"pi_api_leg{next(_numbers)}"
    flow = {"transfer_data": {"destination": account}, "application_fee_amount": 3_000}
    sandbox.control("POST", "/payments", {"id": intent, "amount": 30_000, "currency": "usd"} | flow | more)
    return intent


async def seen(api: Api, refund_id: str, what: str, value: Any) -> dict[str, Any]:
    """The refund, once a field of it has that value."""
    until = time.monotonic() + 30
    while True:
        view = (await api.call("GET", f"/v1/refunds/{refund_id}", await api.reviewer())).json()
        if view[what] == value:
            return view
        assert time.monotonic() < until, view
        await asyncio.sleep(0.05)


async def test_a_marketplace_refund_is_quoted_sent_and_shown_leg_by_leg(whole: Api, sandbox_server: Sandbox) -> None:
    intent = await sold(sandbox_server)
    body = whole.asked(await order_paid_with(whole, intent), amount=3_000, reverse_transfer=True, refund_application_fee=True)

    quoted = await whole.call("POST", "/v1/quotes", await whole.shop(), body)
    answer = await whole.ask(body)

    assert [(leg["kind"], leg["amount_text"]) for leg in quoted.json()["terms"]["legs"]] == [
        ("reverse_transfer", "$30.00"),
        ("refund_fee", "$3.00"),
    ]
    assert answer.json()["terms"]["legs"][0]["account"] == SELLER
    view = await seen(whole, answer.json()["id"], "final", True)
    assert (view["status"], view["next_step"]) == ("succeeded", None)
    assert [(leg["kind"], leg["amount"], leg["state"], len(leg["attempts"])) for leg in view["processor"]["legs"]] == [
        ("reverse_transfer", 3_000, "done", 1),
        ("refund_fee", 300, "done", 1),
    ]
    truth = sandbox_server.control("GET", f"/truth?payment_intent={intent}")
    assert [found["id"] for found in (*truth["reversals"], *truth["fee_refunds"])] == [
        leg["reversal_id"] for leg in view["processor"]["legs"]
    ]


async def test_a_leg_that_does_not_apply_is_refused_by_name(whole: Api, sandbox_server: Sandbox) -> None:
    intent = f"pi_api_leg{next(_numbers)}"
    sandbox_server.control("POST", "/payments", {"id": intent, "amount": 30_000, "currency": "usd"})
    order = await order_paid_with(whole, intent)

    denied = await whole.ask(whole.asked(order, amount=3_000, reverse_transfer=True))
    loose = await whole.ask(whole.asked(order, amount=3_000) | {"reverse_transfer": "yes"})
    direct = await whole.ask(whole.asked(order, amount=3_000) | {"connected_account": SELLER})

    assert (denied.json()["status"], denied.json()["code"]) == ("denied", "NO_TRANSFER")
    assert (loose.status_code, loose.json()["field"]) == (422, "reverse_transfer")
    assert (direct.status_code, direct.json()["code"], direct.json()["field"]) == (422, "CONNECTED_ACCOUNT", "connected_account")


async def test_a_reviewer_asks_for_a_leg_and_the_new_terms_need_their_own_decision(whole: Api, sandbox_server: Sandbox) -> None:
    order = await order_paid_with(whole, await sold(sandbox_server))
    view = (await whole.ask(whole.asked(order))).json()
    rita = await whole.reviewer()

    revised = await say(whole, view, "revisions", rita, terms_hash=view["terms_hash"], reverse_transfer=True)
    same = await say(whole, view, "revisions", rita, terms_hash=revised.json()["terms_hash"], reverse_transfer=True)
    stale = await say(whole, view, "decisions", rita, verdict="approve", terms_hash=view["terms_hash"])

    assert revised.status_code == 201, revised.text
    assert [leg["kind"] for leg in revised.json()["terms"]["legs"]] == ["reverse_transfer"]
    assert revised.json()["terms_hash"] != view["terms_hash"]
    assert (same.status_code, same.json()["code"]) == (422, "TERMS_UNCHANGED")
    assert (stale.status_code, stale.json()["code"]) == (409, "NOT_AWAITING_REVIEW")
    assert revised.json()["status"] == "awaiting_consent"


async def test_a_payment_s_transfer_and_fee_are_shown_though_nobody_asks_for_them(whole: Api, sandbox_server: Sandbox) -> None:
    intent = await sold(sandbox_server)
    plain = f"pi_api_leg{next(_numbers)}"
    sandbox_server.control("POST", "/payments", {"id": plain, "amount": 30_000, "currency": "usd"})

    view = (await whole.ask(whole.asked(await order_paid_with(whole, intent), amount=3_000))).json()
    ordinary = (await whole.ask(whole.asked(await order_paid_with(whole, plain), amount=3_000))).json()

    assert "legs" not in view["terms"]
    assert view["context"]["transfer"].startswith("tr_") and view["context"]["application_fee"].startswith("fee_")
    assert [ordinary["context"][name] for name in ("transfer", "application_fee")] == [None, None]


async def reversed_by_hand(sandbox: Sandbox, transfer: str, amount: int) -> str:
    async with httpx.AsyncClient(base_url=sandbox.url, auth=(API_KEY, "")) as stripe:
        answer = await stripe.post(f"/v1/transfers/{transfer}/reversals", data={"amount": amount})
        assert answer.is_success, answer.text
        return answer.json()["id"]


async def test_field_37_a_leg_that_was_refused_is_settled_by_a_person_while_the_refund_stands(whole: Api, sandbox_server: Sandbox) -> None:
    """The connected account has too little: the customer has the money, the leg waits for a person, and the refund is not over before that."""
    intent = await sold(sandbox_server)
    order = {"on": "transfer_reversal.create", "match": {}, "times": 1}
    refusal = {"error": {"type": "invalid_request_error", "code": "balance_insufficient", "message": "Insufficient funds."}}
    sandbox_server.control("POST", "/faults", order | {"fault": [{"kind": "status", "status": 400, "body": refusal}]})
    answer = await whole.ask(whole.asked(await order_paid_with(whole, intent), amount=3_000, reverse_transfer=True))
    view = await seen(whole, answer.json()["id"], "queue", "settle")
    [leg] = view["processor"]["legs"]

    assert (view["status"], view["final"], view["runbook"]) == ("succeeded", False, "docs/runbooks/legs.md")
    assert (leg["state"], leg["code"]) == ("parked", "LEG_REFUSED")
    assert view["next_step"].startswith("a person to settle the reversal of $30.00")
    sven = await whole.caller("sven", Role.SETTLER)
    path, made = f"legs/{leg['id']}/settlement", await reversed_by_hand(sandbox_server, leg["target"], 3_000)
    nobodys = await say(whole, view, "legs/leg_1/settlement", sven, outcome="reversed", reversal_id=made, evidence="seen")
    odd = await say(whole, view, "legs/%00/settlement", sven, outcome="reversed", reversal_id=made, evidence="seen")
    unnamed = await say(whole, view, path, sven, outcome="reversed", evidence="seen")
    unknown = await say(whole, view, path, sven, outcome="reversed", reversal_id="trr_nothing", evidence="guessed")
    settled = await say(whole, view, path, sven, outcome="reversed", reversal_id=made, evidence="made by hand")
    again = await say(whole, view, path, sven, outcome="reversed", reversal_id=made, evidence="made by hand")

    assert [(answer.status_code, answer.json()["code"]) for answer in (nobodys, odd)] == [(404, "LEG_NOT_FOUND")] * 2
    assert (unnamed.status_code, unnamed.json()["field"]) == (422, "reversal_id")
    assert (unknown.status_code, unknown.json()["code"]) == (409, "SETTLEMENT_NOT_FOUND")
    assert (settled.status_code, settled.json()["waits_for"]) == (200, None), settled.text
    assert (again.status_code, again.json()["code"]) == (409, "NOT_PARKED")
    over = settled.json()["refund"]
    assert (over["status"], over["final"], over["queue"], over["processor"]["legs"][0]["reversal_id"]) == ("succeeded", True, None, made)
    truth = sandbox_server.control("GET", f"/truth?payment_intent={intent}")
    assert (len(truth["refunds"]), [found["amount"] for found in truth["reversals"]]) == (1, [3_000])
