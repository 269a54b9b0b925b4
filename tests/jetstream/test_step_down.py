"""Leaders of streams and consumers step down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.jetstream.eventually import eventually

from jetspark.errors import (
    APIError,
    RequestTimeoutError,
)
from jetspark.full_client import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.cluster import Cluster

    from jetspark.full_client import JetStream

pytestmark = pytest.mark.server


async def test_leaders_step_down(
    nats_cluster: Cluster, unique: Callable[[str], str], needs_server: Callable[[str], None]
) -> None:
    stream = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream()
        brief = nc.jetstream(timeout=0.5)  # between two leaders nobody answers
        await js.create_stream(name=stream, subjects=[stream], num_replicas=3)
        await js.create_consumer(stream, durable_name="c")
        before = (await js.stream_info(stream)).cluster
        assert before is not None
        await js.stream_leader_stepdown(stream)

        async def led_by_another() -> bool:
            try:
                cluster = (await brief.stream_info(stream)).cluster
            except RequestTimeoutError:
                return False
            return cluster is not None and cluster.leader not in (None, "", before.leader)

        async def consumer_stepped_down() -> bool:
            try:
                await brief.consumer_leader_stepdown(stream, "c")
            except (RequestTimeoutError, APIError):
                return False
            return True

        await eventually(led_by_another)
        await eventually(consumer_stepped_down)
        await js.delete_stream(stream)


async def test_a_single_server_has_no_leader_to_step_down(js: JetStream, stream: str) -> None:
    with pytest.raises(APIError, match="cluster"):
        await js.stream_leader_stepdown(stream)
