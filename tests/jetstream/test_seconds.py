"""Times that callers give are seconds or a timedelta, and exact to the nanosecond."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blocking.test_twins import TWINS, surface
from tests.conftest import Unique

from jetspark.connection.options import ConnectOptions
from jetspark.documents.configuration import config_to_wire
from jetspark.documents.document import (
    Duration,
    Timestamp,
    exact_ns,
    text_of_time,
    timestamp_of_text,
)
from jetspark.documents.streams import StreamConfig
from jetspark.errors import BadTimeoutError, ConfigError, RequestTimeoutError
from jetspark.full_client import Client, JetStream
from jetspark.timestamps import in_seconds

TIMES = {"timeout", "heartbeat", "expires", "stall", "resync", "retry_for", "delay", "every"}
SHORT = timedelta(milliseconds=50)


def test_a_time_is_seconds_or_a_timedelta() -> None:
    assert in_seconds(1.5) == in_seconds(timedelta(seconds=1.5)) == 1.5
    assert in_seconds(None) is None


def test_every_time_of_a_public_call_may_be_either() -> None:
    found = {
        f"{cls.__module__}.{cls.__name__}.{call}: {name}": str(parameter.annotation)
        for pair in TWINS.items()
        for cls in pair
        for call, value in surface(cls).items()
        if inspect.isfunction(value)
        for name, parameter in inspect.signature(value).parameters.items()
        if name in TIMES
    }
    assert len(found) > 100
    assert {
        call: text
        for call, text in found.items()
        if "Seconds" not in text and "timedelta" not in text
    } == {}


def test_options_of_a_connection_keep_seconds() -> None:
    options = ConnectOptions(connect_timeout=timedelta(seconds=3), reconnect_wait=0.5)  # type: ignore[arg-type]
    assert (options.connect_timeout, options.reconnect_wait) == (3.0, 0.5)
    with pytest.raises(ConfigError):
        ConnectOptions(ping_interval=timedelta(0))  # type: ignore[arg-type]


@pytest.mark.server
async def test_times_as_timedeltas(nc: Client, js: JetStream, stream: str, unique: Unique) -> None:
    sub = nc.subscribe(unique("nothing"))
    with pytest.raises(RequestTimeoutError, match=r"0\.05 s"):
        await sub.next(SHORT)
    with pytest.raises(RequestTimeoutError):
        await nc.request(sub.subject, timeout=SHORT)
    with pytest.raises(RequestTimeoutError):
        await nc.request_many(sub.subject, timeout=SHORT, stall=SHORT).all()
    with pytest.raises(BadTimeoutError):
        await nc.request(sub.subject, timeout=timedelta(0))
    await nc.flush(timedelta(seconds=20))
    await sub.drain(timedelta(seconds=20))
    consumer = await js.stream(stream).create_consumer(name="c")
    assert await consumer.fetch(1, timeout=SHORT) == []
    for short in (SHORT, 0.05):
        with pytest.raises(RequestTimeoutError, match=r"No message .* within 0\.05 s"):
            await consumer.next(short)
    await js.publish(f"{stream}.a", b"1", timeout=timedelta(seconds=20))
    patient = {"timeout": timedelta(seconds=20), "retry_for": timedelta(seconds=20)}
    async with js.publisher(**patient) as publisher:  # type: ignore[arg-type]
        await publisher.publish(f"{stream}.a", b"2")
    seconds = timedelta(seconds=2)
    async with consumer.consume(expires=seconds, heartbeat=seconds / 4) as messages:
        message = await messages.next(timedelta(seconds=20))
        await message.ack_sync(timeout=timedelta(seconds=20))
        again = await messages.next(timedelta(seconds=20))
        with pytest.raises(ConfigError, match="delay ends after"):
            await again.nak(timedelta.max)
        await again.nak(SHORT)
        await messages.drain(timedelta(seconds=20))
    async with js.stream(stream).ordered(heartbeat=seconds, inactive_threshold=20) as ordered:
        assert (await ordered.next(timedelta(seconds=20))).data == b"1"


@pytest.mark.server
async def test_options_may_be_in_seconds(js: JetStream, stream: str, unique: Unique) -> None:
    made = await js.create_stream(name=unique("T"), max_age=3600, duplicate_window=1.5)
    assert made.cached_info.config.max_age == timedelta(hours=1)
    assert made.cached_info.config.duplicate_window == timedelta(seconds=1.5)
    changed = await made.update(max_age=7200.5)
    assert changed.config.max_age == timedelta(seconds=7200.5)
    three, four = timedelta(seconds=3), timedelta(seconds=4)
    consumer = await js.stream(stream).create_consumer(
        ack_wait=3, backoff=[3, four], inactive_threshold=60, max_deliver=3
    )
    config = consumer.cached_info.config
    assert (config.ack_wait, config.backoff) == (three, [three, four])
    assert config.inactive_threshold == timedelta(minutes=1)
    bucket = await js.create_bucket(unique("B"), ttl=600)
    assert (await bucket.status()).ttl == timedelta(minutes=10)
    await js.update_bucket(bucket.name, ttl=timedelta(minutes=11))
    store = await js.create_object_store(unique("O"), ttl=600)
    assert (await store.status()).ttl == timedelta(minutes=10)
    await js.delete_object_store(store.name)
    await js.delete_bucket(bucket.name)
    await js.delete_stream(made.name)


@pytest.mark.parametrize("value", [3_600_000_000_000, -1e9, float("inf"), float("nan")])
def test_nanoseconds_are_not_taken_for_seconds(value: float) -> None:
    with pytest.raises(ConfigError, match=r"max_age: .* too many"):
        config_to_wire(StreamConfig, None, {"max_age": value})


def test_plain_numbers_of_wire_documents_are_nanoseconds() -> None:
    wire = config_to_wire(StreamConfig, {"max_age": 5}, {"duplicate_window": 5})
    assert wire == {"max_age": 5, "duplicate_window": 5_000_000_000}


def test_seconds_alias_equals_the_type_of_in_seconds() -> None:
    hints = typing.get_type_hints(in_seconds)
    assert set(typing.get_args(hints["value"])) == {float, timedelta, type(None)}


# -- exact to the nanosecond -------------------------------------------------------------------


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
