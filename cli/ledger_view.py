"""The record of a refund in words: one line an entry, with its number, when, what kind, who, and what changed.

A sentence never hides anything: what it does not name of an entry stands behind it in brackets, so the table says as much as ``--json``.
"""

from collections.abc import Mapping
from string import Formatter
from typing import Any

from cli.output import Output
from refunds.errors import RefundError
from refunds.money import Money, currency, format_money

Entry = Mapping[str, Any]

COLUMNS = ("number", "time", "type", "actor", "what changed")
_SENTENCES = {
    "refund_received": "a {kind} was asked for and stored",
    "status_changed": "from {from} to {to}",
    "classified": "the text was read: {intent}",
    "quoted": "revision {revision}: {money} of {payment}, judged by policy version {policy_version}: {outcome}",
    "unquotable": "no exact terms could be made, so a person looks: {why}",
    "decision_recorded": "{kind}: {verdict} the terms of revision {revision}, as {role}",
    "revise_recorded": "other terms were asked for",
    "settle_recorded": "settled by hand as {outcome}",
    "withdraw_recorded": "it was withdrawn",
    "assign_recorded": "who looks at it, or in which queue {queue}, was changed",
    "note_kept": "words were left with it",
    "evidence_attached": "evidence was attached: {kind}",
    "decision_refused": "a decision was refused: {code}",
    "consent_refused": "a consent was refused: {code}",
    "revision_refused": "a revision was refused: {code}",
    "withdrawal_refused": "a withdrawal was refused: {code}",
    "settlement_refused": "a settlement was refused: {code}",
    "assignment_refused": "giving it to somebody was refused: {code}",
    "evidence_refused": "evidence was refused: {code}",
    "instruction_refused": "{kind} did not count: {code}",
    "message_refused": "a message {kind} was refused: {code}",
    "reminded": "whoever it waits for was reminded",
    "escalated": "nobody answered in queue {from}, so it went to queue {queue} until {until}",
    "review_time_anew": "it has its time in queue {queue} anew, until {until}: another part of its group had not come so far",
    "held_for_another_reason": "it is held for another reason now: {code}",
    "waits": "it waits now: {code}",
    "terms_void": "the approved terms of revision {revision} no longer fit what is true now, so they are judged again",
    "intent": "the intent to make a {kind} was recorded and the approvals were used",
    "attempt_opened": "attempt {number} to send it was opened",
    "attempt_ended": "an attempt ended: {outcome}",
    "receipt": "the processor answered: {processor_refund}, {money}, {state}",
    "adopted": "found at the processor: {processor_refund}, {money}, {state}",
    "compensated": "{money} of {processor_refund} did not arrive and counts as not refunded",
    "parked_for_another_reason": "it is parked for another reason now: {code}",
    "leg_intended": "a leg beside it was recorded: {kind} of {money}, {target}",
    "leg_attempt_opened": "attempt {number} to send a leg was opened",
    "leg_attempt_ended": "an attempt to send a leg ended: {outcome}",
    "leg_held": "a leg is held back: {code}",
    "leg_done": "a leg is done: {receipt}",
    "leg_parked": "a leg is parked: {code}",
    "leg_not_done": "two persons found that a leg was not made",
    "leg_void": "a leg is void, and was never sent",
    "leg_made_twice": "the processor shows a leg twice: {receipt}",
    "leg_outlived_refund": "a leg is done of a refund that failed: {kind} of {money}, {target}",
    "dispute_noticed": "the payment is disputed: {dispute}",
}

Names = Mapping[str, str]
"""What persons and services are called, by their ids."""


def names_in(refund: Mapping[str, Any]) -> dict[str, str]:
    """Everybody whom a refund names, by id: who asked, decided, and gave instructions."""
    people = [(refund.get("request") or {}).get("requester")]
    people += [decision.get("recorded_by") for decision in refund.get("decisions") or ()]
    people += [decision.get("on_behalf_of") for decision in refund.get("decisions") or ()]
    people += [instruction.get("by") for instruction in refund.get("instructions") or ()]
    return {one["id"]: f"{one['name']} ({one['handle']})" for one in people if one}


def show(out: Output, entries: list[Entry], names: Names) -> None:
    """The table; in a pipe every entry is one line."""
    rows = [(entry["refund_version"], entry["at"], entry["type"], actor_of(entry, names), in_words(entry)) for entry in entries]
    out.table(COLUMNS, rows, fold="what changed")


def actor_of(entry: Entry, names: Names) -> str:
    """Who did it, and for whom where that is somebody else."""
    who, behind = entry["actor"], entry.get("on_behalf_of")
    return names.get(who, who) + (f" for {names.get(behind, behind)}" if behind and behind != who else "")


def in_words(entry: Entry) -> str:
    """What an entry says. A kind that is not known here is told by its fields alone."""
    data = {name: value for name, value in entry["data"].items() if value not in (None, "", [], {})}
    amount = _money(data)
    values = data | ({"money": amount} if amount else {})
    sentence, named = _sentence(_SENTENCES.get(entry["type"], ""), values)
    told = named | ({"amount", "currency"} if "money" in named else set())
    rest = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in data.items() if name not in told)
    return f"{sentence} [{rest}]" if sentence and rest else sentence or rest


def _sentence(whole: str, values: Entry) -> tuple[str, set[str]]:
    """The sentence, or what stands before its colon, whichever has all the values it names; and which those are."""
    for form in (whole, whole.partition(":")[0]):
        named = _fields(form)
        if form and named <= values.keys():
            return form.format(**values), named
    return "", set()


def _fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def _money(data: Entry) -> str | None:
    """An amount as people write it; ``None`` where there is none, or none of a currency that is known here."""
    amount, code = data.get("amount"), data.get("currency")
    if type(amount) is not int or not isinstance(code, str):
        return None
    try:
        return format_money(Money(amount, currency(code).code))
    except RefundError:
        return None


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) + ")"
    return " ".join(_plain(item) for item in value) if isinstance(value, list) else str(value)
