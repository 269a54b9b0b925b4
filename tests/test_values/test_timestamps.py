from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import ConfigError
from jetspark.timestamps import (
    MAX_SECONDS,
    datetime_to_ns,
    duration_to_ns,
    format_isotime,
    in_seconds,
    ns_from_now,
    ns_to_datetime,
    ns_to_timedelta,
    parse_isotime,
)

YEAR_1 = -62135596800 * 10**9
YEAR_9999 = 253402300799 * 10**9


@given(st.integers(YEAR_1, YEAR_9999))
def test_no_nanosecond_is_lost_in_text(ns: int) -> None:
    assert parse_isotime(format_isotime(ns)) == ns


@given(st.datetimes(timezones=st.just(UTC)))
def test_datetimes_go_both_ways(value: datetime) -> None:
    assert ns_to_datetime(datetime_to_ns(value)) == value
    assert parse_isotime(value.isoformat()) == datetime_to_ns(value)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_isotime_with_an_offset_is_read(naive: datetime, minutes: int) -> None:
    value = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_isotime(value.isoformat()) == datetime_to_ns(value)


@given(st.timedeltas(timedelta(days=-10000), timedelta(days=10000)))
def test_durations_go_both_ways(value: timedelta) -> None:
    assert ns_to_timedelta(duration_to_ns(value)) == value


def test_isotime_of_known_times() -> None:
    assert parse_isotime("2013-01-01T05:15:00.123456789Z") == 1357017300123456789
    assert parse_isotime("2013-01-01t05:15:00.1234567891z") == 1357017300123456789
    assert format_isotime(0) == "1970-01-01T00:00:00Z"
    assert format_isotime(-1) == "1969-12-31T23:59:59.999999999Z"
    assert format_isotime(YEAR_1) == "0001-01-01T00:00:00Z"
    assert duration_to_ns(1.5) == 1_500_000_000


@pytest.mark.parametrize("text", ["", "2013-01-01", "2013-01-01T05:15:00", "2013-13-01T00:00:00Z"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_isotime(text)


def test_a_datetime_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError):
        datetime_to_ns(datetime(2020, 1, 1))


def test_a_time_that_is_not_a_number_is_refused() -> None:
    for convert in (in_seconds, duration_to_ns):
        with pytest.raises(ValueError):
            convert(math.nan)


@pytest.mark.parametrize("wrong", [True, False])
def test_a_time_is_no_bool(wrong: bool) -> None:
    for convert in (in_seconds, duration_to_ns, partial(ns_from_now, "ttl")):
        with pytest.raises(ConfigError, match=rf" is seconds or a timedelta, not {wrong}"):
            convert(wrong)


def test_a_time_without_end_is_seconds_but_no_duration() -> None:
    assert in_seconds(math.inf) == in_seconds(10**400) == MAX_SECONDS
    assert in_seconds(-math.inf) == in_seconds(-(10**400)) == -MAX_SECONDS
    for wrong in (math.inf, -math.inf, 1e300, 10**400):
        with pytest.raises(ConfigError, match=r"^A duration has too many seconds, "):
            duration_to_ns(wrong)
    with pytest.raises(ConfigError, match="delay ends after the year 2262"):
        ns_from_now("delay", math.inf)
