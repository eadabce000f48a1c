"""What a reader of free text can cause: more people looking, or an answer in words; never money (promise P10).

Nothing here can make a decision looser: every finding is in order, a review, or an answer with which nothing moves.
"""

from collections.abc import Iterator

from refunds.classification import Intent, Proposal
from refunds.facts import Facts, ReadingFacts
from refunds.policy.findings import Case, Finding
from refunds.policy.model import Policy

_WANTED = "refund; payouts, credits and goodwill are never paid here"


def findings(policy: Policy, facts: Facts) -> Iterator[Finding]:
    """The findings about the reading, if there is one."""
    reading = facts.reading
    if reading is None:
        yield Case("reading", "Free text was read properly, if there was any.", "no free text", "read").passed()
        return
    case = Case("reading", "Free text was read properly, if there was any.", "failed" if reading.failed else "read", "read")
    if reading.failed:
        yield case.review(signal="reading:failed")
        return
    yield case.passed()
    yield _scope(policy, facts, reading)
    yield _confidence(policy, facts, reading)
    yield _none("manipulation", "The text does not try to steer the reader.", reading.manipulation)
    yield _none("contradictions", "The text and the request say the same.", reading.contradictions)
    yield _proposal(policy, facts, reading)


def _informational(facts: Facts, reading: ReadingFacts) -> bool:
    """Whether only something was asked, in words, and nothing in structured form."""
    return facts.request.extracted and reading.intent in (Intent.TRACK_REFUND, Intent.POLICY_QUESTION)


def _answers(policy: Policy, facts: Facts, reading: ReadingFacts) -> bool:
    sure = reading.confidence >= policy.reading.confidence_to_answer
    return _informational(facts, reading) and sure and not reading.manipulation and not reading.contradictions


def _scope(policy: Policy, facts: Facts, reading: ReadingFacts) -> Finding:
    case = Case("intent", "The text asks for a refund.", reading.intent or "not known", _WANTED)
    if reading.intent is Intent.REFUND:
        return case.passed()
    if _answers(policy, facts, reading):
        return case.answer(policy.texts.track_refund if reading.intent is Intent.TRACK_REFUND else policy.texts.policy_question)
    if reading.intent is Intent.OUT_OF_SCOPE:
        # A reader refuses nothing by itself; whoever does has the policy's own words for it.
        words = policy.out_of_scope
        case.limit = f"{_WANTED}: {words.payouts} {words.credits} {words.goodwill}"
    return case.review(signal=f"intent:{reading.intent or 'unknown'}")


def _confidence(policy: Policy, facts: Facts, reading: ReadingFacts) -> Finding:
    limit = policy.reading.confidence_to_answer if _informational(facts, reading) else policy.reading.confidence_to_refund
    case = Case("confidence", "The reader is sure enough.", f"{reading.confidence} percent", f"at least {limit} percent")
    if reading.confidence >= limit:
        return case.passed()
    least = policy.reading.confidence_to_review
    too_unsure = least is not None and reading.confidence < least
    return case.review(policy.tiers.high_impact.ladder if too_unsure else None, signal=f"confidence:{reading.confidence}")


def _none(name: str, text: str, found: tuple[str, ...]) -> Finding:
    # How many, not which: they may quote the customer, and checks are recorded in the clear (promise P9).
    case = Case(name, text, f"{len(found)} found", "none")
    return case.review(signal=name) if found else case.passed()


def _proposal(policy: Policy, facts: Facts, reading: ReadingFacts) -> Finding:
    case = Case("proposal", "The reader sees nothing against it.", reading.proposal or "none", Proposal.APPROVE)
    if reading.proposal is Proposal.APPROVE or _answers(policy, facts, reading):
        return case.passed()
    return case.review(signal=f"proposal:{reading.proposal or 'none'}")
