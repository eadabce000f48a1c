"""Amounts in sentences: one clear amount or none."""

import pytest

from activities.classifiers.amounts import AmountRead, read_amount
from refunds.money import Money


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("$30", 3000, "USD"),
        ("give me $30.", 3000, "USD"),
        ("30.00 USD", 3000, "USD"),
        ("usd 30", 3000, "USD"),
        ("EUR 20", 2000, "EUR"),
        ("20€", 2000, "EUR"),
        ("20 euros", 2000, "EUR"),
        ("£1,299.00", 129_900, "GBP"),
        ("350 dollars", 35_000, "USD"),
        ("¥5800", 5800, "JPY"),
        ("¥5,800", 5800, "JPY"),
        ("JPY 5800", 5800, "JPY"),
        ("KWD 18.600", 18_600, "KWD"),
        ("ISK 500", 50_000, "ISK"),
        ("CA$30", 3000, "CAD"),
        ("($30)", 3000, "USD"),
        ("$30 and again $30.00", 3000, "USD"),
        ("$ 30", 3000, "USD"),
    ],
)
def test_field_39_one_amount_is_read_in_the_units_of_its_currency(text, amount, currency):
    read = read_amount(text)
    assert read.money == Money(amount, currency)
    assert not read.unclear
    assert read.text is not None and read.text in text


@pytest.mark.parametrize(
    "text",
    [
        *("$30 or $40", "$30-$40", "$30 and 30 EUR", "-$30", "$-30", "- $30", "EUR 20,50", "1.000 EUR", "$1,00", "$1.2.3", "¥58.5"),
        *("$30k", "30% of $50", "half of $50", "20 per cent off $9", "$0", "$0.00", "$999999999999", "$30.005", "$1,0000", "ISK 5.50"),
    ],
)
def test_anything_else_is_unclear_and_gives_no_money(text):
    read = read_amount(text)
    assert read.money is None
    assert read.unclear


@pytest.mark.parametrize(
    "text", ["", "30", "refund me", "order 1234", "I paid $30", "it cost 30 EUR", "XYZ 30", "30 of them", "thirty dollars", "$", "３０ USD"]
)
def test_no_amount_is_asked_for(text):
    assert read_amount(text) == AmountRead()


@pytest.mark.parametrize(
    ("text", "order_currency", "currency"),
    [
        ("$30", "CAD", "CAD"),
        ("$30", "USD", "USD"),
        ("¥30", "CNY", "CNY"),
        ("$30", "JPY", None),
        ("€30", "USD", None),
        ("30 EUR", "USD", "EUR"),
    ],
)
def test_a_sign_means_the_currency_of_the_order_or_nothing(text, order_currency, currency):
    money = read_amount(text, order_currency).money
    assert (money.currency if money else None) == currency
