"""Commands that act: what is shown before it counts, and exactly what is sent."""

import json

import pytest
import typer

from tests.cli.conftest import FakeApi, Ran, Runner, refund

ID = refund()["id"]
HASH = refund()["terms_hash"]
ANSWER = {"status": "approved", "refund": refund(status="approved", next_step="$120.00 approved, about to be submitted")}


@pytest.fixture
def waiting(api: FakeApi) -> FakeApi:
    """One refund that waits for a reviewer."""
    api.on("GET", f"/v1/refunds/{ID}", (200, refund()))
    for what in ("decisions", "revisions", "consent", "settlement", "withdrawal"):
        api.on("POST", f"/v1/refunds/{ID}/{what}", (200, ANSWER))
    return api


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody at a terminal who answers questions with what the test puts in the list; the questions stay in ``asked``."""
    answers: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **_: answers.pop(0) == "y")
    return answers


def test_approve_shows_the_exact_terms_and_sends_their_hash(waiting: FakeApi, refunds: Runner, person: list[str]) -> None:
    person.append("y")

    ran = refunds("approve", ID, "--note", "looks right")

    assert ran.code == 0 and "$120.00 (12000 USD in the processor's unit)" in ran.out and HASH in ran.out
    assert ran.err == f"{ID} is approved: $120.00 approved, about to be submitted.\n"
    sent = {"verdict": "approve", "terms_hash": HASH, "note": "looks right", "deliver": "update"}
    assert waiting.sent("POST") == [(f"/v1/refunds/{ID}/decisions", sent)]


@pytest.mark.parametrize("command", [("approve", ID), ("deny", ID), ("withdraw", ID), ("consent", ID, "--agree"), ("revise", ID, "--full")])
def test_a_no_sends_nothing(waiting: FakeApi, refunds: Runner, person: list[str], command: tuple[str, ...]) -> None:
    person.append("n")

    ran = refunds(*command)

    assert (ran.code, waiting.sent("POST")) == (4, []) and "Nothing was sent" in ran.err


def test_ctrl_c_at_the_question_sends_nothing(
    waiting: FakeApi, refunds: Runner, person: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise typer.Abort

    monkeypatch.setattr("typer.confirm", interrupted)

    ran = refunds("approve", ID)

    assert (ran.code, waiting.sent("POST")) == (4, []) and ran.err.endswith("\nNothing was sent.\n")


@pytest.mark.parametrize("command", [("approve", ID), ("resume", "--reason", "x"), ("keys", "revoke", "key_1")])
def test_without_a_terminal_only_yes_counts(waiting: FakeApi, refunds: Runner, command: tuple[str, ...]) -> None:
    ran = refunds(*command)

    assert (ran.code, waiting.sent("POST"), waiting.sent("PUT"), waiting.sent("DELETE")) == (4, [], [], []) and "--yes" in ran.err


def test_deny_by_signal_for_a_script(waiting: FakeApi, refunds: Runner) -> None:
    ran = refunds("deny", ID, "--yes", "--signal", "--json")

    sent = {"verdict": "deny", "terms_hash": HASH, "deliver": "signal"}
    assert waiting.sent("POST") == [(f"/v1/refunds/{ID}/decisions", sent)]
    assert json.loads(ran.out) == ANSWER, "stdout holds the answer and nothing else"


def test_terms_that_changed_meanwhile_are_refused_by_name(waiting: FakeApi, refunds: Runner) -> None:
    waiting.on("POST", f"/v1/refunds/{ID}/decisions", (409, {"code": "TERMS_CHANGED", "detail": "The terms are not the ones you saw."}))

    ran = refunds("approve", ID, "--yes")

    assert ran.code == 1 and ran.err.startswith("TERMS_CHANGED: ")


def revise(refunds: Runner, *options: str) -> Ran:
    return refunds("revise", ID, "--yes", *options)


@pytest.mark.parametrize(
    ("typed", "currency", "locale", "minor", "shown"),
    [
        ("25.00", "USD", "en_US", 2500, "$25.00 (2500 USD"),
        ("1,234.50", "usd", "en_US", 123450, "$1,234.50 (123450 USD"),
        ("1.234,50", "EUR", "de_DE", 123450, "1.234,50 € (123450 EUR"),
        ("1\u202f234,50", "EUR", "fr_FR", 123450, "1 234,50 € (123450 EUR"),
        ("5,800", "JPY", "ja_JP", 5800, "5,800 (5800 JPY"),
        ("18.600", "KWD", "en_US", 18600, "KWD 18.600 (18600 KWD"),
    ],
)
def test_field_40_typed_amounts_are_read_by_their_locale_and_shown_back(
    waiting: FakeApi, refunds: Runner, typed: str, currency: str, locale: str, minor: int, shown: str
) -> None:
    ran = revise(refunds, "--amount", typed, "--currency", currency, "--locale", locale)

    (_, sent), *_ = waiting.sent("POST")
    assert (ran.code, sent["amount"], sent["currency"], sent["terms_hash"]) == (0, minor, currency.upper(), HASH)
    assert shown in ran.err


@pytest.mark.parametrize(
    ("locale", "shown"), [("de_DE", "1.234,00 € (123400 EUR"), ("en_US", "AMOUNT_UNREADABLE"), ("en_IN", "AMOUNT_UNREADABLE")]
)
def test_field_44_an_amount_that_two_locales_read_differently_is_shown_back_and_not_sent_unasked(
    waiting: FakeApi, refunds: Runner, locale: str, shown: str
) -> None:
    ran = refunds("revise", ID, "--amount", "1.234", "--currency", "EUR", "--locale", locale)

    assert (ran.code, waiting.sent("POST")) == (4 if locale == "de_DE" else 2, [])
    assert shown in ran.err


@pytest.mark.parametrize(
    ("typed", "currency", "locale", "code"),
    [
        ("1.234,50", "EUR", "en_US", "AMOUNT_UNREADABLE"),
        ("1,50", "USD", "en_US", "AMOUNT_UNREADABLE"),
        ("25.001", "USD", "en_US", "AMOUNT_UNREADABLE"),
        ("58.00", "JPY", "en_US", "AMOUNT_UNREADABLE"),
        ("€25.00", "USD", "en_US", "AMOUNT_UNREADABLE"),
        ("0", "USD", "en_US", "AMOUNT_NOT_POSITIVE"),
        ("-5.00", "USD", "en_US", "AMOUNT_UNREADABLE"),
        ("1.00", "ZZZ", "en_US", "UNKNOWN_CURRENCY"),
        ("1.00", "USD", "xx_XX", "INVALID_FIELD"),
        ("1.005", "KWD", "en_US", "AMOUNT_NOT_SENDABLE"),
    ],
)
def test_field_40_an_amount_that_could_be_read_in_two_ways_is_not_read(
    waiting: FakeApi, refunds: Runner, typed: str, currency: str, locale: str, code: str
) -> None:
    ran = refunds("revise", ID, "--yes", f"--amount={typed}", "--currency", currency, "--locale", locale)

    assert (ran.code, waiting.calls, ran.out) == (2, [], "") and ran.err.startswith(f"{code} ") and ran.err.count("\n") == 1


def test_an_amount_without_its_currency_is_not_guessed(waiting: FakeApi, refunds: Runner) -> None:
    ran = revise(refunds, "--amount", "25.00")

    assert (ran.code, waiting.calls) == (2, []) and "--currency" in ran.err


def test_consent_says_which(waiting: FakeApi, refunds: Runner) -> None:
    refunds("consent", ID, "--decline", "--yes")

    assert waiting.sent("POST") == [(f"/v1/refunds/{ID}/consent", {"agreed": False, "terms_hash": HASH})]


@pytest.mark.parametrize("flags", [(), ("--agree", "--decline"), ("--decline", "--agree")])
def test_consent_is_one_of_two_words_and_never_assumed(waiting: FakeApi, refunds: Runner, flags: tuple[str, ...]) -> None:
    ran = refunds("consent", ID, *flags, "--yes")

    assert (ran.code, waiting.calls) == (2, []) and "--agree" in ran.err and "--decline" in ran.err


def test_a_revision_of_nothing_says_what_it_needs(waiting: FakeApi, refunds: Runner) -> None:
    ran = refunds("revise", ID, "--note", "hm", "--yes")

    assert (ran.code, waiting.calls) == (2, [])
    assert [option for option in ("--amount", "--currency", "--full", "--reason", "--payment") if option not in ran.err] == []


def test_settle_refunded_names_the_processors_id(waiting: FakeApi, refunds: Runner) -> None:
    refunds("settle", ID, "--refunded", "re_1", "--yes")

    ((_, sent),) = waiting.sent("POST")
    assert (sent["outcome"], sent["processor_refund_id"]) == ("refunded", "re_1") and sent["evidence"]


def test_settle_not_refunded_needs_evidence_and_a_second_person(waiting: FakeApi, refunds: Runner) -> None:
    waiting.on("POST", f"/v1/refunds/{ID}/settlement", (202, ANSWER | {"waits_for": "a second person who says the same"}))

    assert refunds("settle", ID, "--not-refunded", "--yes").code == 2
    assert refunds("settle", ID, "--yes").code == 2
    assert refunds("settle", ID, "--refunded", "re_1", "--not-refunded", "--yes").code == 2
    assert waiting.sent("POST") == []

    ran = refunds("settle", ID, "--not-refunded", "--evidence", "not in the list", "--yes")
    assert ran.code == 0 and "Recorded. It counts after a second person who says the same." in ran.err
    assert waiting.sent("POST") == [(f"/v1/refunds/{ID}/settlement", {"outcome": "not_refunded", "evidence": "not in the list"})]
