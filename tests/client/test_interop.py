"""With nats-py as the other side: the wire is what others think it is."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conftest import Unique

from jetspark import Client, Message

VALUES = {"Key": "värde", "key": "日本", "empty": ""}


async def subscribed(py_peer: Any) -> None:
    """Return when the server knows the peer's subscriptions.

    Its flush writes the PING first and what was waiting, the SUB, behind it; the PING of a second
    one is behind both.
    """
    await py_peer.flush()
    await py_peer.flush()


async def test_headers_from_nats_py(nc: Client, py_peer: Any, unique: Unique) -> None:
    sub = nc.subscribe(unique("in"))
    await nc.flush()
    await py_peer.publish(sub.subject, "smörgås".encode(), headers=VALUES)
    message = await sub.next(30)
    assert message.data.decode() == "smörgås"
    assert message.headers is not None
    assert message.headers.to_dict() == {name: [value] for name, value in VALUES.items()}


async def test_headers_to_nats_py(nc: Client, py_peer: Any, unique: Unique) -> None:
    subject = unique("out")
    sub = await py_peer.subscribe(subject)
    await subscribed(py_peer)
    await nc.publish(subject, b"x", headers={"Key": "värde", "key": "日本"})
    message = await sub.next_msg(5)
    assert dict(message.headers) == {"Key": "värde", "key": "日本"}


async def test_several_values_of_one_name(nc: Client, py_peer: Any, unique: Unique) -> None:
    subject, back = unique("multi"), nc.subscribe(unique("back"))
    await nc.flush()

    async def answer(message: Any) -> None:
        # nats-py knows one value a name, and hands on the block that we write for it here.
        block = "NATS/1.0\r\nk: 1\r\nk: två\r\nK: 3\r\n\r\n".encode()
        frame = b"HPUB %b %d %d\r\n%b\r\n" % (back.subject.encode(), len(block), len(block), block)
        assert message.headers["k"] in ("1", "två")
        await py_peer._send_command(frame)
        await py_peer.flush()

    await py_peer.subscribe(subject, cb=answer)
    await subscribed(py_peer)
    await nc.publish(subject, headers={"k": ["1", "två"], "K": "3"})
    message = await back.next(30)
    assert message.headers is not None
    assert message.headers.to_dict() == {"k": ["1", "två"], "K": ["3"]}


async def test_requests_work_both_ways(nc: Client, py_peer: Any, unique: Unique) -> None:
    async def ours(message: Message) -> None:
        await message.respond(b"ours " + message.data)

    async def theirs(message: Any) -> None:
        await message.respond(b"theirs " + message.data)

    mine = nc.subscribe(unique("ours"), callback=ours)
    other = unique("theirs")
    await py_peer.subscribe(other, cb=theirs)
    await asyncio.gather(nc.flush(), subscribed(py_peer))
    assert (await nc.request(other, b"1", timeout=5)).data == b"theirs 1"
    assert (await py_peer.request(mine.subject, b"2", timeout=5)).data == b"ours 2"


async def test_queue_group_is_shared_by_both(nc: Client, py_peer: Any, unique: Unique) -> None:
    subject = unique("group")
    seen: list[str] = []
    done = asyncio.Event()

    def count(who: str) -> None:
        seen.append(who)
        if len(seen) == 200:
            done.set()

    async def theirs(_: Any) -> None:
        count("theirs")

    nc.subscribe(subject, queue="g", callback=lambda _: count("ours"))
    await py_peer.subscribe(subject, queue="g", cb=theirs)
    await asyncio.gather(nc.flush(), subscribed(py_peer))
    for _ in range(200):
        await nc.publish(subject)
    await asyncio.wait_for(done.wait(), 30)
    assert set(seen) == {"ours", "theirs"}
