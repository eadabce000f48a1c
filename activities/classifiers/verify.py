"""What a model's answer is worth: every field is checked against the text it claims to come from, and only ever made stricter (promise P10)."""

import re

from activities.classifiers import rules
from activities.classifiers.amounts import MAX_WRITTEN, read_amount
from activities.classifiers.base import ReadingContext
from activities.classifiers.signs import Sign, normalised
from refunds.classification import Intent, Proposal, Reading
from refunds.reasons import Reason

SUSPECT_CONFIDENCE = 10
"""The most confidence, in percent, that a reading with any sign of manipulation keeps."""


def occurs(quoted: str, text: str) -> bool:
    """Whether the text really says this, as a whole word or number: ``$30`` is not said by ``$300``, nor ``1001`` by ``ORD-1001``."""
    wanted, said = normalised(quoted).strip().casefold(), normalised(text).casefold()
    return bool(wanted) and re.search(rf"(?<![\w$€£¥.,-]){re.escape(wanted)}(?!\w|[.,-]\w)", said) is not None


def checked(answer: Reading, text: str, context: ReadingContext, *, unknown_fields: bool = False) -> Reading:
    """The answer with every unsupported field dropped and every contradiction flagged.

    The amount in API units is always read here from the customer's own words and never taken from the model. The rule-based reader reads the same
    text: its signs are added to the model's, and where it plainly sees something stricter (not a refund, fraud, another amount) the answer says so.
    """
    signs = {*answer.manipulation}
    if unknown_fields:
        signs.add(Sign.ANSWER_UNKNOWN_FIELDS)
    second = rules.read(text, context)
    signs.update(second.manipulation)

    reference = _quoted(answer.order_reference, text, longest=200)
    written = _quoted(answer.amount_text, text, longest=MAX_WRITTEN)
    lines = [line for line in (_quoted(line, text, longest=200) for line in answer.product_lines) if line]
    asked = (answer.order_reference, answer.amount_text, *answer.product_lines)
    if sum(map(bool, asked)) != sum(map(bool, (reference, written, *lines))):
        signs.add(Sign.ANSWER_NOT_IN_TEXT)
    money = read_amount(written, context.currency).money if written else None
    kept = answer.model_copy(
        update={"order_reference": reference, "amount": money.amount if money else None, "currency": money.currency if money else None}
    )
    if _contradicts(kept, second):
        signs.add(Sign.ANSWER_CONTRADICTS)

    suspect = bool(signs)
    return Reading(
        intent=answer.intent,
        reason=Reason.FRAUDULENT if second.reason is Reason.FRAUDULENT else answer.reason,
        order_reference=reference,
        product_lines=lines,
        amount_text=written,
        amount=money.amount if money else None,
        currency=money.currency if money else None,
        proposal=Proposal.ESCALATE if suspect and answer.proposal is Proposal.APPROVE else answer.proposal,
        confidence=min(answer.confidence, SUSPECT_CONFIDENCE) if suspect else answer.confidence,
        rationale=normalised(answer.rationale)[:2000],  # folding can lengthen a text
        manipulation=[sign.value for sign in Sign if sign in signs],
    )


def _quoted(quoted: str | None, text: str, *, longest: int) -> str | None:
    """What the answer quotes, cleaned, if the text says it; ``None`` otherwise, also when cleaning makes it longer than may be kept."""
    if not quoted or not occurs(quoted, text):
        return None
    clean = normalised(quoted).strip()
    return clean if len(clean) <= longest else None


def _contradicts(answer: Reading, second: Reading) -> bool:
    """Whether the rules plainly see something stricter than the model does. Where they see less, the model is not contradicted."""
    looser_intent = second.intent is Intent.OUT_OF_SCOPE and answer.intent is not Intent.OUT_OF_SCOPE
    missed_fraud = second.reason is Reason.FRAUDULENT and answer.reason is not Reason.FRAUDULENT
    money, order = (answer.amount, answer.currency), answer.order_reference
    other_money = None not in (second.amount, answer.amount) and (second.amount, second.currency) != money
    other_order = second.order_reference is not None and order is not None and _bare(second.order_reference) != _bare(order)
    return looser_intent or missed_fraud or other_money or other_order


def _bare(reference: str) -> str:
    return normalised(reference).strip(" #\"'().:").casefold()
