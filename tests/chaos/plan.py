"""What a run will do, drawn from its seed: what is asked for, and what goes wrong when.

Load and faults come from two streams, and each errand from a stream of its own, so that the same seed gives the same plan whatever the machine does. Faults
are placed by how many refunds have been asked for, not by the clock: a replay on a slower machine meets them at the same place of the load.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

WORKERS = ("worker", "worker-2")
"""Two, so that one goes on while the other is dead or stands still, and both may believe that an attempt is theirs."""
PARTS = (*WORKERS, "api", "temporal", "postgres", "sandbox")
LINKS = ("worker-postgres", "worker-temporal", "worker-sandbox", "api-postgres", "api-temporal")

ERRANDS = {
    "automatic": 26,
    "duplicated": 10,
    "racing": 8,
    "parts": 5,
    "reviewed": 10,
    "refused": 4,
    "two_people": 3,
    "managed": 3,
    "agreed": 5,
    "declined": 2,
    "revised": 4,
    "withdrawn": 4,
    "unanswered": 2,
    "left_waiting": 1,
    "pending": 5,
    "pending_fails": 3,
    "fails_later": 3,
    "authorised": 3,
    "disputed": 4,
    "altered": 2,
    "past_us": 4,
    "sold": 7,
    "sold_in_parts": 2,
    "sold_on": 3,
    "grouped": 4,
}
"""What people ask for, by weight; ``tests/chaos/doers.py`` names a function for each."""
REFUNDS_OF = {"racing": 3, "parts": 3, "altered": 2, "sold_in_parts": 3, "grouped": 3}
"""How many refunds an errand asks for, where it is more than one."""

FAULTS = {
    "kill": 14,
    "kill_while_starting": 3,
    "kill_everything": 1,
    "kill_in_mid_call": 5,
    "crash_at": 6,
    "freeze": 6,
    "cut": 6,
    "refuse": 3,
    "stall": 4,
    "swallow": 4,
    "end_sessions": 4,
    "disturb_create": 22,
    "disturb_leg": 6,
    "disturb_reading": 8,
    "disturb_webhooks": 7,
    "refuse_key": 2,
    "stop": 5,
    "end_run": 3,
    "raw_signal": 3,
}
"""What goes wrong, by weight; ``tests/chaos/faults.py`` has a method for each."""

CREATE_FAULTS: tuple[tuple[int, list[dict[str, Any]]], ...] = (
    (6, [{"kind": "lose_answer"}]),
    (4, [{"kind": "lose_request"}]),
    (2, [{"kind": "status", "status": 500}]),
    (2, [{"kind": "status", "status": 500, "after_work": True}]),
    (2, [{"kind": "status", "status": 502, "after_work": True}]),
    (2, [{"kind": "status", "status": 503}]),
    (3, [{"kind": "malformed"}]),
    (3, [{"kind": "rate_limit"}]),
    (2, [{"kind": "rate_limit", "lock_timeout": True}]),
    (3, [{"kind": "key_in_use"}]),
    (3, [{"kind": "delay", "ms": 800}]),
    (2, [{"kind": "delay", "ms": 3_500}]),
    (2, [{"kind": "hang", "ms": 1_200}]),
    (2, [{"kind": "hang", "ms": 4_000}]),
    (2, [{"kind": "lose_answer"}, {"kind": "hide"}]),
    (1, [{"kind": "alter", "fields": {"amount": 50}}]),
)
LEG_FAULTS = CREATE_FAULTS[:-1]
"""All but another amount: of a leg that is not what was approved a person has to decide more than this suite's people know."""
READING_FAULTS: tuple[tuple[int, list[dict[str, Any]]], ...] = (
    (3, [{"kind": "lose_answer"}]),
    (2, [{"kind": "status", "status": 500}]),
    (2, [{"kind": "status", "status": 503}]),
    (2, [{"kind": "rate_limit"}]),
    (2, [{"kind": "malformed"}]),
    (2, [{"kind": "hang", "ms": 2_500}]),
    (2, [{"kind": "hide"}]),
)
LEGS = ("transfer_reversal.create", "fee_refund.create")
READS = (
    *("payment_intent.retrieve", "refund.list", "refund.retrieve", "dispute.list"),
    *("transfer.list", "transfer_reversal.list", "application_fee.list", "fee_refund.list"),
)
WEBHOOK_FAULTS: tuple[tuple[int, list[dict[str, Any]]], ...] = (
    (3, [{"kind": "duplicate"}]),
    (2, [{"kind": "drop"}]),
    (3, [{"kind": "hold"}]),
    (2, [{"kind": "delay", "ms": 3_000}]),
)


_RESOURCES = ("account", "payment_intents", "charges", "disputes", "refunds", "transfers")
KEY_REFUSALS: tuple[dict[str, Any], ...] = (
    {"revoked": True},
    {"revoked": False, "permissions": dict.fromkeys((*_RESOURCES, "application_fees"), "read")},
)
"""What becomes of the key: revoked, so that nothing is answered, not even a reading; or it may read and not make anything."""


POINTS = tuple(
    f"{when}:{what}"
    for when in ("before", "after")
    for what in (
        *("intent", "attempt_opened", "refund.create", "receipt", "attempt_ended", "decision_recorded"),
        *("leg_attempt_opened", "transfer.reverse", "fee.refund", "leg_done"),
        *("approved", "held", "succeeded", "pending", "failed", "parked", "commit", "*"),
    )
)
"""Commit boundaries and calls at which a process dies (``refunds/points.py`` names them after what is written there)."""


@dataclass(frozen=True)
class Errand:
    """One thing somebody wants: its kind, how many refunds it asks for, and a stream of its own for its details."""

    number: int
    kind: str
    refunds: int
    client: int
    seed: str

    def stream(self) -> Random:
        """The errand's own random numbers, from their beginning."""
        return Random(self.seed)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, once ``at`` refunds have been asked for."""

    number: int
    at: int
    kind: str
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return " ".join([f"{self.number}: {self.kind}", *(f"{name}={value}" for name, value in self.details.items())])


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a run begins. ``points`` are the named crash points of the product, in a fixed order."""

    seed: int
    refunds: int
    faults: int
    clients: int = 3
    mid_calls: int = 5
    """How often a worker is killed in mid-call once all faults are over, to measure how long it takes to recover: with another there, and then alone."""
    restore: bool = True
    """Whether an older database is put back at the end, once everything else was checked."""
    points: tuple[str, ...] = POINTS

    def errands(self) -> Iterator[Errand]:
        """What is asked for, one after the other: ``refunds`` refunds together, the last errand cut to fit."""
        load = Random(f"{self.seed}/load")
        left, number = self.refunds, 0
        while left:
            number += 1
            kind = _weighted(load, ERRANDS)
            size = REFUNDS_OF.get(kind, 1)
            if size > left:
                kind, size = "automatic", 1
            left -= size
            yield Errand(number, kind, size, load.randrange(self.clients), f"{self.seed}/errand/{number}")

    def troubles(self) -> list[Fault]:
        """What goes wrong, in order."""
        stream = Random(f"{self.seed}/faults")
        return [self._trouble(stream, number) for number in range(1, self.faults + 1)]

    def loses_events(self) -> bool:
        """Whether some events are never sent, so that only a reconciliation can find what they would have told."""
        return any(fault.kind == "disturb_webhooks" and fault.details["fault"] == [{"kind": "drop"}] for fault in self.troubles())

    def _trouble(self, stream: Random, number: int) -> Fault:
        at = int((number - 1 + stream.random()) * self.refunds / self.faults)
        kind = _weighted(stream, FAULTS)
        if kind == "crash_at" and not self.points:
            kind = "kill"
        return Fault(number, at, kind, _DETAILS[kind](stream, self))


def _weighted(stream: Random, weights: dict[str, int]) -> str:
    return stream.choices(list(weights), list(weights.values()))[0]


def one_of(stream: Random, table: tuple[tuple[int, list[dict[str, Any]]], ...]) -> list[dict[str, Any]]:
    """One of a table of faults, by its weights."""
    return stream.choices([faults for _, faults in table], [weight for weight, _ in table])[0]


def _seconds(stream: Random, least: float, most: float) -> float:
    return round(stream.uniform(least, most), 2)


def _kill(stream: Random, _plan: Plan) -> dict[str, Any]:
    return {"part": stream.choices(PARTS, (3, 3, 3, 2, 3, 2))[0]}


def _freeze(stream: Random, _plan: Plan) -> dict[str, Any]:
    # Longer than the time within which an attempt may be sent, and than a heartbeat: what wakes up must find that others went on.
    return {"part": stream.choices(PARTS, (3, 3, 2, 2, 2, 2))[0], "seconds": stream.choice((0.5, 2.5, 4.0, 7.5))}


def _crash_at(stream: Random, plan: Plan) -> dict[str, Any]:
    # Often the process dies; now and then it stands still there, and others go on.
    action = stream.choice(("kill", "kill", "kill", "freeze"))
    return {"rule": f"{stream.choice(plan.points)}={action}@{stream.choice((1, 1, 2, 5))}", "seconds": _seconds(stream, 2.0, 8.0)}


def _link(least: float, most: float) -> Callable[[Random, Plan], dict[str, Any]]:
    def details(stream: Random, _plan: Plan) -> dict[str, Any]:
        return {"link": stream.choice(LINKS), "seconds": _seconds(stream, least, most)}

    return details


_DETAILS: dict[str, Callable[[Random, Plan], dict[str, Any]]] = {
    "kill": _kill,
    "kill_while_starting": lambda stream, plan: _kill(stream, plan) | {"seconds": _seconds(stream, 0.3, 2.5)},
    "kill_everything": lambda stream, plan: {},
    "kill_in_mid_call": lambda stream, plan: {"ms": stream.choice((400, 800)), "both": stream.random() < 0.5},
    "crash_at": _crash_at,
    "freeze": _freeze,
    "cut": lambda stream, plan: {"link": stream.choice(LINKS)},
    "refuse": _link(0.3, 3.0),
    "stall": _link(0.3, 4.0),
    "swallow": _link(0.1, 1.0),
    "end_sessions": lambda stream, plan: {"login": stream.choice(("refunds_api", "refunds_worker", "refunds_payments"))},
    "disturb_create": lambda stream, plan: {"fault": one_of(stream, CREATE_FAULTS), "times": stream.choice((1, 1, 1, 2, 3))},
    "disturb_leg": lambda stream, plan: {
        "on": stream.choice(LEGS),
        "fault": one_of(stream, LEG_FAULTS),
        "times": stream.choice((1, 1, 2, 5)),
    },
    "disturb_reading": lambda stream, plan: {
        "on": stream.choice(READS),
        "fault": one_of(stream, READING_FAULTS),
        "times": stream.choice((1, 2, 4)),
    },
    "disturb_webhooks": lambda stream, plan: {
        "fault": one_of(stream, WEBHOOK_FAULTS),
        "times": stream.choice((1, 3, 6)),
        "seconds": _seconds(stream, 0.5, 4.0),
        "reverse": stream.random() < 0.5,
    },
    "refuse_key": lambda stream, plan: {"how": stream.choice(KEY_REFUSALS), "seconds": _seconds(stream, 0.3, 3.0)},
    "stop": lambda stream, plan: {"seconds": _seconds(stream, 0.3, 4.0)},
    "end_run": lambda stream, plan: {"how": stream.choice(("terminate", "cancel", "reset")), "pick": stream.random()},
    "raw_signal": lambda stream, plan: {
        "name": stream.choice(("approve", "deny", "withdraw", "consent", "settle", "revise", "resume", "payment_event")),
        "pick": stream.random(),
    },
}
