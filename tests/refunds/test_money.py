"""Money: one table of exponents in both directions, nothing rounded, nothing read leniently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.errors import Code, RefundError
from refunds.money import CURRENCIES, MAX_AMOUNT, Money, currency, format_money, parse_amount, requested

LOCALES = [
    "en_US",
    "en_GB",
    "de_DE",
    "de_CH",
    "fr_FR",
    "es_ES",
    "pt_BR",
    "pl_PL",
    "sv_SE",
    "en_IN",
    "hi_IN",
    "ar_EG",
    "he_IL",
    "fa_IR",
    "ja_JP",
    "en_ZA",
]

# Recorded from docs.stripe.com/currencies, 2026-09 (API version 2026-08-26.dahlia).
ZERO_DECIMAL = {"BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"}
TWO_DECIMALS_BUT_WHOLE = {"ISK", "UGX"}
THREE_DECIMAL = {"BHD", "JOD", "KWD", "OMR", "TND"}


def code_of(raised: pytest.ExceptionInfo[RefundError]) -> Code:
    return raised.value.code


@st.composite
def amounts(draw: st.DrawFn) -> Money:
    kind = CURRENCIES[draw(st.sampled_from(sorted(CURRENCIES)))]
    return Money(draw(st.integers(1, MAX_AMOUNT // kind.multiple)) * kind.multiple, kind.code)


def test_the_table_of_exponents_is_the_processors() -> None:
    assert {c for c, k in CURRENCIES.items() if k.exponent == 0} == ZERO_DECIMAL
    assert {c for c, k in CURRENCIES.items() if k.exponent == 3} == THREE_DECIMAL
    assert {c for c, k in CURRENCIES.items() if k.multiple == 100} == TWO_DECIMALS_BUT_WHOLE
    assert {c for c, k in CURRENCIES.items() if k.multiple == 10} == THREE_DECIMAL
    assert {k.exponent for c, k in CURRENCIES.items() if c in {"USD", "EUR", "HUF", "TWD"}} == {2}


@pytest.mark.parametrize(
    ("amount", "code", "text"),
    [(5_800, "JPY", "¥5,800"), (5_800, "KRW", "₩5,800"), (5_800, "USD", "$58.00"), (1, "USD", "$0.01"), (550_000, "ISK", "ISK 5,500")],
)
def test_field_39_zero_decimal_currencies(amount: int, code: str, text: str) -> None:
    assert format_money(Money(amount, code)) == text
    assert parse_amount(text, code) == Money(amount, code)


def test_field_39_yen_with_decimals_is_refused() -> None:
    with pytest.raises(RefundError) as raised:
        parse_amount("58.00", "JPY")
    assert code_of(raised) is Code.AMOUNT_UNREADABLE
    assert parse_amount("58.00", "USD").amount == 5_800


def test_field_40_three_decimal_currencies() -> None:
    assert parse_amount("18.600", "KWD") == Money(18_600, "KWD")
    assert format_money(Money(18_600, "KWD")) == "KWD 18.600"
    assert requested(35_200, "BHD") == Money(35_200, "BHD")


def test_field_40_a_step_the_processor_does_not_take_names_the_nearest() -> None:
    for ask in (lambda: parse_amount("5.124", "KWD"), lambda: requested(5_124, "KWD")):
        with pytest.raises(RefundError) as raised:
            ask()
        assert code_of(raised) is Code.AMOUNT_NOT_SENDABLE
        assert raised.value.detail == "KWD amounts must be a multiple of 10; ask for KWD 5.120 (5120) or KWD 5.130 (5130)."


def test_what_cannot_be_sent_is_still_shown_exactly() -> None:
    assert format_money(Money(5_124, "KWD")) == "KWD 5.124"
    assert format_money(Money(550, "ISK")) == "ISK 5.50"


@pytest.mark.parametrize(("text", "amount"), [("349.48", 34_948), ("145.05", 14_505), ("8.20", 820), ("0.01", 1), ("1,034.45", 103_445)])
def test_field_43_no_cent_is_lost(text: str, amount: int) -> None:
    assert parse_amount(text, "USD").amount == amount


@pytest.mark.parametrize("amount", [349.48, True, "3000", None])
def test_field_43_only_integers_are_amounts(amount: object) -> None:
    with pytest.raises(RefundError) as raised:
        requested(amount, "USD")  # pyright: ignore[reportArgumentType]
    assert code_of(raised) is Code.AMOUNT_NOT_INTEGER
    assert raised.value.field == "amount"
    with pytest.raises(TypeError):
        Money(amount, "USD")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "code", "locale", "amount"),
    [
        ("6,95", "EUR", "de_DE", 695),
        ("2.614", "EUR", "de_DE", 261_400),
        ("1,034.45", "USD", "en_US", 103_445),
        ("17,000", "JPY", "en_US", 17_000),
        ("1 234,50", "EUR", "fr_FR", 123_450),
        ("1\u202f234,50", "EUR", "fr-FR", 123_450),
        ("1'234.50", "CHF", "de_CH", 123_450),
        ("1’234.50", "CHF", "de_CH", 123_450),
        ("1,00,000.00", "INR", "en_IN", 10_000_000),
        ("$30", "USD", "en_US", 3_000),
        ("USD 30.5", "USD", "en_US", 3_050),
        ("  30.00 USD ", "USD", "en_US", 3_000),
    ],
)
def test_field_44_read_as_the_locale_writes(text: str, code: str, locale: str, amount: int) -> None:
    assert parse_amount(text, code, locale) == Money(amount, code)


@pytest.mark.parametrize(
    ("text", "code", "locale"),
    [
        ("6.95", "EUR", "de_DE"),
        ("6,95", "USD", "en_US"),
        ("1,00.00", "USD", "en_US"),
        ("1,0000.00", "USD", "en_US"),
        ("1.23.4", "EUR", "de_DE"),
        ("100,000,0.00", "INR", "en_IN"),
        ("€30", "USD", "en_US"),
        ("30.", "USD", "en_US"),
        (".30", "USD", "en_US"),
        ("1e3", "USD", "en_US"),
        ("0x10", "USD", "en_US"),
        ("٣٠", "USD", "ar_EG"),
        ("3\n0", "USD", "en_US"),
        ("$$30", "USD", "en_US"),
        ("-30.00", "USD", "en_US"),
        ("+30.00", "USD", "en_US"),
        ("NaN", "USD", "en_US"),
        ("", "USD", "en_US"),
        ("9" * 5_000, "USD", "en_US"),
    ],
)
def test_field_44_anything_else_is_refused_with_an_example(text: str, code: str, locale: str) -> None:
    with pytest.raises(RefundError) as raised:
        parse_amount(text, code, locale)
    assert code_of(raised) is Code.AMOUNT_UNREADABLE
    assert format_money(Money(123_400, code), locale) in raised.value.detail
    assert len(raised.value.detail) < 200


@given(amounts(), st.sampled_from(LOCALES))
def test_field_44_formatting_then_parsing_is_the_identity(money: Money, locale: str) -> None:
    assert parse_amount(format_money(money, locale), money.currency, locale) == money


@pytest.mark.parametrize("locale", LOCALES)
def test_field_44_identity_for_every_currency(locale: str) -> None:
    for code, kind in CURRENCIES.items():
        for steps in (1, 99, 1_234_567):
            money = Money(steps * kind.multiple, code)
            assert parse_amount(format_money(money, locale), code, locale) == money


@pytest.mark.parametrize(("amount", "word"), [(0, "zero"), (-0, "zero"), (-1, "below zero"), (-(10**20), "below zero")])
def test_field_45_zero_is_not_everything_and_negative_does_not_pass(amount: int, word: str) -> None:
    with pytest.raises(RefundError) as raised:
        requested(amount, "USD")
    assert code_of(raised) is Code.AMOUNT_NOT_POSITIVE
    assert f"is {word}; ask for at least $0.01 (1)" in raised.value.detail


def test_field_45_too_large() -> None:
    assert requested(MAX_AMOUNT, "USD").amount == MAX_AMOUNT
    for amount in (MAX_AMOUNT + 1, 10**20):
        with pytest.raises(RefundError) as raised:
            requested(amount, "USD")
        assert code_of(raised) is Code.AMOUNT_TOO_LARGE


def test_offers_are_themselves_acceptable_at_both_ends() -> None:
    for amount, offers in (
        (1, "KWD 0.010 (10)"),
        (MAX_AMOUNT - 10, "KWD 99,999,999.980 (99999999980) or KWD 99,999,999.990 (99999999990)"),
    ):
        with pytest.raises(RefundError, match="multiple of 10") as raised:
            requested(amount, "KWD")
        assert raised.value.detail.endswith(f"ask for {offers}.")


@pytest.mark.parametrize(
    ("amount", "code", "locale", "text"),
    [
        (3_000, "USD", "en_US", "$30.00"),
        (18_600, "KWD", "en_US", "KWD 18.600"),
        (123_456, "EUR", "de_DE", "1.234,56 €"),
        (123_456, "EUR", "de-DE", "1.234,56 €"),
        (12_345_600, "INR", "en_IN", "₹1,23,456.00"),
        (99_999_999_999, "BIF", "de_CH", "BIF 99'999'999'999"),
        (-3_000, "USD", "en_US", "-$30.00"),
        (0, "USD", "en_US", "$0.00"),
        (5, "KWD", "en_US", "KWD 0.005"),
    ],
)
def test_written_as_people_of_the_locale_read_it(amount: int, code: str, locale: str, text: str) -> None:
    assert format_money(Money(amount, code), locale).replace("’", "'") == text


@pytest.mark.parametrize("locale", ["xx_YY", "", "../../etc", "e", "en_US" * 50])
def test_an_unknown_locale_is_named(locale: str) -> None:
    for use in (lambda: format_money(Money(1, "USD"), locale), lambda: parse_amount("1", "USD", locale)):
        with pytest.raises(RefundError) as raised:
            use()
        assert (code_of(raised), raised.value.field) == (Code.INVALID_FIELD, "locale")


def test_a_currency_is_known_in_any_case_and_never_guessed() -> None:
    assert currency(" usd ").code == "USD"
    assert Money(1, "usd") == Money(1, "USD")
    for code in ("XXX", "", "US", "USDT" * 100):
        with pytest.raises(RefundError) as raised:
            currency(code)
        assert (code_of(raised), raised.value.field) == (Code.UNKNOWN_CURRENCY, "currency")
