"""Field by field with an independent client: what ours makes nats-py reads, and the reverse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import nats
import nats.js.api as peer_api
import pytest

from jetspark.face import connect
from jetspark.jetstream import JetStream
from jetspark.jetstream.document import Document, field_names, to_wire
from jetspark.jetstream.documents import (
    ConsumerConfig,
    ConsumerLimits,
    Placement,
    Republish,
    Source,
    StreamConfig,
    SubjectTransform,
    exact_ns,
)
from jetspark.jetstream.exact_times import timestamp_of_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.cluster import Cluster

    from jetspark.server import NatsServer


@pytest.fixture
async def peer(shared_server: NatsServer) -> AsyncIterator[Any]:
    connection = await nats.connect(shared_server.url)
    yield connection.jetstream()
    await connection.close()


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
    "max_age",
    "duplicate_window",
    "subject_delete_marker_ttl",
    "ack_wait",
    "idle_heartbeat",
    "inactive_threshold",
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


def stream_configs(name: str) -> list[StreamConfig]:
    ours = StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory")
    return [
        ours,
        ours.replace(
            description="everything",
            retention="limits",
            max_consumers=7,
            max_msgs=1000,
            max_bytes=1_000_000,
            max_age=timedelta(hours=1, microseconds=1),
            max_msgs_per_subject=3,
            max_msg_size=10_000,
            discard="new",
            discard_new_per_subject=True,
            storage="file",
            num_replicas=1,
            duplicate_window=timedelta(seconds=30),
            compression="s2",
            first_seq=100,
            subject_transform=SubjectTransform(src=f"{name}.a", dest=f"{name}.b"),
            republish=Republish(src=f"{name}.>", dest=f"re.{name}.>", headers_only=True),
            allow_direct=True,
            deny_delete=True,
            deny_purge=True,
            consumer_limits=ConsumerLimits(
                inactive_threshold=timedelta(minutes=1), max_ack_pending=50
            ),
            allow_msg_ttl=True,
            allow_atomic=True,
            allow_batched=True,
            metadata={"k": "v"},
        ),
        ours.replace(allow_msg_counter=True, allow_direct=True),
        ours.replace(
            allow_msg_schedules=True,
            allow_rollup_hdrs=True,
            subject_delete_marker_ttl=timedelta(seconds=5),
        ),
        ours.replace(retention="workqueue", storage="file", persist_mode="async"),
        ours.replace(retention="interest", no_ack=True),
        StreamConfig(
            name=name,
            storage="memory",
            sources=[
                Source(
                    name="ORIGIN",
                    opt_start_time=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
                    subject_transforms=[SubjectTransform(src="o.*", dest="p.{{wildcard(1)}}")],
                ),
                Source(name="SECOND", opt_start_seq=5, filter_subject="o.x"),
            ],
        ),
        StreamConfig(name=name, storage="memory", mirror=Source(name="ORIGIN"), mirror_direct=True),
    ]


@pytest.mark.parametrize("number", range(8))
async def test_a_stream_of_ours_is_read_by_the_peer_and_made_again(
    js: JetStream,
    peer: Any,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
    number: int,
) -> None:
    needs_server({1: "2.14", 2: "2.12", 3: "2.12", 4: "2.12", 6: "2.10"}.get(number, "2.9"))
    name = unique("S")
    config = stream_configs(name)[number]
    made = (await js.create_stream(config)).config
    for field in field_names(StreamConfig):
        wanted = getattr(config, field)
        if wanted is not None and field not in ("metadata",):
            assert getattr(made, field) == wanted, field
    theirs = (await peer.stream_info(name)).config
    agree(made, theirs)
    await js.delete_stream(name)

    # And back: the peer makes the same stream from what it read.
    await peer.add_stream(theirs)
    again = (await js.stream_info(name)).config
    agree(again, theirs)
    assert again.replace(metadata=None) == made.replace(metadata=None)
    assert again.extra == {}
    await js.delete_stream(name)


def consumer_configs(stream: str) -> list[dict[str, Any]]:
    return [
        {"durable_name": "c"},
        {
            "durable_name": "c",
            "description": "everything of a pull consumer",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 7,
            "ack_policy": "explicit",
            "max_deliver": 5,
            "backoff": [timedelta(seconds=1), timedelta(seconds=3, microseconds=5)],
            "ack_wait": timedelta(seconds=1),
            "filter_subjects": [f"{stream}.a", f"{stream}.b.>"],
            "replay_policy": "original",
            "sample_freq": "30",
            "max_waiting": 9,
            "max_ack_pending": 11,
            "headers_only": True,
            "inactive_threshold": timedelta(minutes=2),
            "num_replicas": 1,
            "mem_storage": True,
            "metadata": {"k": "v"},
        },
        {
            "durable_name": "c",
            "deliver_policy": "by_start_time",
            "opt_start_time": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
            "ack_policy": "all",
            "filter_subject": f"{stream}.a",
            "pause_until": datetime(2036, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        },
        {
            "durable_name": "c",
            "deliver_policy": "last_per_subject",
            "ack_policy": "none",
            "filter_subject": f"{stream}.>",
            "deliver_subject": "somewhere",
            "deliver_group": "group",
            "rate_limit_bps": 1_000_000,
        },
        {
            "durable_name": "c",
            "deliver_subject": "somewhere",
            "flow_control": True,
            "idle_heartbeat": timedelta(seconds=5),
        },
    ]


@pytest.mark.parametrize("number", range(5))
async def test_a_consumer_of_ours_is_read_by_the_peer_and_made_again(
    js: JetStream, peer: Any, stream: str, needs_server: Callable[[str], None], number: int
) -> None:
    needs_server({1: "2.10", 2: "2.11"}.get(number, "2.9"))
    options = consumer_configs(stream)[number]
    make = js.create_push_consumer if "deliver_subject" in options else js.create_consumer
    made = (await make(stream, **options)).cached_info.config
    for field, wanted in options.items():
        if field != "metadata":
            assert getattr(made, field) == wanted, field
    theirs = (await peer.consumer_info(stream, "c")).config
    agree(made, theirs)
    await js.delete_consumer(stream, "c")

    if theirs.pause_until is None:  # nats-py sends only times of its own making
        await peer.add_consumer(stream, theirs)
        again = (await js.consumer_info(stream, "c")).config
        assert again.replace(metadata=None) == made.replace(metadata=None)
        assert again.extra == {}


async def test_priority_groups_are_read_back(
    js: JetStream, stream: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    config = ConsumerConfig(
        durable_name="c",
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=timedelta(seconds=20),
        max_batch=10,
        max_expires=timedelta(seconds=30),
        max_bytes=100_000,
    )
    info = (await js.create_consumer(stream, config)).cached_info
    assert {name: to_wire(info.config)[name] for name in to_wire(config)} == to_wire(config)
    assert [state.group for state in info.priority_groups] == ["g"]
    assert info.extra == info.config.extra == {}


async def test_where_a_stream_lives_is_read_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(3)
    async with connect(cluster.urls) as nc:
        js = JetStream(nc)
        info = await js.create_stream(
            name="S", subjects=["s"], num_replicas=3, placement=Placement(cluster="C1")
        )
        assert info.config.placement == Placement(cluster="C1")
        found = (await js.stream_info("S")).cluster
        assert found is not None
        assert (found.name, len(found.replicas), found.extra) == ("C1", 2, {})
        assert all(peer.extra == {} and peer.active is not None for peer in found.replicas)


async def test_messages_cross(js: JetStream, peer: Any, stream: str) -> None:
    await js.publish(f"{stream}.a", b"ours", headers={"K": "v"})
    await peer.publish(f"{stream}.a", b"theirs", headers={"K": "w"})
    consumer = await js.create_consumer(stream, durable_name="c")
    mine = await consumer.fetch(2)
    assert [(msg.data, msg.headers and msg.headers["K"]) for msg in mine] == [
        (b"ours", "v"),
        (b"theirs", "w"),
    ]
    subscription = await peer.pull_subscribe(f"{stream}.>", durable="d", stream=stream)
    other = await subscription.fetch(2)
    assert [(msg.data, msg.headers["K"]) for msg in other] == [(b"ours", "v"), (b"theirs", "w")]
    # nats-py goes through a float and rounds.
    difference = mine[0].timestamp - other[0].metadata.timestamp
    assert abs(difference) <= timedelta(microseconds=1)
