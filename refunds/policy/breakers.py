"""The section ``breakers``: when the orchestrator holds what is approved by itself, because what happens is unlike the usual."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from refunds.breaker import Watches
from refunds.policy.kinds import Name, Part, Percent, Seconds
from refunds.policy.positions import Path


def _watches(value: object) -> Watches:
    try:
        return Watches(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"write one of: {', '.join(Watches)}") from error


class BreakerRule(Part):
    """One breaker: in the ``scope`` it ``watches`` the last hour, and opens above so many ``times`` the usual hour, or above a ``percent`` of what was sent.

    It never opens for fewer than ``at_least`` cases. Open it holds what is approved in its scope; after ``cool_down`` it lets ``half_open_per_hour`` through,
    until an operator closes it, or until nothing unusual was seen for ``closes_itself_after``.
    """

    name: Name
    scope: Literal["everything", "agents", "each_agent", "each_processor"]
    watches: Annotated[Watches, BeforeValidator(_watches)]
    times: Annotated[int, Field(ge=2, le=1_000)] | None = None
    percent: Percent | None = None
    at_least: Annotated[int, Field(ge=2, le=1_000_000)]
    usual_over: Seconds = 7 * 86_400
    cool_down: Seconds
    half_open_per_hour: Annotated[int, Field(ge=1, le=100_000)]
    closes_itself_after: Seconds | None = None


def contradictions(breakers: Sequence[BreakerRule], base: str | None) -> Iterator[tuple[Path, str, str]]:
    """What each breaker allows by itself, but not together with the rest."""
    seen: set[str] = set()
    for at, breaker in enumerate(breakers):
        here: Path = ("breakers", at)
        if breaker.name in seen:
            yield (*here, "name"), f"the name {breaker.name} is there twice", "Give each breaker its own."
        seen.add(breaker.name)
        compares = breaker.watches in (Watches.VOLUME, Watches.AMOUNT)
        needed, other = ("times", "percent") if compares else ("percent", "times")
        if getattr(breaker, needed) is None:
            yield here, f"one that watches {breaker.watches} needs {needed}", f"Add {needed}."
        if getattr(breaker, other) is not None:
            yield (*here, other), f"one that watches {breaker.watches} has no {other}", f"Remove {other}."
        if not compares and "usual_over" in breaker.model_fields_set:
            yield (*here, "usual_over"), "a share is compared with nothing usual", "Remove usual_over."
        if compares and breaker.usual_over < 3_600:
            yield (*here, "usual_over"), "less than an hour tells of no usual hour", "Write at least 1h; 7d knows days and nights."
        if breaker.watches is Watches.AMOUNT and base is None:
            yield (*here, "watches"), "without base_currency nobody knows in which currency", "Add base_currency, or watch volume."
