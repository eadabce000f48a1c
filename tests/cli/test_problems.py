"""What is said when something is wrong: one line that names the code, the field and the remedy, and an exit code for scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

from cli.connection import exports
from deploy.local import install
from tests.cli.conftest import FakeApi, Runner, refund

ROOT = Path(__file__).parents[2]


def test_a_refusal_is_one_line_with_code_field_and_remedy(api: FakeApi, refunds: Runner) -> None:
    body = {"code": "IDEMPOTENCY_KEY_REUSED", "field": "Idempotency-Key", "detail": "It was used before", "remedy": "Use a new key."}
    api.on("GET", "/v1/controls", (422, body))

    ran = refunds("controls", "--json")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "IDEMPOTENCY_KEY_REUSED (Idempotency-Key): It was used before. Use a new key.\n"


def test_further_fields_that_are_wrong_are_named(api: FakeApi, refunds: Runner) -> None:
    errors = [{"field": "amount"}, {"field": "currency"}, {"field": "lines.0.id"}]
    api.on("GET", "/v1/controls", (422, {"code": "INVALID_FIELD", "field": "amount", "detail": "x", "remedy": "y", "errors": errors}))

    assert refunds("controls").err == "INVALID_FIELD (amount): x. y. Also wrong: currency, lines.0.id.\n"


def test_a_refusal_without_a_remedy_gets_the_catalogues(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (403, {"code": "FORBIDDEN", "detail": "It is not an operator's."}))

    assert refunds("controls").err == "FORBIDDEN: It is not an operator's. Use a key with the named role.\n"


def test_what_a_library_says_first_is_not_repeated(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (422, {"code": "INVALID_FIELD", "field": "at", "detail": "Value error, it is no time", "remedy": "x"}))

    assert refunds("controls").err == "INVALID_FIELD (at): it is no time. x.\n"


def test_an_argument_that_is_wrong_is_told_without_a_librarys_words(api: FakeApi, refunds: Runner) -> None:
    ran = refunds("mode", "foo", "--reason", "x")

    assert (ran.code, api.calls) == (2, [])
    assert "Invalid value for 'live|draft': 'foo' is not one of 'live', 'draft'." in ran.err and "Value error" not in ran.err


def test_a_part_that_does_not_exist_is_named_with_those_that_do(refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path / "none"))

    ran = refunds("up", "nosuch")

    assert ran.code == 2 and "nosuch" in ran.err and "postgres" in ran.err and not (tmp_path / "none").exists()


def test_a_key_that_is_not_known_is_a_setting_to_change(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (401, {"code": "UNAUTHENTICATED", "detail": "The key is unknown."}))

    assert refunds("controls").err == "UNAUTHENTICATED: The key is unknown. Set REFUNDS_API_KEY to a current key.\n"


def test_an_unknown_code_is_shown_as_it_is(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (418, {"code": "TEAPOT", "detail": "Short and stout"}))

    assert refunds("controls").err == "TEAPOT: Short and stout.\n"


def test_nothing_listening_says_what_to_start(refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUNDS_API_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("REFUNDS_API_KEY", "rfk_x")

    ran = refunds("list")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "Nothing answers at http://127.0.0.1:1; start the local stack with: refunds up, or correct REFUNDS_API_URL.\n"


def test_no_stack_and_no_address_says_what_to_start(refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REFUNDS_API_URL", raising=False)
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path))

    ran = refunds("list")

    assert ran.code == 3 and "refunds up" in ran.err and "REFUNDS_API_URL" in ran.err


def test_a_demo_that_runs_is_named(refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REFUNDS_API_URL", raising=False)
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path))
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "stack.json").write_text('{"addresses": {"api": "http://127.0.0.1:1"}}')

    ran = refunds("list")

    assert ran.code == 3 and f"export REFUNDS_HOME={tmp_path / 'demo'}" in ran.err


def test_the_line_for_another_terminal_finds_the_command() -> None:
    line = exports(API="http://127.0.0.1:1", SANDBOX="a b")

    ran = subprocess.run(["sh", "-c", f'{line}; command -v python; echo "$API $SANDBOX"'], capture_output=True, text=True, check=True)

    assert ran.stdout.splitlines() == [str(Path(sys.executable).parent / "python"), "http://127.0.0.1:1 a b"]


def test_address_and_key_are_found_in_the_stacks_files(
    api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REFUNDS_API_URL")
    monkeypatch.delenv("REFUNDS_API_KEY")
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path))
    (tmp_path / "stack.json").write_text(f'{{"addresses": {{"api": "{api.url}"}}}}')
    api.on("GET", "/v1/controls", (200, {"controls": [{"state": "running"}]}))

    without = refunds("controls")
    (tmp_path / "admin-key").write_text("rfk_admin\n")
    ran = refunds("controls")

    assert without.code == 2 and "REFUNDS_API_KEY" in without.err
    assert ran.code == 0 and [call[3]["Authorization"] for call in api.calls] == ["Bearer rfk_admin"]


def test_the_local_key_is_never_sent_to_another_address(
    api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REFUNDS_API_KEY")
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path))
    (tmp_path / "stack.json").write_text('{"addresses": {"api": "http://127.0.0.1:1"}}')
    (tmp_path / "admin-key").write_text("rfk_admin\n")

    ran = refunds("controls")

    assert (ran.code, api.calls) == (2, []) and "REFUNDS_API_KEY" in ran.err


def test_a_proxy_is_not_asked_for_this_machine(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    api.on("GET", "/v1/controls", (200, {"controls": [{"state": "running"}]}))

    assert refunds("controls").code == 0


@pytest.mark.parametrize(
    ("url", "key", "code"),
    [
        ("ftp://x", "k", 2),
        ("127.0.0.1:8080", "k", 2),
        ("http://x:notaport", "k", 2),
        ("http://", "k", 2),
        ("http://127.0.0.1:1", "k\ney", 2),
        ("http://127.0.0.1:1", "ké", 2),
    ],
)
def test_an_address_or_key_that_is_none_is_one_line(
    refunds: Runner, monkeypatch: pytest.MonkeyPatch, url: str, key: str, code: int
) -> None:
    monkeypatch.setenv("REFUNDS_API_URL", url)
    monkeypatch.setenv("REFUNDS_API_KEY", key)

    ran = refunds("list")

    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


@pytest.mark.parametrize("state", ["", "[]", '{"addresses": []}', "{"])
def test_a_broken_stack_file_is_like_none(refunds: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str) -> None:
    monkeypatch.delenv("REFUNDS_API_URL", raising=False)
    monkeypatch.setenv("REFUNDS_HOME", str(tmp_path))
    (tmp_path / "stack.json").write_text(state)

    assert refunds("list").code == 3


def test_a_server_that_is_not_the_api_is_said_so(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/controls", (200, "<html>welcome</html>"))
    api.on("GET", "/v1/keys", (502, "<html>bad gateway</html>"))

    for command in (("controls",), ("keys", "list")):
        ran = refunds(*command)
        assert ran.code == 3 and "is REFUNDS_API_URL the address of the refunds API?" in ran.err


def test_the_key_appears_in_no_output(api: FakeApi, refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUNDS_API_KEY", "rfk_very_secret")
    api.on("GET", f"/v1/refunds/{refund()['id']}", (500, {"code": "INTERNAL", "detail": "x"}))

    for command in (("show", refund()["id"]), ("list",), ("config",)):
        ran = refunds(*command)
        assert "rfk_very_secret" not in ran.out + ran.err


def test_config_masks_secrets(refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_abcdef")

    ran = refunds("config")

    assert ran.code == 0 and "sk_test_abcdef" not in ran.out and "********" in ran.out
    told = dict(line.split(maxsplit=1) for line in ran.out.splitlines())
    assert (told["STRIPE_API_BASE"], told["REFUNDS_MODE"]) == ("not set", "test") and "None" not in ran.out


def test_config_names_the_contradiction(refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_abcdef")

    ran = refunds("config")

    assert ran.code == 2 and "REFUNDS_MODE" in ran.err and "sk_live_abcdef" not in ran.err


def test_migrate_needs_a_database(refunds: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)

    ran = refunds("migrate")

    assert ran.code == 2 and "DATABASE_URL" in ran.err


def test_help_documents_the_exit_codes(refunds: Runner) -> None:
    assert "Exit codes: 0 done; 1 the API refused" in " ".join(refunds("--help").out.split())


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -P -m cli.main config | true; exit ${{PIPESTATUS[0]}}"

    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_ctrl_c_while_installing_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def interrupted(lock: Path) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "install", interrupted)

    assert (install.main(tmp_path), capsys.readouterr().err) == (130, "\nInterrupted; the next make starts anew.\n")
