"""Exact terms: whatever of them differs, what was agreed to and approved before does not apply (promise P3)."""

from typing import Any

import pytest

from refunds.facts import Review, Rung
from refunds.marketplace import LegKind
from refunds.terms import LegTerms, Terms
from store.requirements import CONSENT, POLICY, REVIEW, Required, sufficient
from store.sql import Row
from tests.refunds.test_terms import LEG, OTHER, TERMS

REVIEWED = Required(True, 60, Review("reviewer", 1, (Rung("team", "reviewer", 60, 600),)))
TWO = Required(True, 60, Review("manager", 2, (Rung("managers", "manager", 60, 600),)))
AUTOMATIC = Required(True, 60, None)


def said(kind: str, terms: Terms, person: str, on_behalf_of: str | None = None) -> Row:
    return {
        "id": f"dec_{person}",
        "kind": kind,
        "verdict": "approve",
        "terms_hash": terms.hash,
        "person": person,
        "on_behalf_of": on_behalf_of,
    }


@pytest.mark.parametrize("required", [REVIEWED, TWO, AUTOMATIC])
@pytest.mark.parametrize("field", list(Terms.model_fields))
def test_terms_that_differ_in_anything_need_their_own_consent_and_decisions(field: str, required: Required) -> None:
    other = TERMS.model_copy(update={field: OTHER[field]})
    recorded = [
        said(CONSENT, TERMS, "customer:1"),
        said(REVIEW, TERMS, "pr_1"),
        said(REVIEW, TERMS, "pr_2"),
        said(POLICY, TERMS, "policy:7"),
    ]
    agreed_only = [said(CONSENT, other, "customer:1"), *recorded[1:]]
    approved_only = [recorded[0], *(said(d["kind"], other, d["person"]) for d in recorded[1:])]

    assert sufficient(required, recorded, TERMS.hash) is not None
    for stale in (recorded, agreed_only, approved_only):
        assert sufficient(required, stale, other.hash) is None


@pytest.mark.parametrize("field", list(LegTerms.model_fields))
def test_a_leg_that_differs_in_anything_makes_other_terms(field: str) -> None:
    others: dict[str, Any] = {
        "kind": LegKind.REFUND_FEE,
        "target": "tr_2",
        "account": "acct_2",
        "amount": 2,
        "amount_text": "$0.02",
        "currency": "EUR",
    }
    one = TERMS.model_copy(update={"legs": (LegTerms(**LEG),)})
    other = TERMS.model_copy(update={"legs": (LegTerms(**LEG).model_copy(update={field: others[field]}),)})

    assert sufficient(REVIEWED, [said(CONSENT, one, "customer:1"), said(REVIEW, one, "pr_1")], other.hash) is None


@pytest.mark.parametrize(
    ("first", "second", "enough"),
    [
        (("pr_1", None), ("pr_2", None), True),
        (("pr_1", None), ("pr_1", None), False),
        (("pr_1", None), ("pr_2", "pr_1"), False),  # the second decided on behalf of the first
        (("pr_2", "pr_1"), ("pr_1", None), False),
        (("pr_2", "pr_3"), ("pr_4", "pr_3"), False),  # two stand-ins of one person are one person
        (("pr_2", "pr_3"), ("pr_4", "pr_5"), True),
    ],
)
def test_two_persons_are_two_also_where_they_decide_for_others(first: Any, second: Any, *, enough: bool) -> None:
    recorded = [said(CONSENT, TERMS, "customer:1"), said(REVIEW, TERMS, *first), said(REVIEW, TERMS, *second)]

    assert (sufficient(TWO, recorded, TERMS.hash) is not None) is enough
