"""With the official JavaScript client as the other side.

Needs node and npm, and the network the first time.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.conftest import Unique
from tests.support.js_peer import JsPeer

from jetspark import Client, Message

# Names are ASCII: the JavaScript client fails on any other, when it receives one too.
PAIRS = [["k", "1"], ["K", "drei"], ["k", "två"], ["nihon", "日本"], ["empty", ""]]
DICT = {"k": ["1", "två"], "K": ["drei"], "nihon": ["日本"], "empty": [""]}


@pytest.mark.full
async def test_headers_from_javascript(nc: Client, js_peer: JsPeer, unique: Unique) -> None:
    sub = nc.subscribe(unique("in"))
    await nc.flush()
    await js_peer.run("publish", subject=sub.subject, data="smörgås", headers=PAIRS)
    message = await sub.next(30)
    assert message.data.decode() == "smörgås"
    assert message.headers is not None
    assert message.headers.to_dict() == DICT


async def test_headers_to_javascript(nc: Client, js_peer: JsPeer, unique: Unique) -> None:
    subject = unique("out")
    await js_peer.run("listen", subject=subject)
    await nc.publish(subject, "smörgås".encode(), headers=DICT)
    heard = await js_peer.hear()
    assert (heard["data"], heard["headers"]) == ("smörgås", DICT)


async def test_requests_both_ways_with_headers(nc: Client, js_peer: JsPeer, unique: Unique) -> None:
    async def ours(message: Message) -> None:
        await message.respond(b"ours " + message.data, headers=message.headers)

    mine, theirs = nc.subscribe(unique("ours"), callback=ours), unique("theirs")
    await asyncio.gather(nc.flush(), js_peer.run("serve", subject=theirs))
    reply = await nc.request(theirs, b"1", timeout=5, headers=DICT)
    assert reply.data == b"js 1"
    assert reply.headers is not None
    assert reply.headers.to_dict() == DICT
    answer = await js_peer.run("request", subject=mine.subject, data="2", headers=PAIRS)
    assert (answer["data"], answer["headers"]) == ("ours 2", DICT)
    many = [r.data async for r in nc.request_many(theirs, b"3", max_msgs=1, timeout=5)]
    assert many == [b"js 3"]
