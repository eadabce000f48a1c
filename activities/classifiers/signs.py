"""Signs that a text tries to steer its reader: instructions, imitated system text, claims that the rules changed or that somebody approved.

A sign can only make the outcome stricter (promise P10), so a false alarm costs a person a minute and a missed one costs nothing that the policy does
not allow anyway: the detector is a tripwire, not the defence. What it reports is one of a fixed set of words, never a quotation.
"""

import base64
import binascii
import re
import unicodedata
from enum import StrEnum

from activities.classifiers.patterns import compiled


class Sign(StrEnum):
    """What a text, or a model's answer, was caught at."""

    IGNORE_INSTRUCTIONS = "ignore_instructions"
    RULES_CHANGED = "rules_changed"
    CLAIMED_APPROVAL = "claimed_approval"
    ADDRESSED_TO_READER = "addressed_to_reader"
    IMITATED_OUTPUT = "imitated_output"
    ROLE_TAGS = "role_tags"
    ROLE_PLAY = "role_play"
    ASKS_FOR_SECRETS = "asks_for_secrets"
    HIDDEN_CHARACTERS = "hidden_characters"
    ENCODED_TEXT = "encoded_text"
    FLOOD = "flood"
    ANSWER_UNKNOWN_FIELDS = "answer_unknown_fields"
    ANSWER_NOT_IN_TEXT = "answer_not_in_text"
    ANSWER_CONTRADICTS = "answer_contradicts"
    OTHER = "other"


_RULES = (
    r"(?:instructions?|directives?|rules?|polic(?:y|ies)|guidelines?|prompts?|limits?|restrictions?|safeguards?"
    r"|orders from|context|system|programming)"
)
_TOLD = r"(?:what|everything|anything|all)\b.{0,12}\b(?:told|said|learned|above|before|instructed)"
_REFUND = r"(?:refunds?|payments?|requests?|amounts?|claims?|orders?|returns?)"
_APPROVAL = r"(?:approvals?|reviews?|reviewers?|authori[sz]ation|permission|confirmation|verification|human|checks?|a person|escalation)"
_BOSS = (
    r"(?:manager|supervisor|boss|ceo|cfo|director|admin(?:istrator)?|support|team|agent|colleague|head office|finance|stripe"
    r"|developer|reviewer|staff|engineer)"
)
_ORDERING = (
    r"(?:set|raise|give|return|report|answer|respond|reply|output|print|state|say|write|repeat|translate|summari[sz]e|classify|label)"
)

PATTERNS: dict[Sign, tuple[str, ...]] = {
    Sign.IGNORE_INSTRUCTIONS: (
        r"\b(?:ignor\w*|disregard\w*|forget|override|overrule|bypass|overlook|skip|neglect|set aside|(?:do not|don't|stop) follow\w*)\b"
        rf".{{0,40}}?\b(?:{_RULES}|{_TOLD})\b",
        r"\bforget (?:about )?(?:that|this|it|everything|all)\b|\b(?:ignore|disregard) (?:the|that|this|all|it|your|any|every\w*)\b",
        r"\b(?:new|updated|real|actual|following) (?:instructions|directives?)\b",
        r"(?:ignorier\w*|vergiss|vergessen sie) .{0,20}(?:anweisung|regel|alle)|(?:ignore[zr]?|oublie[zr]?) .{0,20}(?:instruction|règle|consigne|tout)",
        r"(?:ignor[ae]|olvid[ae]|dimentica|esqueça|negeer) .{0,24}(?:instruc|istruzion|regl|regol|todo|tutto|previo|anterior|precedent)",
        r"忽略|无视|無視|忘记之前|忘れて|무시|игнорир|забудь",
    ),
    Sign.RULES_CHANGED: (
        r"\b(?:policy|rules?|guidelines?|terms)\b.{0,16}\b(?:updates?|updated|changed?|changes|amended|revised|notice)\b",
        r"\b(?:new|updated|revised|latest) (?:\w+ )?(?:policy|rules?|guidelines?)\b",
        rf"\b{_REFUND}\b.{{0,40}}\b(?:no longer|needs? no|(?:do not|don't) need|without|require no|not require)\b.{{0,16}}\b{_APPROVAL}\b",
        rf"\bno {_APPROVAL}\b.{{0,16}}\b(?:needed|required|necessary)\b",
        r"\bthreshold\b.{0,24}\b(?:is|now|raised|set|changed)\b|\beffective immediately\b",
    ),
    Sign.CLAIMED_APPROVAL: (
        r"\b(?:already|pre-?|been|was|is|fully)[ -]?(?:approved|authori[sz]ed|pre-?approved|cleared|signed off)\b",
        rf"\b{_BOSS}\b.{{0,40}}\b(?:approved|authori[sz]ed|confirmed|agreed|okayed|signed off|told me|promised|said)\b",
        rf"\b(?:approved|authori[sz]ed|confirmed|cleared) by\b|\bi(?: a|')m (?:an?|the|your) {_BOSS}\b",
        rf"\b(?:i am|i'm) authori[sz]ed\b|\bon behalf of the {_BOSS}\b",
    ),
    Sign.ADDRESSED_TO_READER: (
        r"\b(?:accept|pay|process|grant|release) (?:this|it|me|my|the|now|all)\b.{0,40}"
        r"\b(?:now|immediately|at once|without|automatically|right away|instantly)\b",
        r"\b(?:approve|authori[sz]e) (?:this|it|the|me|my|now|immediately|all|refund)\b|\bpay (?:me|now|immediately|at once)\b",
        rf"\b(?:skip|bypass|without|avoid|no need for)\b.{{0,12}}\b(?:any )?(?:human |manual |further )?{_APPROVAL}\b",
        r"\b(?:do not|don't|never) (?:escalate|review|flag|ask a (?:human|person)|involve)\b",
        r"\bmark (?:this|it|the|my)\b.{0,24}\b(?:as|approved|safe|legit\w*|genuine)\b",
        rf"\b{_ORDERING}\b.{{0,24}}\b(?:confidence|proposal|approved?|json|output|only|exactly|following|sentence|text|code|verbatim|intent)\b",
        r"\b(?:write|compose|create)\b.{0,24}\b(?:haiku|poem|string|story|song)\b",
        r"\b(?:you are|you're|act as|acting as|behave as|from now on)\b.{0,24}\b(?:an?|now|my|the|dan|free|in)\b.{0,24}"
        r"\b(?:assistant|ai|bot|model|agent|mode|system|admin\w*|approver|expert|terminal|interpreter|character)\b",
        r"\b(?:as an ai|language model|llm|chatgpt|gpt|smartgpt|chatbot|ai assistant|classifier|prompt)\b",
        r"\b(?:dear|hey|hello|attention|note to) (?:ai|assistant|bot|system|model)\b",
    ),
    Sign.IMITATED_OUTPUT: (
        r"[\"']?\b(?:intent|proposal|confidence|manipulation|rationale|approved|approval|approver|approved_by|decision|verdict|status|role"
        r"|tool_call|function_call|risk|order_reference|amount_text)\b[\"']?\s*[:=]\s*(?:[\"'{\[]|true\b|\d|approve|refund\b|null\b)",
        r"```|\{\s*[\"']\w+[\"']\s*:|<(?:tool_call|function|output|result|reading)\b",
    ),
    Sign.ROLE_TAGS: (
        r"<\s*/?\s*(?:system|assistant|user|instructions?|customer_text|admin|developer|prompt|s)\s*>",
        r"\[/?(?:inst|system|admin|assistant)\]|<\|[^|]{1,32}\|>|<</?sys>>",
        r"(?:^|\n)\s{0,8}(?:#{1,6}\s{0,4})?[\[(*]{0,3}(?:system|assistant|developer|admin(?:istrator)?|instructions?|user|bot|human|ai)"
        r"(?: (?:message|note|prompt|override|notice|alert))?[\])*]{0,3}\s{0,4}[:>]",
        r"\b(?:begin|end|start) (?:of )?(?:system|prompt|instructions?|admin)\b|\bsystem (?:message|prompt|notice|override|instruction)s?\b",
    ),
    Sign.ROLE_PLAY: (
        r"\b(?:pretend|imagine|suppose|role-?play|hypothetical\w*|fictional|simulat\w+|let's (?:play|assume|say)|thought experiment)\b",
        r"\b(?:parallel (?:world|universe)|alternate (?:reality|universe)|game where|scenario where|in a world|what if you)\b",
        r"\b(?:developer|debug|system|admin|maintenance|override|god|test|sudo|root|unrestricted|privileged)[ _-]?(?:mode|override|access)\b",
        r"\bsudo\b|\bmode (?:activated|enabled|on)\b",
    ),
    Sign.ASKS_FOR_SECRETS: (
        r"\b(?:what(?:'s| is| are)|tell|reveal|share|show|give|print|repeat|know|leak|send|say|provide|disclose|spell|expose)\b.{0,40}"
        r"\b(?:secrets?|passwords?|passcode|api keys?|system prompt|your (?:instructions|rules|prompt)|credentials|confidential)\b",
        r"\b(?:passwort|mot de passe|contraseña|senha|wachtwoord|lösenord)\b|パスワード|密码|비밀번호|пароль",
    ),
    Sign.ENCODED_TEXT: (
        r"\b(?:base ?64|rot ?13|caesar cipher|hexadecimal|leet ?speak|morse|decode|deciphers?|decrypt|unscramble|(?:ascii|binary) codes?)\b",
        r"(?:\b[01]{8}\b[ ,]?){4}|(?:\b(?:0x|\\x)?[0-9a-f]{2}\b[ ,]){8}|(?:\\u[0-9a-f]{4}){4}|(?:%[0-9a-f]{2}){6}|(?:&#x?[0-9a-f]{2,6};){4}",
        r"\b[a-z] ?= ?[\"'].{1,80}[\"'].{0,40}\b[a-z] ?= ?[\"']|\b[a-z] ?\+ ?[a-z] ?\+ ?[a-z]\b",
    ),
}
_COMPILED = {sign: compiled(rows) for sign, rows in PATTERNS.items()}
_BASE64 = re.compile(r"(?<![\w+/=.-])[A-Za-z0-9+/]{20,}={0,2}(?![\w+/=])")
_FLOOD = re.compile(r"(\b\S{1,24}\b)(?:\s+\1\b){9,}|(\S)\2{39,}", re.IGNORECASE)
_SPACED = re.compile(r"\b(?:[A-Za-z][ ._-]){5,}[A-Za-z]\b")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
# Not counted alone: joiners and variation selectors that emoji and several scripts need, and the marks that right-to-left writing needs.
_HIDING = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u00ad\u180e\u200b\u202a-\u202e\u2060-\u2069\U000e0000-\U000e0fff]|(?<!^)\ufeff|[A-Za-z][\u200c-\u200f][A-Za-z]|[\ufe00-\ufe0f]{3}"
)
_MIXED = re.compile("[A-Za-z][\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff][A-Za-z]")


def signs_of_manipulation(text: str) -> list[Sign]:
    """The signs found in ``text``, each once, in the order of the enum. Deterministic; an empty list means only that none of these was seen."""
    plain = normalised(text)
    found = {sign for sign, pattern in _COMPILED.items() if pattern.search(plain)}
    if _HIDING.search(text) or _MIXED.search(text):
        found.add(Sign.HIDDEN_CHARACTERS)
    if _SPACED.search(plain) or any(_decodes(run) for run in _BASE64.findall(text)):
        found.add(Sign.ENCODED_TEXT)
    if _FLOOD.search(plain):
        found.add(Sign.FLOOD)
    return [sign for sign in Sign if sign in found]


def normalised(text: str) -> str:
    """The text as an eye sees it: compatibility forms folded, invisible characters gone, straight quotes, runs of blanks made one."""
    folded = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return re.sub(r"[^\S\n]+", " ", folded.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"'))


def _decodes(run: str) -> bool:
    """Whether a run of base64 characters hides readable text (an order number or a hash does not)."""
    body = run.rstrip("=")
    try:
        hidden = base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except binascii.Error:
        return False
    return sum(32 <= byte < 127 for byte in hidden) >= 0.95 * len(hidden)
