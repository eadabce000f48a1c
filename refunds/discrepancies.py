"""Differences between the processor's refunds and our record: their kinds, what each one means, and how one is dealt with.

A difference is never resolved by guessing: what the processor says is recorded where a rule covers it, and everything else waits for a person.
"""

from enum import StrEnum

RUNBOOK = "docs/runbooks/discrepancies.md"


class Kind(StrEnum):
    """What differs."""

    OURS_MISSING = "ours_missing"
    EXTERNAL = "external"
    AMOUNT = "amount"
    STATUS = "status"
    CURRENCY = "currency"
    PAYMENT = "payment"
    DUPLICATE = "duplicate"
    UNKNOWN_OPERATION = "unknown_operation"
    UNKNOWN_PAYMENT = "unknown_payment"

    @property
    def meaning(self) -> str:
        """The kind in one sentence."""
        return _MEANINGS[self]

    @property
    def runbook(self) -> str:
        """Where it says what to do."""
        return f"{RUNBOOK}#{self.value}"

    def replaces(self, other: "Kind") -> bool:
        """Whether one refund of the processor that was found to be ``other``, and is found to be this now, is only this from now on.

        What the database has forgotten stays that, because its payment is held for it. What is there is not missing, and what is missing differs in nothing
        else. Otherwise the stronger kind counts.
        """
        if Kind.UNKNOWN_OPERATION in (self, other):
            return self is Kind.UNKNOWN_OPERATION
        if Kind.OURS_MISSING in (self, other):
            return True
        return _STRONGEST_FIRST.index(self) < _STRONGEST_FIRST.index(other)


class Standing(StrEnum):
    """How far a discrepancy has come. An ``explained`` one stays and is understood; a ``closed`` one is gone, and if it is seen again it is a new one."""

    OPEN = "open"
    EXPLAINED = "explained"
    CLOSED = "closed"


_STRONGEST_FIRST = (Kind.PAYMENT, Kind.DUPLICATE, Kind.CURRENCY, Kind.AMOUNT, Kind.STATUS, Kind.EXTERNAL, Kind.UNKNOWN_PAYMENT)

_MEANINGS: dict[Kind, str] = {
    Kind.OURS_MISSING: "We recorded this refund, and the processor does not know it.",
    Kind.EXTERNAL: "The processor has a refund that was not made by us; it was imported and counts.",
    Kind.AMOUNT: "The processor's refund has another amount than our record.",
    Kind.STATUS: "The processor shows the refund in another state than our record, and no rule covers the change.",
    Kind.CURRENCY: "The processor's refund has another currency than our record.",
    Kind.PAYMENT: "The processor's refund belongs to another payment than our record says.",
    Kind.DUPLICATE: "The processor has more than one refund with one operation of ours.",
    Kind.UNKNOWN_OPERATION: "The processor has a refund with an operation of ours that the database does not know: the database has forgotten it.",
    Kind.UNKNOWN_PAYMENT: "The processor has a refund with an operation of ours, for a payment that the database does not know.",
}
