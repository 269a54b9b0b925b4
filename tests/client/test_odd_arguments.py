"""Values that nobody expects: sentences about them are short, and name the argument."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique

from jetspark.documents.consumers import ConsumerConfig
from jetspark.errors import BadSubjectError, ConfigError, JetsparkError, safe_repr, user_error
from jetspark.full_client import Client, JetStream
from jetspark.timestamps import datetime_to_ns


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class Talkative(Exception):
    def __repr__(self) -> str:
        return "x" * 1_000_000


def test_a_repr_in_a_sentence_is_short_and_raises_nothing() -> None:
    assert safe_repr(Unspeakable()) == "<Unspeakable>"
    assert safe_repr(Talkative()) == "x" * 79 + "…"
    assert safe_repr("a" * 78) == repr("a" * 78)
    assert len(str(user_error("A callback", Talkative()))) < 600


async def test_errors_name_the_argument_that_the_caller_gave(
    js: JetStream, nc: Client, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    with pytest.raises(BadSubjectError, match="reply subject 'a b'"):
        await nc.publish("a", reply="a b")
    with pytest.raises(BadSubjectError, match=r"Bad target 'a\.\*'"):
        await js.schedule("s", target="a.*", every=5)
    with pytest.raises(ConfigError, match="inactive_threshold cannot"):
        await js.stream("S").create_consumer(inactive_threshold=timedelta(seconds=-1))


BEFORE = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=10)))
AFTER = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-10)))


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_time_outside_the_calendar_in_utc_is_refused(js: JetStream, when: datetime) -> None:
    with pytest.raises(ConfigError, match="not in the years"):
        datetime_to_ns(when)
    with pytest.raises(ConfigError, match="not in the years"):
        js.stream("S").ordered(start_time=when)
    with pytest.raises(ConfigError, match="not in the years"):
        js.stream("S").get_many(start_time=when)
    with pytest.raises(ConfigError, match="not in the years"):
        ConsumerConfig(opt_start_time=when)


def test_the_first_and_the_last_moment_of_the_calendar_are_times() -> None:
    for moment in (datetime.min, datetime.max):
        datetime_to_ns(moment.replace(tzinfo=UTC))


ODD: tuple[Any, ...] = (
    *(True, -1, 1.5, float("nan"), float("inf"), 2**70, 10**5000, "", "a b", "\ud800", b"\xff"),
    *([], {}, [""], timedelta(days=-1), timedelta.max, datetime(2020, 1, 1), object()),
)


async def test_wrong_values_raise_our_errors_or_type_errors(js: JetStream, unique: Unique) -> None:
    """Not ValueError, OverflowError or AttributeError from somewhere inside."""
    name = unique("S")
    await js.create_stream(name=name, subjects=[f"{name}.>"])
    calls: list[Callable[[Any], Awaitable[object]]] = [
        lambda odd: js.publish(f"{name}.a", headers=odd),
        lambda odd: js.publish(f"{name}.a", ttl=odd),
        lambda odd: js.publish(f"{name}.a", expect_last_seq=odd),
        lambda odd: js.increment(f"{name}.a", odd),
        lambda odd: js.stream(name).update(max_msgs=odd),
        lambda odd: js.stream(name).update(max_age=odd),
        lambda odd: js.stream(name).update(description=odd),
        lambda odd: js.stream(name).update(republish=odd),
        lambda odd: js.stream(name).create_consumer(opt_start_time=odd),
        lambda odd: js.stream(name).create_consumer(pause_until=odd),
        lambda odd: js.stream(name).create_consumer(ack_wait=odd),
        lambda odd: js.stream(name).create_consumer(max_deliver=odd),
        lambda odd: js.create_bucket_aggregate(f"{name}-A", odd),
        lambda odd: js.create_bucket_mirror(f"{name}-M", odd),
        lambda odd: js.stream(name).get(odd),
    ]
    for number, call in enumerate(calls):
        for odd in ODD:
            try:
                await call(odd)
            except (JetsparkError, TypeError):
                pass
            except Exception as error:
                pytest.fail(f"call {number} with {safe_repr(odd)}: {error!r}")
