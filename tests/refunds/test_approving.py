"""Who may decide, as pure rules: both persons of a delegation are looked at, at any amount, and however a name was written (field report 56)."""

from dataclasses import replace
from typing import Any

import pytest

from refunds.approving import Case, Delegated, Right, Who, check_approval, check_reason, check_role, roles_needed
from refunds.errors import Code, RefundError
from refunds.facts import Review, Rung
from refunds.money import Money
from refunds.people import Actor, PrincipalKind, Role

TEAM = Rung("team", "reviewer", 3_600, 86_400)
MANAGERS = Rung("managers", "manager", 3_600, 86_400)
REVIEW = Review("reviewer", 1, (TEAM, MANAGERS))


def person(handle: str, *roles: Role, **more: Any) -> Actor:
    return Actor(f"pr_{handle}", handle, handle.title(), PrincipalKind.PERSON, frozenset(roles), **more)


def who(handle: str, kind: PrincipalKind = PrincipalKind.PERSON, **other: Any) -> Who:
    return replace(Who(f"pr_{handle}", handle, handle.title(), kind), **other)


CASE = Case(
    requester=who("shop", PrincipalKind.SERVICE),
    requested_by="Uma",
    owner=None,
    author=None,
    approved=(),
    was_read=False,
    at_stake=Money(20_000, "USD"),
    given=frozenset(),
)
VERA = person("vera", Role.REVIEWER)


def refused(case: Case, right: Right, review: Review = REVIEW) -> tuple[Code, str]:
    with pytest.raises(RefundError) as refusal:
        check_approval(case, review, right)
    return refusal.value.code, refusal.value.detail


def through(of: Actor, actor: Actor = VERA, role: Role = Role.REVIEWER, queue: str | None = None) -> Right:
    return Right(actor, Delegated("dlg_1", of, role, queue))


PARTS = {
    "asked": replace(CASE, requester=who("rita")),
    "under another account of the same name": replace(CASE, requester=who("rita2", name="Rita")),
    "under another account of the same mail name": replace(CASE, requester=who("rita@shop.example", name="R. M.")),
    "named": replace(CASE, requested_by="rita"),
    "named in capitals": replace(CASE, requested_by=" RITA "),
    "named with a look-alike letter": replace(CASE, requested_by="r\u0456ta"),
    "named by a mail address": replace(CASE, requested_by="rita@shop.example"),
    "acted for by the agent": replace(CASE, owner=who("rita")),
    "wrote looser terms": replace(CASE, author=who("rita")),
    "approved already": replace(CASE, approved=(who("vera2", name="V."), who("rita"))),
}


@pytest.mark.parametrize("part", PARTS)
def test_field_56_whoever_has_a_part_in_it_approves_nothing_nor_does_anybody_on_their_behalf(part: str) -> None:
    case, rita = PARTS[part], person("rita", Role.REVIEWER, Role.MANAGER)

    assert refused(case, Right(rita))[0] is Code.SELF_APPROVAL
    assert refused(case, through(rita))[0] is Code.SELF_APPROVAL  # another decides for them
    assert refused(case, through(VERA, actor=rita))[0] is Code.SELF_APPROVAL  # they decide for another
    check_approval(case, REVIEW, Right(VERA))


@pytest.mark.parametrize("amount", [1, 99, 20_000, 10_000_000])
def test_field_56_no_amount_is_too_small_for_it(amount: int) -> None:
    case = replace(CASE, at_stake=Money(amount, "USD"))

    assert refused(case, Right(person("uma", Role.REVIEWER)))[0] is Code.SELF_APPROVAL


def test_who_operates_the_reader_approves_nothing_that_it_read_and_everything_else() -> None:
    operator = person("olga", Role.REVIEWER, operates_classifier=True)

    assert refused(replace(CASE, was_read=True), Right(operator))[0] is Code.SELF_APPROVAL
    assert refused(replace(CASE, was_read=True), through(operator))[0] is Code.SELF_APPROVAL
    check_approval(CASE, REVIEW, Right(operator))


def test_a_service_that_asked_is_nobodys_second_account() -> None:
    check_approval(replace(CASE, requester=who("shop", PrincipalKind.SERVICE, name="Vera")), REVIEW, Right(VERA))


@pytest.mark.parametrize(
    ("ceilings", "allowed"),
    [(None, True), ({"USD": 20_000}, True), ({"USD": 19_999}, False), ({"EUR": 90_000}, False), ({}, False), ({"USD": 0}, False)],
)
def test_a_ceiling_of_ones_own_binds_whoever_s_right_is_used(ceilings: dict[str, int] | None, *, allowed: bool) -> None:
    bound, free = person("bea", Role.REVIEWER, ceilings=ceilings), person("fred", Role.REVIEWER)

    for right in (Right(bound), through(bound, actor=free), through(free, actor=bound)):
        if allowed:
            check_approval(CASE, REVIEW, right)
        else:
            assert refused(CASE, right)[0] is Code.ABOVE_OWN_LIMIT


def test_the_refusal_of_a_ceiling_says_what_it_is_and_what_was_asked() -> None:
    code, words = refused(CASE, Right(person("bea", Role.REVIEWER, ceilings={"USD": 5_000})))

    assert (code, words) == (Code.ABOVE_OWN_LIMIT, "bea may approve up to $50.00, and this is $200.00.")


@pytest.mark.parametrize(
    ("specialists", "allowed"),
    [
        ((), True),
        (("vera",), True),
        (("VERA",), True),
        (("fraud",), False),
        (("legal-lee", "reviewer"), True),
        (("vera and fraud",), False),
    ],
)
def test_named_specialists_are_persons_or_roles(specialists: tuple[str, ...], *, allowed: bool) -> None:
    review = replace(REVIEW, specialists=specialists)

    if allowed:
        check_approval(CASE, review, Right(VERA))
    else:
        assert refused(CASE, Right(VERA), review)[0] is Code.SPECIALIST_REQUIRED


def test_two_things_at_once_are_asked_of_one_person() -> None:
    review = replace(REVIEW, specialists=("fraud and manager",))
    fraud, manager = person("fay", Role.REVIEWER, Role.FRAUD), person("mia", Role.MANAGER)

    assert refused(CASE, through(manager, actor=fraud), review)[0] is Code.SPECIALIST_REQUIRED
    check_approval(CASE, review, Right(person("eve", Role.MANAGER, Role.FRAUD)))


def test_a_stand_in_for_a_specialist_counts_as_one() -> None:
    check_approval(CASE, replace(REVIEW, specialists=("lee",)), through(person("lee", Role.REVIEWER)))


def test_a_stand_in_is_no_specialist_by_a_role_that_was_not_handed_over() -> None:
    fay = person("fay", Role.MANAGER, Role.FRAUD)

    assert refused(CASE, through(fay, role=Role.MANAGER), replace(REVIEW, specialists=("fraud",)))[0] is Code.SPECIALIST_REQUIRED
    assert refused(CASE, through(fay), replace(REVIEW, specialists=("manager",)))[0] is Code.SPECIALIST_REQUIRED
    check_approval(CASE, replace(REVIEW, specialists=("manager",)), through(fay, role=Role.MANAGER))


def test_evidence_that_is_missing_is_named_in_the_order_of_the_policy() -> None:
    review = replace(REVIEW, evidence=("photo", "police_report", "invoice"))
    case = replace(CASE, given=frozenset({"police_report", "something"}))

    with pytest.raises(RefundError) as refusal:
        check_approval(case, review, Right(VERA))

    assert (refusal.value.code, refusal.value.ids) == (Code.EVIDENCE_MISSING, {"missing": ["photo", "invoice"]})
    check_approval(replace(CASE, given=frozenset({"photo", "invoice", "police_report"})), review, Right(VERA))


@pytest.mark.parametrize(("reason", "enough"), [("", False), ("  \n", False), ("...", False), ("damaged in transit", True), ("破損", True)])
def test_a_reason_is_asked_for_where_the_ladder_asks(reason: str, *, enough: bool) -> None:
    check_reason(REVIEW, reason)
    if enough:
        check_reason(replace(REVIEW, reasons_required=True), reason)
        return
    with pytest.raises(RefundError) as refusal:
        check_reason(replace(REVIEW, reasons_required=True), reason)
    assert (refusal.value.code, refusal.value.field) == (Code.REASON_REQUIRED, "note")


@pytest.mark.parametrize(
    ("review", "rung", "queue", "highest"),
    [
        (REVIEW, 0, "team", "reviewer"),
        (REVIEW, 1, "managers", "manager"),
        (REVIEW, 0, "managers", "manager"),  # moved there before the first rung was over
        (REVIEW, 1, "team", "manager"),  # moved back: the role never falls
        (replace(REVIEW, role="manager"), 0, "team", "manager"),
    ],
)
def test_the_role_that_is_needed(review: Review, rung: int, queue: str, highest: str) -> None:
    needed = roles_needed(review, rung, queue)

    check_role(Right(person("mia", Role.MANAGER)), needed, queue)
    if highest == "manager":
        with pytest.raises(RefundError) as refusal:
            check_role(Right(VERA), needed, queue)
        assert refusal.value.code is Code.ROLE_TOO_LOW
    else:
        check_role(Right(VERA), needed, queue)


def test_nobody_hands_over_more_than_they_hold_or_than_they_said() -> None:
    needed = ("manager",)
    mia = person("mia", Role.MANAGER)

    def code(right: Right, queue: str = "managers") -> Code | None:
        try:
            check_role(right, needed, queue)
        except RefundError as refusal:
            return refusal.code
        return None

    assert code(through(mia, role=Role.MANAGER)) is None
    assert code(through(mia, role=Role.MANAGER, queue="managers")) is None
    assert code(through(mia, role=Role.MANAGER, queue="vip")) is Code.DELEGATION_INVALID
    assert code(through(mia, role=Role.REVIEWER)) is Code.ROLE_TOO_LOW  # a manager handed over less
    assert code(through(person("ex", Role.REVIEWER), role=Role.MANAGER)) is Code.DELEGATION_INVALID  # no longer one
    assert code(through(person("ex"), role=Role.MANAGER)) is Code.DELEGATION_INVALID


def test_the_decision_is_recorded_in_the_role_of_the_right_that_was_used() -> None:
    mia = person("mia", Role.MANAGER)

    assert (Right(VERA).role, Right(mia).role, through(mia, role=Role.MANAGER).role) == (Role.REVIEWER, Role.MANAGER, Role.MANAGER)
    assert (Right(VERA).on_behalf_of, through(mia).on_behalf_of) == (None, "pr_mia")
