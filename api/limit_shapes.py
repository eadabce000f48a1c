"""Limits over time as the API shows them: what each allows, what is used and left of it, and when it opens again."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.shapes import Shape
from refunds.facts import LimitStanding
from refunds.limits import Stage, shown


class LimitView(Shape):
    """A limit over time beside one refund. ``used`` is without this refund, which counts as ``own``."""

    name: str
    stage: Annotated[str, Field(description="`reserved`: taken when terms are reserved. `sent`: taken right before money moves.")]
    rule: Annotated[str, Field(description="What it says, such as `at most 30 refunds in one minute by one agent`.")]
    currency: Annotated[
        str | None, Field(description="The base currency of a limit of money, in whose unit the figures are; `null`: refunds are counted.")
    ]
    at_most: int
    used: int
    used_text: str
    left: int
    left_text: str
    own: Annotated[int | None, Field(description="What this refund counts as; `null` when no rate says.")]
    exceeded: Annotated[bool, Field(description="Whether this refund does not fit beside what is used.")]
    warns: Annotated[bool, Field(description="Whether a set share of it is used, with this refund.")]
    opens_at: Annotated[
        AwareDatetime | None,
        Field(description="Where it does not fit: when it will, if nothing else is used. `null`: it fits, or never will."),
    ]


class BreakerFigures(Shape):
    """What it saw of its scope: in the last hour, and over the time that the usual hour is taken from (`usual_s`, in seconds). Amounts are in the unit of `base`."""

    volume: int
    amount: int
    failed: int
    parked: int
    usual_volume: int
    usual_amount: int
    usual_s: int | None = None
    base: str | None


class BreakerView(Shape):
    """A breaker that is not closed."""

    id: str
    name: str
    scope: str
    state: Annotated[Literal["open", "half_open"], Field(description="`open`: nothing goes. `half_open`: `per_hour` refunds an hour go.")]
    since: AwareDatetime
    reason: Annotated[str, Field(description="Why it is in this state, with the figures.")]
    figures: BreakerFigures
    opened_at: AwareDatetime
    cool_until: AwareDatetime
    per_hour: int


def limit_view(standing: Mapping[str, Any] | LimitStanding, stage: Stage = Stage.RESERVED) -> dict[str, Any]:
    """One standing, from a recorded decision or as read now."""
    plain: Mapping[str, Any] = (
        standing if isinstance(standing, Mapping) else {n: getattr(standing, n) for n in LimitStanding.__dataclass_fields__}
    )
    words = {f"{name}_text": shown(plain[name], plain["currency"]) for name in ("used", "left")}
    return {**plain, "stage": stage.value, **words}


def refused(standings: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The limit that says no: of those that do not fit the one that opens last, or never does."""
    no = [one for one in standings if one["exceeded"]]
    return max(no, key=lambda one: (one["opens_at"] is None, str(one["opens_at"]))) if no else None
