"""Refunds by the thousand, made before anybody looked: what a sweep of the whole account is tried on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import stripe

from deploy.sandbox.state import Page, State

BEGIN = 1_780_000_000
"""Seconds; the time of the oldest refund below."""


def old(number: int, *, payment: int, **more: Any) -> dict[str, Any]:
    tags = {"refunds_operation": f"op_{number}"}
    return {"id": f"re_{number}", "payment_intent": f"pi_old{payment}", "amount": 100, "created": BEGIN + number, "metadata": tags} | more


async def listed(client: stripe.StripeClient, **window: int) -> list[stripe.Refund]:
    """Every refund of a window, page by page."""
    found: list[stripe.Refund] = []
    after: dict[str, str] = {}
    while True:
        page = await client.v1.refunds.list_async({"created": window, "limit": 100, **after})
        found += page.data
        if not page.has_more:
            return found
        after = {"starting_after": page.data[-1].id}


async def test_thousands_are_made_at_once_and_listed_to_the_last(client: stripe.StripeClient, sandbox: Any):
    made = sandbox.control("POST", "/seed", [old(number, payment=number // 10) for number in range(5_000)])["made"]

    found = await listed(client, gte=BEGIN, lt=BEGIN + 5_000)

    assert made == [f"re_{number}" for number in range(5_000)]
    assert [refund.id for refund in found] == made[::-1]
    first = found[-1].to_dict()
    assert [first[name] for name in ("amount", "created", "status", "metadata", "payment_intent")] == [
        100,
        BEGIN,
        "succeeded",
        {"refunds_operation": "op_0"},
        "pi_old0",
    ]


@pytest.mark.parametrize("apart", [0, 1])
def test_a_page_far_down_costs_what_the_first_one_costs(apart: int, tmp_path: Path):
    """Counted in steps of SQLite's machine. With a window and a cursor it is easily led to read every page before again; here also in one second."""
    state = State(tmp_path / "sandbox.sqlite")
    with state.transaction():
        for number in range(5_000):
            state.insert({"id": f"re_{number}", "object": "balance", "created": BEGIN + number * apart})
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    state.db.set_progress_handler(count, 10)
    costs: list[int] = []
    after = None
    for _ in range(50):
        steps = 0
        page, _ = state.page("balance", {}, Page(100, after=after, created={"gte": BEGIN, "lt": BEGIN + 5_000}))
        costs.append(steps)
        after = state.position("balance", page[-1]["id"])
    state.close()

    assert page[-1]["id"] == "re_0"
    assert max(costs) < 2 * min(costs)


async def test_a_window_inside_them_has_its_bounds(client: stripe.StripeClient, sandbox: Any):
    sandbox.control("POST", "/seed", [old(number, payment=0) for number in range(300)])

    for window, count in (
        ({"gte": BEGIN + 20, "lt": BEGIN + 270}, 250),
        ({"gt": BEGIN + 20, "lte": BEGIN + 270}, 250),
        ({"gte": BEGIN + 299}, 1),
        ({"lt": BEGIN + 1}, 1),
        ({"gte": BEGIN + 300}, 0),
    ):
        found = await listed(client, **window)
        assert len(found) == len({refund.id for refund in found}) == count, window


async def test_they_are_refunds_of_captured_payments_like_any_other(http: httpx.AsyncClient, sandbox: Any):
    """Every answer here is held against Stripe's schema where it is given."""
    states = {"succeeded": None, "pending": None, "requires_action": None, "canceled": None, "failed": "lost_or_stolen_card"}
    rows = [old(number, payment=0, status=status, failure_reason=reason) for number, (status, reason) in enumerate(states.items())]
    sandbox.control("POST", "/seed", [{name: value for name, value in row.items() if value is not None} for row in rows])

    found = (await http.get("/v1/refunds", params={"payment_intent": "pi_old0"})).json()["data"]
    charge = (await http.get("/v1/charges/ch_old0")).json()

    assert {refund["status"]: refund.get("failure_reason") for refund in found} == states | {"canceled": "merchant_request"}
    assert (charge["amount_captured"], charge["amount_refunded"], charge["refunded"]) == (500, 300, False)
    truth = sandbox.control("GET", "/truth")
    assert (truth["create_requests"], len(truth["refunds"]), sandbox.control("GET", "/webhooks")) == ([], 5, {})


async def test_a_payment_that_is_there_gives_what_it_has_left(http: httpx.AsyncClient, sandbox: Any, pay: Callable[..., Any]):
    pay(id="pi_old0", amount=250)

    for rows, status in (([old(1, payment=0), old(2, payment=0)], 200), ([old(3, payment=1), old(4, payment=0)], 400)):
        assert (await http.post("/_sandbox/seed", json=rows)).status_code == status

    assert (await http.get("/v1/charges/ch_old0")).json()["amount_refunded"] == 200
    assert [refund["id"] for refund in sandbox.control("GET", "/truth")["refunds"]] == ["re_1", "re_2"], "all of a list or none"


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({}, 400),
        ([1], 400),
        ([{"amount": 1}], 400),
        ([old(1, payment=0, amount=0)], 400),
        ([old(1, payment=0, amount=True)], 400),
        ([old(1, payment=0, created="now")], 400),
        ([old(1, payment=0, status="gone")], 400),
        ([old(1, payment=0, metadata={"a": 1})], 400),
        ([old(1, payment=0, colour="red")], 400),
        ([old(1, payment=0, currency="xxx")], 400),
        ([old(1, payment=0), old(1, payment=0)], 409),
    ],
)
async def test_what_cannot_be_is_refused_in_words(wrong: Any, status: int, http: httpx.AsyncClient, sandbox: Any):
    answer = await http.post("/_sandbox/seed", json=wrong)

    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
    assert sandbox.control("GET", "/truth")["refunds"] == []
