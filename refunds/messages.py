"""What travels through Temporal: our own ids, statuses, times and verdicts. Small, and free of personal data (promise P9).

One value in, one value out, so that fields can be added; unknown fields are tolerated here (and refused over HTTP). Every message names a stored
row, and the store is believed, so access to Temporal alone approves nothing.
"""

from dataclasses import dataclass
from datetime import datetime

WORKFLOW_TYPE = "RefundWorkflow"
READING_WORKFLOW = "PaymentReadingWorkflow"
"""Reads one payment live on the payments queue, for whoever holds no processor key. Input: ``StepInput`` with the payment's surrogate as ``message``."""

RECONCILIATION_WORKFLOW = "ReconciliationWorkflow"
"""Compares a window of the processor's refunds with our record. Input: :class:`ReconciliationInput`."""

WATCH_WORKFLOW = "PaymentWatchWorkflow"
"""Observes one payment as long as anything hints that there is something to see. Input: ``StepInput`` with the payment's surrogate as ``message``."""

PULL_WORKFLOW = "OrdersPullWorkflow"
"""Makes the merchant's orders of the processor's payments. Input: :class:`PullInput`."""

LOOK = "look"
"""The signal of a watch: a hint without content."""

QUEUE_REFUNDS = "refunds"
QUEUE_CLASSIFY = "classify"
QUEUE_PAYMENTS = "payments"


UNRECORDED = "unrecorded"
"""The ``detail`` of a step whose message, if it is not backed, is refused without a ledger entry: the run has had too many of them."""


UNREAD = "unread"
"""The ``detail`` of a preparation that goes on although the text could not be read: a person reads it."""


WITH_FLOW = "with_flow"
"""The ``detail`` of a reading that also asks where the money went: to connected accounts, and as the platform's fee."""


class Step:
    """Names of the activities: the workflow calls them by name and never imports them."""

    PREPARE = "prepare"
    CLASSIFY = "classify"
    READ_PAYMENT = "read_payment"
    APPLY = "apply_message"
    DEADLINE = "pass_deadline"
    RESUME = "resume_held"
    REFUSE = "refuse_message"
    SUBMIT = "submit"
    RECONCILE = "reconcile"
    SETTLE = "settle"
    LEGS = "send_legs"
    OBSERVE = "observe_payment"
    RECONCILE_BEGIN = "begin_reconciliation"
    RECONCILE_PAGES = "reconcile_pages"
    RECONCILE_CANCEL = "cancel_reconciliation"
    PULL = "pull_orders"
    PULL_CANCEL = "cancel_orders_pull"


@dataclass(frozen=True)
class RefundInput:
    """The input of a refund's run."""

    refund: str


@dataclass(frozen=True)
class StepInput:
    """The input of every step: the refund, and for messages the kind and the id of the stored row. ``detail`` says what was wrong with a malformed one."""

    refund: str
    kind: str = ""
    message: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Observed:
    """What recording one live reading of a payment came to: refunds that were not known, refunds of ours that moved, and new discrepancies."""

    payment: str
    imported: int = 0
    moved: int = 0
    discrepancies: int = 0


@dataclass(frozen=True)
class ReconciliationInput:
    """A reconciliation that is stored already (``run``), or one to begin over the last ``window_s`` seconds."""

    run: str = ""
    window_s: int = 0


@dataclass(frozen=True)
class ReconciliationStep:
    """The input of a reconciliation's steps. ``begun_by`` is the run that begins it, as an operator finds it in Temporal."""

    run: str
    window_s: int = 0
    begun_by: str = ""


@dataclass(frozen=True)
class ReconciliationProgress:
    """How far a reconciliation has come. ``over``: nothing is left to do."""

    run: str
    phase: str
    pages: int = 0
    compared: int = 0
    differences: int = 0
    over: bool = False


@dataclass(frozen=True)
class PullInput:
    """A stored pull of orders. Everything else about it, the merchant's ids among it, stays in the store."""

    pull: str


@dataclass(frozen=True)
class PullProgress:
    """How far a pull has come, in counts. ``over``: nothing is left to do."""

    pull: str
    phase: str
    pages: int = 0
    payments: int = 0
    judged: int = 0
    over: bool = False


@dataclass(frozen=True)
class Situation:
    """Where a refund stands, as the store says: what the workflow acts on and shows to operators.

    ``version`` is the refund's own count of ledger entries: of two situations, the higher one is the newer.

    ``needs`` names a step of another role that must run before this one can go on (``classify`` or ``read_payment``), or is empty. ``wake_at`` is the next
    instant at which something is due by itself (reminder, escalation, expiry, poll), ``review_by`` the one a person is held to. ``refused`` is the code when
    the message that led here changed nothing. ``ladder`` says of a review what was done about silence and what will be. ``legs_at`` is when the open legs of a
    marketplace refund are due next; the run goes on while there is one.
    """

    refund: str
    status: str
    version: int = 0
    revision: int = 0
    needs: str = ""
    waits_for: str = ""
    runbook: str = ""
    tier: str = ""
    queue: str = ""
    amount: int = 0
    currency: str = ""
    order: str = ""
    payment: str = ""
    terms_hash: str = ""
    since: datetime | None = None
    wake_at: datetime | None = None
    review_by: datetime | None = None
    code: str = ""
    refused: str = ""
    refused_detail: str = ""
    legs_at: datetime | None = None
    ladder: str = ""


@dataclass(frozen=True)
class Message:
    """A signal or update: ``id`` names the recorded decision or instruction; the rest is only for people who read the history."""

    id: str
    revision: int = 0
    terms_hash: str = ""


@dataclass(frozen=True)
class Outcome:
    """The answer to an update: how the refund stands now, and ``refused`` (a code) when the message changed nothing."""

    refund: str
    status: str
    revision: int
    refused: str = ""
    detail: str = ""
