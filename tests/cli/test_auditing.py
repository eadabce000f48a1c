"""`refunds audit`: the whole chain on a page, with the agent's words and our classifier's kept apart."""

import json
from typing import Any

from tests.cli.conftest import FakeApi, Runner, refund

ID = refund()["id"]
HASH = "cd" * 32
AT = "2026-03-01T10:00:00.000000Z"
WHO = {"id": "pr_1", "handle": "bot", "name": "Bot", "kind": "agent"}
AMOUNT = {"amount": 12000, "currency": "USD", "amount_text": "$120.00"}


def view(**changed: Any) -> dict[str, Any]:
    """An audit view as the API answers it."""
    plain: dict[str, Any] = {
        **{
            "refund": ID,
            "status": "succeeded",
            "order_id": "order-1",
            "customer_id": "c-1",
            "customer_forgotten_at": None,
            "readable": True,
        },
        "asked": {
            **{"kind": "refund", "requester": WHO, "integration": "i", "requested_by": "uwe", "channel": "chat", "message": "It broke"},
            "request": AMOUNT | {"full": False, "reason": "other"},
            "agent": {"id": "pr_1", "session": "s-7", "model": "agents-own", "reasoning": "a crack", "conversation": "hello"},
            "sources": {"amount": "agent", "payment": "system_of_record"},
        },
        "reading": {
            **{
                "source": "model",
                "classifier": "model",
                "model": "openai:reader",
                "version": "v9",
                "prompt_hash": HASH,
                "provider": "openai",
            },
            **{"region": "eu", "sent": ["message"], "answer": {"intent": "refund", "amount": None}, "failure": None, "input_tokens": 900},
            **{"output_tokens": 50, "duration_ms": 8, "cost_micros": 325, "cost_currency": "USD", "recorded_at": AT},
        },
        "revisions": [
            AMOUNT
            | {
                **{
                    "revision": 1,
                    "payment": "pa_1",
                    "terms": {},
                    "terms_hash": HASH,
                    "facts": {},
                    "sources": {},
                    "changes": [],
                    "author": WHO,
                },
                **{"loosened": False, "created_at": AT, "expires_at": AT},
                "policy": {
                    **{
                        "version": 3,
                        "hash": HASH,
                        "return_rules": None,
                        "outcome": "proceed",
                        "explanation": "within limits",
                        "signals": [],
                    },
                    "checks": [{"id": "ceiling", "text": "t", "observed": "12000", "limit": "10000", "result": "require_review"}],
                    "needs": {},
                },
            }
        ],
        "decisions": [
            {
                **{"id": "de_1", "kind": "review", "step": 1, "revision": 1, "verdict": "approve", "terms_hash": HASH, "person": "pr_2"},
                **{"recorded_by": {"id": "pr_2", "handle": "rita", "name": "Rita"}, "delegation": "dg_1", "role": "manager"},
                **{"on_behalf_of": {"id": "pr_3", "handle": "mia", "name": "Mia"}, "recorded_at": AT, "delivered_at": AT},
            }
        ],
        **{"instructions": [], "evidence": []},
        "processor": {
            **{"name": "stripe", "payment_id": "pi_1", "legs": [], "settlement": None},
            "operations": [
                AMOUNT
                | {
                    **{
                        "id": "op_1",
                        "kind": "refund",
                        "revision": 1,
                        "terms_hash": HASH,
                        "approvals": ["de_1"],
                        "request": {"charge": "pi_1", "params": {"amount": 12000, "metadata": {"refunds_refund": ID}}},
                    },
                    **{
                        "idempotency_key": "key-op-1",
                        "answer": {"refund_id": "re_1"},
                        "outcome": "succeeded",
                        "created_at": AT,
                        "settled_at": AT,
                    },
                    "attempts": [{"number": 1, "opened_at": AT, "send_by": AT, "answered_at": AT, "outcome": "answered", "reason": None}],
                }
            ],
        },
        "times": {"requested": AT, "quoted": AT, "decided": AT, "submitted": AT, "settled": None},
        "entries": [
            {
                **{"id": 7, "seq": 42, "at": AT, "type": "quoted", "refund_id": ID, "refund_version": 3, "actor": "system"},
                **{"on_behalf_of": None, "data": {}, "commitments": {"message": HASH}},
            }
        ],
        "commitments": [{"entry": 7, "seq": 42, "name": "message", "commitment": HASH, "value": "It broke", "salt": "00"}],
    }
    return plain | changed


def test_the_page_answers_what_an_auditor_asks(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}/audit", (200, view()))

    shown = refunds("audit", ID).out

    agents, ours = shown.index("The agent, in its own words"), shown.index("Our classifier")
    assert agents < shown.index("agents-own") < ours < shown.index("openai:reader")
    for said in (
        *("Bot (agent bot)", "a crack", "system of record", "900 in, 50 out", "325 millionths of USD", f"version 3, {HASH}"),
        *("ceiling", "require_review", "Rita", "Mia", "manager", "key-op-1", "re_1", "42", "opened"),
    ):
        assert said in shown, said


def test_amounts_are_as_people_read_them_and_a_request_is_told_to_its_last_part(api: FakeApi, refunds: Runner) -> None:
    asked = view()["asked"] | {"request": {"amount": 12000, "currency": "JPY", "full": False, "reason": "other"}}
    revision = view()["revisions"][0]
    silent = [revision | {"policy": revision["policy"] | {"explanation": ""}}]
    api.on("GET", f"/v1/refunds/{ID}/audit", (200, view(asked=asked, revisions=silent)))

    lines = [line.split(maxsplit=1) for line in refunds("audit", ID).out.splitlines()]

    assert ["amount", "¥12,000"] in lines and ["outcome", "proceed"] in lines
    assert ["request.params.amount", "12000"] in lines and ["request.params.metadata.refunds_refund", ID] in lines


def test_a_cost_that_nobody_knows_is_not_made_up(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}/audit", (200, view(reading=view()["reading"] | {"cost_micros": None, "cost_currency": None})))

    assert "not known: no price is set" in refunds("audit", ID).out


def test_json_is_what_the_api_said(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{ID}/audit", (200, view()))

    assert json.loads(refunds("audit", ID, "--json").out) == view()


def test_what_is_forgotten_says_so(api: FakeApi, refunds: Runner) -> None:
    gone = [view()["commitments"][0] | {"value": None, "salt": None}]
    api.on("GET", f"/v1/refunds/{ID}/audit", (200, view(customer_id=None, customer_forgotten_at=AT, commitments=gone)))

    shown = refunds("audit", ID).out

    assert f"forgotten {AT}" in shown
    assert "opened" not in shown
