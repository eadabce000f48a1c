"""Ids sort by time and tell their kind; instants always have a zone."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refunds.clock import ShiftedClock, SystemClock, parse_rfc3339, rfc3339
from refunds.ids import Prefix, is_id, new_id, workflow_id


@pytest.mark.parametrize("prefix", list(Prefix))
def test_an_id_tells_its_kind(prefix: Prefix) -> None:
    made = new_id(prefix)
    assert [p for p in Prefix if is_id(made, p)] == [prefix]
    assert len(made) == len(prefix) + 27


def test_ids_are_unique_and_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({new_id(Prefix.REFUND) for _ in range(5_000)}) == 5_000
    made: list[str] = []
    for millis in (1, 31, 32, 1_789_000_000_000, 1_789_000_000_001, 2**47):
        for nanos in (0, 250, 500, 31_000, 500_000, 999_500, 999_999):  # what one transaction makes comes within a millisecond
            monkeypatch.setattr("refunds.ids.time.time_ns", lambda millis=millis, nanos=nanos: millis * 1_000_000 + nanos)
            made.append(new_id(Prefix.REFUND))
    assert made == sorted(made)


@pytest.mark.parametrize(
    "text", ["", "rf", "rf_", "rf_" + "0" * 25, "rf_" + "0" * 27, "rf_" + "u" * 26, "RF_" + "0" * 26, "xx_" + "0" * 26]
)
def test_what_is_no_id(text: str) -> None:
    assert not is_id(text, Prefix.REFUND)
    assert is_id("rf_" + "0" * 26, Prefix.REFUND)


def test_the_workflow_id_is_part_of_the_contract() -> None:
    assert workflow_id("rf_1") == "refund-rf_1"


# Without a zone on purpose: hypothesis adds one, and what has none is refused.
EARLIEST, LATEST = datetime.fromisoformat("1990-01-01T00:00:00"), datetime.fromisoformat("2200-01-01T00:00:00")
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(min_value=EARLIEST, max_value=LATEST, timezones=ZONES))
def test_an_instant_survives_being_written(moment: datetime) -> None:
    text = rfc3339(moment)
    assert text.endswith("Z")
    assert len(text) == 27
    assert parse_rfc3339(text) == moment
    assert rfc3339(parse_rfc3339(text)) == text


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        rfc3339(LATEST)
    with pytest.raises(ValueError, match="no time zone"):
        parse_rfc3339("2026-09-10T12:00:00")


def test_clocks_tell_utc_and_a_shifted_one_moves() -> None:
    assert SystemClock().now().tzinfo is UTC
    clock = ShiftedClock()
    before = clock.now()
    clock.advance(timedelta(days=2))
    assert timedelta(days=2) <= clock.now() - before < timedelta(days=2, minutes=1)
