"""What Stripe takes as an amount in each currency, and how it prints amounts in error texts.

Source: Stripe's currency page (zero-decimal, special-case and three-decimal currencies) as of 2026-09.
"""

from decimal import Decimal

from babel.numbers import format_currency

from deploy.sandbox.errors import StripeError, invalid
from deploy.sandbox.words import words

ZERO_DECIMAL = words("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf")
HUNDREDS = frozenset({"isk", "ugx"})
"""No decimals in use, yet sent with two of them, which must be 00."""
THREE_DECIMAL = words("bhd jod kwd omr tnd")
TWO_DECIMAL = words("""usd aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn bzd cad cdf chf cny cop crc
    cve czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd hnl htg huf idr ils inr jmd kes kgs khr kyd kzt
    lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln qar
    ron rsd rub sar sbd scr sek sgd shp sle sos srd std szl thb tjs top try ttd twd tzs uah uyu uzs wst xcd yer zar
    zmw""")
SUPPORTED = TWO_DECIMAL | ZERO_DECIMAL | HUNDREDS | THREE_DECIMAL
LARGEST_AMOUNT = 99_999_999


def decimals(currency: str) -> int:
    """How many digits of the API's integer stand after the decimal point."""
    if currency in ZERO_DECIMAL:
        return 0
    return 3 if currency in THREE_DECIMAL else 2


def check_currency(value: str) -> str:
    """The lower-case code; raises 400 for one that Stripe does not take."""
    currency = value.lower()
    if currency not in SUPPORTED:
        supported = ", ".join(sorted(SUPPORTED))
        raise invalid(f"Invalid currency: {value}. Stripe currently supports these currencies: {supported}", param="currency")
    return currency


def check_granularity(amount: int, currency: str) -> None:
    """Raises 400 where the last digits must be zero: one of three decimals, both of ISK and UGX."""
    step = 10 if currency in THREE_DECIMAL else 100 if currency in HUNDREDS else 1
    if amount % step:
        raise StripeError(
            400,
            f"Invalid amount: amounts in {currency} must be evenly divisible by {step}.",
            code="parameter_invalid_integer",
            param="amount",
            stored=False,
        )


def printed(amount: int, currency: str) -> str:
    """The amount as error texts show it: `$30.00` (recorded for USD; other currencies as CLDR's en_US prints them)."""
    digits = 0 if currency in HUNDREDS else decimals(currency)
    value = Decimal(amount).scaleb(-decimals(currency))
    pattern = "\u00a4#,##0" + ("." + "0" * digits if digits else "")
    return format_currency(value, currency.upper(), format=pattern, locale="en_US", currency_digits=False)
