"""Open time is counted exactly: over nights, weekends and holidays, and where clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.facts import Review, Rung
from refunds.hours import LONGEST_DAYS, Calendar, after, due, is_holiday, is_open, open_between

DAY = ((540, 1020),)
OFFICE = Calendar("office", "Europe/Berlin", (DAY, DAY, DAY, DAY, DAY, (), ()), ("2026-12-25",))
ALWAYS = Calendar("always", "America/New_York", (((0, 1440),),) * 7)
NIGHT = Calendar("night", "America/New_York", (((60, 240),),) * 7)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("moment", "opened"),
    [
        ("2026-09-07T06:59:59.999999+00:00", False),
        ("2026-09-07T07:00:00+00:00", True),
        ("2026-09-07T14:59:59.999999+00:00", True),
        ("2026-09-07T15:00:00+00:00", False),
        ("2026-09-12T10:00:00+00:00", False),  # a Saturday
        ("2026-12-24T10:00:00+00:00", True),
        ("2026-12-25T10:00:00+00:00", False),
        ("2026-12-24T23:30:00+00:00", False),
    ],
)
def test_it_is_open_from_the_first_instant_of_its_hours_to_before_the_last(moment: str, opened: bool) -> None:
    assert is_open(OFFICE, at(moment)) is opened


def test_a_holiday_is_one_of_the_calendars_own_date() -> None:
    assert is_holiday(OFFICE, at("2026-12-24T23:00:00+00:00"))
    assert not is_holiday(OFFICE, at("2026-12-24T22:59:59+00:00"))


@pytest.mark.parametrize(
    ("since", "hours", "until"),
    [
        ("2026-09-07T07:00:00+00:00", 8, "2026-09-07T15:00:00+00:00"),  # exactly a day: its last instant
        ("2026-09-07T14:00:00+00:00", 2, "2026-09-08T08:00:00+00:00"),  # over night
        ("2026-09-11T14:30:00+00:00", 1, "2026-09-14T07:30:00+00:00"),  # over a weekend
        ("2026-09-12T10:00:00+00:00", 1, "2026-09-14T08:00:00+00:00"),  # begun when it is closed
        ("2026-12-24T15:00:00+00:00", 2, "2026-12-28T09:00:00+00:00"),  # over a holiday and a weekend, in winter time
    ],
)
def test_deadlines_count_only_open_time(since: str, hours: int, until: str) -> None:
    assert after(OFFICE, at(since), hours * 3_600) == at(until)
    assert open_between(OFFICE, at(since), at(until)) == timedelta(hours=hours)


def test_the_hour_that_a_clock_skips_is_no_open_time() -> None:
    """2026-03-08 in New York: 02:00 is followed by 03:00, so 01:00 to 04:00 has two hours."""
    midnight = at("2026-03-08T05:00:00+00:00")
    assert open_between(NIGHT, midnight, midnight + timedelta(days=1)) == timedelta(hours=2)
    assert after(NIGHT, midnight, 7_200) == at("2026-03-08T08:00:00+00:00")
    assert is_open(NIGHT, at("2026-03-08T07:00:00+00:00"))  # 03:00, right after the gap


def test_the_hour_that_a_clock_reads_twice_is_open_twice() -> None:
    """2026-11-01 in New York: 01:00 to 02:00 comes twice, so 01:00 to 04:00 has four hours."""
    midnight = at("2026-11-01T04:00:00+00:00")
    assert open_between(NIGHT, midnight, midnight + timedelta(days=1)) == timedelta(hours=4)
    assert after(NIGHT, midnight, 4 * 3_600) == at("2026-11-01T09:00:00+00:00")
    assert open_between(ALWAYS, midnight, at("2026-11-02T05:00:00+00:00")) == timedelta(hours=25)


def test_a_range_that_lies_in_the_gap_opens_where_the_clock_goes_on() -> None:
    half = Calendar("half", "America/New_York", (((150, 300),),) * 7)  # 02:30 to 05:00
    assert not is_open(half, at("2026-03-08T06:59:59+00:00"))
    assert is_open(half, at("2026-03-08T07:00:00+00:00"))
    inside = Calendar("inside", "America/New_York", (((130, 170),),) * 7)  # 02:10 to 02:50, which does not come
    assert open_between(inside, at("2026-03-08T05:00:00+00:00"), at("2026-03-09T04:00:00+00:00")) == timedelta()


@pytest.mark.parametrize("zone", ["America/Havana", "Asia/Beirut", "Africa/Cairo", "Australia/Lord_Howe", "America/Santiago", "UTC"])
def test_zones_whose_clocks_change_at_midnight_or_by_half_an_hour_lose_and_gain_nothing(zone: str) -> None:
    whole = Calendar("whole", zone, (((0, 1440),),) * 7)
    year = at("2026-01-01T00:00:00+00:00")
    assert open_between(whole, year, year + timedelta(days=365)) == timedelta(days=365)


def wall_clock_open(calendar: Calendar, moment: datetime) -> bool:
    here = moment.astimezone(ZoneInfo(calendar.zone))
    minute = here.hour * 60 + here.minute
    ranges = () if here.date().isoformat() in calendar.holidays else calendar.week[here.weekday()]
    return any(first <= minute < last for first, last in ranges)


moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))  # noqa: DTZ001
calendars = st.sampled_from([OFFICE, NIGHT, ALWAYS, Calendar("odd", "Australia/Lord_Howe", (((30, 150), (200, 1440)),) * 7)])


@given(calendars, moments)
def test_it_is_open_when_the_clocks_on_the_wall_say_so(calendar: Calendar, moment: datetime) -> None:
    assert is_open(calendar, moment) is wall_clock_open(calendar, moment)


@given(calendars, moments, st.integers(1, 400_000))
def test_a_deadline_has_exactly_so_much_open_time_before_it(calendar: Calendar, since: datetime, seconds: int) -> None:
    until = after(calendar, since, seconds)
    assert until.tzinfo is UTC
    assert open_between(calendar, since, until) == timedelta(seconds=seconds)
    assert open_between(calendar, since, until - timedelta(microseconds=1)) < timedelta(seconds=seconds)


@given(calendars, moments, st.integers(1, 100_000), st.integers(0, 100_000))
def test_later_begun_or_longer_is_never_sooner(calendar: Calendar, since: datetime, seconds: int, more: int) -> None:
    assert after(calendar, since, seconds) <= after(calendar, since, seconds + more)
    assert after(calendar, since, seconds) <= after(calendar, since + timedelta(seconds=more), seconds)


def test_what_is_never_open_is_told_and_not_searched_for_ever() -> None:
    with pytest.raises(OverflowError, match=str(LONGEST_DAYS)):
        after(Calendar("never", "UTC", ((),) * 7), at("2026-09-07T00:00:00+00:00"), 1)


def test_a_review_counts_each_rung_by_its_own_hours_and_reads_back_as_it_was_recorded() -> None:
    rungs = (Rung("team", "reviewer", 3_600, 8 * 3_600, "office"), Rung("managers", "manager", 3_600, 7_200))
    review = Review("reviewer", 1, rungs, ("anna@example.com",), reasons_required=True, evidence=("photo",), calendars=(OFFICE,))
    friday = at("2026-09-11T13:00:00+00:00")
    assert review.remind_at(0, friday) == at("2026-09-11T14:00:00+00:00")
    assert review.decide_by(0, friday) == at("2026-09-14T13:00:00+00:00")
    assert review.decide_by(1, friday) == friday + timedelta(hours=2)
    assert review.ends_by(friday) == at("2026-09-14T15:00:00+00:00")
    plain = {
        "role": "reviewer",
        "people": 1,
        "ladder": [
            {"queue": "team", "role": "reviewer", "remind_after_s": 3_600, "decide_within_s": 28_800, "hours": "office"},
            {"queue": "managers", "role": "manager", "remind_after_s": 3_600, "decide_within_s": 7_200, "hours": None},
        ],
        "specialists": ["anna@example.com"],
        "reasons_required": True,
        "evidence": ["photo"],
        "calendars": [{"name": "office", "zone": "Europe/Berlin", "week": [[[540, 1020]]] * 5 + [[], []], "holidays": ["2026-12-25"]}],
    }
    assert Review.from_plain(plain) == review


def test_a_review_that_was_recorded_before_there_were_calendars_still_reads() -> None:
    old = {"role": "manager", "people": 2, "ladder": [{"queue": "m", "role": "manager", "remind_after_s": 1, "decide_within_s": 2}]}
    review = Review.from_plain(old)
    assert (review.specialists, review.reasons_required, review.evidence, review.ladder[0].hours) == ((), False, (), None)
    assert due(None, at("2026-09-07T00:00:00+00:00"), 2) == review.decide_by(0, at("2026-09-07T00:00:00+00:00"))
