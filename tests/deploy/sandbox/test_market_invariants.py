"""Whatever is captured, refunded, reversed and given back in whatever order: every total is the sum of its parts and none exceeds what it is a part of."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.sandbox import connect, lives, payments, placing, refunds
from deploy.sandbox.errors import StripeError
from deploy.sandbox.faults import Faults
from deploy.sandbox.state import State
from deploy.sandbox.webhooks import Outbox
from deploy.sandbox.work import Call

AMOUNT, PLENTY, SELLER = 1_000, 100_000, "acct_seller"
_PART = st.integers(1, AMOUNT + 50)
_CAPTURE = st.tuples(st.just("capture"), _PART, st.booleans())
_REFUND = st.tuples(st.just("refund"), st.none() | _PART, st.booleans())
_MOVE = st.tuples(st.just("move"), st.integers(0, 6), st.sampled_from(sorted(lives.STATUSES)))
_LEG = st.tuples(st.sampled_from(["reverse", "give_back"]), _PART, st.just(False))


def _do(call: Call, step: tuple[str, Any, Any]) -> None:
    name, value, flag = step
    call.params = {} if value is None else {"amount": str(value)}
    if name == "capture":
        call.args, call.params = ("pi_x",), {"amount_to_capture": str(value), "final_capture": "true" if flag else "false"}
        payments.capture(call)
    elif name == "refund":
        call.params["payment_intent"] = "pi_x"
        if flag:
            call.params |= {"reverse_transfer": "true", "refund_application_fee": "true"}
        refunds.create(call)
    elif name == "move":
        made = call.state.every("refund")
        if made:
            refunds.move(call, made[value % len(made)]["id"], flag)
    else:
        kind, act = ("transfer", connect.reverse) if name == "reverse" else ("application_fee", connect.refund_fee)
        for target in call.state.every(kind):
            call.args = (target["id"],)
            act(call)


def _sum(bodies: list[dict[str, Any]]) -> int:
    return sum(body["amount"] for body in bodies)


def _check(state: State, call: Call) -> None:
    intent, charge = state.expect("payment_intent", "pi_x"), state.expect("charge", "ch_x")
    counted = [refund for refund in state.every("refund") if refund["status"] in lives.COUNTED]
    assert charge["amount_captured"] == intent["amount_received"] <= AMOUNT
    assert charge["amount_refunded"] == _sum(counted) <= charge["amount_captured"]
    assert len(state.every("transfer")) == len(state.every("application_fee")) == (intent["status"] == "succeeded")
    sent, taken = state.every("transfer"), state.every("application_fee")
    reversals, given_back = state.every("transfer_reversal"), state.every("fee_refund")
    for transfer in sent:
        assert transfer["amount"] == charge["amount_captured"]
        assert transfer["amount_reversed"] == _sum(reversals) <= transfer["amount"]
        assert transfer["reversed"] == (transfer["amount_reversed"] == transfer["amount"])
    for fee in taken:
        assert fee["amount_refunded"] == _sum(given_back) <= fee["amount"]
    sources = {reversal["source_refund"]: reversal["id"] for reversal in reversals if reversal["source_refund"]}
    assert sources == {refund["id"]: refund["transfer_reversal"] for refund in state.every("refund") if refund["transfer_reversal"]}
    with state.acting_for(SELLER):
        assert sum(payment["amount_refunded"] for payment in state.every("charge")) == _sum(reversals)
        moved = _sum(sent) - _sum(reversals) - _sum(taken) + _sum(given_back)
        assert call.balances() == {"usd": PLENTY + moved}


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 300), st.lists(_CAPTURE | _REFUND | _MOVE | _LEG, max_size=14))
def test_totals_are_the_sums_of_their_parts(fee: int, steps: list[tuple[str, Any, Any]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        state = State(Path(home) / "sandbox.sqlite")
        call = Call(state, Outbox(state, Faults(state, ())), state.clock.now())
        state.set_setting("connected", [SELLER])
        with state.acting_for(SELLER):
            call.set_balances({"usd": PLENTY})
        terms = {"transfer_data": {"destination": SELLER}, "application_fee_amount": fee + 1}
        placing.place(call, {"id": "pi_x", "amount": AMOUNT, "currency": "usd", "captures": [], "open": True, **terms})
        for step in steps:
            with contextlib.suppress(StripeError, ValueError), state.transaction():
                _do(call, step)
            _check(state, call)
        state.close()
