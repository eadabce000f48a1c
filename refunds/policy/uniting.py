"""Reviews that several rules ask for, united into one: what any of them requires is required, and nothing removes it."""

from collections.abc import Iterable, Sequence

from refunds.facts import Review, Rung
from refunds.policy.model import Policy, ReviewRole

AND = " and "
"""Joins two specialists where one person must be both: ``fraud and manager``."""


def review_of(policy: Policy, ladder: str, evidence: tuple[str, ...] = ()) -> Review:
    """The review that a ladder of the policy asks for. Its first rung has the least role of all, because ladders never climb down."""
    found = policy.review[ladder]
    named = {rung.hours for rung in found.rungs if rung.hours is not None}
    return Review(
        role=str(found.rungs[0].role),
        people=found.people,
        ladder=tuple(Rung(r.queue, str(r.role), r.remind_after, r.decide_within, r.hours) for r in found.rungs),
        specialists=found.specialists,
        reasons_required=found.reasons_required,
        evidence=evidence,
        calendars=tuple(policy.open_hours[name] for name in sorted(named)),
    )


def unite(reviews: Sequence[Review]) -> Review | None:
    """One review that asks for all that any of them asks for; ``None`` when there is none.

    Its ladder is the strictest: it begins with the highest role, then asks the most people, then leaves the least time; of equals the first. As many people
    decide as any asks for, each must be a specialist for every one that names specialists, everybody says why where any wants it, and all evidence is there.
    """
    if len(reviews) < 2:
        return reviews[0] if reviews else None
    strictest = max(reviews, key=_strictness)
    return Review(
        role=strictest.role,
        people=max(review.people for review in reviews),
        ladder=strictest.ladder,
        specialists=_specialists(review.specialists for review in reviews),
        reasons_required=any(review.reasons_required for review in reviews),
        evidence=tuple(sorted({kind for review in reviews for kind in review.evidence})),
        calendars=strictest.calendars,
    )


def _strictness(review: Review) -> tuple[int, int, int]:
    return ReviewRole(review.ladder[0].role).rank, review.people, -sum(rung.decide_within_s for rung in review.ladder)


def _specialists(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Who is one of every group: each as all that a person must be, without those that ask for more than another does."""
    wanted: set[frozenset[str]] = {frozenset()}
    for group in groups:
        if group:
            wanted = {known | set(one.split(AND)) for known in wanted for one in group}
    least = [one for one in wanted if one and not any(other < one for other in wanted)]
    return tuple(sorted(AND.join(sorted(one)) for one in least))
