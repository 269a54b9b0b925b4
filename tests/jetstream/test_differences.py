"""A name in use is told with what differs from the existing stream, consumer, bucket or store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jetspark.errors import NameInUseError
from jetspark.full_client import connect
from jetspark.jetstream.streams import differing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jetspark.full_client import JetStream
    from jetspark.server import NatsServer

Unique = Callable[[str], str]


@pytest.fixture
async def js(shared_server: NatsServer) -> AsyncIterator[JetStream]:
    async with connect(shared_server.url) as nc:
        yield nc.jetstream()


async def refused(call: Awaitable[object]) -> NameInUseError:
    with pytest.raises(NameInUseError) as caught:
        await call
    return caught.value


async def test_of_a_stream(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    await js.create_stream(name=name, subjects=[name], max_msgs=7, max_age=timedelta(seconds=90))
    error = await refused(js.create_stream(name=name, max_age=timedelta(seconds=60)))
    assert str(error) == (
        f'Stream "{name}" exists with another configuration (max_age is 0:01:30, not 0:01:00; '
        "max_msgs is 7, and was not given): update it, or take another name."
    )
    assert error.differences == {"max_age": (90 * 10**9, 60 * 10**9), "max_msgs": (7, None)}


async def test_of_a_consumer(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    await js.create_stream(name=name)
    await js.create_consumer(name, name="w", ack_wait=timedelta(seconds=5))
    error = await refused(js.create_consumer(name, name="w", ack_wait=timedelta(seconds=6)))
    assert str(error) == (
        f'Consumer "w" of stream "{name}" exists with another configuration '
        "(ack_wait is 0:00:05, not 0:00:06): update it, or bind to it as it is."
    )


async def test_of_a_bucket_and_an_object_store_in_their_words(
    js: JetStream, unique: Unique
) -> None:
    name = unique("B")
    await js.create_bucket(name, history=3)
    error = await refused(js.create_bucket(name, history=4, ttl=timedelta(seconds=9)))
    assert error.differences == {"history": (3, 4), "ttl": (0, 9 * 10**9)}
    assert "(ttl is 0:00:00, not 0:00:09; history is 3, not 4): update it" in str(error)
    await js.create_object_store(name)
    error = await refused(js.create_object_store(name, description="d"))
    assert f'Object store "{name}" exists with another configuration (description is' in str(error)


def test_what_a_server_fills_in_is_no_difference() -> None:
    wanted = {
        "name": "S",
        "subjects": ["a"],
        "sources": [{"name": "T"}],
        "metadata": {"k": "v"},
        "placement": None,
    }
    existing = {
        **wanted,
        "retention": "limits",
        "max_bytes": -1,
        "num_replicas": 1,
        "sources": [{"name": "T", "opt_start_seq": 0}],
        "metadata": {"k": "v", "_nats.ver": "2.15"},
        "duplicate_window": 10**9,
    }
    assert differing(existing, wanted) == {}
    assert differing(existing, wanted | {"sources": [{"name": "U"}]}).keys() == {"sources"}
