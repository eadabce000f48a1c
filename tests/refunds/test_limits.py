"""Windows of limits over time, to the microsecond; what is used and left; and that a message says what the rule does (field report 49)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.clock import rfc3339
from refunds.limits import COUNTED, Calendar, Stage, State, Tally, Who, Window, first_refused, given_back, reopens, rule, taken_again, why
from refunds.status import RESERVING, TRANSITIONS, Status

TICK = timedelta(microseconds=1)
SHANGHAI = ZoneInfo("Asia/Shanghai")


@dataclass(frozen=True)
class One:
    """A limit of a test."""

    over: Window
    at_most: int = 100_000
    counts_money: bool = True
    who: Who = Who.EVERYONE
    name: str = "one"
    warn_at_percent: int | None = None


def utc(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def test_field_49_a_day_in_shanghai_ends_at_its_midnight_and_the_message_says_so() -> None:
    limit, tally = One(Window(Calendar.DAY, "Asia/Shanghai")), Tally()
    tally.take("a", utc("2026-03-10T21:30", "Asia/Shanghai"), 100_000)

    late = utc("2026-03-10T23:59", "Asia/Shanghai")
    refused = tally.stands(limit, late, key="b", own=1)
    assert not refused.fits
    assert refused.opens_at is not None
    assert (refused.opens_at - late).total_seconds() == 60
    midnight = utc("2026-03-11T00:00", "Asia/Shanghai")
    assert (refused.opens_at, tally.stands(limit, midnight - TICK, key="b", own=1).fits) == (midnight, False)
    fresh = tally.stands(limit, midnight, key="b", own=100_000)
    assert (fresh.fits, fresh.used, fresh.left) == (True, 0, 100_000)
    eight_hours_on = utc("2026-03-11T07:59", "Asia/Shanghai")
    assert tally.used(limit, eight_hours_on) == [], "the new day began at its own midnight and not at that of UTC"


@pytest.mark.parametrize(("day", "hours"), [("2026-03-08", 23), ("2026-03-09", 24), ("2026-11-01", 25)])
def test_field_49_the_days_on_which_clocks_change_in_new_york_are_one_window_each(day: str, hours: int) -> None:
    window = Window(Calendar.DAY, "America/New_York")
    begins = utc(f"{day}T00:00", "America/New_York")

    assert window.begins(begins) == begins
    assert window.begins(begins - TICK) < begins
    assert window.next_begins(begins) == begins + timedelta(hours=hours)
    for at in (begins, begins + timedelta(hours=1, minutes=30), begins + timedelta(hours=hours) - TICK):
        assert (window.begins(at), window.next_begins(at)) == (begins, begins + timedelta(hours=hours))
    assert window.begins(begins + timedelta(hours=hours)) == begins + timedelta(hours=hours)


def test_field_49_a_rolling_day_is_free_again_at_the_same_time_of_the_next_day() -> None:
    limit, tally = One(Window(seconds=86_400)), Tally()
    used_at = utc("2026-03-28T18:00")
    tally.take("a", used_at, 100_000)

    refused = tally.stands(limit, utc("2026-03-29T17:59"), key="b", own=1)

    assert (refused.fits, refused.opens_at) == (False, utc("2026-03-29T18:00"))
    assert not tally.stands(limit, utc("2026-03-29T18:00") - TICK, key="b", own=1).fits
    assert tally.stands(limit, utc("2026-03-29T18:00"), key="b", own=100_000).fits


@pytest.mark.parametrize(
    ("kind", "zone", "at", "begins", "ends"),
    [
        (Calendar.WEEK, "UTC", "2026-06-03T12:00", "2026-06-01T00:00", "2026-06-08T00:00"),
        (Calendar.WEEK, "Europe/Berlin", "2026-03-29T12:00", "2026-03-23T00:00", "2026-03-30T00:00"),
        (Calendar.MONTH, "UTC", "2026-02-28T23:59", "2026-02-01T00:00", "2026-03-01T00:00"),
        (Calendar.MONTH, "UTC", "2024-02-29T00:00", "2024-02-01T00:00", "2024-03-01T00:00"),
        (Calendar.MONTH, "Asia/Kolkata", "2026-12-31T23:59", "2026-12-01T00:00", "2027-01-01T00:00"),
        # A midnight that clocks skip: the day begins when they do.
        (Calendar.DAY, "Africa/Cairo", "2026-04-24T12:00", "2026-04-24T01:00", "2026-04-25T00:00"),
        (Calendar.DAY, "America/Santiago", "2026-09-06T12:00", "2026-09-06T01:00", "2026-09-07T00:00"),
        (Calendar.DAY, "Australia/Lord_Howe", "2026-04-05T12:00", "2026-04-05T00:00", "2026-04-06T00:00"),
    ],
)
def test_calendar_windows_begin_at_a_midnight_of_their_zone(kind: Calendar, zone: str, at: str, begins: str, ends: str) -> None:
    window = Window(kind, zone)
    assert window.begins(utc(at, zone)) == utc(begins, zone)
    assert window.next_begins(utc(at, zone)) == utc(ends, zone)


_ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "Africa/Cairo", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe"]
_WINDOWS = st.builds(Window, st.sampled_from(list(Calendar)), st.sampled_from(_ZONES)) | st.builds(
    lambda s: Window(seconds=s), st.integers(1, 31 * 86_400)
)
_MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001


@given(
    _WINDOWS, _MOMENTS, st.lists(st.tuples(st.integers(0, 40 * 86_400 * 1_000_000), st.integers(1, 60)), max_size=8), st.integers(1, 100)
)
def test_a_limit_opens_exactly_when_it_says(window: Window, at: datetime, takings: list[tuple[int, int]], own: int) -> None:
    limit, tally = One(window, at_most=100), Tally()
    for number, (ago, amount) in enumerate(takings):
        tally.take(str(number), at - timedelta(microseconds=ago), amount)

    found = tally.stands(limit, at, key="new", own=own)

    if found.fits:
        assert found.opens_at is None
        return
    assert found.opens_at is not None
    assert found.opens_at > at
    assert tally.stands(limit, found.opens_at, key="new", own=own).fits
    assert not tally.stands(limit, found.opens_at - TICK, key="new", own=own).fits


def test_what_is_larger_than_the_whole_limit_never_fits() -> None:
    found = Tally().stands(One(Window(seconds=60), at_most=10), utc("2026-01-01T00:00"), key="a", own=11)
    assert (found.fits, found.opens_at) == (False, None)
    assert reopens(One(Window(seconds=60), at_most=10), utc("2026-01-01T00:00"), [], 10) == utc("2026-01-01T00:00")


def test_the_same_key_counts_once_and_a_revision_takes_its_place() -> None:
    limit, tally, at = One(Window(seconds=60)), Tally(), utc("2026-01-01T00:00")
    for _ in range(5):
        tally.take("a", at, 60_000)
    assert tally.stands(limit, at, key="b", own=40_000).fits
    tally.take("a", at, 50_000)
    assert tally.stands(limit, at, key="b", own=50_000).fits
    tally.give_back("a")
    tally.give_back("a")
    assert tally.used(limit, at) == []


def test_the_words_carry_the_figures_and_when_it_opens() -> None:
    limit = One(Window(seconds=3_600), at_most=100_000, who=Who.AGENT, name="agent_hour")
    opens_at = utc("2026-01-01T01:00")
    found = State("agent_hour", 100_000, 99_950, 51, 0, opens_at)

    assert rule(limit, "USD") == "at most $1,000.00 in one hour by one agent"
    assert why(limit, found, "USD") == (
        f"limit agent_hour (at most $1,000.00 in one hour by one agent): $999.50 used, $0.50 left; it opens again at {rfc3339(opens_at)}"
    )
    counting = One(Window(Calendar.DAY, "Europe/Berlin"), at_most=1, counts_money=False, who=Who.SESSION)
    assert rule(counting, "USD") == "at most 1 refund in a calendar day (Europe/Berlin) by one session"
    assert str(Window(seconds=90)) == "90 seconds"
    assert str(Window(seconds=86_400)) == "24 hours"


def test_what_nobody_can_count_neither_fits_nor_is_certainly_too_much() -> None:
    for unknown in (State("a", 10, 1, None), State("a", 10, 1, 1, uncounted=1)):
        assert (unknown.fits, unknown.is_exceeded) == (False, False)
    assert State("a", 10, 11, None).is_exceeded


def test_warnings_begin_at_the_set_share() -> None:
    assert [State("a", 10, used, 1, warn_at_percent=80).warns for used in (6, 7, 8)] == [False, True, True]
    assert not State("a", 10, 10, 1).warns


def test_of_several_the_one_that_opens_last_is_told() -> None:
    soon, late = State("s", 1, 1, 1, 0, utc("2026-01-01T00:00")), State("l", 1, 1, 1, 0, utc("2026-01-02T00:00"))
    never, fits = State("n", 1, 0, 2), State("f", 2, 0, 1)
    assert first_refused([fits]) is None
    assert first_refused([soon, fits, late]) is late
    assert first_refused([soon, never, late]) is never


def test_what_a_move_gives_back_and_takes_again() -> None:
    reserved, sent = Stage.RESERVED, Stage.SENT
    assert COUNTED[reserved] == RESERVING | {Status.SUCCEEDED}
    for before, moves in TRANSITIONS.items():
        for after in moves.values():
            back, again = given_back(before, after), taken_again(before, after)
            assert not (back and again), (before, after)
            for stage in Stage:
                drafted = stage is reserved and after is Status.DRAFTED
                assert (stage in back) == ((before in COUNTED[stage] or drafted) and after not in COUNTED[stage])
    assert given_back(Status.SUCCEEDED, Status.FAILED) == [reserved, sent]
    assert taken_again(Status.FAILED, Status.PARKED) == [reserved, sent]
    assert given_back(Status.SUBMITTING, Status.HELD) == [sent]
    assert given_back(Status.SUBMITTING, Status.RELEASED) == [reserved, sent]
    assert given_back(Status.PENDING, Status.PARKED) == []
    assert given_back(Status.RECEIVED, Status.DRAFTED) == [reserved], "what was quoted and drafted in one change"
    assert taken_again(Status.RECEIVED, Status.CLASSIFIED) == []
