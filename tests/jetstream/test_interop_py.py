"""Field by field with an independent client: what ours makes nats-py reads, and the reverse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nats
import nats.js.api as peer_api
import pytest
from tests.conftest import NeedsServer, Unique
from tests.jetstream.peer_configs import CONSUMERS, STREAMS, consumer_config, differs, stream_config
from tests.support.cluster import Cluster

from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.document import (
    Document,
    DocumentT,
    exact_ns,
    field_names,
    timestamp_of_text,
    to_wire,
)
from jetspark.documents.streams import Placement, StreamConfig
from jetspark.full_client import JetStream, connect


@pytest.fixture
def peer(py_peer: Any) -> Any:
    return py_peer.jetstream()


def plain(value: Any) -> Any:
    """Either client's values as wire values: seconds and timedeltas become nanoseconds."""
    if isinstance(value, timedelta):
        return exact_ns(value)
    if isinstance(value, datetime):
        return exact_ns(value) // 1000  # nats-py keeps microseconds
    if isinstance(value, Document):
        return {n: plain(v) for n in field_names(type(value)) if (v := getattr(value, n))}
    if isinstance(value, peer_api.Base):
        return {n: plain(v) for n, v in vars(value).items() if v}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value


DURATIONS = {
    *("max_age", "duplicate_window", "subject_delete_marker_ttl"),
    *("ack_wait", "idle_heartbeat", "inactive_threshold"),
}


def agree(ours: Document, theirs: Any) -> None:
    """Every field that nats-py knows has the same value on both sides."""
    compared = 0
    for name, value in vars(theirs).items():
        assert name in field_names(type(ours)), name
        mine = plain(getattr(ours, name))
        other = plain(value)
        if name == "backoff":
            other = value and [round(one * 1e9) for one in value]
        elif name == "consumer_limits" and value is not None:
            seconds = value.inactive_threshold
            other = {**other, "inactive_threshold": round(seconds * 1e9)} if seconds else {}
        elif name in DURATIONS and value is not None:
            other = round(value * 1e9)
        elif name in ("opt_start_time", "pause_until") and isinstance(value, str):
            other = timestamp_of_text(value).ns // 1000
        assert (mine or None) == (other or None), name
        compared += 1
    assert compared > 20


def known(ours: DocumentT, theirs: Any) -> DocumentT:
    """Without what the server adds, and what nats-py does not know and so does not make."""
    unknown = [name for name in field_names(type(ours)) if name not in vars(theirs)]
    return ours.replace(metadata=None, **dict.fromkeys(unknown)).replace(extra={})


@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_of_ours_is_read_by_the_peer_and_made_again(
    js: JetStream, peer: Any, unique: Unique, needs_server: NeedsServer, case: str
) -> None:
    needs_server(STREAMS[case])
    name = unique("S")
    config = stream_config(case, name)
    made = (await js.create_stream(config)).cached_info.config
    assert differs(made, {n: getattr(config, n) for n in field_names(StreamConfig)}) == set()
    theirs = (await peer.stream_info(name)).config
    agree(made, theirs)
    await js.delete_stream(name)

    # And back: the peer makes the same stream from what it read.
    await peer.add_stream(theirs)
    again = (await js.stream(name).info()).config
    agree(again, theirs)
    assert known(again, theirs) == known(made, theirs)
    assert again.extra == {}
    await js.delete_stream(name)


@pytest.mark.parametrize("case", CONSUMERS)
async def test_a_consumer_of_ours_is_read_by_the_peer_and_made_again(
    js: JetStream, peer: Any, stream: str, needs_server: NeedsServer, case: str
) -> None:
    needs_server(CONSUMERS[case])
    options = consumer_config(case, stream)
    handle = js.stream(stream)
    is_push = "deliver_subject" in options
    make = handle.create_push_consumer if is_push else handle.create_consumer
    made = (await make(**options)).cached_info.config
    assert differs(made, options) == set()
    theirs = (await peer.consumer_info(stream, "c")).config
    agree(made, theirs)
    await js.stream(stream).delete_consumer("c")

    if theirs.pause_until is None:  # nats-py sends only times of its own making
        await peer.add_consumer(stream, theirs)
        bind = handle.push_consumer if is_push else handle.consumer
        again = (await bind("c")).cached_info.config
        assert known(again, theirs) == known(made, theirs)
        assert again.extra == {}


async def test_priorities_are_read(js: JetStream, stream: str, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    options = consumer_config("pinned", stream) | consumer_config("limits of pulls", stream)
    config = ConsumerConfig(**options)
    info = (await js.stream(stream).create_consumer(config)).cached_info
    assert {name: to_wire(info.config)[name] for name in to_wire(config)} == to_wire(config)
    assert [state.group for state in info.priority_groups] == ["g"]
    assert info.extra == info.config.extra == {}


async def test_placement_is_read_back(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    tags = tmp_path / "tags.conf"
    tags.write_text("server_tags: [ssd, eu]\n", "utf-8")
    cluster = make_cluster(3, extra=("--config", str(tags)))
    async with connect(cluster.urls) as nc:
        js = JetStream(nc)
        placement = Placement(cluster="C1", tags=["ssd", "eu"])
        info = await js.create_stream(name="S", subjects=["s"], num_replicas=3, placement=placement)
        assert info.cached_info.config.placement == placement
        found = (await js.stream("S").info()).cluster
        assert found is not None
        assert (found.name, len(found.replicas), found.extra) == ("C1", 2, {})
        assert all(peer.extra == {} and peer.active is not None for peer in found.replicas)
        async with await nats.connect(nc.current_server or "") as connection:
            theirs = (await connection.jetstream().stream_info("S")).config
        assert plain(theirs.placement) == {"cluster": "C1", "tags": ["ssd", "eu"]}


async def test_messages_cross_between_both(js: JetStream, peer: Any, stream: str) -> None:
    await js.publish(f"{stream}.a", b"ours", headers={"K": "v"})
    await peer.publish(f"{stream}.a", b"theirs", headers={"K": "w"})
    consumer = await js.stream(stream).create_consumer(durable_name="c")
    mine = await consumer.fetch(2)
    wanted = [(b"ours", "v"), (b"theirs", "w")]
    assert [(msg.data, msg.headers and msg.headers["K"]) for msg in mine] == wanted
    subscription = await peer.pull_subscribe(f"{stream}.>", durable="d", stream=stream)
    other = await subscription.fetch(2)
    assert [(msg.data, msg.headers["K"]) for msg in other] == wanted
    # nats-py goes through a float and rounds.
    difference = mine[0].timestamp - other[0].metadata.timestamp
    assert abs(difference) <= timedelta(microseconds=1)
