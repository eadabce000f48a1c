"""``refunds groups``: what is shown before it counts, and that all parts that wait are named with their hashes."""

import json
from typing import Any

import pytest

from tests.cli.conftest import FakeApi, Runner, refund

ID = f"rg_{1:026d}"
FIRST, SECOND = refund(1), refund(2)
GIFT = refund(2, tender="gift_card", payment_id="gc-1", terms_hash="cd" * 32, amount=3000, amount_text="$30.00")


def group(**changed: Any) -> dict[str, Any]:
    """A group as the API answers it: a card's part and a gift card's, both waiting for a reviewer."""
    return {
        "id": ID,
        "created_at": "2026-03-01T10:00:00.000000Z",
        "order_id": "order-1",
        "order_version": 2,
        "customer_id": "customer-1",
        "asked": {"amount": 15000, "currency": "USD", "amount_text": "$150.00", "full": False, "reason": None, "requested_by": "uwe"},
        "allocation": {"parts": [], "left_out": [{"payment_id": "pi_9", "words": "nothing of it is left to refund"}]},
        "sums": [{"in_words": "$150.00 is under way"}],
        "next_step": "two decisions",
        "decide": {FIRST["id"]: "ab" * 32, GIFT["id"]: "cd" * 32},
        "agree": {},
        "refunds": [FIRST | {"payment_id": "pi_1", "tender": None}, GIFT],
    } | changed


@pytest.fixture
def waiting(api: FakeApi) -> FakeApi:
    api.on("GET", f"/v1/refund-groups/{ID}", (200, group()))
    done = group(decide={}, refunds=[FIRST | {"status": "approved", "payment_id": "pi_1", "next_step": "$120.00 approved"}])
    for what in ("decisions", "consent"):
        api.on("POST", f"/v1/refund-groups/{ID}/{what}", (200, {"group": done}))
    outcome = {"refund_id": FIRST["id"], "outcome": "too_late", "status": "succeeded"}
    api.on("POST", f"/v1/refund-groups/{ID}/withdrawal", (200, {"parts": [outcome], "group": done}))
    return api


def test_show_has_every_part_how_it_goes_back_and_what_gives_nothing(waiting: FakeApi, refunds: Runner) -> None:
    ran = refunds("groups", "show", ID)
    assert ran.code == 0
    for shown in (FIRST["id"], GIFT["id"], "gift card", "$30.00", "pi_9", "nothing of it is left to refund", "$150.00 is under way"):
        assert shown in ran.out
    assert json.loads(refunds("groups", "show", ID, "--json").out) == group()


def test_approve_shows_the_parts_and_sends_the_hash_of_each(waiting: FakeApi, refunds: Runner) -> None:
    ran = refunds("groups", "approve", ID, "--note", "photos seen", "--yes")
    assert (ran.code, "cd" * 32 in ran.out, "is approved" in ran.err) == (0, True, True)
    sent = {"verdict": "approve", "terms": group()["decide"], "note": "photos seen"}
    assert waiting.sent("POST") == [(f"/v1/refund-groups/{ID}/decisions", sent)]


@pytest.mark.parametrize("command", [("approve", ID), ("deny", ID), ("withdraw", ID)])
def test_nobody_to_ask_sends_nothing(waiting: FakeApi, refunds: Runner, command: tuple[str, ...]) -> None:
    ran = refunds("groups", *command)
    assert (ran.code, waiting.sent("POST")) == (4, [])


def test_where_nothing_waits_nothing_is_asked(waiting: FakeApi, refunds: Runner) -> None:
    waiting.on("GET", f"/v1/refund-groups/{ID}", (200, group(decide={}, next_step=None)))
    for command in (("deny", ID, "--yes"), ("consent", ID, "--agree", "--yes")):
        ran = refunds("groups", *command)
        assert (ran.code, waiting.sent("POST")) == (2, [])
        assert "it is over" in ran.err


def test_consent_names_the_parts_that_ask(waiting: FakeApi, refunds: Runner) -> None:
    waiting.on("GET", f"/v1/refund-groups/{ID}", (200, group(agree={FIRST["id"]: "ab" * 32})))
    assert refunds("groups", "consent", ID, "--decline", "--yes").code == 0
    assert waiting.sent("POST") == [(f"/v1/refund-groups/{ID}/consent", {"agreed": False, "terms": {FIRST["id"]: "ab" * 32}})]
    assert refunds("groups", "consent", ID, "--yes").code == 2


def test_a_withdrawal_says_what_became_of_each_part(waiting: FakeApi, refunds: Runner) -> None:
    ran = refunds("groups", "withdraw", ID, "--yes")
    assert ran.code == 0
    assert "too late" in ran.out


def test_the_list_goes_on_where_a_page_ended(api: FakeApi, refunds: Runner) -> None:
    api.on(
        "GET",
        "/v1/refund-groups",
        (200, {"groups": [group()], "next_cursor": ID}),
        (200, {"groups": [group(order_id="order-2")], "next_cursor": None}),
    )
    ran = refunds("groups", "list", "--order", "order-1", "--limit", "5")
    assert (ran.code, "order-2" in ran.out, "$150.00" in ran.out) == (0, True, True)
    assert [path for path, _ in api.sent("GET")] == [
        "/v1/refund-groups?limit=5&order_id=order-1",
        f"/v1/refund-groups?limit=4&cursor={ID}&order_id=order-1",
    ]


def test_a_manual_part_is_settled_with_evidence_and_no_refund_of_a_processor(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", f"/v1/refunds/{GIFT['id']}", (200, GIFT))
    api.on("POST", f"/v1/refunds/{GIFT['id']}/settlement", (200, {"refund": GIFT | {"status": "succeeded", "final": True}}))
    assert refunds("settle", GIFT["id"], "--given-back", "--yes").code == 2
    assert refunds("settle", GIFT["id"], "--given-back", "--evidence", "booking 99812", "--yes").code == 0
    assert api.sent("POST") == [(f"/v1/refunds/{GIFT['id']}/settlement", {"outcome": "refunded", "evidence": "booking 99812"})]
