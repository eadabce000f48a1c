"""What a model's answer is worth: every field is checked against the text it claims to come from, and only ever made stricter (promise P10)."""

import re
from collections.abc import Iterable

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


def checked(
    answer: Reading, text: str, context: ReadingContext, *, unknown_fields: bool = False, extra_signs: Iterable[Sign] = ()
) -> Reading:
    """The answer with every unsupported field dropped and every contradiction flagged.

    The amount in API units is always read here from the customer's own words and never taken from the model. The rule-based reader reads the same
    text: its signs are added to the model's, and where it plainly sees something stricter (not a refund, fraud, another amount) the answer says so.
    """
    signs = {*answer.manipulation, *(sign.value for sign in extra_signs)}
    if unknown_fields:
        signs.add(Sign.ANSWER_UNKNOWN_FIELDS)
    second = rules.read(text, context)
    signs.update(second.manipulation)

    reference = answer.order_reference if answer.order_reference and occurs(answer.order_reference, text) else None
    written = answer.amount_text if answer.amount_text and occurs(answer.amount_text, text) else None
    lines = [normalised(line) for line in answer.product_lines if occurs(line, text)]
    if (reference, written, len(lines)) != (answer.order_reference or None, answer.amount_text or None, len(answer.product_lines)):
        signs.add(Sign.ANSWER_NOT_IN_TEXT)
    money = read_amount(normalised(written), context.currency).money if written else None
    kept = answer.model_copy(
        update={"order_reference": reference, "amount": money.amount if money else None, "currency": money.currency if money else None}
    )
    if _contradicts(kept, second):
        signs.add(Sign.ANSWER_CONTRADICTS)

    suspect = bool(signs)
    return Reading(
        intent=answer.intent,
        reason=Reason.FRAUDULENT if second.reason is Reason.FRAUDULENT else answer.reason,
        order_reference=normalised(reference).strip() if reference else None,
        product_lines=lines,
        amount_text=normalised(written).strip()[:MAX_WRITTEN] if written else None,
        amount=money.amount if money else None,
        currency=money.currency if money else None,
        proposal=Proposal.ESCALATE if suspect and answer.proposal is Proposal.APPROVE else answer.proposal,
        confidence=min(answer.confidence, SUSPECT_CONFIDENCE) if suspect else answer.confidence,
        rationale=normalised(answer.rationale)[:2000],  # folding can lengthen a text
        manipulation=[sign.value for sign in Sign if sign in signs],
    )


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
