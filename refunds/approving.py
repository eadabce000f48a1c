"""Who may decide on exact terms: rules about persons and what they may approve (promise P3, field report 56).

Looked at are always two: the person who decides, and, where they use the right of another by a delegation, the person whose right it is. Neither may have a
part in what is approved, and neither may approve more alone than they may. Denying moves no money, so only the role is asked for it.
"""

from dataclasses import dataclass, replace

from refunds.errors import Code, RefundError
from refunds.facts import Review
from refunds.money import Money, format_money
from refunds.people import Actor, PrincipalKind, Role
from refunds.policy.uniting import AND


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who had a part in a refund, by every name they have here."""

    id: str
    handle: str
    name: str
    kind: PrincipalKind = PrincipalKind.PERSON

    def is_also(self, person: Actor) -> bool:
        """Whether a person is this one: by id, or by a handle or name that reads the same, so that a second account is no second person."""
        return person.principal_id == self.id or (self.kind is PrincipalKind.PERSON and any(map(person.is_named, (self.handle, self.name))))


@dataclass(frozen=True, slots=True)
class Delegated:
    """The right to decide that somebody handed over for a while, as it is in force now.

    ``of`` is whose right it is, with the roles that keys of their own carry at this moment: nobody hands over what they do not hold, nor what was handed to
    them. ``role`` is what was handed over, in ``queue`` only where one is named.
    """

    id: str
    of: Actor
    role: Role
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Right:
    """In which right somebody decides: their own, or one that was delegated to them."""

    actor: Actor
    delegated: Delegated | None = None

    @property
    def persons(self) -> tuple[Actor, ...]:
        """Everybody whom the rules about persons compare."""
        return (self.actor,) if self.delegated is None else (self.actor, self.delegated.of)

    @property
    def on_behalf_of(self) -> str | None:
        """The id of the person whose right it is, if it is another's."""
        return None if self.delegated is None else self.delegated.of.principal_id

    @property
    def role(self) -> Role:
        """The role in which it is decided, as it is recorded."""
        if self.delegated is not None:
            return self.delegated.role
        return Role.MANAGER if self.actor.has(Role.MANAGER) else Role.REVIEWER


@dataclass(frozen=True, slots=True)
class Case:
    """What a decision is about, as far as it says who may take it.

    ``owner`` is the person for whom the agent that asked acts. ``author`` wrote these terms, and is here only where they ask for more than others did.
    ``approved`` are those who approved them already, and those in whose right they did. ``at_stake`` is what would be approved: for a part of a group, what
    all of the group come to in its currency. ``given`` are the kinds of evidence that persons and services attached.
    """

    requester: Who
    requested_by: str | None
    owner: Who | None
    author: Who | None
    approved: tuple[Who, ...]
    was_read: bool
    at_stake: Money
    given: frozenset[str]


@dataclass(frozen=True, slots=True)
class Written:
    """What terms ask for, as far as it says whether they are looser than others."""

    amount: int
    payment: str | None
    reverse_transfer: bool
    refund_application_fee: bool

    def is_looser_than(self, other: "Written") -> bool:
        """Whether these ask for more, for another payment, to take less back from connected accounts, or to give the platform's fee back."""
        if self.amount > other.amount or self.payment != other.payment:
            return True
        return (self.refund_application_fee and not other.refund_application_fee) or (other.reverse_transfer and not self.reverse_transfer)


def roles_needed(review: Review, rung: int, queue: str | None) -> tuple[str, ...]:
    """The roles that a decision needs now: the least of the review, that of its rung, and that of the queue it was moved to."""
    return (review.role, review.ladder[rung].role, *(one.role for one in review.ladder if one.queue == queue))


def check_role(right: Right, needed: tuple[str, ...], queue: str | None) -> None:
    """Raise ``ROLE_TOO_LOW``, or ``DELEGATION_INVALID`` where what was delegated does not reach so far. Everybody who decides reviews at the least."""
    delegated = right.delegated
    if delegated is None:
        missing = [role for role in needed if not right.actor.has(Role(role))]
        if missing:
            raise RefundError(Code.ROLE_TOO_LOW, f"This decision needs the role {missing[0]}.", role=missing[0])
        return
    if delegated.queue not in (None, queue):
        raise RefundError(Code.DELEGATION_INVALID, f"It is delegated for queue {delegated.queue}, and this waits in queue {queue}.")
    if not delegated.of.has(delegated.role):
        raise RefundError(Code.DELEGATION_INVALID, f"{delegated.of.handle} no longer holds the role {delegated.role} that was handed over.")
    missing = [role for role in needed if not _handed_over(delegated).has(Role(role))]
    if missing:
        raise RefundError(
            Code.ROLE_TOO_LOW, f"This decision needs the role {missing[0]}; handed over is {delegated.role}.", role=missing[0]
        )


def check_approval(case: Case, review: Review, right: Right) -> None:
    """Raise what keeps these persons from approving: ``SELF_APPROVAL``, ``SPECIALIST_REQUIRED``, ``ABOVE_OWN_LIMIT`` or ``EVIDENCE_MISSING``."""
    for person in right.persons:
        if (part := part_in(case, person)) is not None:
            raise RefundError(Code.SELF_APPROVAL, f"{person.handle} {part}.", person=person.principal_id)
    _check_specialist(review, right)
    for person in right.persons:
        check_ceiling(person, case.at_stake)
    if missing := [kind for kind in review.evidence if kind not in case.given]:
        raise RefundError(Code.EVIDENCE_MISSING, f"Missing: {', '.join(missing)}.", missing=missing)


def part_in(case: Case, person: Actor) -> str | None:
    """Which part a person has in what is to be approved, in words, or ``None``: at any amount, and however their name was written."""
    if case.requester.is_also(person):
        return "asked for it"
    if case.requested_by and person.is_named(case.requested_by):
        return "is named as the one who asked for it"
    if case.owner is not None and case.owner.is_also(person):
        return "is who the agent that asked for it acts for"
    if case.author is not None and case.author.is_also(person):
        return "wrote these terms, which ask for more than those before"
    if any(one.is_also(person) for one in case.approved):
        return "has approved it already, and a second person is asked for"
    if case.was_read and person.operates_classifier:
        return "operates the reader of free text, which has read this request"
    return None


def _check_specialist(review: Review, right: Right) -> None:
    """Raise ``SPECIALIST_REQUIRED`` unless one of them is named. Of whoever handed a right over counts who they are and the role that was handed over, and
    no other that they hold besides."""
    if not review.specialists or any(_is_all(person, one) for one in review.specialists for person in _standing_as(right)):
        return
    raise RefundError(
        Code.SPECIALIST_REQUIRED, f"These terms are for: {', '.join(review.specialists)}.", specialists=list(review.specialists)
    )


def _standing_as(right: Right) -> tuple[Actor, ...]:
    delegated = right.delegated
    return right.persons if delegated is None else (right.actor, _handed_over(delegated))


def _handed_over(delegated: Delegated) -> Actor:
    """Whoever handed a right over, with the role that they handed over."""
    return replace(delegated.of, roles=frozenset({delegated.role}))


def _is_all(person: Actor, wanted: str) -> bool:
    """Whether one person is all that is wanted, each a role or a handle; a word that is a role is never a handle."""
    roles = set(Role)
    return all(person.has(Role(one)) if one in roles else person.handle.casefold() == one.casefold() for one in wanted.split(AND))


def check_ceiling(person: Actor, at_stake: Money) -> None:
    """Raise ``ABOVE_OWN_LIMIT`` where a person may not approve so much. Who has ceilings approves nothing in a currency that they do not name."""
    if person.ceilings is None:
        return
    ceiling = person.ceilings.get(at_stake.currency)
    if ceiling is None:
        known = ", ".join(sorted(person.ceilings)) or "no currency"
        raise RefundError(Code.ABOVE_OWN_LIMIT, f"{person.handle} approves in {known}, not in {at_stake.currency}.")
    if at_stake.amount > ceiling:
        limit = Money(ceiling, at_stake.currency)
        words = f"{person.handle} may approve up to {format_money(limit)}, and this is {format_money(at_stake)}."
        raise RefundError(Code.ABOVE_OWN_LIMIT, words, limit=ceiling, amount=at_stake.amount, currency=at_stake.currency)


def check_reason(review: Review, reason: str) -> None:
    """Raise ``REASON_REQUIRED`` where everybody who decides says why, and nothing is said."""
    if review.reasons_required and not any(character.isalnum() for character in reason):
        raise RefundError(Code.REASON_REQUIRED, field="note")
