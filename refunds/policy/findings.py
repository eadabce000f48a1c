"""What one check comes to: the check as it is recorded, and what it demands."""

from dataclasses import dataclass, replace

from refunds.errors import Code
from refunds.facts import Check

PASS = "pass"
CONSENT = "require_consent"
REVIEW = "require_review"
DENY = "deny"
ANSWER = "answer"


@dataclass(slots=True)
class Finding:
    """A check with its consequence. ``ladder`` names the ladder of a review (``None`` is the ladder of the reviewed tier), ``code`` says why it is denied,
    ``text`` is the merchant's own wording, ``signal`` marks what a reviewer should see at once, ``evidence`` must be there before anybody approves, and at least
    so many different ``people`` must.
    ``may_be_lifted`` says that an exception of the policy can let it pass: what is not known never can be."""

    check: Check
    ladder: str | None = None
    code: Code | None = None
    text: str = ""
    signal: str | None = None
    evidence: tuple[str, ...] = ()
    people: int = 1
    may_be_lifted: bool = False

    def liftable(self) -> "Finding":
        """The same, which an exception can let pass."""
        return self if self.check.result == PASS else replace(self, may_be_lifted=True)

    def lifted(self, why: str) -> "Finding":
        """It passes because of an exception, which the record shows."""
        return Finding(replace(self.check, observed=f"{self.check.observed}; excepted by {why}", result=PASS))


@dataclass(slots=True)
class Case:
    """A check that is about to be made: its id, what it says, what was observed and what that is held against.

    Neither it nor a finding is frozen, because some sixty are made for every quote and a frozen one costs three times as much; nobody keeps either.
    """

    id: str
    text: str
    observed: str
    limit: str

    def _check(self, result: str) -> Check:
        return Check(self.id, self.text, str(self.observed), str(self.limit), result)

    def passed(self) -> Finding:
        """It is in order."""
        return Finding(self._check(PASS))

    def consent(self) -> Finding:
        """The customer must agree first."""
        return Finding(self._check(CONSENT))

    def review(self, ladder: str | None = None, *, signal: str | None = None, evidence: tuple[str, ...] = (), people: int = 1) -> Finding:
        """A person looks, or so many."""
        return Finding(self._check(REVIEW), ladder=ladder, signal=signal, evidence=evidence, people=people)

    def deny(self, code: Code, text: str = "") -> Finding:
        """It is refused."""
        return Finding(self._check(DENY), code=code, text=text)

    def answer(self, text: str) -> Finding:
        """It is explained with the merchant's words; nothing moves."""
        return Finding(self._check(ANSWER), text=text)

    def by(self, setting: str, code: Code, text: str = "", *, ladder: str | None = None) -> Finding:
        """What a setting of ``accept``, ``review`` or ``deny`` says."""
        if setting == "accept":
            return self.passed()
        return self.deny(code, text) if setting == "deny" else self.review(ladder)
