"""Durations and times are ordinary to people and exact to the nanosecond."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from jetspark.documents.document import (
    Duration,
    Timestamp,
    exact_ns,
    text_of_time,
    timestamp_of_text,
)

LONGEST = 2**63 - 1  # Go's int64


@given(st.integers(-LONGEST, LONGEST))
def test_a_duration_keeps_its_nanoseconds(ns: int) -> None:
    duration = Duration.from_ns(ns)
    assert duration.ns == exact_ns(duration) == ns
    assert duration // timedelta(microseconds=1) == ns // 1000
    assert pickle.loads(pickle.dumps(duration)).ns == copy.deepcopy(duration).ns == ns


@given(st.integers(0, LONGEST))
def test_a_time_keeps_its_nanoseconds_through_its_text(ns: int) -> None:
    time = Timestamp.from_ns(ns)
    assert timestamp_of_text(text_of_time(time)).ns == time.ns == ns
    assert pickle.loads(pickle.dumps(time)).ns == copy.copy(time).ns == ns


def test_they_are_equal_to_what_people_write() -> None:
    assert Duration.from_ns(5 * 10**9) == timedelta(seconds=5)
    assert Timestamp.from_ns(1_000_000_000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert hash(Duration.from_ns(5 * 10**9)) == hash(timedelta(seconds=5))


def test_nanoseconds_apart_is_not_equal() -> None:
    assert Duration.from_ns(1001) != Duration.from_ns(1002)
    assert Timestamp.from_ns(1001) != Timestamp.from_ns(1002)
    assert len({Duration.from_ns(1001), Duration.from_ns(1001)}) == 1


def test_arithmetic_and_zones_work() -> None:
    time = Timestamp.from_ns(1_700_000_000_123_456_789)
    later = time + Duration.from_ns(1_500)
    assert exact_ns(later) == 1_700_000_000_123_457_000
    assert exact_ns(time.astimezone(timezone(timedelta(hours=2)))) == 1_700_000_000_123_456_000
    assert time.replace(year=2000).year == 2000


def test_year_one_is_a_time() -> None:
    assert timestamp_of_text("0001-01-01T00:00:00Z").year == 1
