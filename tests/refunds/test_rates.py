"""Rates: exact across exponents, rounded up once, never a float (field report 36)."""

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.errors import Code, RefundError
from refunds.money import CURRENCIES, MAX_AMOUNT, Money
from refunds.rates import Rate, RecordedRate
from tests.refunds.conftest import NOW

written = st.from_regex(r"(0|[1-9][0-9]{0,6})(\.[0-9]{1,12})?", fullmatch=True).filter(lambda text: text.strip("0.") != "")
codes = st.sampled_from(sorted(CURRENCIES))
pairs = st.tuples(codes, codes).filter(lambda pair: pair[0] != pair[1])
amounts = st.integers(0, MAX_AMOUNT)


@pytest.mark.parametrize(
    ("base", "code", "rate", "amount", "worth"),
    [
        ("USD", "EUR", "1.0834", 10_000, 10_834),
        ("USD", "EUR", "1.0834", 1, 2),
        ("USD", "CAD", "0.7", 2_750, 1_925),
        ("USD", "JPY", "0.0066", 15_000, 9_900),
        ("JPY", "USD", "151.515", 9_900, 15_000),
        ("USD", "KWD", "3.25", 30_000, 9_750),
        ("KWD", "USD", "0.3077", 10_000, 30_770),
        ("USD", "ISK", "0.0072", 550_000, 3_960),
        ("ISK", "JPY", "0.9", 100, 9_000),
        ("EUR", "USD", "0.333333333333333333", 100, 34),
        ("USD", "EUR", "1.0834", 0, 0),
    ],
)
def test_field_36_39_40_worth_across_exponents(base: str, code: str, rate: str, amount: int, worth: int) -> None:
    assert Rate(base, code, rate).worth(Money(amount, code)) == Money(worth, base)


@given(pairs, written, amounts)
def test_the_worth_is_exact_and_rounded_up_by_less_than_one_unit(pair: tuple[str, str], text: str, amount: int) -> None:
    base, code = pair
    exact = Fraction(amount) * Fraction(text) * 10 ** CURRENCIES[base].exponent / 10 ** CURRENCIES[code].exponent
    worth = Rate(base, code, text).worth(Money(amount, code)).amount
    assert exact <= worth < exact + 1


@given(pairs, written, amounts, amounts)
def test_asking_in_parts_never_counts_as_less(pair: tuple[str, str], text: str, one: int, other: int) -> None:
    rate = Rate(*pair, text)

    def worth(amount: int) -> int:
        return rate.worth(Money(amount, pair[1])).amount

    assert worth(one) + worth(other) >= worth(one + other)
    assert worth(one + other) >= max(worth(one), worth(other))
    assert (worth(one) > 0) == (one > 0)


@given(pairs, written)
def test_one_rate_is_written_in_one_way(pair: tuple[str, str], text: str) -> None:
    rate = Rate(*pair, text)
    padded = text + "0" if "." in text else text + ".0"
    assert Rate(*pair, padded) == rate == Rate(*pair, rate.text)
    assert "E" not in rate.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0.0",
        "-1",
        "+1",
        "1,5",
        "1e3",
        "1.",
        ".5",
        "01",
        "NaN",
        "Infinity",
        " 1",
        "1\n",
        "\uff11",
        "\u0661",
        "1_0",
        "1" * 13,
        "1." + "1" * 19,
    ],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(RefundError) as raised:
        Rate("USD", "EUR", text)
    assert (raised.value.code, raised.value.field) == (Code.INVALID_FIELD, "rate")


def test_a_currency_needs_no_rate_to_itself_and_is_never_guessed() -> None:
    with pytest.raises(RefundError) as raised:
        Rate("USD", "usd", "1")
    assert (raised.value.code, raised.value.field) == (Code.INVALID_FIELD, "currency")
    with pytest.raises(RefundError) as raised:
        Rate("USD", "XXX", "1")
    assert raised.value.code is Code.UNKNOWN_CURRENCY


@pytest.mark.parametrize("money", [Money(100, "USD"), Money(100, "GBP"), Money(-1, "EUR")])
def test_a_rate_counts_its_own_currency_only(money: Money) -> None:
    with pytest.raises(ValueError, match="cannot be counted"):
        Rate("USD", "EUR", "1.08").worth(money)


def test_a_rate_is_too_old_after_so_many_whole_days() -> None:
    recorded = RecordedRate("rate_1", Rate("USD", "EUR", "1.08"), NOW)
    assert not recorded.is_too_old(NOW + timedelta(days=7), 7)
    assert recorded.is_too_old(NOW + timedelta(days=7, microseconds=1), 7)
