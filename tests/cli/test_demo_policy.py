"""The demo's policy is the embedded sample: other deadlines, one more ladder, one more rule, and nothing else."""

from importlib import resources
from typing import Any

import yaml

from refunds.policy import load_policy, sample_policy_text

DEADLINES = ("terms_valid_for", "within", "remind_after", "decide_within")


def without_deadlines(value: Any) -> Any:
    """The same settings with every length of time taken out."""
    if isinstance(value, dict):
        return {name: "-" if name in DEADLINES else without_deadlines(item) for name, item in value.items()}
    return [without_deadlines(item) for item in value] if isinstance(value, list) else value


def test_the_demo_policy_differs_from_the_sample_only_in_deadlines_and_what_shows_silence() -> None:
    text = resources.files("cli.demo").joinpath("policy.yaml").read_text()
    demo, sample = yaml.safe_load(text), yaml.safe_load(sample_policy_text())

    load_policy(text)
    assert demo["review"].pop("impatient")["people"] == 1
    assert [rule["id"] for rule in demo["rules"]] == [rule["id"] for rule in sample["rules"]] + ["perishable"]
    demo["rules"].pop()
    demo["name"] = sample["name"]
    assert without_deadlines(demo) == without_deadlines(sample)
