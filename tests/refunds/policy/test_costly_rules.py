"""Conditions that would cost more than a rule may are refused before the library sees them: it follows them without limits of its own."""

import time
from dataclasses import replace

import pytest

from refunds.facts import LineFacts
from refunds.policy import PolicyError, load_policy, rules, sample_policy_text
from tests.refunds.conftest import GOOD

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


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("lines.map(a, lines).size() > 0", "looks at all of lines"),
        ("lines.all(a, a in lines)", "looks at all of lines"),
        ("lines.all(a, lines == lines)", "looks at all of lines"),
        ("lines.exists(a, a.category in order.categories)", "looks at all of order.categories"),
        ("order.categories.map(a, order).size() > 0", "looks at all of order"),
        ('order.categories.exists(a, order["categories"] == [a])', "looks at all of order"),
        ('["x"]' + ".map(a, a + a)" * 20 + ".size() > 0", "more than one map"),
        (f"order.categories.map(a, {'+'.join(['a'] * 50)}).size() > 0", "sums inside"),
        (f"({'+'.join(['lines'] * 11)}).all(a, a.ordered > 0)", "lists of facts more than 10 times"),
        ('request.channel.matches(r"\\") || lines.all(a, a in lines) || "" == "")', "a raw one"),
        ("request.channel == '''chat'''", "three quotes"),
        ("request.amount > 5 // && request.amount < 3", "a comment inside the condition"),
        ("{1:" * 180 + "1" + "}" * 180 + " == {}", "not a CEL condition"),
    ],
)
def test_what_would_grow_with_the_square_of_a_list_or_without_end_is_refused_unread(condition: str, problem: str) -> None:
    [(said, remedy)] = rules.faults(condition)
    assert problem in said
    assert remedy


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ('lines.exists(x, x.category.matches("\\\\w{100}"))', "cost too much"),
        ('lines.exists(x, x.category.matches("\\\\w{5}"))', "anew for each member"),
        ('lines.exists(x, x.category.matches("\\\\w"))', "anew for each member"),
        ('lines.exists(x, x.category.matches("(?i)^summer-sale-[0-9]+$"))', "anew for each member"),
        ('lines.exists(x, x.category.matches(".{1000}"))', "cost too much"),
        (
            f"order.categories.all(a, {' || '.join(['a.matches(q)'.replace('q', chr(34) + '.*.*.*.*x' + chr(34))] * 40)})",
            "anew for each member",
        ),
        ('request.channel.matches("\\\\p{L}{60}{40}")', "cost too much"),
        ('request.channel.matches("((a{50}){50}){50}")', "cost too much"),
        ('request.channel.matches("\\x5cw{100}")', "no plain text"),
        ('request.channel.matches("\\134w{100}")', "no plain text"),
        ('request.channel.matches("\\\\w" + "{100}")', "no plain text"),
        ("request.channel.matches(request.reason)", "no plain text"),
        ('matches(request.channel, "\\\\w{100}")', "no plain text"),
        ('request.channel.matches(b"\\\\w{100}")', "no plain text"),
    ],
)
def test_a_pattern_that_costs_much_to_make_is_refused_unread(condition: str, problem: str) -> None:
    [(said, remedy)] = rules.faults(condition)
    assert problem in said
    assert remedy


@pytest.mark.parametrize(
    "condition",
    [
        'lines.exists(x, x.category.matches("^shoes-[0-9]{4}$"))',
        'request.channel.matches("^(chat|email)$") && order.categories.exists(c, c.matches("sale"))',
        'request.channel.matches("(?i)\\\\bsale\\\\b")',
        'request.channel == "matches(" || request.reason == "matches(x)"',
    ],
)
def test_a_pattern_that_is_soon_made_is_in_order(condition: str) -> None:
    assert rules.faults(condition) == []


def test_patterns_that_are_each_in_order_are_told_when_all_of_them_cost_too_much() -> None:
    written = "".join(
        f"\n  - {{id: r{at}, when: 'request.amount > {at} && request.channel.matches(\"^\\\\w\\\\w\\\\w\\\\w$\")', then: require_review, text: R.}}"
        for at in range(8)
    )
    with pytest.raises(PolicyError) as told:
        load_policy(sample_policy_text().rstrip() + written + "\n")
    assert [(p.path, "patterns of all rules" in p.problem) for p in told.value.problems] == [("rules.8.when", True)]


ENDLESS = replace(
    GOOD,
    order=replace(GOOD.order, categories=tuple(f"{at}{'x' * 90}" for at in range(1_000))),
    lines=tuple(LineFacts(f"{at}{'x' * 90}", 5, 1, 0, 1, 0) for at in range(1_000)),
).plain()
"""An order as large as one may be."""


@pytest.mark.parametrize(
    "condition",
    [
        f"({'+'.join(['lines'] * 10)}).all(a, {' && '.join(['a.category != q'.replace('q', chr(34) + 'z' + chr(34))] * 50)})",
        f"({'+'.join(['order.categories'] * 10)}).all(a, {' && '.join(['a != q'.replace('q', chr(34) + 'z' + chr(34))] * 60)})",
        f"order.categories.all(a, {' && '.join(['!a.matches(q)'.replace('q', chr(34) + '.*z' + chr(34))] * 4)})",
        'request.amount > 0 && !request.channel.matches("\\\\w+ \\\\w+ \\\\w+ \\\\w+ \\\\p{L}")',
        'order.categories.all(a, !a.matches("(x+x+)+y"))',
        '"' + "a" * 900 + '".matches("(a|aa)+(a|aa)+$")',
    ],
    ids=["lines", "categories", "many patterns", "patterns of words", "a pattern that backtracks elsewhere", "a long text"],
)
def test_the_worst_that_is_taken_is_judged_in_a_moment(condition: str) -> None:
    assert rules.faults(condition) == []
    spent = time.process_time()
    assert rules.judge(condition, ENDLESS) is True
    assert time.process_time() - spent < 5  # far above what it takes, and far below what a step inside a step does


def test_rules_that_are_each_in_order_are_told_when_all_of_them_cost_too_much() -> None:
    costly = " || ".join(["lines.exists(a, a.ordered > 9)"] * 9)
    written = "".join(
        f"\n  - {{id: r{at}, when: '{at + 1} > payment.refunds_made && ({costly})', then: require_review, text: R.}}" for at in range(6)
    )
    with pytest.raises(PolicyError) as told:
        load_policy(sample_policy_text().rstrip() + written + "\n")
    assert [(p.path, "50 times together" in p.problem) for p in told.value.problems] == [("rules.7.when", True)]


@pytest.mark.parametrize("text", ['"r"', "'R'", '"or r"', '"it is \\"r\\""', '"http://x"', "''"])
def test_a_text_that_only_looks_like_a_raw_one_or_a_comment_is_a_text(text: str) -> None:
    assert rules.faults(f"request.channel == {text}") == []
