"""What waits to be sent: order, bounds, what survives a link."""

from __future__ import annotations

import asyncio

import pytest

from jetspark.connection.outbox import FLUSH_AT, Outbox
from jetspark.errors import ConnectionClosedError, OutboundBufferError

LIMIT = 1000


@pytest.fixture
async def outbox() -> Outbox:
    box = Outbox(LIMIT, asyncio.get_running_loop())
    box.open()
    return box


async def turn() -> None:
    await asyncio.sleep(0)


async def test_outbox_writes_once_per_turn_of_loop(outbox: Outbox) -> None:
    writes: list[bytes] = []
    outbox.attach(writes.append)
    outbox.put(b"a")
    outbox.put_control(b"b")
    outbox.put(b"c")
    assert writes == []
    await turn()
    assert writes == [b"abc"]
    outbox.put(b"d")
    await turn()
    assert writes == [b"abc", b"d"]


async def test_control_frames_die_with_their_link_and_publishes_do_not(outbox: Outbox) -> None:
    outbox.put_control(b"before any link")
    first: list[bytes] = []
    outbox.attach(first.append)
    outbox.put(b"1")
    outbox.put_control(b"PING")
    outbox.put(b"2")
    outbox.detach()
    await turn()
    second: list[bytes] = []
    outbox.attach(second.append)
    await turn()
    assert (first, second) == ([], [b"12"])


async def test_detach_wakes_waiters(outbox: Outbox) -> None:
    outbox.attach(lambda _: None)
    outbox.pause()
    waiting = asyncio.create_task(outbox.wait())
    await turn()
    outbox.detach()
    await asyncio.wait_for(waiting, 30)


async def test_closed_outbox_refuses_publishes_with_reason(outbox: Outbox) -> None:
    reason = OutboundBufferError("why")
    outbox.close(reason)
    with pytest.raises(ConnectionClosedError) as caught:
        outbox.put(b"x")
    assert caught.value.__cause__ is reason
    outbox.put_control(b"x")
    assert outbox.size == 0


async def test_outbox_before_open_refuses_publishes() -> None:
    with pytest.raises(ConnectionClosedError):
        Outbox(LIMIT, asyncio.get_running_loop()).put(b"x")


async def test_put_now_writes_at_once_but_after_queued_frames(outbox: Outbox) -> None:
    writes: list[bytes] = []
    outbox.attach(writes.append)
    outbox.put_now(b"a")
    assert writes == [b"a"]
    outbox.put(b"b")
    outbox.put_now(b"c")
    await turn()
    assert writes == [b"a", b"bc"]
    assert outbox.bytes_out == 3


async def test_put_now_queues_while_paused_or_without_link(outbox: Outbox) -> None:
    outbox.put_now(b"1")
    with pytest.raises(OutboundBufferError):
        outbox.put_now(bytes(LIMIT))
    writes: list[bytes] = []
    outbox.attach(writes.append)
    outbox.pause()
    outbox.put_now(b"2")
    assert writes == [b"1"]
    outbox.resume()
    assert writes == [b"1", b"2"]
    outbox.put_now(bytes(FLUSH_AT + 1))
    assert outbox.crowded
    outbox.close(None)
    with pytest.raises(ConnectionClosedError):
        outbox.put_now(b"3")
