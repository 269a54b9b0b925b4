"""The time to live of one message (ADR-43)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique
from tests.jetstream.conftest import ServerIs, holds

from jetspark.errors import ConfigError, NotEnabledOnStreamError, UnsupportedByServerError
from jetspark.full_client import Client, JetStream
from jetspark.jetstream.publish_request import ttl_text


@pytest.fixture
async def mortal(js: JetStream, stream: str, needs_server: NeedsServer) -> str:
    """A stream that lets messages have a time to live."""
    needs_server("2.11")
    await js.stream(stream).update(allow_msg_ttl=True)
    return stream


@pytest.mark.parametrize(
    ("ttl", "text"), [(1, "1"), (90.0, "90"), (timedelta(hours=1), "3600"), ("never", "never")]
)
def test_a_message_ttl_is_whole_seconds_or_never(ttl: Any, text: str) -> None:
    assert ttl_text(ttl) == text


FAR = timedelta(days=365 * 250)
"""The server adds it to its clock: more than 64 bits of nanoseconds since 1970."""


async def test_what_would_end_later_than_the_server_counts_is_refused_before_it_is_sent(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    bucket = await js.create_bucket(unique("b"), limit_marker_ttl=60, storage="memory")
    before = js.client.stats.out_msgs
    for ttl in (FAR, FAR.total_seconds(), 10**10, timedelta.max):
        for call in (
            js.publish("a", ttl=ttl),
            bucket.create("k", b"v", ttl=ttl),
            bucket.purge("k", ttl=ttl),
        ):
            with pytest.raises(ConfigError, match="ttl ends after"):
                await call
    for option, given in (
        ("target_ttl", js.schedule("a", target="b", every=60, target_ttl=FAR)),
        ("every", js.schedule("a", target="b", every=FAR)),
        ("limit_marker_ttl", js.create_bucket("b", limit_marker_ttl=FAR)),
        ("subject_delete_marker_ttl", js.create_stream(name="s", subject_delete_marker_ttl=FAR)),
    ):
        with pytest.raises(ConfigError, match=f"{option} ends after"):
            await given
    assert js.client.stats.out_msgs == before
    await js.delete_bucket(bucket.name)


async def test_ttl_of_two_hundred_years_is_kept(js: JetStream, mortal: str) -> None:
    ack = await js.publish(f"{mortal}.a", ttl=timedelta(days=365 * 200))
    await js.publish(f"{mortal}.b", ttl=1)
    await holds(js, mortal, 1)
    assert (await js.stream(mortal).get(ack.seq)).seq == ack.seq


@pytest.mark.parametrize(
    "ttl", [0, -1, 0.5, 1.5, timedelta(milliseconds=1500), "1h", float("nan"), float("inf")]
)
async def test_any_other_ttl_is_refused_before_it_is_sent(js: JetStream, ttl: Any) -> None:
    before = js.client.stats.out_msgs
    with pytest.raises(ConfigError):
        await js.publish("a", ttl=ttl)
    assert js.client.stats.out_msgs == before


async def test_a_message_with_ttl_expires_and_others_stay(js: JetStream, mortal: str) -> None:
    await js.publish(f"{mortal}.a", ttl=1)
    await js.publish(f"{mortal}.b", ttl="never")
    async with js.publisher() as publisher:
        await publisher.publish(f"{mortal}.c", ttl=timedelta(seconds=1))
        await (await publisher.publish_async(f"{mortal}.d", ttl=60))
    await holds(js, mortal, 2)
    stored = await js.stream(mortal).get(4)
    assert stored.headers is not None
    assert stored.headers.to_dict() == {"Nats-TTL": ["60"]}


async def test_ttl_on_a_stream_without_ttl_is_refused(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    with pytest.raises(NotEnabledOnStreamError, match="is off") as refused:
        await js.publish(f"{stream}.a", ttl=1)
    assert (refused.value.option, refused.value.err_code) == ("allow_msg_ttl", 10166)
    async with js.publisher() as publisher:
        await publisher.publish(f"{stream}.a", ttl=1)
        await publisher.flush()
        (failure,) = publisher.failed
    assert isinstance(failure.error, NotEnabledOnStreamError)


async def test_a_ttl_is_refused_for_older_servers(
    js: JetStream, nc: Client, server_is: ServerIs
) -> None:
    server_is("2.10.26")
    before = nc.stats.out_msgs
    with pytest.raises(UnsupportedByServerError, match=r"needs nats-server >= 2\.11"):
        await js.publish("a", ttl=1)
    async with js.publisher() as publisher:
        with pytest.raises(UnsupportedByServerError):
            await publisher.publish("a", ttl=1)
        assert publisher.sent == 0
    assert nc.stats.out_msgs == before
