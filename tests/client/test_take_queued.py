"""Taking what is queued at once, as the blocking client does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.conftest import Connect

from jetspark.client.messages import Message, MessageView
from jetspark.errors import RequestTimeoutError
from jetspark.server import NatsServer


async def test_queued_frames_are_taken_in_order_and_counted(
    shared_server: NatsServer, connect: Connect, unique: Callable[[str], str]
) -> None:
    nc = await connect(shared_server.url)
    sub = nc.subscribe(unique("taken"))
    for number in range(5):
        await nc.publish(sub.subject, b"%d" % number)
    await nc.flush()
    assert [frame.payload for frame in sub.take_queued(3)] == [b"0", b"1", b"2"]
    assert (sub.pending_msgs, sub.pending_bytes, sub.delivered) == (2, 2, 3)
    assert [frame.payload for frame in sub.take_queued(1000)] == [b"3", b"4"]
    assert sub.take_queued(1000) == []
    with pytest.raises(RequestTimeoutError):
        await sub.next(0.01)


def test_a_view_on_a_message_cannot_send() -> None:
    sending = {"respond"}
    assert sending == set(dir(Message)) - set(dir(MessageView))
