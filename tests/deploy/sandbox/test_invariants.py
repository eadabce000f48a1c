"""Whatever is done to a payment in whatever order, the sandbox's totals are the sum of its refunds."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.sandbox import disputes, lives, placing, refunds
from deploy.sandbox.errors import StripeError
from deploy.sandbox.faults import Faults
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox
from deploy.sandbox.work import Call

CAPTURED = 1000
_REFUND = st.tuples(st.just("refund"), st.none() | st.integers(1, CAPTURED + 50))
_MOVE = st.tuples(st.just("move"), st.tuples(st.integers(0, 8), st.sampled_from(sorted(lives.STATUSES))))
_DISPUTE = st.tuples(st.just("dispute"), st.sampled_from(sorted(disputes.STATUSES)))
_BALANCE = st.tuples(st.just("balance"), st.none() | st.integers(0, CAPTURED))


def _do(call: Call, step: tuple[str, object]) -> None:
    name, value = step
    if name == "refund":
        call.params = {"payment_intent": "pi_x"} if value is None else {"payment_intent": "pi_x", "amount": str(value)}
        refunds.create(call)
    elif name == "move" and isinstance(value, tuple):
        made = call.state.every("refund")
        if made:
            refunds.move(call, made[value[0] % len(made)]["id"], value[1])
    elif name == "dispute":
        opened = call.state.every("dispute")
        if opened:
            disputes.move(call, opened[0]["id"], str(value))
        else:
            disputes.open_on(call, call.state.expect("charge", "ch_x"), str(value))
    elif name == "balance":
        call.state.set_setting("balances", {} if value is None else {"usd": value})
        refunds.pay_waiting(call, "usd")


def _check(state: State) -> None:
    charge = state.expect("charge", "ch_x")
    made = state.every("refund")
    counted = sum(refund["amount"] for refund in made if refund["status"] in lives.COUNTED)
    assert charge["amount_refunded"] == counted <= CAPTURED
    assert charge["refunded"] == (counted == CAPTURED)
    for refund in made:
        rows = state.every("balance_transaction", source=refund["id"])
        waits = refund.get("pending_reason") == "insufficient_funds"
        gone = refund["status"] in lives.COUNTED and not waits
        in_cad = (refund["amount"] * 13985 + 5000) // 10000
        assert -sum(row["amount"] for row in rows) == (in_cad if gone else 0)
        assert ("failure_balance_transaction" in refund) <= (refund["status"] in ("failed", "canceled"))
    for dispute in state.every("dispute"):
        standing = sum(1 if row["reporting_category"] == "dispute" else -1 for row in dispute["balance_transactions"])
        assert standing == (0 if dispute["is_charge_refundable"] else 1)


@settings(max_examples=150, deadline=None)
@given(st.lists(_REFUND | _MOVE | _DISPUTE | _BALANCE, max_size=14))
def test_totals_are_the_sum_of_the_refunds(steps: list[tuple[str, object]]):
    with tempfile.TemporaryDirectory() as home:
        state = State(Path(home) / "sandbox.sqlite")
        call = Call(state, Outbox(state, Faults(state, ())), state.clock.now())
        placing.place(call, {"id": "pi_x", "amount": 1200, "captured": CAPTURED, "currency": "usd"})
        for step in steps:
            with contextlib.suppress(StripeError, ValueError), state.transaction():
                _do(call, step)
            _check(state)
        state.close()
