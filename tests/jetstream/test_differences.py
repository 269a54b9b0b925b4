"""A name in use is told with what differs from the existing stream, consumer, bucket or store."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conftest import MakeStream, Unique
from tests.support.server_lines import server_of

from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.streams import StreamConfig
from jetspark.errors import NameInUseError
from jetspark.full_client import JetStream, connect
from jetspark.jetstream.differences import differing
from jetspark.server import NatsServer


async def refused(call: Awaitable[object]) -> NameInUseError:
    with pytest.raises(NameInUseError) as caught:
        await call
    return caught.value


async def test_of_a_stream_and_a_consumer(js: JetStream, make_stream: MakeStream) -> None:
    name = await make_stream(max_msgs=7, max_age=90)
    subjects = [f"{name}.>"]
    error = await refused(
        js.create_stream(name=name, subjects=subjects, storage="memory", max_age=60)
    )
    assert str(error) == (
        f'Stream "{name}" exists with another configuration (max_age is 0:01:30, not 0:01:00; '
        "max_msgs is 7, and was not given): update it, or take another name."
    )
    assert error.differences == {"max_age": (90 * 10**9, 60 * 10**9), "max_msgs": (7, None)}
    await js.stream(name).create_consumer(name="w", ack_wait=5)
    error = await refused(js.stream(name).create_consumer(name="w", ack_wait=6))
    assert str(error) == (
        f'Consumer "w" of stream "{name}" exists with another configuration '
        "(ack_wait is 0:00:05, not 0:00:06): update it, or bind to it as it is."
    )


async def test_of_a_bucket_and_a_store_in_their_words(js: JetStream, unique: Unique) -> None:
    name = unique("B")
    await js.create_bucket(name, history=3)
    error = await refused(js.create_bucket(name, history=4, ttl=timedelta(seconds=9)))
    assert error.differences == {"history": (3, 4), "ttl": (0, 9 * 10**9)}
    assert "(ttl is 0:00:00, not 0:00:09; history is 3, not 4): update it" in str(error)
    await js.create_object_store(name)
    error = await refused(js.create_object_store(name, description="d"))
    assert f'Object store "{name}" exists with another configuration (description is' in str(error)


def test_what_a_server_fills_in_is_no_difference() -> None:
    wanted: dict[str, Any] = {"name": "S", "sources": [{"name": "T"}], "metadata": {"k": "v"}}
    wanted |= {"subjects": ["a"], "placement": None}
    existing = {"retention": "limits", "max_bytes": -1, "num_replicas": 1, "duplicate_window": 9}
    existing |= wanted | {"sources": [{"name": "T", "opt_start_seq": 0}]}
    existing["metadata"] = {"k": "v", "_nats.ver": "2.15"}
    assert differing(StreamConfig, existing, wanted) == {}
    other = wanted | {"sources": [{"name": "U"}]}
    assert differing(StreamConfig, existing, other).keys() == {"sources"}


MOMENT = datetime(2024, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC)
ELSEWHERE = MOMENT.astimezone(timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    "text",
    ["2024-01-02T03:04:05.6Z", "2024-01-02T03:04:05.600000000Z", "2024-01-02T05:04:05.60+02:00"],
)
def test_a_moment_has_many_texts_and_another_text_is_no_difference(text: str) -> None:
    time = {"opt_start_time": text}
    other = {"opt_start_time": "2024-01-02T03:04:05.600000001Z"}
    same = {"opt_start_time": "2024-01-02T03:04:05.6Z"}
    assert differing(ConsumerConfig, same, time) == {}
    assert differing(ConsumerConfig, other, time) == {
        "opt_start_time": (other["opt_start_time"], text)
    }
    for field, wrap in (("mirror", dict[str, str]), ("sources", lambda one: [one])):
        there, here, not_here = ({field: wrap({"name": "T", **one})} for one in (same, time, other))
        assert differing(StreamConfig, there, here) == {}
        assert differing(StreamConfig, there, not_here).keys() == {field}
    # What only looks like a time is a text.
    described = {"description": text}, {"description": f"{text} "}
    assert differing(ConsumerConfig, *described).keys() == {"description"}


async def test_a_start_time_that_is_the_same_is_not_told(js: JetStream, stream: str) -> None:
    start = ConsumerConfig(durable_name="w", deliver_policy="by_start_time", opt_start_time=MOMENT)
    await js.stream(stream).create_consumer(start)
    await js.stream(stream).create_consumer(start, opt_start_time=ELSEWHERE)
    error = await refused(js.stream(stream).create_consumer(start, ack_wait=5))
    assert error.differences == {"ack_wait": (30 * 10**9, 5 * 10**9)}


async def test_the_oldest_server_binds_to_what_is_the_same() -> None:
    start = ConsumerConfig(durable_name="w", deliver_policy="by_start_time", opt_start_time=MOMENT)
    with NatsServer(binary=server_of("2.9")) as server:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(name="S", subjects=["s"])
            await js.stream("S").create_consumer(start)
            same_start = await js.stream("S").create_consumer(start, opt_start_time=ELSEWHERE)
            assert same_start.name == "w"
            later = MOMENT + timedelta(microseconds=1)
            error = await refused(js.stream("S").create_consumer(start, opt_start_time=later))
            assert error.differences.keys() == {"opt_start_time"}
            # With the server's defaults, and none of what it has without them.
            defaults = {"ack_wait": 30 * 10**9, "max_deliver": -1, "replay_policy": "instant"}
            await js.stream("S").create_consumer({"durable_name": "d", "ack_policy": "explicit"})
            same = {"durable_name": "d", "ack_policy": "explicit", **defaults}
            assert (await js.stream("S").create_consumer(same)).name == "d"
            await js.stream("S").create_consumer(durable_name="e", description="d")
            error = await refused(js.stream("S").create_consumer(durable_name="e"))
            assert error.differences == {"description": ("d", None)}
