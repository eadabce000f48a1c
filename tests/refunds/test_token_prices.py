"""What tokens cost: exact, by the price that was stated, and nothing where none was."""

import pytest
from pydantic import ValidationError

from refunds.settings import Settings
from refunds.token_prices import parse_price


@pytest.mark.parametrize(
    ("price", "tokens", "micros"),
    [
        ("0.25/2.00 USD", (900, 50), 325),
        ("0.25/2 EUR", (2, 0), 1),
        ("0.25/2 EUR", (1, 0), 0),
        ("15/75 USD", (1_000_000, 1_000_000), 90_000_000),
    ],
)
def test_a_cost_is_exact_in_millionths_and_rounded_half_up(price: str, tokens: tuple[int, int], micros: int) -> None:
    assert parse_price(price).cost_micros(*tokens) == micros


@pytest.mark.parametrize("wrong", ["", "1", "1/2", "1/2 ABC", "-1/2 USD", "1e3/2 USD", "1/2 usd", "1,5/2 USD"])
def test_what_is_no_price_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        parse_price(wrong)


def test_the_setting_says_how_it_is_written_and_none_is_no_price() -> None:
    with pytest.raises(ValidationError, match="MODEL_PRICE: write the price"):
        Settings(model_price="cheap")

    assert Settings().price_of_model is None
