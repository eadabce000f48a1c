"""The breaker's states, case by case, and that it never opens for too few cases."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.breaker import HOUR, Breaking, Seen, Standing, Watches, counted_from, step, trips

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
WEEK = 7 * 86_400
CLOSED, OPEN, HALF_OPEN = Breaking.CLOSED, Breaking.OPEN, Breaking.HALF_OPEN


@dataclass(frozen=True)
class One:
    """A breaker of a test: five times the usual hour, or 20 percent."""

    watches: Watches = Watches.VOLUME
    times: int | None = 5
    percent: int | None = 20
    at_least: int = 20
    usual_over: int = WEEK
    cool_down: int = 1_800
    half_open_per_hour: int = 10
    closes_itself_after: int | None = None
    name: str = "one"


QUIET = Seen(volume=10, usual_volume=1_680)  # ten an hour
BURST = Seen(volume=51, usual_volume=1_680)


@pytest.mark.parametrize(
    ("rule", "seen", "opens"),
    [
        (One(), Seen(volume=50, usual_volume=1_680), False),
        (One(), Seen(volume=51, usual_volume=1_680), True),
        (One(), Seen(volume=51, usual_volume=1_713), True),
        (One(), Seen(volume=51, usual_volume=1_714), False),
        (One(at_least=60), Seen(volume=59, usual_volume=100), False),
        (One(), Seen(volume=500, usual_volume=19), False),  # the usual hour is not known yet
        (One(), Seen(volume=500, usual_volume=20), True),
        # The first day: as much as ever since it began, six times that, and nothing to compare with yet.
        (One(), Seen(volume=60, usual_volume=60, usual_s=3_600), False),
        (One(), Seen(volume=301, usual_volume=60, usual_s=3_600), True),
        (One(), Seen(volume=500, usual_volume=20, usual_s=3_599), False),
        (One(), Seen(volume=51, usual_volume=1_680, usual_s=2 * WEEK), True),
        (One(Watches.AMOUNT), Seen(volume=20, amount=50_001, usual_volume=168, usual_amount=1_680_000), True),
        (One(Watches.AMOUNT), Seen(volume=20, amount=50_000, usual_volume=168, usual_amount=1_680_000), False),
        (One(Watches.AMOUNT), Seen(volume=19, amount=900_000, usual_volume=168, usual_amount=1_680_000), False),
        (One(Watches.FAILURES), Seen(volume=20, failed=5), True),
        (One(Watches.FAILURES), Seen(volume=20, failed=4), False),
        (One(Watches.FAILURES), Seen(volume=19, failed=19), False),
        (One(Watches.PARKED), Seen(volume=100, parked=21, failed=50), True),
        (One(Watches.PARKED), Seen(volume=100, parked=20, failed=50), False),
    ],
)
def test_when_it_opens(rule: One, seen: Seen, opens: bool) -> None:
    assert (trips(rule, seen, "USD") is not None) is opens


def standing(state: Breaking, since_ago: float = 600, cool_in: float = -600) -> Standing:
    return Standing(state, NOW - timedelta(seconds=since_ago), NOW + timedelta(seconds=cool_in))


@pytest.mark.parametrize(
    ("rule", "before", "seen", "after"),
    [
        (One(), Standing(), QUIET, None),
        (One(), Standing(), BURST, OPEN),
        (One(), standing(OPEN, cool_in=0.000001), QUIET, None),
        (One(), standing(OPEN, cool_in=0.000001), BURST, None),
        (One(), standing(OPEN, cool_in=0), BURST, HALF_OPEN),
        (One(), standing(HALF_OPEN), QUIET, None),
        (One(), standing(HALF_OPEN, since_ago=86_400), QUIET, None),  # only an operator closes it
        (One(closes_itself_after=7_200), standing(HALF_OPEN, since_ago=7_199), QUIET, None),
        (One(closes_itself_after=7_200), standing(HALF_OPEN, since_ago=7_200), QUIET, CLOSED),
        (One(Watches.FAILURES), standing(HALF_OPEN), Seen(volume=10, failed=3), OPEN),  # as few as it lets through are enough here
        (One(Watches.FAILURES), standing(HALF_OPEN), Seen(volume=9, failed=9), None),
        (One(Watches.FAILURES, closes_itself_after=60), standing(HALF_OPEN), Seen(volume=10, failed=3), OPEN),
    ],
)
def test_what_happens_to_a_breaker(rule: One, before: Standing, seen: Seen, after: Breaking | None) -> None:
    found = step(rule, before, seen, NOW, "USD")
    assert (None if found is None else found.to) is after


def test_it_says_why_with_the_figures() -> None:
    assert trips(One(), BURST, "USD") == "51 refunds in the last hour, more than 5 times the usual 10 refunds"
    amounts = Seen(volume=20, amount=50_001, usual_volume=168, usual_amount=1_680_000)
    assert trips(One(Watches.AMOUNT), amounts, "USD") == "$500.01 in the last hour, more than 5 times the usual $100.00"
    failures = Seen(volume=20, failed=5)
    assert trips(One(Watches.FAILURES), failures, "USD") == "5 of 20 refunds in the last hour failed, more than 20 percent"


def test_what_it_was_judged_for_already_counts_no_more() -> None:
    assert counted_from(Standing(), NOW) == NOW - HOUR
    assert counted_from(standing(HALF_OPEN, since_ago=600), NOW) == NOW - timedelta(minutes=10)
    assert counted_from(standing(HALF_OPEN, since_ago=9_000), NOW) == NOW - HOUR


_COUNT = st.integers(0, 10_000)


@given(
    st.sampled_from(list(Watches)),
    st.builds(Seen, volume=_COUNT, amount=_COUNT, failed=_COUNT, parked=_COUNT, usual_volume=_COUNT, usual_amount=_COUNT),
    st.integers(2, 1_000),
)
def test_it_never_opens_for_fewer_cases_and_more_of_the_usual_never_opens_it(watches: Watches, seen: Seen, least: int) -> None:
    rule = One(watches, at_least=least)
    why = trips(rule, seen, "USD")
    if seen.volume < least:
        assert why is None
    calmer = replace(seen, failed=0, parked=0, usual_volume=seen.volume * 168 + least, usual_amount=seen.amount * 168)
    assert trips(rule, calmer, "USD") is None
