"""What a model's tokens cost, as the operator states it. Nothing here knows a price by itself: prices change, and a guessed one would look like a recorded one."""

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from refunds.money import CURRENCIES

_PRICE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)/(\d{1,6}(?:\.\d{1,6})?) ([A-Z]{3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Prices of a million input and a million output tokens, in the currency's major unit."""

    input: Decimal
    output: Decimal
    currency: str

    def cost_micros(self, input_tokens: int, output_tokens: int) -> int:
        """What so many tokens cost, in millionths of the major unit, rounded half up."""
        return int((self.input * input_tokens + self.output * output_tokens).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def parse_price(text: str) -> TokenPrice:
    """Read ``0.25/2.00 USD``: a million input tokens, a million output tokens. Raises ``ValueError`` that says how it is written."""
    found = _PRICE.fullmatch(text.strip())
    if found is None or found[3] not in CURRENCIES:
        raise ValueError("write the price of a million input and of a million output tokens and the currency, such as 0.25/2.00 USD")
    return TokenPrice(Decimal(found[1]), Decimal(found[2]), found[3])
