"""What the run's page says of a review: on which rung it stands, what was done about silence, and what will be (field report 57)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from store.situations import ladder

LADDER = [
    {"queue": "team", "role": "reviewer", "remind_after_s": 60, "decide_within_s": 600, "hours": "office"},
    {"queue": "managers", "role": "manager", "remind_after_s": 60, "decide_within_s": 600},
]
ROW: dict[str, Any] = {
    "status": "awaiting_review",
    "review": {"role": "reviewer", "people": 1, "ladder": LADDER},
    "rung": 0,
    "reminded": False,
    "wake_at": datetime(2026, 6, 1, 12, tzinfo=UTC),
    "assigned_to": None,
}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "Rung 1 of 2, within the hours office. A reminder comes at 2026-06-01T12:00:00Z. Then it goes to queue managers."),
        ({"reminded": True}, "Rung 1 of 2, within the hours office. A reminder was sent. Then it goes to queue managers."),
        (
            {"rung": 1, "assigned_to": "pr_1", "reminded": True},
            "Rung 2 of 2. Given to a person. A reminder was sent. Then it expires; nothing is paid.",
        ),
        ({"status": "approved"}, ""),
        ({"review": None}, ""),
    ],
)
def test_the_ladder_in_words(changed: dict[str, Any], words: str) -> None:
    assert ladder(ROW | changed) == words
