"""Exchange rates as the API takes and shows them."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from api.schemas import Shape, Who
from refunds.money import CURRENCIES
from refunds.orders import CurrencyCode, Instant, Said, Strict
from refunds.policy import Policy
from refunds.rates import Rate, RecordedRate, base_currency
from store.sql import Row

BaseCode = Annotated[str, StringConstraints(min_length=3, max_length=3), AfterValidator(base_currency)]


class NewRate(Strict):
    """What one ``currency`` is worth in ``base``, from now on or from a time that has passed. ``base`` is the policy's base currency when left out.

    ``rate`` is text, such as ``"1.0834"``: a JSON number would have been through a float somewhere.
    """

    currency: CurrencyCode
    rate: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    source: Annotated[Said, StringConstraints(max_length=200)]
    base: BaseCode | None = None
    effective_at: Instant | None = None


class RateView(Shape):
    """A recorded rate: ``1 EUR = 1.0834 USD``. It is never edited."""

    id: str
    base: str
    currency: str
    rate: Annotated[str, Field(examples=["1.0834"])]
    shown: Annotated[str, Field(examples=["1 EUR = 1.0834 USD, so €100.00 count as $108.34"])]
    effective_at: AwareDatetime
    source: str
    recorded_by: Who
    recorded_at: AwareDatetime


class RateRecorded(RateView):
    """The rate as recorded, and the one that held until then, so that a slip of the finger is seen."""

    before: RateView | None


class RateList(Shape):
    """Recorded rates, newest first. ``missing`` are currencies of the policy in force that cannot be counted now: without a rate, or with one too old."""

    base_currency: Annotated[str | None, Field(description="Of the policy in force.")]
    rates_at_most_days_old: int
    missing: list[str]
    rates: list[RateView]
    next_cursor: str | None


def shown(row: Row) -> dict[str, Any]:
    """A recorded rate."""
    return {
        "id": row["id"],
        "base": row["base"],
        "currency": row["currency"],
        "rate": row["rate"],
        "shown": Rate(row["base"], row["currency"], row["rate"]).shown(),
        "effective_at": row["effective_at"],
        "source": row["source"],
        "recorded_by": {"id": row["recorded_by"], "handle": row["handle"], "name": row["name"]},
        "recorded_at": row["recorded_at"],
    }


def missing(policy: Policy, held: dict[str, RecordedRate], at: datetime) -> list[str]:
    """The currencies of a policy that cannot be counted in its base currency at that time, by the rates that are ``held`` for each."""
    if policy.base is None:
        return []
    wanted = (code for code in policy.currencies if code != policy.base and code in CURRENCIES)
    return [code for code in wanted if code not in held or held[code].is_too_old(at, policy.rates_at_most_days_old)]
