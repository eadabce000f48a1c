"""A model of orders as they really are, played at random against the real store (promise P2): lines with tax, shipping and discounts, several payments, several
currencies, every way to capture, refunds by amount, by line and of everything, refunds past us, disputes, and failures after success.

After each step the figures are held against a processor that knows the truth; at the end everything is given back, and must come to exactly nothing left.
More of it: ``REFUNDS_ORDERS_EXAMPLES=200 python -m pytest tests/activities/test_orders_model.py``.
"""

import asyncio
import itertools
import os
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from activities import submit
from activities.reconcile import Reconcile
from deploy.local.postgres import PostgresServer
from refunds.errors import Code, RefundError
from refunds.money import currency
from refunds.orders import Order
from refunds.processor import DisputeState, PaymentState, PaymentStatus, RefundState
from refunds.status import RESERVING, Status
from store import claims, intake, orders, previews
from tests.activities.memory_processor import Fate
from tests.activities.merchant import Merchant
from tests.activities.random_orders import POLICY, Paid, an_order, captured_as, worth
from tests.store.world import FixedClock, World

EXAMPLES = int(os.environ.get("REFUNDS_ORDERS_EXAMPLES", "12"))
STEPS = 14
WHICH = st.integers(0, 7)
THEN = st.sampled_from(["wait", "approve", "send", "send", "send"])
CLAIMING = RESERVING | {Status.SUCCEEDED}
WAITING = (Status.AWAITING_CONSENT, Status.AWAITING_REVIEW, Status.APPROVED, Status.HELD)
SENDABLE = (Status.APPROVED, Status.SUBMITTING)
TOO_MUCH = (Code.EXCEEDS_REFUNDABLE, Code.ALREADY_REFUNDED)
_numbers = itertools.count(1)


class Orders(Merchant):
    """Everything that can happen to the money of some orders."""

    @classmethod
    def found(cls, server: PostgresServer, template: str) -> None:
        super().found(server, template)

        async def publish() -> None:
            world = World(cls.origin.database, FixedClock())
            await world.policy(POLICY)
            await world.close()

        with asyncio.Runner() as runner:
            runner.run(publish())

    def __init__(self) -> None:
        super().__init__()
        self.clock.advance(seconds=1)  # the policy holds from a moment after the database was made
        self.paid: list[Paid] = []

    def teardown(self) -> None:
        try:
            if self.paid:
                self.come_to_rest()
                self.give_everything_back()
        finally:
            self.close()

    @initialize(bodies=st.lists(an_order(), min_size=1, max_size=2))
    def open(self, bodies: list[dict[str, Any]]) -> None:
        for body in bodies:
            self.run(self.place(body))
        self.names = {row["processor_payment"]: row["id"] for row in self.world.rows("SELECT id, processor_payment FROM payments")}

    async def place(self, body: dict[str, Any]) -> None:
        number, code = next(_numbers), body["currency"]
        shapes = body["shapes"]
        plain = {name: value for name, value in body.items() if name != "shapes"}
        step = currency(code).multiple
        each = max(1, worth(Order.model_validate(plain)) // len(shapes) // step) * step
        held = [captured_as(shape, f"pi_orders{number}x{part}", each, code) for part, shape in enumerate(shapes)]
        plain |= {
            "customer_since": "2020-01-01T00:00:00Z",
            "delivered_at": "2026-05-25T00:00:00Z",
            "payments": [{"id": one.id, "amount": each, "currency": code} for one in held],
        }
        order = Order.model_validate(plain)
        async with self.world.api.begin() as connection:
            await orders.put_order(connection, self.clock, external_ref=f"o-{number}", order=order, actor="test")
        self.processor.payments |= {one.id: one for one in held}
        self.paid += [Paid(one, f"o-{number}", order, one.captured) for one in held]

    # --- asking ----------------------------------------------------------------------------------------------------------------------

    @rule(which=WHICH, how=st.sampled_from(["unit", "part", "part", "rest", "more"]), then=THEN)
    def ask_by_amount(self, which: int, how: str, then: str) -> None:
        paid = self.paid[which % len(self.paid)]
        left = self.left(paid)
        amount = {"unit": paid.step, "part": left // 3 // paid.step * paid.step, "rest": left, "more": left + paid.step}[how]
        self.ask(paid, then, amount=max(paid.step, amount), currency=paid.held.currency)

    @rule(which=WHICH, then=THEN)
    def ask_for_everything(self, which: int, then: str) -> None:
        self.ask(self.paid[which % len(self.paid)], then, full=True)

    @precondition(lambda self: any(paid.by_lines for paid in self.paid))
    @rule(which=WHICH, units=st.lists(st.integers(0, 4), min_size=3, max_size=3), shipping=st.booleans(), then=THEN)
    def ask_by_lines(self, which: int, units: list[int], shipping: bool, then: str) -> None:
        """Some of what is left of each line; once in a while more than that, which is refused by name."""
        lined = [paid for paid in self.paid if paid.by_lines]
        paid = lined[which % len(lined)]
        taken, sent = self.taken(paid)
        wanted = {line.id: min(line.quantity, wish) for line, wish in zip(paid.order.lines, units, strict=False) if wish}
        if not wanted and not shipping:
            return
        refund = self.ask(paid, then, **self.units(wanted, shipping=shipping))
        left = {line.id: line.quantity - taken.get(line.id, 0) for line in paid.order.lines}
        if any(quantity > left[line] for line, quantity in wanted.items()) or (shipping and sent):
            assert self.status(refund) is Status.DENIED
        # What else may deny them is said by the quote: that they come to nothing, or to more than refunds by amount have left.

    def ask(self, paid: Paid, then: str, **wish: Any) -> str:
        """A request of one payment, quoted, and as far on its way as ``then`` says."""
        given = {"order_id": paid.order_ref, "customer_id": "buyer", "payment_id": paid.held.id} | wish
        refund = self.run(self.world.accept(self.world.request(**given)))
        self.asked.append(refund)
        self.run(self.world.steps.prepare(refund, self.processor.state(paid.held.id)))
        if then != "wait":
            self.approve(refund)
        if then == "send" and self.status(refund) is Status.APPROVED:
            self.processor.fate, self.processor.born = Fate.ANSWERED, RefundState.SUCCEEDED
            self.submit(refund)
        self.look()
        return refund

    @staticmethod
    def units(lines: dict[str, int], *, shipping: bool) -> dict[str, Any]:
        """The part of a request that names lines instead of an amount."""
        named = [{"id": line, "quantity": quantity} for line, quantity in lines.items()]
        return {"amount": None, "currency": None, "lines": named or None, "shipping": shipping or None}

    # --- deciding and sending ----------------------------------------------------------------------------------------------------------

    def approve(self, refund: str) -> None:
        """The customer agrees, and a manager looks at it."""
        if self.status(refund) is Status.AWAITING_CONSENT:
            self.says(self.world.consent(refund))
        if self.status(refund) is Status.AWAITING_REVIEW and self.world.row(refund)["terms_hash"] is not None:
            self.says(self.world.decide(refund, self.world.mia))
        self.look()

    @precondition(lambda self: self.having(*WAITING))
    @rule(which=WHICH, how=st.sampled_from(["deny", "decline", "withdraw", "approve"]))
    def decide(self, which: int, how: str) -> None:
        refund = self.pick(which, *WAITING)
        match how, self.status(refund):
            case ("deny", Status.AWAITING_REVIEW):
                self.says(self.world.decide(refund, self.world.mia, "deny", self.world.row(refund)["terms_hash"]))
            case "decline", Status.AWAITING_CONSENT:
                self.says(self.world.consent(refund, agreed=False))
            case "approve", _:
                self.approve(refund)
            case _:
                self.says(self.world.withdraw(refund))
        self.look()

    @rule()
    def nobody_decides(self) -> None:
        """Days go by: what waited for somebody expires, and what was approved and not sent is void."""
        self.clock.at += timedelta(days=5)
        for refund in self.having(Status.AWAITING_CONSENT, Status.AWAITING_REVIEW):
            for _ in range(3):  # reviewer, manager, the end
                self.run(self.world.steps.pass_deadline(refund))
        self.look()

    @precondition(lambda self: self.having(*SENDABLE))
    @rule(
        which=WHICH,
        fate=st.sampled_from([Fate.ANSWERED, Fate.ANSWERED, Fate.REFUSED, Fate.ANSWER_LOST, Fate.REQUEST_LOST, Fate.UNREACHABLE]),
        born=st.sampled_from([RefundState.SUCCEEDED, RefundState.PENDING, RefundState.FAILED]),
    )
    def send(self, which: int, fate: Fate, born: RefundState) -> None:
        self.processor.fate, self.processor.born = fate, born
        self.submit(self.pick(which, *SENDABLE))
        self.look()

    # --- what happens at the processor -------------------------------------------------------------------------------------------------

    @rule(which=WHICH, share=st.sampled_from([1, 2, 4]))
    def refund_past_us(self, which: int, share: int) -> None:
        paid = self.paid[which % len(self.paid)]
        left = paid.held.captured - paid.held.returned
        if left > 0 and paid.held.status is PaymentStatus.CAPTURED:
            amount = max(paid.step, left // share // paid.step * paid.step)
            self.processor.make(paid.held.id, amount, born=RefundState.SUCCEEDED)

    @rule(which=WHICH, share=st.sampled_from([1, 2, 3]), last=st.booleans())
    def capture(self, which: int, share: int, last: bool) -> None:
        """More is captured of what may still be; the last capture lets the rest go, which is no refund."""
        held = self.paid[which % len(self.paid)].held
        if held.capturable:
            step = self.paid[which % len(self.paid)].step
            amount = max(step, held.capturable // share // step * step)
            held.captured, held.capturable = held.captured + amount, 0 if last else held.capturable - amount
            held.status = PaymentStatus.CAPTURED

    @rule(which=WHICH, state=st.sampled_from([DisputeState.INQUIRY, DisputeState.OPEN, DisputeState.NONE, DisputeState.NONE]))
    def dispute(self, which: int, state: DisputeState) -> None:
        """A dispute begins, or is won."""
        held = self.paid[which % len(self.paid)].held
        if held.captured:
            held.dispute = state

    @precondition(lambda self: any(refund.operation and refund.state.counts for refund in self.processor.all_refunds()))
    @rule(which=WHICH, state=st.sampled_from([RefundState.FAILED, RefundState.SUCCEEDED]))
    def refund_ends(self, which: int, state: RefundState) -> None:
        """A refund fails after success, or a pending one arrives; it is looked at."""
        ours = [refund for refund in self.processor.all_refunds() if refund.operation and refund.state.counts]
        refund = ours[which % len(ours)]
        self.processor.becomes(refund, state)
        self.look_at(refund.processor_payment)
        self.look()

    # --- what must hold after every step -----------------------------------------------------------------------------------------------

    @invariant()
    def no_payment_gives_back_more_than_it_took(self) -> None:
        for paid in self.paid:
            assert 0 <= paid.held.returned <= paid.held.captured

    @invariant()
    def what_is_shown_is_what_was_captured_and_is_still_there(self) -> None:
        for paid in self.paid:
            shown = self.run(self.refundable_of(paid))
            assert shown == self.left(paid)
            assert 0 <= shown <= paid.base

    @invariant()
    def what_is_shown_is_accepted_and_not_one_unit_more(self) -> None:
        for paid in self.paid:
            if paid.held.dispute is not DisputeState.NONE or paid.held.status is PaymentStatus.CANCELED:
                continue
            shown = self.left(paid)
            if shown:
                assert self.previewed(paid, amount=shown, currency=paid.held.currency) not in TOO_MUCH
            assert self.previewed(paid, amount=shown + paid.step, currency=paid.held.currency) in TOO_MUCH

    @invariant()
    def no_unit_of_a_line_comes_back_twice(self) -> None:
        for paid in self.paid:
            if not paid.by_lines:
                continue
            taken, sent = self.taken(paid)
            assert sent <= 1
            for line in paid.order.lines:
                gone = taken.get(line.id, 0)
                assert gone <= line.quantity
                if paid.held.dispute is DisputeState.NONE and gone:
                    assert self.previewed(paid, **self.units({line.id: line.quantity}, shipping=False)) == Code.LINE_NOT_LEFT

    def left(self, paid: Paid) -> int:
        """What must be shown as refundable, by the processor's truth and what is promised and not there yet."""
        there = {refund.operation for refund in paid.held.refunds}
        promised = sum(
            row["amount"] or 0
            for row in self.rows
            if row["payment_id"] == self.names[paid.held.id]
            and Status(row["status"]) in RESERVING
            and not there & set(self.operations(row["id"]))
        )
        return max(0, paid.base - paid.held.returned - promised)

    def taken(self, paid: Paid) -> tuple[dict[str, int], int]:
        """How many units of each line, and whether the shipping, are promised or back."""
        units: dict[str, int] = {}
        sent = 0
        for row in self.rows:
            if row["payment_id"] == self.names[paid.held.id] and Status(row["status"]) in CLAIMING:
                for line in row["details"].get("lines") or ():
                    units[line["id"]] = units.get(line["id"], 0) + line["quantity"]
                sent += bool(row["details"].get("shipping"))
        return units, sent

    async def refundable_of(self, paid: Paid) -> int:
        async with self.world.payments.begin() as connection:
            return (await claims.refundable_of(connection, self.names[paid.held.id], self.processor.state(paid.held.id))).remaining

    def previewed(self, paid: Paid, **wish: Any) -> str | None:
        """What a quote would be denied for; nothing of it is kept."""
        given = {"order_id": paid.order_ref, "customer_id": "buyer", "payment_id": paid.held.id} | wish
        return self.run(self._preview(given, self.processor.state(paid.held.id)))

    async def _preview(self, given: dict[str, Any], state: PaymentState) -> str | None:
        async with self.world.api.engine.connect() as connection:
            request = {"actor": self.world.desk, "key": f"quote-{next(_numbers)}", "request": self.world.request(**given)}
            try:
                accepted = await intake.accept(connection, self.clock, self.world.texts, **request)
                found = await previews.preview(connection, self.clock, accepted.refund_id, state)
            except RefundError as error:
                return error.code
            finally:
                await connection.rollback()
        return found.decision.code

    # --- the end -----------------------------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Disputes are won, what waits is withdrawn, what was sent arrives: no reservation is left, and nothing but what went back is missing."""
        self.processor.fate, self.processor.born = Fate.ANSWERED, RefundState.SUCCEEDED
        for paid in self.paid:
            paid.held.dispute = DisputeState.NONE
        for _ in range(6):
            for refund in self.having(*WAITING):
                self.says(self.world.withdraw(refund))
            self.look()
            for refund in self.having(Status.SUBMITTING):
                self.submit(refund)
            for refund in self.processor.all_refunds():
                if refund.state is RefundState.PENDING:
                    self.processor.becomes(refund, RefundState.SUCCEEDED)
            for refund in self.having(Status.PENDING):
                self.step(Reconcile(self.settling, self.processor).reconcile, refund)
            for paid in self.paid:
                self.look_at(paid.held.id)
            self.world.execute("UPDATE attempts SET send_by = send_by - %s", timedelta(hours=1))
            self.look()
        assert self.having(*RESERVING) == [], [(row["status"], row["code"]) for row in self.rows if Status(row["status"]) in RESERVING]
        for paid in self.paid:
            assert self.run(self.refundable_of(paid)) == paid.base - paid.held.returned

    def give_everything_back(self) -> None:
        """Line by line where that can be, and then whatever is left: every payment ends at exactly nothing."""
        for paid in self.paid:
            self.lines_one_by_one(paid)
            if paid.base > paid.held.returned:
                refund = self.ask(paid, "send", full=True)
                assert self.status(refund) in (Status.SUCCEEDED, Status.RELEASED), self.world.row(refund)
            assert self.run(self.refundable_of(paid)) == 0
            assert paid.held.returned == paid.held.captured

    def lines_one_by_one(self, paid: Paid) -> None:
        """The units that are left, from the last line to the first, then the shipping. Where nothing else was refunded they come to all there is."""
        if not paid.by_lines or paid.held.status is not PaymentStatus.CAPTURED:
            return
        taken, sent = self.taken(paid)
        only_lines = paid.held.captured == paid.captured_at_first and all(
            refund.operation and self.named_lines(refund.operation) for refund in paid.held.refunds if refund.state.counts
        )
        for line in reversed(paid.order.lines):
            for _ in range(line.quantity - taken.get(line.id, 0)):
                self.ask(paid, "send", **self.units({line.id: 1}, shipping=False))
        if not sent:
            self.ask(paid, "send", **self.units({}, shipping=True))
        if only_lines and worth(paid.order):
            assert paid.held.returned == paid.held.captured, "the lines and the shipping come to exactly what was captured"

    def named_lines(self, operation: str) -> bool:
        refund = next(row["refund_id"] for row in self.known if row["id"] == operation)
        details = self.row(refund)["details"]
        return bool(details.get("lines") or details.get("shipping"))


@pytest.mark.timeout(1_200)
def test_orders_end_exact_whatever_happens(
    postgres_server: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody else works meanwhile: what is not its turn is left at once, and repeated as the engine would.
    monkeypatch.setattr(submit, "TURN_WITHIN_S", 0)
    Orders.found(postgres_server, template_database)
    bounded = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        derandomize="REFUNDS_ORDERS_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Orders, settings=bounded)
