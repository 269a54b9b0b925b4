"""What `observe` counts of clients: what the clients count, also when they are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY

import jetspark
import jetspark.blocking

if TYPE_CHECKING:
    from tests.conftest import Unique

    from jetspark.server import NatsServer


def value(name: str, client: str, **labels: str) -> float | None:
    own = {"messaging_system": "nats", "messaging_client_id": client}
    return REGISTRY.get_sample_value(name, own | labels)


async def test_clients_of_one_name_are_added_up_and_stay_when_they_are_closed(
    shared_server: NatsServer, unique: Unique
) -> None:
    name, hooks = unique("shop"), jetspark.observe()
    for opened in (1, 2):
        async with jetspark.connect(shared_server.url, name=name, hooks=hooks) as nc:
            sub = nc.subscribe(name)
            for _ in range(3):
                await nc.publish(name, b"12345")
            await nc.flush()
            assert value("messaging_client_sent_messages_total", name) == 3 * opened
            assert value("messaging_client_consumed_messages_total", name) == 3 * opened
            assert value("jetspark_client_consumed_bytes_total", name) == 15 * opened
            assert value("jetspark_client_pending_messages", name) == 3
            assert value("jetspark_client_connections", name) == 1
            await sub.next(timeout=5)
            assert value("jetspark_client_pending_messages", name) == 2
    assert value("messaging_client_sent_messages_total", name) == 6
    assert value("jetspark_client_connections", name) == 0


async def test_requests_callbacks_and_slow_consumers_are_measured(
    shared_server: NatsServer, unique: Unique
) -> None:
    name = unique("asked")
    async with jetspark.connect(shared_server.url, name=name, hooks=jetspark.observe()) as nc:

        async def reply(message: jetspark.Message) -> None:
            await message.respond(b"yes")

        answering, slow = (
            nc.subscribe(name, callback=reply),
            nc.subscribe(name, pending_msgs_limit=1),
        )
        for _ in range(2):
            await nc.request(name, timeout=5)
        assert slow.dropped == 1
        assert value("jetspark_client_slow_consumers_total", name) == 1
        count = "messaging_client_operation_duration_seconds_count"
        ok = {"messaging_operation_name": "request", "error_type": ""}
        assert value(count, name, **ok) == 2
        await answering.drain()
        process = "messaging_process_duration_seconds_count"
        assert value(process, name, messaging_operation_name="process", error_type="") == 2


def test_blocking_clients_are_counted_too(shared_server: NatsServer, unique: Unique) -> None:
    name = unique("blocking")
    with jetspark.blocking.connect(shared_server.url, name=name, hooks=jetspark.observe()) as nc:
        for _ in range(5):
            nc.publish(name, b"1")
        nc.flush()
        assert value("messaging_client_sent_messages_total", name) == 5
