"""Amounts as people type them: one strict reading by the locale, in every locale there is (field report 44)."""

from itertools import islice

import pytest
from babel import localedata

from refunds.errors import Code, RefundError
from refunds.money import CURRENCIES, MAX_AMOUNT, Money, format_money, parse_amount

LOCALES = sorted(localedata.locale_identifiers())
CODES = sorted(CURRENCIES)


def some(number: int) -> list[Money]:
    """Amounts of five currencies, others for each locale: the smallest step, one below a thousand, a million and some, the largest."""
    moneys: list[Money] = []
    for kind in (CURRENCIES[CODES[(number * 5 + place) % len(CODES)]] for place in range(5)):
        steps = (1, 999, 1_234_567 + number, MAX_AMOUNT // kind.multiple)
        moneys += [Money(step * kind.multiple, kind.code) for step in steps]
    return moneys


def test_field_44_formatting_then_parsing_is_the_identity_in_every_locale() -> None:
    assert len(LOCALES) > 1_000
    seen: set[str] = set()
    for number, locale in enumerate(LOCALES):
        for money in some(number):
            assert parse_amount(format_money(money, locale), money.currency, locale) == money, (locale, money)
            seen.add(money.currency)
    assert seen == set(CURRENCIES), "every currency has had its turn"


def test_field_44_what_one_locale_wrote_with_its_decimals_another_reads_the_same_or_not_at_all() -> None:
    both = 0
    for number, writer in enumerate(islice(LOCALES, 0, None, 17)):
        money = Money(1_234_500 + number, "EUR")
        text = format_money(money, writer)
        for reader in ("en_US", "de_DE", "fr_FR", "de_CH", "en_IN"):
            try:
                read = parse_amount(text, "EUR", reader)
            except RefundError as error:
                assert error.code is Code.AMOUNT_UNREADABLE
            else:
                assert read == money, (writer, reader, text)
                both += 1
    assert both > 0, "some write alike"


@pytest.mark.parametrize(
    ("text", "code", "locale", "amount"),
    [
        ("1.234", "EUR", "de_DE", 123_400),
        ("1.23", "EUR", "en_US", 123),
        ("12,50", "EUR", "de_DE", 1_250),
        ("\u200e12,50\u00a0€", "EUR", "de_DE", 1_250),
        ("1\u00a0234,50", "EUR", "fr_FR", 123_450),
        ("1\u2009234,50", "EUR", "fr_FR", 123_450),
        ("1'234.50", "CHF", "de_CH", 123_450),
        ("1\u2019234.50", "CHF", "de_CH", 123_450),
        ("12,34,567.00", "INR", "en_IN", 123_456_700),
        ("\u200f1,234.50\u00a0\u200fSAR", "SAR", "ar_AE", 123_450),
        ("18.600", "KWD", "en_US", 18_600),
        ("5.500", "ISK", "is_IS", 550_000),
    ],
)
def test_field_44_what_people_paste_is_read(text: str, code: str, locale: str, amount: int) -> None:
    assert parse_amount(text, code, locale) == Money(amount, code)


@pytest.mark.parametrize(
    ("text", "code", "locale"),
    [
        ("1.234", "EUR", "en_US"),
        ("1.23", "EUR", "de_DE"),
        ("1,234", "EUR", "de_DE"),
        ("\uff11\uff12.50", "USD", "en_US"),
        ("12\uff0e50", "USD", "en_US"),
        ("\u0661\u0662.50", "USD", "ar_EG"),
        ("\u06f1\u06f2", "USD", "fa_IR"),
        ("\u0967\u0968.50", "INR", "hi_IN"),
        ("12\u066b50", "USD", "ar_EG"),
        ("1\u00b72", "USD", "en_US"),
        ("\u00bd", "USD", "en_US"),
        ("12\u00b2", "USD", "en_US"),
        ("1\u200b2.50", "USD", "en_US"),
        ("\u202e05.21", "USD", "en_US"),
        ("1 234.50", "USD", "en_US"),
        ("1'234.50", "USD", "en_US"),
        ("1'23.50", "CHF", "de_CH"),
        ("12.34.567", "EUR", "de_DE"),
        ("12,34,567.00", "USD", "en_US"),
        ("1,234,567.00", "INR", "en_IN"),
        ("1  234,50", "EUR", "fr_FR"),
        ("12,5,0", "EUR", "de_DE"),
        ("12.500", "USD", "en_US"),
        ("\u221212.50", "USD", "en_US"),
        ("(12.50)", "USD", "en_US"),
        ("12.50-", "USD", "en_US"),
        ("12.50 USD 13", "USD", "en_US"),
        ("12.50 EUR", "USD", "en_US"),
        ("$12.50 USD", "USD", "en_US"),
        ("12.50%", "USD", "en_US"),
        ("1_000", "USD", "en_US"),
        ("55,5", "ISK", "is_IS"),
    ],
)
def test_field_44_its_siblings_are_refused(text: str, code: str, locale: str) -> None:
    with pytest.raises(RefundError) as raised:
        parse_amount(text, code, locale)
    assert (raised.value.code, raised.value.field) == (Code.AMOUNT_UNREADABLE, "amount")
