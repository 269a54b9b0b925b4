"""Messages made before they are sent, and received ones sent on."""

from __future__ import annotations

import pytest
from tests.conftest import Unique

from jetspark import Client, Headers, Message, PreparedMessage
from jetspark.errors import BadHeaderError, BadPayloadError


async def test_a_prepared_message_is_sent_as_often_as_wanted_and_may_change(
    nc: Client, unique: Unique
) -> None:
    sub = nc.subscribe(unique("p"))
    message = PreparedMessage(sub.subject, b"1", reply="r", headers={"k": ["a", "ä"]})
    await nc.publish_msg(message)
    message.data, message.reply = b"2", None
    message.headers.delete("k")
    await nc.publish_msg(message)
    first, second = await sub.next(30), await sub.next(30)
    assert (first.data, first.reply, first.headers) == (b"1", "r", Headers({"k": ["a", "ä"]}))
    assert (second.data, second.reply, second.headers) == (b"2", None, None)
    assert repr(message) == f"PreparedMessage(subject={sub.subject!r}, 1 bytes)"


async def test_a_received_message_can_be_sent_on(nc: Client, unique: Unique) -> None:
    subject = unique("echoed")
    sub = nc.subscribe(subject)
    await nc.publish(subject, b"x", reply="r", headers={"k": "v"})
    await nc.publish_msg(await sub.next(30))
    again = await sub.next(30)
    assert (again.subject, again.data, again.reply) == (subject, b"x", "r")
    assert again.headers == Headers({"k": "v"})


async def test_prepared_message_is_sent_as_a_request(nc: Client, unique: Unique) -> None:
    async def answer(message: Message) -> None:
        await message.respond(message.data, headers=message.headers)

    sub = nc.subscribe(unique("svc"), callback=answer)
    question = PreparedMessage(sub.subject, b"?", reply="not.used", headers={"k": "v"})
    reply = await nc.request_msg(question, timeout=5)
    assert (reply.data, reply.headers) == (b"?", Headers({"k": "v"}))
    assert question.reply == "not.used"


def test_what_cannot_be_sent_is_refused_when_it_is_given() -> None:
    with pytest.raises(BadPayloadError):
        PreparedMessage("a", "text")  # type: ignore[arg-type]
    with pytest.raises(BadHeaderError):
        PreparedMessage("a", headers={"k\r\n": "v"})
    with pytest.raises(BadHeaderError):
        PreparedMessage("a").headers.set("k", "v\n")
