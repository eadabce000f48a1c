"""Settings: what contradicts itself does not start, and secrets are not shown."""

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from refunds.settings import Settings

SECRET = base64.b64encode(b"k" * 32).decode()


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"refunds_mode": "live", "stripe_api_key": "sk_test_1"}, "test key but REFUNDS_MODE is live"),
        ({"refunds_mode": "live", "stripe_api_key": "rk_test_1"}, "test key but REFUNDS_MODE is live"),
        ({"refunds_mode": "test", "stripe_api_key": "sk_live_1"}, "live key but REFUNDS_MODE is test"),
        ({"refunds_mode": "test", "stripe_api_key": "rk_live_1"}, "live key but REFUNDS_MODE is test"),
        ({"stripe_api_key": "pk_test_1"}, "must start with sk_test_"),
        ({"refunds_mode": "live", "clock_shift_s": 1}, "CLOCK_SHIFT_S must be 0"),
        ({"refunds_mode": "live", "stripe_api_base": "http://127.0.0.1:1"}, "STRIPE_API_BASE must not be set"),
        ({"refunds_mode": "live", "crash_points": "before:intent=kill"}, "CRASH_POINTS must be empty"),
        ({"crash_points": "before:intent=explode"}, "is no crash point"),
        ({"classifier": "model"}, "MODEL is not set"),
        ({"refunds_text_key": base64.b64encode(b"short").decode()}, "must be 32 bytes"),
        ({"refunds_text_key": "not base64!"}, "must be 32 bytes"),
        ({"submit_safe_window_s": 86_400}, "submit_safe_window_s"),
        ({"ledger_origin": "two words"}, "LEDGER_ORIGIN cannot name a log"),
        ({"refunds_ledger_key": base64.b64encode(b"short").decode()}, "REFUNDS_LEDGER_KEY must be 32 bytes"),
        ({"refunds_ledger_key": f"{SECRET},not base64!"}, "REFUNDS_LEDGER_KEY must be 32 bytes"),
        ({"refunds_ledger_key": ","}, "REFUNDS_LEDGER_KEY must be 32 bytes"),
        ({"ledger_copies": "checkpoints/"}, "LEDGER_COPIES must be absolute paths"),
        ({"ledger_copies": "/a/,/a/"}, "LEDGER_COPIES must be absolute paths"),
        ({"ledger_copies": "https://me:secret@copies.example/"}, "LEDGER_COPIES must hold no passwords"),
        ({"readers_allowed": "openai:gpt@eu=everything"}, "READERS_ALLOWED: .everything. is no kind of data"),
    ],
)
def test_contradictions_stop_the_start(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Settings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"stripe_api_key": "sk_test_1", "clock_shift_s": 60},
        {"refunds_ledger_key": f"{SECRET}, {SECRET}", "ledger_copies": "/a/, /b.txt,https://copies.example/x"},
        {"refunds_mode": "live", "stripe_api_key": "rk_live_1"},
        {"classifier": "model", "model": "openai:some-model"},
    ],
)
def test_what_fits_starts(given: dict[str, Any]) -> None:
    assert Settings(**given).model_fields_set == set(given)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_PORT", "9999")
    assert Settings().api_port == 9999


def test_secrets_are_masked_wherever_settings_are_printed() -> None:
    settings = Settings.model_validate(
        {
            "stripe_api_key": "sk_test_verysecret",
            "refunds_text_key": SECRET,
            "database_url": "postgresql://u:hidden@h/d",
            "model_api_key": "mk",
        }
    )
    masked = settings.masked()
    assert set(masked) == set(Settings.model_fields)
    assert masked["stripe_api_key"] == masked["refunds_text_key"] == masked["database_url"] == "********"
    for printed in (str(masked), repr(settings), str(settings)):
        for secret in ("verysecret", SECRET, "hidden", "'mk'"):
            assert secret not in printed


def test_the_text_key_is_only_where_it_is_held() -> None:
    assert Settings.model_validate({"refunds_text_key": SECRET}).text_key == b"k" * 32
    with pytest.raises(RuntimeError, match="not set in this process"):
        _ = Settings().text_key
