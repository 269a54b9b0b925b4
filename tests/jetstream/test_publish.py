"""Publishing one message: acks, expectations, refusals, and ADR-22."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream, NeedsServer, Unique

from jetspark import errors
from jetspark.client.messages import Message, PreparedMessage
from jetspark.documents.streams import PubAck
from jetspark.full_client import Client, JetStream
from jetspark.jetstream.publish_request import parse_pub_ack, plain_ack_head
from jetspark.retries import PAUSE


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
    with pytest.raises(errors.JetStreamError):
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
    stored = await js.stream(stream).get(1)
    assert stored.headers is not None
    assert stored.headers.to_dict() == {"K": ["1", "2"], "Nats-Msg-Id": ["m"]}
    again = await js.publish(f"{stream}.a", b"x", msg_id="m")
    assert (again.duplicate, again.seq) == (True, 1)


async def test_expectations_that_hold_and_that_do_not(js: JetStream, stream: str) -> None:
    await js.publish(f"{stream}.a", b"1", expect_last_seq=0, expect_stream=stream)
    await js.publish(f"{stream}.b", b"2", msg_id="two", expect_last_seq=1)
    await js.publish(f"{stream}.a", b"3", expect_last_subject_seq=1, expect_last_msg_id="two")
    for wrong in (7, 0):
        with pytest.raises(errors.WrongLastSequenceError):
            await js.publish(f"{stream}.a", b"x", expect_last_seq=wrong)
        with pytest.raises(errors.WrongLastSequenceError):
            await js.publish(f"{stream}.a", b"x", expect_last_subject_seq=wrong)
    with pytest.raises(errors.WrongLastSequenceError) as other:
        await js.publish(f"{stream}.a", b"x", expect_last_msg_id="other")
    assert other.value.err_code == 10070
    with pytest.raises(errors.APIError) as refused:
        await js.publish(f"{stream}.a", b"x", expect_stream="OTHER")
    assert refused.value.err_code == 10060
    assert (await js.stream(stream).info()).state.last_seq == 3


async def test_the_subject_of_an_expectation_may_be_another_one(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    one, other = f"{stream}.a", f"{stream}.b"
    await js.publish(one)
    await js.publish(other, expect_last_subject_seq=1, expect_last_subject_seq_of=one)
    await js.publish(one)
    with pytest.raises(errors.WrongLastSequenceError):
        await js.publish(other, expect_last_subject_seq=1, expect_last_subject_seq_of=one)


async def test_a_prepared_message_is_published_with_its_headers(
    js: JetStream, stream: str, nc: Client
) -> None:
    message = PreparedMessage(f"{stream}.a", b"x", reply="unused", headers={"K": "1"})
    assert (await js.publish_msg(message)).seq == 1
    assert (await js.publish_msg(message, msg_id="m")).seq == 2
    assert message.headers.to_dict() == {"K": ["1"]}  # options are of one publish only
    with pytest.raises(errors.WrongLastSequenceError):
        await js.publish_msg(message, expect_last_seq=1)
    stored = await js.stream(stream).get(2)
    assert stored.headers is not None
    assert stored.headers.to_dict() == {"K": ["1"], "Nats-Msg-Id": ["m"]}


async def test_a_received_message_is_published_on_and_its_id_keeps_it_single(
    js: JetStream, stream: str, make_stream: MakeStream
) -> None:
    await js.publish(f"{stream}.a", b"x", msg_id="m")
    consumer = await js.stream(stream).create_consumer(ack_policy="none")
    (received,) = await consumer.fetch(1, timeout=5)
    await js.stream(stream).update(subjects=[f"{stream}.other"])
    copy = await make_stream(subjects=[f"{stream}.a"])
    first, again = await js.publish_msg(received), await js.publish_msg(received)
    assert (first.stream, first.duplicate, again.duplicate) == (copy, False, True)


async def test_a_refusal_of_the_stream_is_typed(js: JetStream, stream: str) -> None:
    await js.stream(stream).update(max_msgs=1, discard="new")
    await js.publish(f"{stream}.a")
    with pytest.raises(errors.APIError) as refused:
        await js.publish(f"{stream}.a")
    assert refused.value.err_code == 10077
    assert not isinstance(refused.value, errors.StreamNotFoundError)


# -- ADR-22 --------------------------------------------------------------------------------------


async def test_publish_without_responders_is_retried_twice(
    js: JetStream, nc: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = unique("late")
    waits: list[float] = []

    async def store(msg: Message) -> None:
        await msg.respond(b'{"stream":"S","seq":5}')

    async def sleep(seconds: float) -> None:
        """In place of asyncio's. The stream has a leader before the third attempt."""
        waits.append(seconds)
        if len(waits) == 2:
            nc.subscribe(subject, callback=store)

    monkeypatch.setattr("jetspark.client.client.asyncio.sleep", sleep)
    assert (await js.publish(subject, b"x")).seq == 5
    assert waits == [PAUSE, PAUSE] == [0.25, 0.25]


async def test_publish_without_responders_raises_after_three_attempts(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = nc.stats.out_msgs
    with pytest.raises(errors.NoStreamResponseError) as nobody:
        await js.publish("nobody.listens", b"x")
    assert nobody.value.subject == "nobody.listens"
    assert nc.stats.out_msgs - before == 3
    before = nc.stats.out_msgs  # the attempts share one deadline
    monkeypatch.setattr("jetspark.jetstream.publish_request.PAUSE", 1.0)
    with pytest.raises(errors.NoStreamResponseError):
        await js.publish("nobody.listens", b"x", timeout=1.9)
    assert nc.stats.out_msgs - before == 2


async def test_a_missing_ack_is_a_timeout(js: JetStream, nc: Client, unique: Unique) -> None:
    subject = unique("silent")
    told = r"0\.05 s: it is not known whether"
    async with nc.subscribe(subject):
        with pytest.raises(errors.RequestTimeoutError, match=told) as caught:
            await js.publish(subject, b"x", timeout=0.05)
    assert caught.value.sent


async def test_mistakes_are_found_before_anything_is_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (errors.BadNameError, {"expect_stream": "a.b"}),
        (errors.ConfigError, {"timeout": 0}),
        (errors.ConfigError, {"expect_last_seq": -1}),
        (errors.ConfigError, {"expect_last_subject_seq_of": "b"}),
        (
            errors.BadSubjectError,
            {"expect_last_subject_seq": 1, "expect_last_subject_seq_of": "b..c"},
        ),
    ]
    for error, options in wrong:
        with pytest.raises(error):
            await js.publish("a", b"x", **options)
    with pytest.raises(errors.BadSubjectError):
        await js.publish("a.*", b"x")
    assert nc.stats.out_msgs == before
