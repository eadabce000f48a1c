"""The rule-based reader: no key, no network, the same answer every time, and honest about how little it understands.

It reads English requests for what they plainly say. Its confidence is never above :data:`MAX_CONFIDENCE` percent; what it does not recognise, what
says two things at once, and what carries a sign of manipulation goes to a person.
"""

import json
import re

from activities.classifiers.amounts import PATTERN as AMOUNT_PATTERN
from activities.classifiers.amounts import read_amount
from activities.classifiers.base import NO_CONTEXT, Identity, ReadingContext, sha256, unreadable
from activities.classifiers.signs import PATTERNS as SIGN_PATTERNS
from activities.classifiers.signs import normalised, signs_of_manipulation
from refunds.classification import Classification, Intent, Proposal, Reading, Source
from refunds.reasons import Reason

VERSION = "1"
MAX_CONFIDENCE = 60
_SUSPECT_CONFIDENCE = 10

_REFUND = r"(?:re-?fund\w*|re[im]n?m?burs\w*|reinburs\w*|restitution\w*|rebat\w*|compensat\w*|money[ -]?back|chargeback|(?:my|the) money (?:back|returned)|(?:return|give|send)\w* (?:me )?(?:back )?(?:my|the) money)"
_ORDER = r"(?:orders?|oder|purchases?|items?|articles?|products?|subscription|booking)"
_ASIDE = r"(?:inconvenience|trouble|time|distress|stress|delay|disappointment|hassle|bad experience)"

INTENTS: dict[Intent, str] = {
    Intent.TRACK_REFUND: rf"\b(?:status|track\w*|where(?:'s| is| are)|when (?:will|do|can|is)|wait\w* (?:for|on)|expect\w*|how long (?:until|till|before)|processed|not (?:yet )?(?:received|gotten|got)|received yet|still (?:no|haven't|waiting)|progress|follow(?:ing)? up)\b.{{0,60}}\b{_REFUND}\b(?! (?:if|because))"
    rf"|\b{_REFUND}\b.{{0,40}}\b(?:status|progress|processed|arrive\w*|been sent|gone through|come through|credited yet)\b|\b(?:check|see|show)\w* (?:on )?my {_REFUND}\b",
    Intent.POLICY_QUESTION: rf"\b{_REFUND}\b.{{0,24}}\b(?:policy|policies|guarantees?|terms|conditions|rules)\b|\b(?:policy|guarantee)\b.{{0,24}}\b{_REFUND}\b|\b(?:return|cancellation) polic(?:y|ies)\b"
    rf"|\b(?:in )?(?:what|which) (?:cases|situations|circumstances|conditions)\b|\bhow long\b.{{0,24}}\b{_REFUND}\b.{{0,12}}\btake\b|\bdo you (?:offer|give|do|have|accept)\b.{{0,24}}(?:\b{_REFUND}\b|\breturns\b)|\b(?:when|under what)\b.{{0,24}}\b(?:eligible|entitled)\b",
    Intent.REFUND: rf"\b{_REFUND}\b|\b(?:return|send back)\b.{{0,24}}\b{_ORDER}\b.{{0,40}}\bmoney\b",
    Intent.CANCEL_ORDER: rf"\b(?:cancel\w*|revoke|call off)\b.{{0,40}}\b{_ORDER}\b|\b{_ORDER}\b.{{0,60}}\bcancel\w*\b|\b(?:can(?:'?t|not| no longer) (?:longer )?(?:pay|afford)|don'?t ?want|no longer want|do not want)\b.{{0,24}}\b{_ORDER}\b",
    Intent.COMPLAINT: r"\b(?:complain\w*|reclamation\w*|(?:file|lodge|submit|make)\b.{0,24}\bclaims?|claim against|(?:customer|consumer) claims?|unhapp?y with|terrible service|awful service|unacceptable|disgrace\w*)\b|\b(?:filing|lodging|submitting|making)\b.{0,24}\bclaims?\b",
}
OUT_OF_SCOPE = (
    r"\b(?:store|shop|site|account|future) credits?\b|\bgift[ -]?(?:cards?|vouchers?|certificates?)\b|\b(?:vouchers?|coupons?|discount codes?|loyalty points|bonus|goodwill|free gift|freebie|payouts?|pay[ -]out)\b"
    rf"|\b(?:compensat\w*|pay(?:ment)?)\b.{{0,24}}\bfor (?:the |my |all (?:the |this )?|your |this )?{_ASIDE}\b"
    r"|\bto (?:a |an |my )?(?:new|other|another|different|friend'?s|wife'?s|husband'?s) (?:\w+ )?(?:card|account|bank|iban|paypal|wallet)\b|\b(?:bitcoin|crypto\w*|western union|wire transfer|cash ?app|venmo|zelle)\b"
)
NOT_WANTED = r"\b(?:not|don't|do not|no|instead of|rather than|without|never|refuse|won't accept)\b[^.!?,;\n]{0,24}$"
REASONS: dict[Reason, str] = {
    Reason.FRAUDULENT: r"\b(?:fraud\w*|stolen (?:card|account|credit)|unauthori[sz]ed|(?:didn't|did not|never) (?:make|authori[sz]e|place|order) (?:this|that|it|the|any)|hacked|not my (?:order|purchase|charge)|someone (?:else )?used my)\b",
    Reason.DUPLICATE: r"\b(?:charged|billed|paid|debited|ordered)\b.{0,24}\b(?:twice|two times|double|again)\b|\bdouble[ -]?(?:charge\w*|bill\w*|paid|payment|order\w*)\b|\bduplicat\w+\b|\btwice\b.{0,16}\b(?:charged|billed|paid)\b",
    Reason.PRODUCT_NOT_RECEIVED: r"\b(?:never|not|didn't|hasn't|haven't|wasn't|isn't|did not|has not|have not|was not) (?:yet |ever )?(?:arriv\w*|receiv\w*|deliver\w*|come|came|turned up|show(?:n|ed)? up|got|gotten)\b|\b(?:lost in (?:the )?(?:mail|post|transit)|non-?delivery|missing (?:package|parcel))\b",
    Reason.NOT_AS_DESCRIBED: r"\b(?:not|isn't|wasn't|nothing|different|differs?)\b.{0,16}\b(?:as |like |from |than )(?:the )?(?:describ\w*|advertis\w*|pictur\w*|photo\w*|shown|listed|expected|description|listing)\b|\bmisleading\b|\b(?:fake|counterfeit)\b",
    Reason.WRONG_ITEM: r"\bwrong (?:\w+ )?(?:item|product|article|size|colou?r|order|model|one|thing|parcel|package)\b|\b(?:sent|received|got|delivered) (?:me )?(?:the |a )?(?:wrong|different|someone else's)\b",
    Reason.PRODUCT_ISSUE: r"\b(?:broken|damaged?|defect\w*|faulty|cracked|torn|shattered|leaking|scratched|spoil\w*|rotten|expired|stopped working|poor quality|malfunction\w*)\b|\b(?:doesn't|does not|don't|didn't|won't|not) (?:even )?(?:work\w*|turn on|start|function|fit)\b",
    Reason.SERVICE_ISSUE: r"\b(?:service|support|staff|delivery|courier|driver)\b.{0,24}\b(?:bad|poor|rude|terrible|awful|late|slow|down|unavailable|unusable)\b|\b(?:bad|poor|rude|terrible|awful) (?:service|support|staff)\b|\boutage\b",
    Reason.CUSTOMER_REQUEST: r"\b(?:changed my mind|no longer (?:need|want)|don't (?:need|want) (?:it|this|them)|do not (?:need|want) (?:it|this|them)|by mistake|accident\w*|found (?:it )?cheaper|too (?:big|small|large|expensive))\b",
}
_REFERENCE = re.compile(
    r"\b(?:order|purchase|oder|ord)\b(?:\s*(?:number|num|no\.?|nr\.?|id|ref(?:erence)?|is|with|code|[:#=]))*\s*[\"'(#]?(?P<a>[A-Za-z0-9][\w-]{2,63})|(?<![\w&])#(?P<b>[A-Za-z0-9][\w-]{2,63})|\b(?P<c>(?:ORD|ord|SO|PO)[-_][\w-]{2,60})",
    re.IGNORECASE | re.ASCII,
)
_QUOTED = re.compile(r"\"([^\"\n]{3,120})\"|(?<!\w)'([^'\n]{3,120})'(?!\w)")
_COMPILED = {intent: re.compile(pattern, re.IGNORECASE | re.DOTALL) for intent, pattern in INTENTS.items()}
_REASONS = {reason: re.compile(pattern, re.IGNORECASE | re.DOTALL) for reason, pattern in REASONS.items()}
_OUT_OF_SCOPE = re.compile(OUT_OF_SCOPE, re.IGNORECASE | re.DOTALL)
_NOT_WANTED = re.compile(NOT_WANTED, re.IGNORECASE)

IDENTITY = Identity(
    source=Source.RULES,
    classifier="rules",
    model="rules",
    version=VERSION,
    prompt_hash=sha256(
        json.dumps(
            [INTENTS, OUT_OF_SCOPE, NOT_WANTED, REASONS, SIGN_PATTERNS, _REFERENCE.pattern, AMOUNT_PATTERN.pattern], ensure_ascii=True
        )
    ),
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
    signs = signs_of_manipulation(text)
    confidence = _confidence(intent, clear, extras=sum(known is not None for known in (reference, reason, amount.money)))
    notes = [why]
    if not single:
        notes.append("more than one reason is named")
    if signs:
        notes.append("the text tries to steer its reader")
        confidence = min(confidence, _SUSPECT_CONFIDENCE)
    careful = bool(signs) or not clear or not single or reason is Reason.FRAUDULENT
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
        manipulation=[sign.value for sign in signs],
    )


def read_reference(text: str) -> str | None:
    """The one order the text names, as written, or ``None`` when it names none or several."""
    found = {match["a"] or match["b"] or match["c"] for match in _REFERENCE.finditer(text)}
    found = {reference.rstrip("-_") for reference in found if any(char.isdigit() for char in reference)}
    return found.pop() if len(found) == 1 else None


def _intent(text: str) -> tuple[Intent, bool, str]:
    """The intent, whether the text says only that, and why (in our words, never the customer's)."""
    wanted = {intent for intent, pattern in _COMPILED.items() if _wants(pattern, text)}
    if _wants(_OUT_OF_SCOPE, text):
        if Intent.REFUND in wanted and not re.search(r"\bcompensat", text, re.IGNORECASE):
            return Intent.REFUND, False, "a refund is asked for together with something that is not a refund"
        return Intent.OUT_OF_SCOPE, True, "what is asked for is not the return of a captured payment"
    # Asking about a refund names a refund too: the narrower meaning is the one that is said.
    for intent in (Intent.POLICY_QUESTION, Intent.TRACK_REFUND):
        if intent in wanted:
            return intent, not wanted - {intent, Intent.REFUND}, f"the text reads as {intent.value}"
    if not wanted:
        return Intent.OTHER, False, "no rule recognises what is wanted"
    intent = next(intent for intent in _COMPILED if intent in wanted)
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
