"""Replays the whole recording of Stripe's behaviour where REFUNDS_STRIPE_RECORDED names it.

Without it this module is not collected and the terminal summary says so; test_recorded_facts.py holds the facts themselves
as our own table.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

_SCENARIOS = json.loads(Path(os.environ["REFUNDS_STRIPE_RECORDED"]).read_text())["scenarios"]
_CARDS = {
    "card_succeeds": "pm_card_visa",
    "card_creates_chargeback": "pm_card_createDispute",
    "card_creates_inquiry": "pm_card_createDisputeInquiry",
    "card_declines": "pm_card_chargeDeclined",
}
_SETTLE_SECONDS = 5
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def look_up(path: str, bound: dict[str, Any]) -> Any:
    value: Any = bound
    for name, index in _STEP.findall(path):
        value = value[int(index)] if index else value[name]
    return value


def resolve(node: Any, bound: dict[str, Any]) -> Any:
    """References and stand-in cards replaced by what they mean in this run."""
    if isinstance(node, list):
        return [resolve(item, bound) for item in node]
    if isinstance(node, str):
        return re.sub(r"\{\{(.+?)\}\}", lambda found: str(look_up(found[1], bound)), node)
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return look_up(node["$ref"], bound)
    if "$fixture" in node:
        return _CARDS[node["$fixture"]]
    return {name: resolve(value, bound) for name, value in node.items()}


def form(params: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested parameters as Stripe's SDKs encode them."""
    flat: dict[str, str] = {}
    for name, value in params.items():
        full = f"{prefix}[{name}]" if prefix else name
        if isinstance(value, list):
            value = {str(index): item for index, item in enumerate(value)}
        if isinstance(value, dict):
            flat.update(form(value, full))
        else:
            flat[full] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def differences(expected: Any, got: Any, at: str, racy: set[str]) -> list[str]:
    """Where an answer is not what was recorded. `racy` paths depended on timing and are not held against it."""
    if re.sub(r"\[\d+\]", "[]", at) in racy:
        return []
    if isinstance(expected, dict) and "$id" in expected:
        return [] if isinstance(got, str) and got.startswith(expected["$id"]) else [f"{at}: {got!r} is no {expected}"]
    if isinstance(expected, dict) and "$match" in expected:
        return [] if isinstance(got, str) and re.search(expected["$match"], got) else [f"{at}: {got!r} is no {expected}"]
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return [f"{at}: {got!r} is no object"]
        found: list[str] = []
        for name, value in expected.items():
            inner = f"{at}.{name}" if at else name
            found += differences(value, got[name], inner, racy) if name in got else [f"{inner}: absent"]
        return found
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return [f"{at}: {got!r} is not a list of {len(expected)}"]
        return [line for index, item in enumerate(expected) for line in differences(item, got[index], f"{at}[{index}]", racy)]
    return [] if expected == got and type(expected) is type(got) else [f"{at}: {got!r}, recorded {expected!r}"]


def present(path: str, body: Any) -> bool:
    for name in path.split("."):
        if not isinstance(body, dict) or name not in body:
            return False
        body = body[name]
    return True


@pytest.mark.parametrize("scenario", _SCENARIOS, ids=lambda scenario: scenario["name"])
async def test_the_sandbox_answers_as_stripe_was_recorded(scenario: dict[str, Any], http: httpx.AsyncClient, sandbox: Any):
    bound: dict[str, Any] = {}
    wrong: list[str] = []
    for step in scenario["steps"]:
        params = form(resolve(step["params"], bound))
        path = step["path"].format_map(resolve(step.get("path_params", {}), bound))
        post = step["method"] == "POST"
        answer = await (http.post(path, data=params) if post else http.get(path, params=params))
        body, expected = answer.json(), step["expect"]
        if "binds_as" in step:
            bound[step["binds_as"]] = body
        lines = [f"status {answer.status_code}"] if answer.status_code != expected["status"] else []
        lines += differences(resolve_expected(expected["body"], bound), body, "", set(expected.get("racy", [])))
        lines += [f"{name} is there" for name in expected.get("absent", []) if present(name, body)]
        if answer.status_code >= 400:
            error = body["error"]
            url = "https://stripe.com/docs/error-codes/" + error.get("code", "").replace("_", "-")
            lines += [] if error.get("doc_url") == (url if "code" in error else None) else ["doc_url"]
            lines += [] if "request_log_url" in error else ["request_log_url"]
        wrong += [f"step {step['seq']} {step['method']} {path}: {line}" for line in lines]
        if "evidence" in step["params"]:
            sandbox.control("POST", "/clock", {"advance_seconds": _SETTLE_SECONDS})
    assert wrong == []


def resolve_expected(node: Any, bound: dict[str, Any]) -> Any:
    """As resolve, but keeps the matchers."""
    if isinstance(node, dict) and ("$id" in node or "$match" in node):
        return node
    if isinstance(node, dict) and "$ref" not in node:
        return {name: resolve_expected(value, bound) for name, value in node.items()}
    if isinstance(node, list):
        return [resolve_expected(item, bound) for item in node]
    return resolve(node, bound)
