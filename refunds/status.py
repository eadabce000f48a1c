"""The life of a refund: statuses, what can happen to one, and the table that is the only authority on how it moves.

Workflow, API, webhooks and manual settlement all move a refund through :func:`advance`; a move that is not in the table raises.
``docs/status.md`` is drawn from this table by :func:`draw`, and a test holds the two together.
"""

from enum import StrEnum


class Status(StrEnum):
    """Where a refund is."""

    RECEIVED = "received"
    CLASSIFIED = "classified"
    AWAITING_CONSENT = "awaiting_consent"
    AWAITING_REVIEW = "awaiting_review"
    APPROVED = "approved"
    HELD = "held"
    SUBMITTING = "submitting"
    PENDING = "pending"
    PARKED = "parked"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    ANSWERED = "answered"
    DRAFTED = "drafted"


class Event(StrEnum):
    """What happens to a refund."""

    READ = "read"
    ASK_CONSENT = "ask_consent"
    ASK_REVIEW = "ask_review"
    APPROVE = "approve"
    DENY = "deny"
    EXPIRE = "expire"
    WITHDRAW = "withdraw"
    ANSWER = "answer"
    DRAFT = "draft"
    HOLD = "hold"
    SUBMIT = "submit"
    PROCESSOR_PENDING = "processor_pending"
    PROCESSOR_SUCCEEDED = "processor_succeeded"
    PROCESSOR_FAILED = "processor_failed"
    AUTHORISATION_RELEASED = "authorisation_released"
    PARK = "park"


RESERVING = frozenset(
    {
        Status.AWAITING_CONSENT,
        Status.AWAITING_REVIEW,
        Status.APPROVED,
        Status.HELD,
        Status.SUBMITTING,
        Status.PENDING,
        Status.PARKED,
    }
)
"""Statuses in which the amount of the current terms is reserved: nobody else can be promised it."""

FINAL = frozenset(
    {
        Status.SUCCEEDED,
        Status.FAILED,
        Status.RELEASED,
        Status.DENIED,
        Status.EXPIRED,
        Status.WITHDRAWN,
        Status.ANSWERED,
        Status.DRAFTED,
    }
)
"""Statuses in which the run ends. ``succeeded`` and ``failed`` may still be corrected by a later truth from the processor."""

BEFORE_OPERATION = frozenset(
    {
        Status.RECEIVED,
        Status.CLASSIFIED,
        Status.AWAITING_CONSENT,
        Status.AWAITING_REVIEW,
        Status.APPROVED,
        Status.HELD,
    }
)
"""Statuses in which certainly nothing was sent: the refund can still be withdrawn, revised, denied or expire."""

_S, _E = Status, Event

_DECIDABLE = {
    _E.ASK_CONSENT: _S.AWAITING_CONSENT,
    _E.ASK_REVIEW: _S.AWAITING_REVIEW,
    _E.APPROVE: _S.APPROVED,
    _E.DENY: _S.DENIED,
    _E.EXPIRE: _S.EXPIRED,
    _E.WITHDRAW: _S.WITHDRAWN,
    _E.DRAFT: _S.DRAFTED,
}
_TRUTH = {
    _E.PROCESSOR_PENDING: _S.PENDING,
    _E.PROCESSOR_SUCCEEDED: _S.SUCCEEDED,
    _E.PROCESSOR_FAILED: _S.FAILED,
    _E.AUTHORISATION_RELEASED: _S.RELEASED,
    _E.PARK: _S.PARKED,
}

TRANSITIONS: dict[Status, dict[Event, Status]] = {
    _S.RECEIVED: {_E.READ: _S.CLASSIFIED, _E.WITHDRAW: _S.WITHDRAWN, _E.DENY: _S.DENIED},
    _S.CLASSIFIED: _DECIDABLE | {_E.ANSWER: _S.ANSWERED},
    _S.AWAITING_CONSENT: _DECIDABLE,
    # A request in free text whose order nobody could tell waits here for the person who reads it, who may find that no refund was asked for.
    _S.AWAITING_REVIEW: _DECIDABLE | {_E.ANSWER: _S.ANSWERED},
    _S.APPROVED: {k: v for k, v in _DECIDABLE.items() if k is not _E.APPROVE} | {_E.HOLD: _S.HELD, _E.SUBMIT: _S.SUBMITTING},
    _S.HELD: _DECIDABLE,
    # Back to held only while no attempt was ever opened; the store checks that, because the table cannot see attempts.
    _S.SUBMITTING: _TRUTH | {_E.HOLD: _S.HELD},
    _S.PENDING: {k: v for k, v in _TRUTH.items() if k in (_E.PROCESSOR_SUCCEEDED, _E.PROCESSOR_FAILED, _E.PARK)},
    _S.PARKED: {k: v for k, v in _TRUTH.items() if k is not _E.PARK},
    # Truth that arrives days later: a success that bounced, a failure that was none, more gone out than was due.
    _S.SUCCEEDED: {_E.PROCESSOR_FAILED: _S.FAILED, _E.PARK: _S.PARKED},
    _S.FAILED: {_E.PROCESSOR_SUCCEEDED: _S.SUCCEEDED, _E.PARK: _S.PARKED},
    _S.RELEASED: {},
    _S.DENIED: {},
    _S.EXPIRED: {},
    _S.WITHDRAWN: {},
    _S.ANSWERED: {},
    _S.DRAFTED: {},
}


class IllegalTransition(RuntimeError):
    """A move that the table does not allow: a bug, or a message that came too late; never swallowed."""

    def __init__(self, status: Status, event: Event) -> None:
        super().__init__(f"a refund that is {status} cannot take {event}")
        self.status = status
        self.event = event


def advance(status: Status, event: Event) -> Status:
    """Return the status that follows, or raise :class:`IllegalTransition`."""
    after = TRANSITIONS[status].get(event)
    if after is None:
        raise IllegalTransition(status, event)
    return after


def allows(status: Status, event: Event) -> bool:
    """Tell whether the table has a move for this event from this status."""
    return event in TRANSITIONS[status]


def draw() -> str:
    """Draw the table as a Mermaid state diagram for the docs; the order is that of the table."""
    lines = ["stateDiagram-v2", "    [*] --> received"]
    for status, moves in TRANSITIONS.items():
        by_target: dict[Status, list[str]] = {}
        for event, target in moves.items():
            by_target.setdefault(target, []).append(event.value)
        lines += [f"    {status} --> {target}: {', '.join(events)}" for target, events in by_target.items()]
        if status in FINAL:
            lines.append(f"    {status} --> [*]")
    return "\n".join(lines) + "\n"
