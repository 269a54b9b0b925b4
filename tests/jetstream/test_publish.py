"""Publishing one message: acks, expectations, refusals, and ADR-22."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.client.messages import PreparedMessage
from jetspark.documents.streams import PubAck
from jetspark.errors import (
    APIError,
    BadNameError,
    BadSubjectError,
    ConfigError,
    JetStreamError,
    NoStreamResponseError,
    RequestTimeoutError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.jetstream.publish_request import parse_pub_ack, plain_ack_head
from jetspark.retries import PAUSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.client.messages import Message
    from jetspark.full_client import Client, JetStream


@pytest.mark.parametrize(
    ("data", "ack"),
    [
        (b'{"stream":"S","seq":7}', PubAck(stream="S", seq=7)),
        (b'{"stream":"S", "seq": 7 }', PubAck(stream="S", seq=7)),
        (b'{"seq":7,"stream":"S\\u00fc"}', PubAck(stream="Sü", seq=7)),
        ('{"stream":"Sü","seq":7}'.encode(), PubAck(stream="Sü", seq=7)),
        (
            b'{"stream":"S","domain":"hub","seq":18446744073709551615,"duplicate":true}',
            PubAck(stream="S", seq=2**64 - 1, domain="hub", duplicate=True),
        ),
        (
            b'{"stream":"S","seq":7,"val":"12","batch":"b","count":3,"moon":1}',
            PubAck(stream="S", seq=7, val="12", batch="b", count=3, extra={"moon": 1}),
        ),
    ],
)
def test_publish_ack_is_parsed(data: bytes, ack: PubAck) -> None:
    assert parse_pub_ack(data) == ack


@pytest.mark.parametrize(
    "data", [b"", b"+OK", b"[]", b'{"stream":"S"}', b'{"seq":"x"}', b'{"error":1}']
)
def test_what_is_no_ack_is_an_error(data: bytes) -> None:
    with pytest.raises(JetStreamError):
        parse_pub_ack(data)


def test_a_plain_ack_is_recognised_by_its_head() -> None:
    plain = b'{"stream":"S","seq":7}'
    assert plain_ack_head(plain, {"stream": "S", "seq": 7}) == b'{"stream":"S","seq":'
    other = b'{"seq":7,"stream":"S"}'
    assert plain_ack_head(other, {"seq": 7, "stream": "S"}) is None
    more = b'{"stream":"S","seq":7,"duplicate":true}'
    assert plain_ack_head(more, {"stream": "S", "seq": 7, "duplicate": True}) is None


async def test_a_message_is_stored_with_its_headers(js: JetStream, stream: str) -> None:
    ack = await js.publish(f"{stream}.a", b"x", headers={"K": ["1", "2"]}, msg_id="m")
    assert ack == PubAck(stream=stream, seq=1)
    stored = await js.get_msg(stream, 1)
    assert stored.headers is not None
    assert stored.headers.to_dict() == {"K": ["1", "2"], "Nats-Msg-Id": ["m"]}


async def test_a_message_id_is_stored_once(js: JetStream, stream: str) -> None:
    first = await js.publish(f"{stream}.a", b"x", msg_id="m")
    second = await js.publish(f"{stream}.a", b"x", msg_id="m")
    assert (first.duplicate, second.duplicate, second.seq) == (False, True, first.seq)


async def test_expectations_that_hold_and_that_do_not(js: JetStream, stream: str) -> None:
    await js.publish(f"{stream}.a", b"1", expect_last_seq=0, expect_stream=stream)
    await js.publish(f"{stream}.b", b"2", msg_id="two", expect_last_seq=1)
    await js.publish(f"{stream}.a", b"3", expect_last_subject_seq=1, expect_last_msg_id="two")
    for wrong in (7, 0):
        with pytest.raises(WrongLastSequenceError):
            await js.publish(f"{stream}.a", b"x", expect_last_seq=wrong)
        with pytest.raises(WrongLastSequenceError):
            await js.publish(f"{stream}.a", b"x", expect_last_subject_seq=wrong)
    with pytest.raises(WrongLastSequenceError) as other:
        await js.publish(f"{stream}.a", b"x", expect_last_msg_id="other")
    assert other.value.err_code == 10070
    with pytest.raises(APIError) as refused:
        await js.publish(f"{stream}.a", b"x", expect_stream="OTHER")
    assert refused.value.err_code == 10060
    assert (await js.stream_info(stream)).state.last_seq == 3


async def test_the_subject_of_an_expectation_may_be_another_one(
    js: JetStream, stream: str, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.11")
    one, other = f"{stream}.a", f"{stream}.b"
    await js.publish(one)
    await js.publish(other, expect_last_subject_seq=1, expect_last_subject_seq_of=one)
    await js.publish(one)
    with pytest.raises(WrongLastSequenceError):
        await js.publish(other, expect_last_subject_seq=1, expect_last_subject_seq_of=one)


async def test_a_prepared_message_is_published_with_its_headers(
    js: JetStream, stream: str, nc: Client
) -> None:
    message = PreparedMessage(f"{stream}.a", b"x", reply="unused", headers={"K": "1"})
    assert (await js.publish_msg(message)).seq == 1
    assert (await js.publish_msg(message, msg_id="m")).seq == 2
    assert message.headers.to_dict() == {"K": ["1"]}  # options are of one publish only
    with pytest.raises(WrongLastSequenceError):
        await js.publish_msg(message, expect_last_seq=1)
    stored = await js.get_msg(stream, 2)
    assert stored.headers is not None
    assert stored.headers.to_dict() == {"K": ["1"], "Nats-Msg-Id": ["m"]}


async def test_a_received_message_is_published_on_and_its_id_keeps_it_single(
    js: JetStream, stream: str, unique: Callable[[str], str]
) -> None:
    copy = unique("COPY")
    await js.publish(f"{stream}.a", b"x", msg_id="m")
    consumer = await js.create_consumer(stream, ack_policy="none")
    (received,) = await consumer.fetch(1, timeout=5)
    await js.update_stream(name=stream, subjects=[f"{stream}.other"])
    await js.create_stream(name=copy, subjects=[f"{stream}.a"], storage="memory")
    first, again = await js.publish_msg(received), await js.publish_msg(received)
    await js.delete_stream(copy)
    assert (first.stream, first.duplicate, again.duplicate) == (copy, False, True)


async def test_a_refusal_of_the_stream_is_typed(js: JetStream, stream: str) -> None:
    await js.update_stream(name=stream, max_msgs=1, discard="new")
    await js.publish(f"{stream}.a")
    with pytest.raises(APIError) as refused:
        await js.publish(f"{stream}.a")
    assert refused.value.err_code == 10077
    assert not isinstance(refused.value, StreamNotFoundError)


# -- ADR-22 --------------------------------------------------------------------------------------


class LateLeader:
    """A stream's leader that is elected late: nobody listens before the given attempt.

    The server answers 503 by itself while there is no subscription; each 503 is counted by
    `waits`, which also is where the leader appears.
    """

    def __init__(self, nc: Client, subject: str, attempt: int) -> None:
        self._nc = nc
        self._subject = subject
        self._attempt = attempt
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """In place of asyncio.sleep."""
        self.waits.append(seconds)
        if len(self.waits) + 1 == self._attempt:
            self._nc.subscribe(self._subject, callback=_store)


async def _store(msg: Message) -> None:
    await msg.respond(b'{"stream":"S","seq":5}')


async def test_publish_without_responders_is_retried_twice(
    js: JetStream, nc: Client, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = unique("late")
    leader = LateLeader(nc, subject, attempt=3)
    monkeypatch.setattr("jetspark.client.client.asyncio.sleep", leader.sleep)
    assert (await js.publish(subject, b"x")).seq == 5
    assert leader.waits == [PAUSE, PAUSE] == [0.25, 0.25]


async def test_publish_without_responders_raises_after_three_attempts(
    js: JetStream, nc: Client, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = LateLeader(nc, unique("late"), attempt=4)
    monkeypatch.setattr("jetspark.client.client.asyncio.sleep", leader.sleep)
    with pytest.raises(NoStreamResponseError) as nobody:
        await js.publish("nobody.listens", b"x")
    assert nobody.value.subject == "nobody.listens"
    assert len(leader.waits) == 2


async def test_the_attempts_share_one_deadline(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.jetstream.publish_request.PAUSE", 1.0)
    before = nc.stats.out_msgs
    with pytest.raises(NoStreamResponseError):
        await js.publish("nobody.listens", b"x", timeout=1.9)
    assert nc.stats.out_msgs - before == 2


async def test_an_ack_that_does_not_come_is_a_timeout(
    js: JetStream, nc: Client, unique: Callable[[str], str]
) -> None:
    subject = unique("silent")
    async with nc.subscribe(subject):
        with pytest.raises(
            RequestTimeoutError, match=r"0\.05 s: it is not known whether"
        ) as caught:
            await js.publish(subject, b"x", timeout=0.05)
        assert caught.value.sent


async def test_mistakes_are_found_before_anything_is_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    with pytest.raises(BadSubjectError):
        await js.publish("a.*", b"x")
    with pytest.raises(BadNameError):
        await js.publish("a", b"x", expect_stream="a.b")
    with pytest.raises(ConfigError):
        await js.publish("a", b"x", timeout=0)
    with pytest.raises(ConfigError):
        await js.publish("a", b"x", expect_last_seq=-1)
    with pytest.raises(ConfigError):
        await js.publish("a", b"x", expect_last_subject_seq_of="b")
    with pytest.raises(BadSubjectError):
        await js.publish("a", expect_last_subject_seq=1, expect_last_subject_seq_of="b..c")
    assert nc.stats.out_msgs == before
