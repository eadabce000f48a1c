"""How long each kind of personal data is kept after a refund is over. What the ledger or the accounts need is none of these kinds and has no period.

A period counts from when the refund became final, or from when the text was written if that was later. Nothing of an open refund is ever taken away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from refunds.settings import Settings


class Kept(StrEnum):
    """What has a period."""

    MESSAGES = "messages"
    CONVERSATIONS = "conversations"
    READINGS = "readings"
    NOTES = "notes"
    EVENTS = "events"
    PULLS = "pulls"
    FINGERPRINTS = "fingerprints"
    ERASURE_MARKS = "erasure_marks"


@dataclass(frozen=True, slots=True)
class Period:
    """How long one kind is kept, and why that long. ``days`` is zero for until the customer is forgotten."""

    kind: Kept
    days: int
    what: str
    reason: str

    def before(self, now: datetime) -> datetime | None:
        """What became old before this instant has had its time; ``None`` when it is kept."""
        return now - timedelta(days=self.days) if self.days else None


_WHAT: Mapping[Kept, tuple[str, str]] = {
    Kept.MESSAGES: (
        "what the customer wrote, an agent's reasoning, and the request's metadata",
        "A cardholder can dispute a payment for up to 540 days under the card schemes' longest terms, and the words are the answer to that.",
    ),
    Kept.CONVERSATIONS: (
        "the conversation around a request",
        "It is context for the decision; most disputes are opened within 120 days, and the request itself stays longer.",
    ),
    Kept.READINGS: (
        "what a classifier quoted of the customer's words",
        "Its labels stay without the words; the words help to correct a reader, which is done within months.",
    ),
    Kept.NOTES: (
        "notes of colleagues, evidence of settling by hand, and remarks on discrepancies that are dealt with",
        "Claims about a payment commonly lapse after three years, and a settlement by hand is shown by its evidence.",
    ),
    Kept.EVENTS: (
        "what the processor's events said",
        "The processor itself keeps an event for 30 days; their ids stay, so that none is taken twice.",
    ),
    Kept.PULLS: (
        "order ids in reports of pulls",
        "A report is looked at while the orders it names are put in order; its figures stay.",
    ),
    Kept.FINGERPRINTS: (
        "keyed fingerprints of request bodies",
        "A caller that repeats a request does so within hours; the key itself is refused for ever.",
    ),
    Kept.ERASURE_MARKS: (
        "the keyed mark of who was forgotten",
        "Whoever asks twice does so within days; then nothing tells any more whose id it was.",
    ),
}


def periods(settings: Settings) -> tuple[Period, ...]:
    """Every kind with its period, in the order of :class:`Kept`."""
    return tuple(Period(kind, getattr(settings, f"retention_{kind}_days"), *_WHAT[kind]) for kind in Kept)


def kinds_of_text(kind: Kept) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds of sealed text that a period is about: exact ones, and what others begin with. Empty for what is no text."""
    return _TEXTS.get(kind, ((), ()))


_TEXTS: Mapping[Kept, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Kept.MESSAGES: (("message", "agent_reasoning", "details"), ()),
    Kept.CONVERSATIONS: (("conversation",), ()),
    Kept.READINGS: (("reading",), ()),
    Kept.NOTES: ((), ("note:", "evidence:")),
}
