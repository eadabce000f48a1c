"""Exchange rates in the terminal: shown back before they count."""

from typing import Any

from tests.cli.conftest import FakeApi, Runner, refund


def rate(text: str = "1.08", **changed: Any) -> dict[str, Any]:
    return {
        "id": "rate_1",
        "base": "USD",
        "currency": "EUR",
        "rate": text,
        "shown": f"1 EUR = {text} USD, so €100.00 count as ...",
        "effective_at": "2026-03-01T10:00:00.000000Z",
        "source": "bank",
        "recorded_by": {"id": "pr_1", "handle": "olga", "name": "Olga"},
        "recorded_at": "2026-03-01T10:00:00.000000Z",
    } | changed


def listed(*rates: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {"base_currency": "USD", "rates_at_most_days_old": 7, "missing": [], "rates": list(rates), "next_cursor": None} | changed


SET = ("rates", "set", "eur", "1.0834", "--source", "bank")


def test_a_rate_is_shown_back_with_the_one_before_and_sent_after_yes(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/rates", (200, listed(rate())))
    api.on("PUT", "/v1/rates", (200, rate("1.0834") | {"before": rate()}))

    ran = refunds(*SET, "--yes")

    assert api.sent("PUT") == [("/v1/rates", {"currency": "EUR", "rate": "1.0834", "source": "bank", "base": "USD"})]
    assert "1 EUR = 1.0834 USD, so €100.00 count as $108.34." in ran.err
    assert "Before: 1 EUR = 1.08 USD" in ran.err
    assert (ran.code, "rate_1" in ran.out) == (0, True)


def test_without_a_terminal_nothing_is_recorded_unless_yes_is_said(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/rates", (200, listed()))

    ran = refunds(*SET)

    assert (ran.code, api.sent("PUT")) == (4, [])
    assert "1 EUR = 1.0834 USD" in ran.err, "what was typed is shown back all the same"


def test_what_is_no_rate_is_not_sent(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/rates", (200, listed()))

    for typed in ("1,08", "1e3", "0", "1.08 USD", "\uff11.5"):
        ran = refunds("rates", "set", "EUR", typed, "--source", "bank", "--yes")
        assert (ran.code, "is not a rate" in ran.err) == (2, True), typed
    assert refunds("rates", "set", "XXX", "1", "--source", "bank", "--yes").code == 2
    assert api.sent("PUT") == []


def test_a_policy_without_base_currency_needs_it_said(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/rates", (200, listed(base_currency=None)))
    api.on("PUT", "/v1/rates", (200, rate() | {"before": None}))

    refunds(*SET, "--base", "chf", "--since", "2026-03-01", "--yes")

    expected = {"currency": "EUR", "rate": "1.0834", "source": "bank", "base": "CHF", "effective_at": "2026-03-01T00:00:00.000000Z"}
    assert api.sent("PUT") == [("/v1/rates", expected)]


def test_the_list_says_what_is_missing(api: FakeApi, refunds: Runner) -> None:
    api.on("GET", "/v1/rates", (200, listed(rate(), next_cursor="x")), (200, listed(rate(currency="JPY"), missing=["KWD"])))
    ran = refunds("rates", "list", "--history")

    assert [line.split()[0] for line in ran.out.splitlines()] == ["currency", "EUR", "JPY"]
    assert [path for path, _ in api.sent("GET")] == ["/v1/rates?history=true", "/v1/rates?history=true&cursor=x"]

    api.on("GET", "/v1/rates", (200, listed(missing=["KWD", "JPY"])))
    said = refunds("rates", "list").err
    assert said == "No rate in USD that is at most 7 days old: KWD, JPY. A person looks at their refunds.\n"


def test_field_36_a_refund_shows_what_the_customer_receives_and_what_left_the_balance(api: FakeApi, refunds: Runner) -> None:
    def money(amount: int, code: str, text: str) -> dict[str, Any]:
        return {"amount": amount, "currency": code, "amount_text": text}

    figures = {
        "refund_id": "re_1",
        "presentment": money(6_000, "USD", "$60.00"),
        "settled": money(8_391, "CAD", "CA$83.91"),
        "rate": "1.3985",
        "rate_text": "1 USD = 1.3985 CAD",
        "fee": money(0, "CAD", "CA$0.00"),
        "returned": money(0, "CAD", "CA$0.00"),
        "read_at": "2026-03-01T10:00:00.000000Z",
    }
    found = refund(status="succeeded", final=True, processor={"operations": [], "settlement": figures})
    api.on("GET", f"/v1/refunds/{found['id']}", (200, found))

    lines = [" ".join(line.split()) for line in refunds("show", found["id"]).out.splitlines()]

    assert "the customer receives $60.00 (USD)" in lines
    assert "left the balance CA$83.91 (CAD)" in lines
    assert "rate 1 USD = 1.3985 CAD" in lines
    assert not any("CA$0.00" in line for line in lines), "no fee, and nothing came back"
