"""The word patterns of the rule-based reader: data, no logic. Each row is one way of saying it; rows are joined with "or" and matched in any case.

They were written from what customers write in English, misspellings included, and are measured in ``tests/activities/classifiers``. Their exact text
is part of the reader's recorded hash, so changing one is visible in every later record.
"""

import re

from refunds.classification import Intent
from refunds.reasons import Reason

_BACK = (
    r"re-?fund\w*|re[im]n?m?burs\w*|reinburs\w*|restitution\w*|rebat\w*|compensat\w*|money[ -]?back|chargeback"
    r"|(?:my|the) money (?:back|returned)|(?:return|give|send)\w* (?:me )?(?:back )?(?:my|the) money"
)
REFUND = rf"\b(?:{_BACK})\b"
_ORDER = r"\b(?:orders?|oder|purchases?|items?|articles?|products?|subscription|booking)\b"
_ASIDE = r"(?:inconvenience|trouble|time|distress|stress|delay|disappointment|hassle|bad experience)"
_ELSE = r"(?:new|other|another|different|friend'?s|wife'?s|husband'?s)"

INTENTS: dict[Intent, tuple[str, ...]] = {
    Intent.POLICY_QUESTION: (
        rf"{REFUND}.{{0,24}}\b(?:policy|policies|guarantees?|terms|conditions|rules)\b",
        rf"\b(?:policy|guarantee)\b.{{0,24}}{REFUND}",
        r"\b(?:return|cancellation) polic(?:y|ies)\b",
        r"\b(?:what|which) (?:cases|situations|circumstances|conditions)\b",
        rf"\bhow long\b.{{0,24}}{REFUND}.{{0,12}}\btake\b",
        rf"\bdo you (?:offer|give|do|have|accept)\b.{{0,24}}(?:{REFUND}|\breturns\b)",
        r"\b(?:when|under what)\b.{0,24}\b(?:eligible|entitled)\b",
    ),
    Intent.TRACK_REFUND: (
        rf"\b(?:status|track\w*|where(?:'s| is| are)|when (?:will|do|can|is))\b.{{0,40}}{REFUND}",
        rf"\b(?:wait\w* (?:for|on)|expect(?:ing)?|still no|haven't received|progress of|follow(?:ing)? up)\b.{{0,40}}{REFUND}",
        rf"{REFUND}.{{0,24}}\b(?:status|progress|processed|been sent|gone through|come through|credited yet)\b",
        rf"\b(?:check|see|show)\w* (?:on )?my {REFUND}",
    ),
    Intent.REFUND: (REFUND, rf"\b(?:return|send back)\b.{{0,24}}{_ORDER}.{{0,40}}\bmoney\b"),
    Intent.CANCEL_ORDER: (
        rf"\b(?:cancel\w*|revoke|call off)\b.{{0,40}}{_ORDER}",
        rf"{_ORDER}.{{0,60}}\bcancel\w*\b",
        rf"\b(?:can(?:'?t|not| no longer) (?:longer )?(?:pay|afford)|don'?t ?want|no longer want|do not want)\b.{{0,24}}{_ORDER}",
    ),
    Intent.COMPLAINT: (
        r"\b(?:complain\w*|reclamation\w*|claim against|unhapp?y with|(?:terrible|awful) service|unacceptable|disgrace\w*)\b",
        r"\b(?:fil(?:e|ing)|lodg(?:e|ing)|submit(?:ting)?|mak(?:e|ing)|customer|consumer)\b.{0,24}\bclaims?\b",
    ),
}
"""From the narrower meaning to the wider: asking about a refund names a refund too."""

OUT_OF_SCOPE: tuple[str, ...] = (
    r"\b(?:store|shop|site|account|future) credits?\b|\bgift[ -]?(?:cards?|vouchers?|certificates?)\b",
    r"\b(?:vouchers?|coupons?|discount codes?|loyalty points|bonus|goodwill|free gift|freebie|payouts?|pay[ -]out)\b",
    rf"\b(?:compensat\w*|pay(?:ment)?)\b.{{0,24}}\bfor (?:the |my |your |this |all (?:the |this )?)?{_ASIDE}\b",
    rf"\bto (?:a |an |my )?{_ELSE} (?:\w+ )?(?:card|account|bank|iban|paypal|wallet)\b",
    r"\b(?:bitcoin|crypto\w*|western union|wire transfer|cash ?app|venmo|zelle)\b",
)
"""What is not the return of a captured payment to where it came from."""

NOT_WANTED = (
    r"\b(?:not|don't|no|instead of|rather than|without|never|refuse|won't accept)\s"
    r"(?:(?:a|an|the|any|another|my|your|me|want|wanting|need|needing|asking|looking|after|for|to|get|receive|accept|take|give|issue|as|in)\s)*$"
)
"""What stands before a wish that is declined ("not store credit", "I do not want a refund"); other words between leave it a wish."""

REASONS: dict[Reason, tuple[str, ...]] = {
    Reason.FRAUDULENT: (
        r"\b(?:fraud\w*|stolen (?:card|account|credit)|unauthori[sz]ed|hacked|not my (?:order|purchase|charge)|someone (?:else )?used my)\b",
        r"\b(?:didn't|did not|never) (?:make|made|authori[sz]ed?|placed?|order(?:ed)?) (?:this|that|it|the|any)\b",
    ),
    Reason.DUPLICATE: (
        r"\b(?:charged|billed|paid|debited|ordered)\b.{0,24}\b(?:twice|two times|double|again)\b|\btwice\b.{0,16}\b(?:charged|billed|paid)\b",
        r"\bdouble[ -]?(?:charge\w*|bill\w*|paid|payment|order\w*)\b|\bduplicat\w+\b",
    ),
    Reason.PRODUCT_NOT_RECEIVED: (
        r"\b(?:never|not|didn't|hasn't|haven't|wasn't|isn't) (?:yet |ever )?(?:arriv\w*|receiv\w*|deliver\w*|come|came|turned up|got|gotten)\b",
        r"\b(?:lost in (?:the )?(?:mail|post|transit)|non-?delivery|missing (?:package|parcel))\b",
    ),
    Reason.NOT_AS_DESCRIBED: (
        r"\b(?:not|isn't|wasn't|nothing|different|differs?)\b.{0,16}\b(?:as|like|from|than) (?:the )?"
        r"(?:describ\w*|advertis\w*|pictur\w*|photo\w*|shown|listed|expected|description|listing)\b",
        r"\b(?:misleading|fake|counterfeit)\b",
    ),
    Reason.WRONG_ITEM: (
        r"\bwrong (?:\w+ )?(?:item|product|article|size|colou?r|order|model|one|thing|parcel|package)\b",
        r"\b(?:sent|received|got|delivered) (?:me )?(?:the |a )?(?:wrong|different|someone else's)\b",
    ),
    Reason.PRODUCT_ISSUE: (
        r"\b(?:broken|damaged?|defect\w*|faulty|cracked|torn|shattered|leaking|scratched|spoil\w*|rotten|stopped working|malfunction\w*)\b",
        r"\b(?:doesn't|does not|don't|didn't|won't|not) (?:even )?(?:work\w*|turn on|start|function|fit)\b|\bpoor quality\b",
    ),
    Reason.SERVICE_ISSUE: (
        r"\b(?:service|support|staff|delivery|courier|driver)\b.{0,24}\b(?:bad|poor|rude|terrible|awful|late|slow|down|unavailable|unusable)\b",
        r"\b(?:bad|poor|rude|terrible|awful) (?:service|support|staff)\b|\boutage\b",
    ),
    Reason.CUSTOMER_REQUEST: (
        r"\b(?:changed my mind|no longer (?:need|want)|(?:don't|do not) (?:need|want) (?:it|this|them)|by mistake|accident\w*)\b",
        r"\bfound (?:it )?cheaper\b|\btoo (?:big|small|large|expensive)\b",
    ),
}

REFERENCES: tuple[str, ...] = (
    r"\b(?:order|purchase|oder|ord)\b(?:\s*(?:number|num|no\.?|nr\.?|id|ref(?:erence)?|is|with|code|[:#=]))*\s*[\"'(#]?([a-z0-9][\w-]{2,63})",
    r"(?<![\w&])#([a-z0-9][\w-]{2,63})",
    r"\b((?:ord|so|po)[-_][\w-]{2,60})",
)
"""Ways of naming an order; the group is the reference."""

QUOTED = r"\"([^\"\n]{3,120})\"|(?<!\w)'([^'\n]{3,120})'(?!\w)"


def compiled(rows: tuple[str, ...], *, ascii_only: bool = False) -> re.Pattern[str]:
    """The rows as one pattern, in any case. Every gap in a row is bounded, so that matching stays linear in the length of the text."""
    return re.compile("|".join(f"(?:{row})" for row in rows), re.IGNORECASE | re.DOTALL | (re.ASCII if ascii_only else 0))
