"""Values that nobody expects: the sentences that refuse them are short, and name the argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from jetspark import PreparedMessage
from jetspark.documents.consumers import ConsumerConfig
from jetspark.errors import BadSubjectError, ConfigError, JetsparkError, shown, user_error
from jetspark.subjects import check_name
from jetspark.timestamps import datetime_to_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import Client, JetStream


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no repr")


class Talkative(Exception):
    def __repr__(self) -> str:
        return "x" * 1_000_000


ODD: dict[str, Any] = {
    "raises": Unspeakable(),
    "is long": Talkative(),
    "array": np.array([1, 2]),
    "array without a dimension": np.array(5),
    "no array": np.array([]),
}

# Some calls take some of them.
NUMBER = ("array without a dimension",)
BYTES = LISTS = ("array", "no array")


def test_a_repr_in_a_sentence_is_short_and_raises_nothing() -> None:
    assert shown(Unspeakable()) == "<Unspeakable>"
    assert shown(Talkative()) == "x" * 79 + "…"
    assert shown("a" * 78) == repr("a" * 78)
    assert len(str(user_error("A callback", Talkative()))) < 600


@pytest.mark.parametrize("odd", ODD)
async def test_odd_values_are_refused_in_a_short_sentence(
    js: JetStream, nc: Client, unique: Callable[[str], str], odd: str
) -> None:
    value = ODD[odd]
    bucket = await js.create_bucket(unique("b"), storage="memory")
    calls: list[Callable[[], Any]] = [
        lambda: nc.publish(value),
        lambda: nc.publish("a", reply=value),
        lambda: _refused() if odd in BYTES else nc.publish("a", value),
        lambda: _refused() if odd in LISTS else nc.publish("a", headers={"a": value}),
        lambda: js.get_msg(bucket.stream, 1, direct=value),
        lambda: bucket.get("k", leader=value),
        lambda: _refused() if odd in NUMBER else bucket.get("k", revision=value),
        lambda: _refused() if odd in NUMBER else bucket.delete("k", revision=value),
        lambda: js.publish("a", msg_id=value),
        lambda: js.stream_info(value),
        lambda: js.create_stream(name=value),
    ]
    for number, call in enumerate(calls):
        with pytest.raises((JetsparkError, TypeError)) as refused:
            await call()
        assert len(str(refused.value)) < 300, number
    if odd in ("array without a dimension", "raises"):
        for listing in (lambda: js.ordered("S", subjects=value), lambda: bucket.keys(value)):
            with pytest.raises(ConfigError):
                listing()
    with pytest.raises(ConfigError):
        check_name("stream", value)
    await js.delete_bucket(bucket.name)


async def _refused() -> None:
    raise ConfigError("taken in this call")


async def test_errors_name_the_argument_that_the_caller_gave(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    bucket = await js.create_bucket(unique("b"), storage="memory")
    with pytest.raises(BadSubjectError, match="Bad reply subject 5"):
        await nc.publish("a", reply=5)  # type: ignore[arg-type]
    with pytest.raises(BadSubjectError, match="Bad reply subject 5"):
        PreparedMessage("a", reply=5)  # type: ignore[arg-type]
    with pytest.raises(BadSubjectError, match=r"Bad target 'a\.\*'"):
        await js.schedule("s", target="a.*", every=5)
    for wrong in ("x", -1, 2**64):
        for call in (bucket.get, bucket.delete, bucket.purge):
            with pytest.raises(ConfigError, match=r"^revision (is|cannot|must)"):
                await call("k", revision=wrong)  # type: ignore[arg-type]
    for reading in (bucket.get, bucket.get_value):
        with pytest.raises(ConfigError, match="leader is True or False, not None"):
            await reading("k", leader=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="inactive_threshold cannot be negative"):
        js.ordered("S", inactive_threshold=-1)
    with pytest.raises(ConfigError, match="inactive_threshold cannot be negative"):
        await js.create_consumer("S", inactive_threshold=timedelta(seconds=-1))
    await js.delete_bucket(bucket.name)


BEFORE = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=10)))
AFTER = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-10)))


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_time_outside_the_calendar_in_utc_is_refused(js: JetStream, when: datetime) -> None:
    with pytest.raises(ConfigError, match="in UTC, not in the years 1 to 9999"):
        datetime_to_ns(when)
    with pytest.raises(ConfigError, match="not in the years"):
        js.ordered("S", start_time=when)
    with pytest.raises(ConfigError, match="not in the years"):
        js.get_msgs("S", start_time=when)
    with pytest.raises(ConfigError, match="not in the years"):
        ConsumerConfig(opt_start_time=when)


def test_the_first_and_the_last_moment_of_the_calendar_are_times() -> None:
    for moment in (datetime.min, datetime.max):
        datetime_to_ns(moment.replace(tzinfo=UTC))
