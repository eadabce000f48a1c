"""What of a request is personal is taken apart, and put together as it was."""

from typing import Any

import pytest

from refunds.apart import apart, together

WHOLE: dict[str, Any] = {
    "kind": "refund",
    "lines": [{"id": "1", "quantity": 2}],
    "shipping": True,
    "metadata": {"ticket": "Ann Smith"},
    "agent_session_id": "session of Ann",
    "agent_model": "openai:gpt-5-mini",
    "customer_authentication": {"method": "order_email_link", "at": "2026-01-01T00:00:00Z"},
}


def keyed(kind: str, value: str) -> str:
    return f"{kind}{value}".encode().hex().ljust(64, "0")[:64]


def test_metadata_and_session_are_personal_and_plain_words_are_not() -> None:
    clear, personal = apart(WHOLE, keyed)

    assert personal == {"metadata": {"ticket": "Ann Smith"}, "agent_session_id": "session of Ann"}
    assert "Ann" not in str(clear)
    assert clear["agent_session_id"] == keyed("agent session", "session of Ann"), "limits still tell sessions apart"
    assert (clear["agent_model"], clear["customer_authentication"]) == (WHOLE["agent_model"], WHOLE["customer_authentication"])


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"agent_model": "the model that Ann talks to"},
        {"customer_authentication": {"method": "Ann Smith called", "at": "2026-01-01T00:00:00Z"}},
        {"metadata": {}},
    ],
)
def test_together_they_are_what_was_sent(changed: dict[str, Any]) -> None:
    sent = {name: value for name, value in (WHOLE | changed).items() if value}

    clear, personal = apart(sent, keyed)

    assert together(clear, personal) == sent
    assert "Ann" not in str(clear)


def test_what_is_left_without_the_personal_part_holds_no_fingerprint() -> None:
    clear, _ = apart(WHOLE | {"agent_model": "a model of Ann"}, keyed)

    left = together(clear, {})

    assert set(left) == {"kind", "lines", "shipping", "customer_authentication"}
    assert together({"kind": "refund"}, {}) == {"kind": "refund"}
