"""Stored messages, read without a consumer and without async."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark import blocking, errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


def test_single_messages_and_batches(
    shared_server: NatsServer, unique: Callable[[str], str], needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    stream = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=stream, subjects=[f"{stream}.>"], storage="memory", allow_direct=True)
        with js.publisher() as publisher:
            for number in range(1, 601):
                publisher.send(f"{stream}.{number % 2}", b"%d" % number)
        assert js.get_msg(stream, 2, direct=True).data == b"2"
        with pytest.raises(errors.MessageNotFoundError):
            js.get_msg(stream, 601)
        messages = js.get_msgs(stream, 3, batch=100)
        assert [message.seq for message in messages] == list(range(3, 601))
        assert len(messages.all()) == 598
        for message in messages:  # leaving early does no harm
            assert message.seq == 3
            break
        last = js.get_last_msgs(stream, [f"{stream}.*"])
        assert [message.data for message in last] == [b"599", b"600"]
        js.delete_stream(stream)
