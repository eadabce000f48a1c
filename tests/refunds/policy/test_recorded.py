"""Recorded facts are read back as they were, and judged as they were: in this process and in any other, for ever."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refunds.facts import Facts, ReadingFacts
from refunds.policy import Policy, evaluate, load_policy, sample_policy, sample_policy_text
from refunds.policy.judging import answers
from refunds.policy.recorded import UnreadableFacts, facts_from
from tests.conftest import ROOT
from tests.refunds.conftest import GOOD
from tests.refunds.policy import arbitrary
from tests.refunds.policy.test_properties import RULES, anything, policies, readings


def recorded(facts: Facts) -> Any:
    """As a JSON column keeps it."""
    return json.loads(json.dumps(facts.plain()))


@settings(max_examples=400)
@given(policies, anything | arbitrary.facts, st.none() | readings)
def test_same_facts_and_version_same_decision_for_ever(policy: Policy, facts: Facts, reading: ReadingFacts | None) -> None:
    facts = replace(facts, reading=reading)
    again = facts_from(recorded(facts))

    assert again == facts
    assert evaluate(policy, again) == evaluate(policy, facts)
    assert json.dumps(evaluate(policy, again).plain()) == json.dumps(evaluate(policy, facts).plain())


# Two ladders as strict as each other: which of them is taken must not hang on a set's order.
TWINS = "".join(
    f"  {name}:\n    rungs:\n      - {{ queue: {name}, role: manager, remind_after: 1h, decide_within: 2h }}\n"
    for name in ("twin_a", "twin_b", "twin_c")
)
BOTH_TWINS = "".join(
    f"  - {{id: {name}, when: 'request.amount >= 0', then: require_review, ladder: {name}, text: Look.}}\n"
    for name in ("twin_c", "twin_a", "twin_b")
)
JUDGE = """
import json, sys
from refunds.policy import evaluate, load_policy
from refunds.policy.recorded import facts_from
policy = load_policy(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    print(json.dumps(evaluate(policy, facts_from(json.loads(line))).plain()))
"""


def test_another_process_with_other_hashes_decides_the_same() -> None:
    """Sets and dictionaries of text are ordered by a seed that every process draws anew; no decision may hang on it."""
    found: list[Facts] = []

    @settings(max_examples=150, derandomize=True)
    @given(anything | arbitrary.facts, st.none() | readings)
    def collect(facts: Facts, reading: ReadingFacts | None) -> None:
        found.append(replace(facts, reading=reading))

    collect()
    source = sample_policy_text().replace("review:\n", f"review:\n{TWINS}", 1) + RULES + BOTH_TWINS
    lines = "\n".join(json.dumps(one) for one in [source, *map(recorded, found)])
    outputs = [
        subprocess.run(
            [sys.executable, "-c", JUDGE],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "TZ": zone},
        ).stdout
        for seed, zone in (("0", "UTC"), ("4294967295", "Pacific/Kiritimati"))
    ]

    policy = load_policy(source)
    here = [json.dumps(evaluate(policy, one).plain()) for one in found]
    assert len(here) >= 100
    assert [output.splitlines() for output in outputs] == [here, here]


def test_facts_of_an_older_version_lack_what_came_later() -> None:
    plain = recorded(GOOD)
    for later in ("lines", "base", "requester", "agent", "time", "limits", "reading"):
        plain.pop(later, None)
    for group, names in (("request", ("by_lines", "lines_amount", "extracted")), ("order", ("currency", "total", "categories"))):
        for name in names:
            plain[group].pop(name, None)

    read = facts_from(plain)

    assert (read.lines, read.reading, read.request.by_lines, read.order.categories) == ((), None, False, ())
    assert evaluate(sample_policy(), read).outcome == "proceed"


def test_what_is_recorded_beside_the_facts_is_left_alone() -> None:
    assert facts_from(recorded(GOOD) | {"breakdown": {"lines": []}, "later": 1}) == GOOD


def test_signs_that_were_only_counted_count_as_many() -> None:
    plain = recorded(GOOD) | {
        "reading": {
            "failed": False,
            "intent": "refund",
            "proposal": "approve",
            "confidence": 90,
            "manipulation": 2,
            "contradictions": ["amount"],
        }
    }

    reading = facts_from(plain).reading

    assert reading is not None
    assert (reading.manipulation, reading.contradictions) == (("sign 1", "sign 2"), ("amount",))


@pytest.mark.parametrize(
    ("group", "name", "value", "told"),
    [
        ("request", "amount", "3000", "request.amount: str, not int"),
        ("request", "amount", 30.0, "request.amount: float, not int"),
        ("request", "amount", True, "request.amount: bool, not int"),
        ("request", "full", 1, "request.full: int, not bool"),
        ("request", "reason", "because", "request.reason: none of"),
        ("request", "requested_at", "2026-09-01T00:00:00", "request.requested_at: no time"),
        ("request", "requested_at", 5, "request.requested_at: no time"),
        ("order", "delivered_at", "9999-12-31T23:59:59Z", "order.delivered_at: no time from 1970 to 2999"),
        ("payment", "status", None, "payment.status: none of"),
        ("order", "categories", "books", "order.categories: no list"),
        ("order", "categories", [7], "order.categories.0: int, not str"),
        ("order", "categories", -1, "order.categories: no list"),
    ],
)
def test_a_fact_of_the_wrong_kind_is_named_and_nothing_is_guessed(group: str, name: str, value: Any, told: str) -> None:
    plain = recorded(GOOD)
    plain[group][name] = value

    with pytest.raises(UnreadableFacts) as unreadable:
        facts_from(plain)

    assert str(unreadable.value).startswith(told)


@pytest.mark.parametrize("plain", [None, [], "x", {"request": None}, {"at": "2026-09-01T00:00:00Z", "request": []}])
def test_what_is_no_group_of_facts_is_unreadable(plain: Any) -> None:
    with pytest.raises(UnreadableFacts):
        facts_from(plain)


def test_a_fact_that_must_be_there_is_missing() -> None:
    plain = recorded(GOOD)
    del plain["request"]["amount"]

    with pytest.raises(UnreadableFacts, match=r"^request\.amount is missing$"):
        facts_from(plain)


def test_a_request_that_cannot_be_read_is_left_out_and_the_others_are_judged() -> None:
    bad, foreign = recorded(GOOD), recorded(GOOD)
    del bad["request"]["amount"]
    foreign["request"]["currency"] = foreign["payment"]["currency"] = "XXX"
    batch = json.dumps([["rf_1", recorded(GOOD)], ["rf_2", bad], ["rf_3", foreign]]).encode()
    head = json.dumps({"before": sample_policy_text(), "after": sample_policy_text()}).encode()

    [answer] = answers([head, batch])

    tally = json.loads(answer)["tally"]
    assert tally["requests"] == 1
    assert [left["examples"] for left in tally["left_out"].values()] == [["rf_2"], ["rf_3"]]
