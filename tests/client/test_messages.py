"""A message as a view on its frame, without a connection."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

import jetspark.errors as errors
from jetspark import Client, Message
from jetspark.client.messages import MessageView
from jetspark.wire.kernel import MessageFrame


class Reports(list[errors.JetsparkError]):
    report = list.append


def message(
    reply: bytes | None = None, block: bytes | None = None, data: bytes = b"", client: Any = None
) -> Message:
    frame = MessageFrame(1, "a.é".encode(), reply, block, data)
    return Message(cast(Client, client), frame)


def test_plain_message_has_subject_reply_data_and_no_headers() -> None:
    plain = message(b"r.1", None, b"data")
    assert (plain.subject, plain.reply, plain.data) == ("a.é", "r.1", b"data")
    assert plain.headers is None
    assert plain.status is None
    assert not any([plain.no_responders, plain.idle_heartbeat, plain.flow_control])
    assert repr(plain) == "Message(subject='a.é', 4 bytes)"


async def test_a_reply_subject_that_is_no_utf_8_is_not_answered_elsewhere() -> None:
    asks = message(b"r.\xff")
    assert asks.reply == "r.\ufffd"
    with pytest.raises(errors.BadSubjectError, match="not UTF-8"):
        await asks.respond(b"answer")


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (b"NATS/1.0 503\r\n\r\n", "no_responders"),
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Stream: 3\r\n\r\n", "idle_heartbeat"),
        (b"NATS/1.0 100 FlowControl Request\r\n\r\n", "flow_control"),
    ],
)
def test_status_messages_are_recognised(block: bytes, name: str) -> None:
    said = message(None, block)
    flags = ("no_responders", "idle_heartbeat", "flow_control")
    assert [flag for flag in flags if getattr(said, flag)] == [name]
    assert said.status is not None
    assert f"status={said.status.code}" in repr(said)


@pytest.mark.parametrize("prefix", [b"", b"hub.ACC.", b"_.ACC."])
def test_metadata_of_both_forms(prefix: bytes) -> None:
    reply = b"$JS.ACK." + prefix + b"ORDERS.worker.2.77.5.1357017300123456789.9"
    delivered = message(reply)
    meta = delivered.metadata
    assert delivered.metadata == meta
    assert (meta.stream, meta.consumer, meta.deliveries) == ("ORDERS", "worker", 2)
    assert (delivered.seq, meta.consumer_seq, meta.pending) == (77, 5, 9)
    assert meta.timestamp_ns == 1357017300123456789
    assert delivered.timestamp == datetime(2013, 1, 1, 5, 15, 0, 123456, UTC)
    assert meta.domain == ("hub" if prefix.startswith(b"hub") else "")


@pytest.mark.parametrize(
    "reply",
    [
        *(None, b"_INBOX.x.1", b"$JS.ACK.a.b.1.2.3.4", b"$JS.ACK"),
        *(b"$JS.ACK.a.b.1.2.3.9223372036854775808.4", b"$JS.ACK.a.b.1.2.3.-1.4"),
        b"$JS.ACK.a.b..2.3.5.4",
    ],
)
def test_other_messages_have_no_metadata(reply: bytes | None) -> None:
    with pytest.raises(errors.NotJetStreamMessageError):
        message(reply).metadata  # noqa: B018


@pytest.mark.parametrize("block", [b"nonsense", b"NATS/1.0\r\nno colon\r\n\r\n", b"NATS/1.0\r\n"])
def test_malformed_headers_are_reported_once(block: bytes) -> None:
    reports = Reports()
    bad = message(None, block, b"body", reports)
    assert bad.headers is None
    assert bad.headers is None
    assert [type(report) for report in reports] == [errors.BadHeaderError]
    assert bad.data == b"body"


def test_headers_are_parsed_once_and_may_be_changed() -> None:
    mine = message(None, b"NATS/1.0\r\nk: v\r\n\r\n")
    assert mine.headers is not None
    mine.headers["k"] = "w"
    assert mine.headers["k"] == "w"


def test_a_view_on_a_message_cannot_send() -> None:
    assert set(dir(Message)) - set(dir(MessageView)) == {"respond"}
