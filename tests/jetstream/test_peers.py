"""Replicas of streams and consumers move between the servers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.jetstream.eventually import eventually
from tests.support.server_lines import server_of

from jetspark import blocking, errors
from jetspark.full_client import connect
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import NeedsServer, Unique
    from tests.support.cluster import Cluster

    from jetspark.documents import ClusterInfo
    from jetspark.jetstream import Consumer, Stream


def servers(cluster: ClusterInfo | None) -> set[str]:
    """The servers that have a replica; empty while there is no leader or a move is in progress."""
    if cluster is None or not cluster.leader or cluster.desired is not None:
        return set()
    return {cluster.leader, *(replica.name for replica in cluster.replicas or ())}


@pytest.fixture
async def stream(
    nats_cluster: Cluster, unique: Unique, needs_server: NeedsServer
) -> AsyncIterator[Stream]:
    needs_server("2.15")
    name = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream(timeout=2)
        yield await js.create_stream(name=name, subjects=[name], num_replicas=2)
        await js.delete_stream(name)


async def has(handle: Stream | Consumer, wanted: set[str]) -> bool:
    try:
        return servers((await handle.info()).cluster) == wanted
    except (
        errors.RequestTimeoutError,  # a leader is elected
        errors.ClusterNotAvailError,
        errors.ConsumerNotFoundError,  # the new server does not have it yet
    ):
        return False


async def test_replicas_of_a_stream_move_between_servers(stream: Stream) -> None:
    everywhere = {f"shared-n{number}" for number in (1, 2, 3)}
    now = servers((await stream.info()).cluster)
    for move in (stream.evacuate_peer, stream.remove_peer):
        leaves = min(now)
        await move(leaves)
        now = everywhere - {leaves}
        await eventually(partial(has, stream, now), within=60)
    with pytest.raises(errors.ClusterPeerNotMemberError) as unknown:
        await stream.evacuate_peer("nobody")
    assert unknown.value.name == "ClusterPeerNotMember"
    await stream.update(num_replicas=3)
    await eventually(lambda: has(stream, everywhere), within=60)
    with pytest.raises(errors.PeerRemapError):
        await stream.evacuate_peer("shared-n1")


async def test_a_change_of_replicas_is_cancelled(stream: Stream) -> None:
    before = servers((await stream.info()).cluster)
    with pytest.raises(errors.StreamReconfigureNotInProgressError):
        await stream.cancel_move()
    await stream.update(num_replicas=3)
    info = await stream.cancel_move()
    assert info.config.num_replicas == 2
    assert stream.cached_info == info
    await eventually(partial(has, stream, before), within=60)


async def test_replicas_of_a_consumer_move_between_servers(stream: Stream) -> None:
    consumer = await stream.create_consumer(name="c", num_replicas=1)
    both = servers((await stream.info()).cluster)
    for move in (consumer.evacuate_peer, consumer.remove_peer):
        (leaves,) = servers((await consumer.info()).cluster)
        await move(leaves)
        await eventually(partial(has, consumer, both - {leaves}), within=60)
        with pytest.raises(errors.ClusterPeerNotMemberError):
            await move("nobody")


@pytest.mark.parametrize("line", ["2.14", "2.15"])
async def test_a_server_that_cannot_do_it_is_told(line: str) -> None:
    wanted = errors.UnsupportedByServerError if line == "2.14" else errors.ClusterRequiredError
    with NatsServer(port=0, binary=server_of(line)) as server:
        async with connect(server.url) as nc:
            stream = await nc.jetstream().create_stream(name="S", subjects=["s"])
            consumer = await stream.create_consumer(name="c")
            for call in (stream.evacuate_peer, consumer.evacuate_peer, consumer.remove_peer):
                with pytest.raises(wanted):
                    await call("n")
            with pytest.raises(wanted):
                await stream.cancel_move()
            with pytest.raises(errors.ClusterRequiredError):
                await stream.remove_peer("n")
        with blocking.connect(server.url) as nc:
            handle = nc.jetstream().stream("S")
            with pytest.raises(wanted):
                handle.evacuate_peer("n")
            with pytest.raises(wanted):
                handle.cancel_move()
            with pytest.raises(wanted):
                handle.consumer("c").remove_peer("n")
