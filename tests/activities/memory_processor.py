"""A payment processor in memory, behind the same interface as Stripe, of which a test decides what becomes of each request and knows all of the truth.

It refuses what a processor must refuse (a disputed or uncaptured payment) but lets itself be over-refunded: keeping within the captured amount is what the
tests are about. It remembers under a key what it made, and no refusal: what is refused at the door can be let in when it comes a second time.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from activities.processors.base import SendTooLate
from refunds.clock import Clock
from refunds.points import Crashed
from refunds.processor import (
    DisputeState,
    FrozenRequest,
    NotSent,
    PaymentState,
    PaymentStatus,
    ProcessorRefund,
    RefundPage,
    RefundState,
    Refused,
    Unknown,
)


class Fate(StrEnum):
    """What becomes of a request to refund or to cancel."""

    ANSWERED = "answered"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TOO_LATE = "too late"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    UNDER_WAY = "under way"
    DIED_BEFORE = "died before"
    DIED_AFTER = "died after"
    DIED_UNDER_WAY = "died under way"


@dataclass
class Held:
    """A payment there."""

    id: str
    captured: int
    capturable: int
    status: PaymentStatus
    currency: str = "USD"
    dispute: DisputeState = DisputeState.NONE
    refunds: list[ProcessorRefund] = field(default_factory=list)

    @property
    def returned(self) -> int:
        """What has gone back, or is on its way."""
        return sum(refund.amount for refund in self.refunds if refund.state.counts)


@dataclass
class MemoryProcessor:
    """The processor, and what it was asked: every request that reached it with its operation and key."""

    clock: Clock
    name: str = "stripe"
    payments: dict[str, Held] = field(default_factory=dict)
    by_key: dict[str, ProcessorRefund | str] = field(default_factory=dict)
    arrived: list[tuple[str, str]] = field(default_factory=list)
    under_way: list[tuple[datetime, FrozenRequest]] = field(default_factory=list)
    fate: Fate = Fate.ANSWERED
    born: RefundState = RefundState.SUCCEEDED
    sending_forbidden: bool = False
    reachable: bool = True

    # --- the interface ---------------------------------------------------------------------------------------------------------------

    async def account(self) -> str:
        """Whose money it is."""
        return "acct_1"

    async def close(self) -> None:
        """Nothing to close."""

    async def read_payment(self, processor_payment: str) -> PaymentState | None:
        """The truth of this moment."""
        self._ask()
        return None if processor_payment not in self.payments else self.state(processor_payment)

    def state(self, processor_payment: str) -> PaymentState:
        """A reading, whether or not the processor can be reached."""
        held = self.payments[processor_payment]
        return PaymentState(
            processor_payment=held.id,
            status=held.status,
            currency=held.currency,
            captured=held.captured,
            capturable=held.capturable,
            refunds=tuple(held.refunds),
            dispute=held.dispute,
            risk_level="normal",
            read_at=self.clock.now(),
            raw_status=held.status.value,
        )

    async def refund(self, request: FrozenRequest, *, send_before: float) -> ProcessorRefund:
        """Let the request meet its fate."""
        done = self._meet(request)
        assert isinstance(done, ProcessorRefund)
        return done

    async def cancel(self, request: FrozenRequest, *, send_before: float) -> None:
        """Let the request meet its fate."""
        self._meet(request)

    async def find(self, processor_payment: str, operation: str) -> ProcessorRefund | None:
        """Our refund, in the complete list."""
        self._ask()
        return next((refund for refund in self.payments[processor_payment].refunds if refund.operation == operation), None)

    async def retrieve(self, processor_refund: str, *, of: str | None = None) -> ProcessorRefund | None:
        """One refund."""
        self._ask()
        return next((refund for held in self.payments.values() for refund in held.refunds if refund.id == processor_refund), None)

    async def list_refunds(self, *, created_from: datetime, created_to: datetime, after: str | None, limit: int = 100) -> RefundPage:
        """Everything on one page."""
        self._ask()
        found = [refund for held in self.payments.values() for refund in held.refunds]
        return RefundPage(tuple(refund for refund in found if created_from <= (refund.created_at or created_from) < created_to), None)

    # --- what happens there ------------------------------------------------------------------------------------------------------------

    def arrives(self, request: FrozenRequest) -> ProcessorRefund | str:
        """Do what a request asks for, once for each key; the answer is a refund, ``canceled``, or the code of a refusal."""
        self.arrived.append((request.operation, request.idempotency_key))
        first = self.by_key.get(request.idempotency_key)
        if first is None:
            done = self._work(request)
            if isinstance(done, ProcessorRefund) or done == PaymentStatus.CANCELED:
                self.by_key[request.idempotency_key] = done
            return done
        if isinstance(first, str):
            return first
        return next(refund for refund in self.payments[request.processor_payment].refunds if refund.id == first.id)

    def make(self, processor_payment: str, amount: int, *, operation: str | None = None, born: RefundState) -> ProcessorRefund:
        """Make a refund: ours, or somebody else's in the dashboard."""
        held = self.payments[processor_payment]
        number = sum(len(other.refunds) for other in self.payments.values()) + 1
        made = ProcessorRefund(
            f"re_{held.id}_{number}", held.id, amount, held.currency, born, born.value, operation, created_at=self.clock.now()
        )
        held.refunds.append(made)
        return made

    def becomes(self, refund: ProcessorRefund, state: RefundState) -> None:
        """A refund changes there, which nobody tells us."""
        refunds = self.payments[refund.processor_payment].refunds
        where = next(number for number, found in enumerate(refunds) if found.id == refund.id)
        refunds[where] = replace(refunds[where], state=state, raw_state=state.value)

    def all_refunds(self) -> list[ProcessorRefund]:
        """Every refund there."""
        return [refund for held in self.payments.values() for refund in held.refunds]

    # --- inside ------------------------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if not self.reachable:
            raise NotSent("no_connection")

    def _meet(self, request: FrozenRequest) -> ProcessorRefund | str:
        assert not self.sending_forbidden, "a call that moves money began after the stop had answered (P4)"
        match self.fate:
            case Fate.UNREACHABLE:
                raise NotSent("no_connection")
            case Fate.TOO_LATE:
                raise SendTooLate
            case Fate.REFUSED:
                raise Refused("refused", code="refused_at_the_door")
            case Fate.REQUEST_LOST:
                raise Unknown("no_answer")
            case Fate.UNDER_WAY | Fate.DIED_UNDER_WAY:
                self.under_way.append((self.clock.now(), request))
                raise Unknown("no_answer") if self.fate is Fate.UNDER_WAY else Crashed("under way")
            case Fate.DIED_BEFORE:
                raise Crashed("before sending")
            case Fate.ANSWERED | Fate.ANSWER_LOST | Fate.DIED_AFTER:
                pass
        done = self.arrives(request)
        if self.fate is Fate.ANSWER_LOST:
            raise Unknown("no_answer")
        if self.fate is Fate.DIED_AFTER:
            raise Crashed("after the answer")
        if isinstance(done, str) and done != PaymentStatus.CANCELED:
            raise Refused("refused", code=done)
        return done

    def _work(self, request: FrozenRequest) -> ProcessorRefund | str:
        held = self.payments[request.processor_payment]
        if request.kind == "release":
            if held.status is not PaymentStatus.AUTHORISED:
                return "payment_intent_unexpected_state"
            held.status, held.capturable = PaymentStatus.CANCELED, 0
            return PaymentStatus.CANCELED.value
        if held.status is not PaymentStatus.CAPTURED:
            return "charge_not_captured"
        if held.dispute in (DisputeState.OPEN, DisputeState.LOST):
            return "charge_disputed"
        return self.make(held.id, request.amount, operation=request.operation, born=self.born)
