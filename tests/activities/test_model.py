"""A model of payments, refunds, disputes and whatever the processor does, played at random against the real store (promises P1, P2, P3, P4, P7, P8).

The steps are the real ones over PostgreSQL; the processor is one in memory that knows the truth (``memory_processor.py``). After each step the whole record is
held against that truth. The order of things is hypothesis's; the same on every run.
"""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from activities import submit
from activities.reconcile import Reconcile
from activities.settle import Settle
from deploy.local.postgres import PostgresServer
from refunds.errors import Code
from refunds.processor import DisputeState, RefundState
from refunds.status import BEFORE_OPERATION, TRANSITIONS, Event, Status
from tests.activities.memory_processor import Fate
from tests.activities.merchant import CAPTURED, SENT_WITHIN, Merchant

AMOUNTS = st.sampled_from([1, 1_000, 2_500, 3_000, 4_000, 6_000])
BORN = st.sampled_from([*RefundState, RefundState.SUCCEEDED, RefundState.SUCCEEDED, RefundState.PENDING])
KINDS = st.sampled_from(["named", "named", "unsure", "other"])
ANSWERED_WITHIN = SENT_WITHIN + timedelta(seconds=23)
DEATHS = [fate for fate in Fate if fate.name.startswith("DIED")]
HEIRS = [Fate.REFUSED, Fate.REFUSED, Fate.ANSWERED, Fate.REQUEST_LOST]
WHICH = st.integers(0, 7)
"""Which refund a step is about: a number, counted round among those it can be about."""
PROMISING = {"awaiting_consent", "awaiting_review", "approved", "held", "submitting", "pending", "parked"}
SENDABLE = (Status.APPROVED, Status.SUBMITTING)
NEVER_SENT = BEFORE_OPERATION | {Status.DENIED, Status.EXPIRED, Status.WITHDRAWN, Status.ANSWERED, Status.DRAFTED}


class Model(Merchant):
    """Everything that can happen to a merchant's refunds."""

    def teardown(self) -> None:
        try:
            if self.rows:
                self.come_to_rest()
        finally:
            self.close()

    @initialize(requests=st.lists(st.tuples(AMOUNTS, KINDS), min_size=2, max_size=4))
    def open(self, requests: list[tuple[int, str]]) -> None:
        """Some requests that went well so far."""
        for amount, kind in requests:
            self.ask_until_approved(amount, kind)

    # --- asking and deciding ---------------------------------------------------------------------------------------------------------

    @rule(payment=st.sampled_from([1, 1, 1, 2]), amount=AMOUNTS | st.none(), kind=KINDS)
    def ask(self, payment: int, amount: int | None, kind: str) -> None:
        """A customer asks; ``unsure``: nobody made sure who it is, ``other``: for a reason that a person must judge."""
        fields: dict[str, Any] = {"order_id": f"order-{payment}", "customer_id": f"customer-{payment}"}
        fields |= {"full": True, "amount": None, "currency": None} if amount is None else {"amount": amount, "currency": "USD"}
        fields |= {"unsure": {"customer_authentication": None}, "other": {"reason": "other"}}.get(kind, {})
        refund = self.run(self.world.accept(self.world.request(**fields)))
        self.asked.append(refund)
        self.run(self.world.steps.prepare(refund, self.processor.state(self.paid_with[payment - 1])))

    @rule(amount=AMOUNTS, kind=KINDS)
    def ask_until_approved(self, amount: int, kind: str) -> None:
        """A request that goes through without trouble, as far as the policy lets it."""
        self.ask(payment=1, amount=amount, kind=kind)
        self.look()
        refund = self.rows[-1]["id"]
        if self.status(refund) is Status.AWAITING_CONSENT:
            self.says(self.world.consent(refund))
        if self.status(refund) is Status.AWAITING_REVIEW:
            self.says(self.world.decide(refund, self.world.mia))

    @precondition(lambda self: self.having(Status.AWAITING_CONSENT))
    @rule(which=WHICH, agreed=st.sampled_from([True, True, False]))
    def consent(self, which: int, agreed: bool) -> None:
        self.says(self.world.consent(self.pick(which, Status.AWAITING_CONSENT), agreed=agreed))

    @precondition(lambda self: self.having(Status.AWAITING_REVIEW))
    @rule(which=WHICH, verdict=st.sampled_from(["approve", "approve", "approve", "deny"]))
    def decide(self, which: int, verdict: str) -> None:
        refund = self.pick(which, Status.AWAITING_REVIEW)
        terms = self.row(refund)["terms_hash"]
        if terms is None and verdict == "approve":
            return
        self.says(self.world.decide(refund, self.world.mia, verdict, terms))

    @precondition(lambda self: self.having(Status.AWAITING_REVIEW, Status.AWAITING_CONSENT))
    @rule(which=WHICH, amount=AMOUNTS)
    def revise(self, which: int, amount: int) -> None:
        refund = self.pick(which, Status.AWAITING_REVIEW, Status.AWAITING_CONSENT)
        self.read_again(refund)
        self.says(self.world.revise(refund, self.world.ann, amount=amount))

    @precondition(lambda self: self.having(*BEFORE_OPERATION))
    @rule(which=WHICH, really=st.sampled_from([False, False, True]))
    def withdraw(self, which: int, really: bool) -> None:
        if really:
            self.says(self.world.withdraw(self.pick(which, *BEFORE_OPERATION)))

    # --- sending ---------------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.having(*SENDABLE))
    @rule(which=WHICH, fate=st.sampled_from([*Fate, Fate.ANSWERED, Fate.ANSWERED]), born=BORN, last=st.booleans())
    def send(self, which: int, fate: Fate, born: RefundState, last: bool) -> None:
        """One attempt of the step; ``last``: it had been tried as often as it may be."""
        self.processor.fate, self.processor.born = fate, born
        self.submit(self.pick(which, *SENDABLE), attempt=3 if last else 1)

    @precondition(lambda self: self.having(*SENDABLE))
    @rule(which=WHICH)
    def send_well(self, which: int) -> None:
        """The same, without trouble."""
        self.send(which=which, fate=Fate.ANSWERED, born=RefundState.SUCCEEDED, last=False)

    @precondition(lambda self: self.having(*SENDABLE))
    @rule(which=WHICH, first=st.sampled_from(DEATHS), then=st.sampled_from(HEIRS), late=st.booleans())
    def die_and_be_followed(self, which: int, first: Fate, then: Fate, late: bool) -> None:
        """A worker dies in the middle of a call, and as soon as its attempt cannot leave any more another goes on; ``late``: what it sent arrives then."""
        refund = self.pick(which, *SENDABLE)
        self.processor.fate, self.processor.born = first, RefundState.SUCCEEDED
        self.submit(refund)
        self.time_passes(by=SENT_WITHIN + timedelta(seconds=10))
        self.processor.fate = then
        self.submit(refund)
        if late and self.processor.under_way:
            self.arrive()

    @precondition(lambda self: self.having(*SENDABLE))
    @rule(which=WHICH, fate=st.sampled_from([Fate.REQUEST_LOST, Fate.ANSWER_LOST, Fate.UNDER_WAY]))
    def give_up(self, which: int, fate: Fate) -> None:
        """Nothing is heard of it, whatever is tried."""
        refund = self.pick(which, *SENDABLE)
        self.processor.fate, self.processor.born = fate, RefundState.SUCCEEDED
        for _ in range(3):
            self.submit(refund, attempt=3)

    @precondition(lambda self: self.processor.under_way)
    @rule()
    def arrive(self) -> None:
        """A request that was under way reaches the processor: later than anybody waited for its answer."""
        self.processor.arrives(self.processor.under_way.pop(0)[1])

    @precondition(lambda self: self.having(Status.HELD))
    @rule(which=WHICH)
    def resume(self, which: int) -> None:
        refund = self.pick(which, Status.HELD)
        self.read_again(refund)
        self.run(self.world.steps.resume_held(refund))

    @rule(stopped=st.booleans())
    def stop(self, stopped: bool) -> None:
        self.run(self.control(stopped))
        self.processor.sending_forbidden = stopped

    # --- what happens at the processor -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.free() > 0 and not any(refund.operation is None for refund in self.captured.refunds))
    @rule(share=st.sampled_from([1, 2, 4, 4]))
    def refund_past_us(self, share: int) -> None:
        """Somebody refunds a part of what is left there, in the processor's dashboard: reserved or not."""
        self.processor.make(self.captured.id, max(1, self.free() // share), born=RefundState.SUCCEEDED)

    @precondition(lambda self: not self.dispute_began and self.processor.arrived)
    @rule(dispute=st.sampled_from([DisputeState.INQUIRY, DisputeState.OPEN, DisputeState.LOST]))
    def dispute_begins(self, dispute: DisputeState) -> None:
        """The customer goes to the bank, once."""
        self.captured.dispute, self.dispute_began = dispute, True

    @precondition(lambda self: self.captured.dispute in (DisputeState.INQUIRY, DisputeState.OPEN))
    @rule(won=st.booleans())
    def dispute_ends(self, won: bool) -> None:
        self.captured.dispute = DisputeState.NONE if won else DisputeState.LOST

    @precondition(lambda self: self.processor.all_refunds())
    @rule(which=WHICH, state=st.sampled_from([RefundState.SUCCEEDED, RefundState.FAILED, RefundState.CANCELED]))
    def change_there(self, which: int, state: RefundState) -> None:
        """A refund there ends, or fails after it had succeeded; what has failed stays failed."""
        refunds = self.processor.all_refunds()
        refund = refunds[which % len(refunds)]
        if refund.state not in (RefundState.FAILED, RefundState.CANCELED):
            self.processor.becomes(refund, state)

    # --- learning of it ----------------------------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 1))
    def observe(self, number: int) -> None:
        """An event hints at a payment, or a sweep comes by: it is read live, and recorded."""
        self.look_at(self.paid_with[number])

    @precondition(lambda self: self.having(Status.PENDING))
    @rule(which=WHICH)
    def poll(self, which: int) -> None:
        self.step(Reconcile(self.settling, self.processor).reconcile, self.pick(which, Status.PENDING))

    @precondition(lambda self: self.having(Status.PARKED))
    @rule(which=WHICH, refunded=st.booleans())
    def settle(self, which: int, refunded: bool) -> None:
        """Persons say what became of a parked refund: the truth as far as they can see it, or that nothing was refunded."""
        refund = self.pick(which, Status.PARKED)
        there = next((found for found in self.processor.all_refunds() if found.operation in self.operations(refund)), None)
        outcome, named = ("refunded", there.id) if refunded and there else ("not_refunded", None)
        for person in (self.world.ann, self.world.bob):
            said = self.run(self.said(refund, person, outcome, named))
            self.step(Settle(self.settling, self.processor).settle, refund, message=said)
            if self.status(refund) is not Status.PARKED:
                return

    @rule(
        by=st.sampled_from(
            [SENT_WITHIN + timedelta(seconds=10), timedelta(minutes=2), timedelta(hours=22), timedelta(hours=30), timedelta(days=4)]
        )
    )
    def time_passes(self, by: timedelta) -> None:
        """The clocks go on. A request that is under way arrives before anybody may say that no attempt is open any more, or never."""
        self.clock.at += by
        self.processor.under_way = [(sent, request) for sent, request in self.processor.under_way if self.clock.at - sent < ANSWERED_WITHIN]
        self.world.execute("UPDATE attempts SET send_by = send_by - %s", by)
        for refund in self.having(Status.AWAITING_CONSENT, Status.AWAITING_REVIEW, Status.PARKED):
            self.run(self.world.steps.pass_deadline(refund))

    # --- what must hold after every step -----------------------------------------------------------------------------------------------

    @invariant()
    def the_record_is_whole(self) -> None:
        """Versions without gaps; each change of status by the table and from where the last one led (P8)."""
        self.look()
        entries = self.world.rows("SELECT refund_id, refund_version, type, data FROM ledger WHERE refund_id IS NOT NULL ORDER BY 1, 2")
        for row in self.rows:
            mine = [entry for entry in entries if entry["refund_id"] == row["id"]]
            assert [entry["refund_version"] for entry in mine] == list(range(1, row["version"] + 1))
            now = Status.RECEIVED
            for entry in mine:
                if entry["type"] == "status_changed":
                    moved = entry["data"]
                    assert moved["from"] == now
                    now = TRANSITIONS[now][Event(moved["event"])]
                    assert moved["to"] == now
            assert row["status"] == now

    @invariant()
    def no_payment_gives_back_more_than_it_took(self) -> None:
        """P2, at a processor that would let it happen."""
        for held in self.processor.payments.values():
            assert 0 <= held.returned <= max(held.captured, 0)

    @invariant()
    def every_refund_there_was_approved_once(self) -> None:
        """P1 and P3: one refund an operation, one key, exactly what was approved by decisions that nothing else used."""
        made = [refund for refund in self.processor.all_refunds() if refund.operation]
        assert len({refund.operation for refund in made}) == len(made)
        assert len(set(self.processor.arrived)) == len({operation for operation, _ in self.processor.arrived})
        rows = self.world.rows(
            "SELECT o.id, o.refund_id, o.amount, o.revision, o.terms_hash, p.processor_payment, r.terms_hash AS quoted,"
            " array_agg(d.terms_hash) AS approved, r.revision = f.revision AS present"
            " FROM operations o JOIN payments p ON p.id = o.payment_id JOIN refunds f ON f.id = o.refund_id"
            " JOIN revisions r ON r.refund_id = o.refund_id AND r.revision = o.revision"
            " JOIN consumed_decisions c ON c.operation_id = o.id JOIN decisions d ON d.id = c.decision_id AND d.verdict = 'approve'"
            " GROUP BY o.id, p.processor_payment, r.terms_hash, r.revision, f.revision"
        )
        operations = {row["id"]: row for row in rows}
        for operation, _ in self.processor.arrived:
            assert set(operations[operation]["approved"]) == {operations[operation]["terms_hash"]} == {operations[operation]["quoted"]}
        for refund in made:
            operation = operations[refund.operation or ""]
            assert (refund.amount, refund.processor_payment) == (operation["amount"], operation["processor_payment"])
            assert operation["present"]
            assert self.status(operation["refund_id"]) not in NEVER_SENT

    @invariant()
    def unknown_is_never_concluded(self) -> None:
        """P7: what is recorded as failed has no money there and none on its way; what succeeded is there."""
        there = {refund.operation: refund for refund in self.processor.all_refunds()}
        for row in self.rows:
            operations = self.operations(row["id"])
            if row["status"] == Status.FAILED:
                counting = [there[o] for o in operations if o in there and there[o].state.counts]
                assert not counting, f"{row['id']} failed, and {counting} is there"
                assert not [request for _, request in self.processor.under_way if request.operation in operations]
            if row["status"] == Status.SUCCEEDED:
                assert any(o in there for o in operations)

    @invariant()
    def what_is_shown_as_refundable_can_be_asked_for(self) -> None:
        """The figure is what is captured less what went back and what is promised, and a quote takes it and not one cent more."""
        if self.captured.dispute is not DisputeState.NONE:
            return
        shown = {refund.operation for refund in self.captured.refunds}
        promised = sum(
            row["amount"] or 0
            for row in self.rows
            if row["payment_id"] == self.names[self.captured.id]
            and row["status"] in PROMISING
            and not shown & set(self.operations(row["id"]))
        )
        left = max(0, CAPTURED - self.captured.returned - promised)
        assert self.run(self.refundable()) == left
        for amount, fits in ((left, True), (left + 1, False)):
            if amount > 0:
                assert (self.run(self.quoted(amount)) in (Code.EXCEEDS_REFUNDABLE, Code.ALREADY_REFUNDED)) is not fits

    @invariant()
    def nothing_is_halted(self) -> None:
        """The database forgets nothing here, so no halt is due, and no discrepancy but refunds past us."""
        assert self.world.rows("SELECT code, reason FROM halts") == []
        assert self.world.rows("SELECT kind, evidence FROM discrepancies WHERE kind <> 'external'") == []

    # --- the end -----------------------------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Everything is let go and looked at until nothing moves: then record and truth are the same (P6)."""
        self.stop(stopped=False)
        self.processor.fate, self.processor.born = Fate.ANSWERED, RefundState.SUCCEEDED
        while self.processor.under_way:
            self.arrive()
        for _ in range(12):
            self.time_passes(by=timedelta(minutes=2))
            self.the_record_is_whole()
            before = [(row["status"], row["revision"]) for row in self.rows]
            for refund in self.having(Status.HELD):
                self.read_again(refund)
                self.run(self.world.steps.resume_held(refund))
            self.the_record_is_whole()
            for refund in self.having(*SENDABLE):
                self.submit(refund)
            for name in self.paid_with:
                self.look_at(name)
            self.the_record_is_whole()
            if [(row["status"], row["revision"]) for row in self.rows] == before:
                break
        for check in (
            self.no_payment_gives_back_more_than_it_took,
            self.every_refund_there_was_approved_once,
            self.unknown_is_never_concluded,
        ):
            check()
        self.record_and_truth_are_the_same()

    def record_and_truth_are_the_same(self) -> None:
        there = {refund.id: (refund.operation, refund.amount, refund.state.value) for refund in self.processor.all_refunds()}
        recorded = self.world.rows("SELECT id, operation_id, amount, state FROM processor_refunds")
        assert {row["id"]: (row["operation_id"], row["amount"], row["state"]) for row in recorded} == there
        wanted = {RefundState.SUCCEEDED: Status.SUCCEEDED, RefundState.FAILED: Status.FAILED, RefundState.CANCELED: Status.FAILED}
        states = {operation: RefundState(state) for operation, _, state in there.values() if operation}
        assert not self.having(*SENDABLE), self.having(*SENDABLE)
        for row in self.rows:
            for state in (states[o] for o in self.operations(row["id"]) if o in states):
                unfinished = (Status.PENDING, Status.PARKED) if state is not RefundState.UNKNOWN else (Status.PARKED,)
                assert row["status"] in ((wanted[state],) if state in wanted else unfinished), (row["status"], row["code"], state)


@pytest.mark.timeout(400)
def test_the_store_holds_its_promises_whatever_happens(
    postgres_server: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody else works meanwhile: what is not its turn is left at once, and repeated as the engine would.
    monkeypatch.setattr(submit, "TURN_WITHIN_S", 0)
    Model.found(postgres_server, template_database)
    bounded = settings(
        max_examples=20,
        stateful_step_count=25,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(Model, settings=bounded)


@pytest.mark.parametrize("fate", [Fate.UNDER_WAY, Fate.DIED_UNDER_WAY])
def test_two_persons_wait_for_a_request_that_may_still_arrive(postgres_server: PostgresServer, template_database: str, fate: Fate) -> None:
    """Found by the model: nothing was heard of it, two persons say that nothing was refunded, and then it arrives."""
    Model.found(postgres_server, template_database)
    model = Model()
    try:
        model.ask_until_approved(amount=3_000, kind="named")
        model.look()
        model.send(which=0, fate=fate, born=RefundState.SUCCEEDED, last=False)
        model.time_passes(by=SENT_WITHIN + timedelta(seconds=10))
        model.give_up(which=0, fate=Fate.REQUEST_LOST)
        model.look()
        assert model.having(Status.PARKED) == model.asked
        model.settle(which=0, refunded=False)
        model.look()
        assert model.having(Status.PARKED) == model.asked, "it may still arrive"
        model.arrive()
        model.unknown_is_never_concluded()
        model.come_to_rest()
        assert model.having(Status.SUCCEEDED) == model.asked
    finally:
        model.close()
