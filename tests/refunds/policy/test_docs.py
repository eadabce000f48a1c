"""The policy page names every setting, every fact and every check; nothing more and nothing less."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from refunds.classification import Intent, Proposal
from refunds.facts import Facts, ReadingFacts
from refunds.policy import Policy, evaluate, load_policy, sample_policy, sample_policy_text
from refunds.policy.rules import FACTS

PAGE = (Path(__file__).parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)


def settings(kind: Any, path: str = "") -> Iterator[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield from settings(field.annotation, f"{path}.{name}" if path else name)
        return
    if get_origin(kind) is dict:
        part = "CODE" if path == "currencies" else "NAME"
        yield from settings(get_args(kind)[1], f"{path}.{part}")
    elif get_origin(kind) is tuple and isinstance(get_args(kind)[0], type) and issubclass(get_args(kind)[0], BaseModel):
        yield from settings(get_args(kind)[0], f"{path}.N")
    else:
        yield path


def test_every_setting_is_on_the_page() -> None:
    assert rows("Settings") == list(settings(Policy))


def test_every_fact_is_on_the_page() -> None:
    # What limits over time have counted is judged by their own checks and is nothing a rule sees.
    assert set(FACTS) | {"at", "limits"} == {f.name for f in fields(Facts)}
    on_page = rows("The facts")
    assert len(on_page) == len(set(on_page))
    assert set(on_page) == {"at"} | {f"{group}.{name}" for group, names in FACTS.items() for name in names}


def test_every_check_is_on_the_page_in_its_order(facts: Any) -> None:
    decision = evaluate(sample_policy(), facts(reading=ReadingFacts(False, Intent.REFUND, Proposal.APPROVE, 90)))
    made = [check.id for check in decision.checks if not check.id.startswith(("rule:", "limit:"))]
    at = made.index("reading")
    assert [*made[:at], "limit:NAME", *made[at:], "rule:ID"] == rows("The checks")


def test_the_example_on_the_page_is_a_rule() -> None:
    example = PAGE.split("```yaml\nrules:\n")[1].split("```")[0]
    assert load_policy(sample_policy_text() + example).rules[-1].id == "second_refund_of_a_payment"
