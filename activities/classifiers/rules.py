"""The rule-based reader: no key, no network, the same answer every time, and honest about how little it understands.

It reads English requests for what they plainly say. Its confidence is never above :data:`MAX_CONFIDENCE` percent; what it does not recognise, what
says two things at once, and what carries a sign of manipulation goes to a person.
"""

import json
import re

from activities.classifiers import amounts, patterns, signs
from activities.classifiers.amounts import read_amount
from activities.classifiers.base import NO_CONTEXT, Identity, ReadingContext, sha256, unreadable
from activities.classifiers.patterns import compiled
from activities.classifiers.signs import normalised, signs_of_manipulation
from refunds.classification import Classification, Intent, Proposal, Reading, Source
from refunds.readers import IN_PROCESS
from refunds.reasons import Reason

VERSION = "1"
MAX_CONFIDENCE = 60
_SUSPECT_CONFIDENCE = 10

_INTENTS = {intent: compiled(rows) for intent, rows in patterns.INTENTS.items()}
_REASONS = {reason: compiled(rows) for reason, rows in patterns.REASONS.items()}
_OUT_OF_SCOPE = compiled(patterns.OUT_OF_SCOPE)
_NOT_WANTED = compiled((patterns.NOT_WANTED,))
_REFERENCE = compiled(patterns.REFERENCES, ascii_only=True)
_QUOTED = compiled((patterns.QUOTED,))
_COMPENSATION = compiled((r"\bcompensat",))

IDENTITY = Identity(
    source=Source.RULES,
    classifier="rules",
    model="rules",
    version=VERSION,
    prompt_hash=sha256(
        json.dumps(
            [
                *(patterns.INTENTS, patterns.OUT_OF_SCOPE, patterns.NOT_WANTED, patterns.REASONS, patterns.REFERENCES, patterns.QUOTED),
                *(signs.PATTERNS, amounts.PATTERN.pattern),
            ]
        )
    ),
    reader=IN_PROCESS,
)


class RuleClassifier:
    """The reader by rules: deterministic, without a key and without a network."""

    async def classify(self, text: str, context: ReadingContext = NO_CONTEXT) -> Classification:
        """Read ``text``. The only failures are a text that is empty or too long."""
        failure = unreadable(text)
        return IDENTITY.failed(failure) if failure else IDENTITY.answer(read(text, context))

    async def aclose(self) -> None:
        """Nothing is held."""


def read(text: str, context: ReadingContext = NO_CONTEXT) -> Reading:
    """The reading of a text by the rules alone. Confidence is at most :data:`MAX_CONFIDENCE`, and 10 when a sign of manipulation was found."""
    plain = normalised(text)
    intent, clear, why = _intent(plain)
    reason, single = _reason(plain)
    reference = read_reference(plain)
    amount = read_amount(plain, context.currency)
    seen = signs_of_manipulation(text)
    confidence = _confidence(intent, clear, extras=sum(known is not None for known in (reference, reason, amount.money)))
    notes = [why]
    if amount.unclear:
        notes.append("an amount is named that cannot be read as one clear amount")
    if not single:
        notes.append("more than one reason is named")
    if seen:
        notes.append("the text tries to steer its reader")
        confidence = min(confidence, _SUSPECT_CONFIDENCE)
    careful = bool(seen) or amount.unclear or not clear or not single or reason is Reason.FRAUDULENT
    return Reading(
        intent=intent,
        reason=reason,
        order_reference=reference,
        product_lines=_quoted(plain),
        amount_text=amount.text,
        amount=amount.money.amount if amount.money else None,
        currency=amount.money.currency if amount.money else None,
        proposal=_proposal(intent, careful=careful),
        confidence=confidence,
        rationale="By rules: " + "; ".join(notes) + ".",
        manipulation=[sign.value for sign in seen],
    )


def read_reference(text: str) -> str | None:
    """The one order the text names, as written, or ``None`` when it names none or several."""
    found = {next(group for group in match.groups() if group) for match in _REFERENCE.finditer(text)}
    found = {reference.rstrip("-_") for reference in found if any(char.isdigit() for char in reference)}
    return found.pop() if len(found) == 1 else None


def _intent(text: str) -> tuple[Intent, bool, str]:
    """The intent, whether the text says only that, and why (in our words, never the customer's)."""
    wanted = {intent for intent, pattern in _INTENTS.items() if _wants(pattern, text)}
    if _wants(_OUT_OF_SCOPE, text):
        if Intent.REFUND in wanted and not _COMPENSATION.search(text):
            return Intent.REFUND, False, "a refund is asked for together with something that is not a refund"
        return Intent.OUT_OF_SCOPE, True, "what is asked for is not the return of a captured payment"
    # Asking about a refund names a refund too: the narrower meaning is the one that is said.
    for intent in (Intent.POLICY_QUESTION, Intent.TRACK_REFUND):
        if intent in wanted:
            return intent, not wanted - {intent, Intent.REFUND}, f"the text reads as {intent.value}"
    if not wanted:
        return Intent.OTHER, False, "no rule recognises what is wanted"
    intent = next(intent for intent in _INTENTS if intent in wanted)
    clear = len(wanted) == 1
    return intent, clear, f"the text reads as {intent.value}" + ("" if clear else " among other things")


def _wants(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a pattern occurs at least once without being declined ("not store credit")."""
    return any(not _NOT_WANTED.search(text[max(0, match.start() - 48) : match.start()]) for match in pattern.finditer(text))


def _reason(text: str) -> tuple[Reason | None, bool]:
    """The reason, and whether it is the only one. Fraud wins over everything, because it must be seen; two others are ``OTHER``, never a choice."""
    named = [reason for reason, pattern in _REASONS.items() if pattern.search(text)]
    if not named:
        return None, True
    if named[0] is Reason.FRAUDULENT or len(named) == 1:
        return named[0], len(named) == 1
    return Reason.OTHER, False


def _quoted(text: str) -> list[str]:
    lines = [(match[1] or match[2]).strip() for match in _QUOTED.finditer(text)]
    return list(dict.fromkeys(line for line in lines if line))[:50]


def _confidence(intent: Intent, clear: bool, *, extras: int) -> int:
    if intent is Intent.OTHER:
        return 0
    return min(MAX_CONFIDENCE, (45 if clear else 20) + 5 * extras)


def _proposal(intent: Intent, *, careful: bool) -> Proposal:
    if careful:
        return Proposal.ESCALATE
    if intent is Intent.OUT_OF_SCOPE:
        return Proposal.DENY
    return Proposal.APPROVE if intent is Intent.REFUND else Proposal.ESCALATE
