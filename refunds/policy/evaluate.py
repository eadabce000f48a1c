"""Judges facts under a policy: every check is made and reported, and what they demand is united.

Pure: the same policy and the same facts give the same decision, for ever. Any refusal refuses; otherwise everything that any check requires is
required. A custom rule or a reading can only add to it.
"""

from collections.abc import Iterator
from dataclasses import replace

from refunds.errors import CATALOGUE, Code
from refunds.facts import Facts, PolicyDecision, Review
from refunds.policy import limits, reading, rules
from refunds.policy.checks import CHECKS, consent_given
from refunds.policy.findings import ANSWER, CONSENT, DENY, REVIEW, Case, Finding
from refunds.policy.governing import governance
from refunds.policy.model import Policy, ReviewRole, Rule
from refunds.policy.uniting import review_of, unite

INFORMATIONAL, AUTOMATIC, REVIEWED, HIGH_IMPACT = 1, 2, 3, 4


def evaluate(policy: Policy, facts: Facts) -> PolicyDecision:
    """Judge the facts. Never raises for what the facts say: what is not known goes to a person, what is not covered is refused or does."""
    findings = [check(policy, facts) for check in CHECKS]
    findings += limits.findings(policy, facts, policy.texts.limits)
    findings += reading.findings(policy, facts)
    findings += _custom(policy, facts)
    if policy.exceptions:
        findings = _excepted(policy, facts, findings)
    review = _review(policy, [f for f in findings if f.check.result == REVIEW])
    tier = AUTOMATIC if review is None else _tier(review)
    decision = PolicyDecision(
        outcome="proceed",
        tier=tier,
        consent=any(f.check.result == CONSENT for f in findings),
        consent_within_s=policy.consent.within,
        review=review,
        checks=tuple(f.check for f in findings),
        terms_valid_s=policy.terms_valid_for,
        signals=tuple(f.signal for f in findings if f.signal is not None),
        limits=limits.standings(policy, facts),
        draft=policy.tiers.at(tier).draft,
        appeal=policy.texts.appeal,
        governance=governance(policy, facts, tier, () if review is None else review.evidence),
    )
    answer = next((f for f in findings if f.check.result == ANSWER), None)
    if answer is not None:
        why = "Only information was asked for, so it is answered and nothing moves."
        explained = replace(
            decision,
            draft=False,
            governance=governance(policy, facts, INFORMATIONAL, ()),
            answer=f"{policy.texts.machine_written} \N{LEFT DOUBLE QUOTATION MARK}{answer.text}\N{RIGHT DOUBLE QUOTATION MARK}",
        )
        return _nothing_moves(explained, answer, "answer", INFORMATIONAL, why)
    denied = [f for f in findings if f.check.result == DENY]
    if denied:
        return _nothing_moves(decision, denied[0], "deny", decision.tier, " ".join(map(_sentence, denied)))
    return decision


def _nothing_moves(decision: PolicyDecision, by: Finding, outcome: str, tier: int, explanation: str) -> PolicyDecision:
    """The decision when nothing more is required, because nothing will move."""
    code = None if by.code is None else str(by.code)
    return replace(
        decision, outcome=outcome, tier=tier, consent=False, review=None, code=code, explanation=explanation, policy_text=by.text
    )


def _sentence(denied: Finding) -> str:
    check = denied.check
    meaning = CATALOGUE[denied.code].meaning if denied.code else ""
    return f"{meaning} {check.text.rstrip('.')}: observed {check.observed}; limit {check.limit}."


def _tier(review: Review) -> int:
    return HIGH_IMPACT if review.role == ReviewRole.MANAGER or review.people > 1 else REVIEWED


def _review(policy: Policy, findings: list[Finding]) -> Review | None:
    """Unite the reviews that findings ask for; one that names no ladder has that of the reviewed tier."""
    if not findings:
        return None
    names = sorted({f.ladder or policy.tiers.reviewed.ladder or "" for f in findings})
    evidence = tuple(sorted({kind for f in findings for kind in f.evidence}))
    united = unite([review_of(policy, name, evidence) for name in names])
    people = max(f.people for f in findings)
    return united if united is None or united.people >= people else replace(united, people=people)


def _excepted(policy: Policy, facts: Facts, findings: list[Finding]) -> list[Finding]:
    """Let pass what an exception of the policy lifts, and only what may be lifted; the record names the exception."""
    fitting = [one for one in policy.exceptions if one.fits(facts)]
    if not fitting:
        return findings
    lifting = {check: one for one in reversed(fitting) for check in one.lifts}
    return [f.lifted(str(lifting[f.check.id])) if f.may_be_lifted and f.check.id in lifting else f for f in findings]


def _custom(policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Judge the merchant's own rules.

    A rule about the reading is not judged when there is none, so that a reading can only add. When a model read the request, a rule is judged with and
    without the reason it named, and the stricter counts: a model's word satisfies nothing (promise P10).
    """
    if not policy.rules:
        return
    plain = rules.plain_facts(facts, (rule.when for rule in policy.rules))
    without = plain | {"request": plain["request"] | {"reason": None}} if facts.request.extracted else plain
    for rule in policy.rules:
        yield _judged(rule, plain, without, facts)


def _judged(rule: Rule, plain: dict[str, object], without: dict[str, object], facts: Facts) -> Finding:
    case = Case(f"rule:{rule.id}", rule.text, "does not apply", f"{rule.then} when {rule.when}")
    if facts.reading is None and rules.uses_reading(rule.when):
        return replace(case, observed="no free text").passed()
    verdicts = [_verdict(rule, seen) for seen in ([plain] if without is plain else [plain, without])]
    applies = True in verdicts
    error = next((v for v in verdicts if isinstance(v, str)), None)
    if error is not None and not (applies and rule.then == "deny"):
        return replace(case, observed=f"could not be judged, so a person looks: {error}").review(rule.ladder, signal=case.id)
    seen = rules.seen(rule.when, plain)
    if not applies:
        return replace(case, observed=f"does not apply{seen}").passed()
    case = replace(case, observed=f"applies{seen}")
    if rule.then == "deny":
        return case.deny(Code.POLICY_DENIED, rule.text)
    if rule.then == "require_review":
        return case.review(rule.ladder, signal=case.id)
    if consent_given(facts):
        return replace(case, observed=f"applies{seen}; the customer named exactly this amount").passed()
    return case.consent()


def _verdict(rule: Rule, seen: dict[str, object]) -> bool | str:
    """Whether the rule applies, or why nobody can tell."""
    try:
        return rules.judge(rule.when, seen)
    except rules.RuleError as error:
        return str(error)
