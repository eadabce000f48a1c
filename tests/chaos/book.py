"""What the suite knows because it did it or was told so: payments it made, requests that were accepted, stops that were answered."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Payment:
    """One payment at the sandbox. ``marks`` name what the suite itself did to it there, past the product."""

    intent: str
    order: str
    customer: str
    amount: int
    currency: str
    marks: set[str] = field(default_factory=set[str])
    legs: bool = False
    """It went on to connected accounts."""
    fee: int = 0
    """The platform's fee on it."""
    refunds: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Accepted:
    """One request that was answered 2xx."""

    refund: str
    key: str
    errand: int
    kind: str


@dataclass(frozen=True, slots=True)
class Group:
    """One order-wide refund that was answered 2xx: what was asked for, and the payments of its order."""

    id: str
    key: str
    asked: int
    payments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which nothing may begin: when it was known to be stopped, and when resuming was begun. Seconds since the epoch.

    ``listed`` are the refunds whose calls the answer to an emergency stop named. A halt has no such list (``None``): a call whose attempt was open before may
    still leave, and only that no attempt is opened can be asked for.
    """

    answered_at: float
    resumed_at: float
    listed: frozenset[str] | None


@dataclass
class Book:
    """Kept for every refund of a run, so only what the checks need."""

    payments: dict[str, Payment] = field(default_factory=dict[str, Payment])
    accepted: dict[str, Accepted] = field(default_factory=dict[str, Accepted])
    keys: dict[str, str] = field(default_factory=dict[str, str])
    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    given: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """What people gave back by hand, once for each refund: the operation they were told of, and how much."""
    stops: list[Stop] = field(default_factory=list[Stop])
    odd: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """What was seen to be wrong at once: the check's name, and what it was."""
    told_no: dict[str, str] = field(default_factory=dict[str, str])
    """Refunds of which an answer said that nothing will be sent, and that answer."""
    answers: Counter[str] = field(default_factory=Counter[str])
    repeated: Counter[str] = field(default_factory=Counter[str])
    begun: int = 0
    """Refunds asked for so far."""

    def accept(self, errand: int, kind: str, payment: Payment, key: str, refund: str) -> None:
        """Note a 2xx. Two answers to one key that name two refunds are wrong at once."""
        known = self.keys.setdefault(key, refund)
        if known != refund:
            self.odd.append(("one_key_two_refunds", f"the key {key} was answered with {known} and with {refund}"))
        if refund not in self.accepted:
            self.accepted[refund] = Accepted(refund, key, errand, kind)
            payment.refunds.append(refund)
