"""Conditions that would cost more than a rule may are refused before the library sees them: it follows them without limits of its own."""

import pytest

from refunds.policy import rules

NESTED = 'order.categories.exists(a, order.categories.exists(b, a + b == "x"))'


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("+".join(["1"] * 900) + " > 0", "operators"),
        ("order" + ".a" * 900, "operators"),
        ("1 > 0 " + " " * 2_000, "characters"),
        (NESTED, "inside another"),
        ("order.categories.map(a, order.categories.filter(b, b == a).size() > 0).exists(c, c)", "inside another"),
    ],
    ids=["long sum", "long chain", "long text", "nested steps", "nested map"],
)
def test_a_condition_that_costs_too_much_is_refused_unread(condition: str, problem: str) -> None:
    [(said, remedy)] = rules.faults(condition)

    assert problem in said
    assert remedy


def test_steps_one_after_the_other_are_in_order() -> None:
    assert rules.faults('order.categories.exists(a, a == "sale") && order.categories.all(b, b != "gift(x")') == []
