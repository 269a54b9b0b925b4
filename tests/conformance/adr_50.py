"""Batches: atomic ones, and fast ingest (ADR-50).

An `AtomicBatch` and a `FastIngest` leave no gaps and use no unknown words. What a server answers to
those is heard through `Client.request` and `Client.publish`, with the headers or the reply subjects
of a batch.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.conformance.trial import (
    IDLE,
    RawIngest,
    Table,
    Trial,
    count,
    has_messages,
    headers_of,
    last_on,
    refusal,
    stored,
    until,
)

from jetspark import err_codes
from jetspark.documents.streams import PubAck
from jetspark.errors import (
    APIError,
    AtomicPublishContainsDuplicateMessageError,
    AtomicPublishIncompleteBatchError,
    AtomicPublishTooLargeBatchError,
    AtomicPublishTooManyInflightError,
    AtomicPublishUnsupportedHeaderBatchError,
    BatchError,
    ConfigError,
    JetStreamError,
    MirrorWithAtomicPublishError,
    MirrorWithBatchPublishError,
    NotEnabledOnStreamError,
    NotStoredError,
    PublishFailedError,
    RequestTimeoutError,
    RequiredApiLevelError,
    StreamInvalidConfigError,
    WrongLastSequenceError,
)
from jetspark.jetstream.stream import Stream

T = Table(50)
ATOMIC: dict[str, Any] = {"allow_atomic": True}
BATCHED: dict[str, Any] = {"allow_batched": True}
ID = "Nats-Batch-Id"
NUMBER = "Nats-Batch-Sequence"
COMMIT = "Nats-Batch-Commit"
LEVEL = "Nats-Required-Api-Level"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
ABANDONED = "stream_batch_abandoned"


# -- steps of atomic batches -----------------------------------------------------------------------


class RawBatch:
    """An atomic batch in the words of the server: by headers."""

    def __init__(self, t: Trial, stream: Stream, id: str | None = None) -> None:
        self._t = t
        self._stream = stream
        self.id = secrets.token_hex(16) if id is None else id

    def _message(
        self, number: int | None, token: str, marks: dict[str, str]
    ) -> tuple[str, bytes, dict[str, str]]:
        numbers = {} if number is None else {NUMBER: str(number)}
        return f"{self._stream.name}.{token}", b"x", {ID: self.id} | numbers | marks

    async def send(
        self, number: int | None, commit: str | None = None, token: str = "a", **marks: str
    ) -> dict[str, Any]:
        """Send a message and wait for its reply: {} when the server keeps it."""
        own = {name.replace("_", "-"): value for name, value in marks.items()}
        if commit is not None:
            own[COMMIT] = commit
        return await self._t.ask(*self._message(number, token, own))

    async def code(self, number: int | None, commit: str | None = None, **marks: str) -> int:
        """The error in the reply to `send`; 0 when there is none."""
        answer = await self.send(number, commit, **marks)
        return int(answer.get("error", {}).get("err_code", 0))

    async def send_without_reply(self, number: int, **marks: str) -> None:
        own = {name.replace("_", "-"): value for name, value in marks.items()}
        subject, payload, headers = self._message(number, "a", own)
        await self._t.nc.publish(subject, payload, headers=headers)


async def _batch(
    t: Trial, s: Stream, payloads: Iterable[bytes | str], token: str = "a", **first: Any
) -> PubAck:
    """Store an atomic batch; `first`: options of its first message."""
    options = first
    async with t.js.atomic_batch() as batch:
        for payload in payloads:
            data = payload if isinstance(payload, bytes) else payload.encode()
            await batch.publish(f"{s.name}.{token}", data, **options)
            options = {}
        return await batch.commit()


async def _is_off(t: Trial, s: Stream) -> None:
    error = await refusal(_batch(t, s, "x"), NotEnabledOnStreamError)
    assert error.option == "allow_atomic"


async def _level(t: Trial) -> int:
    api = (await t.js.account_info()).api
    assert api is not None
    return api.level


# -- atomic batches: configuration -----------------------------------------------------------------


T.option_is_kept("AB-101", "allow_atomic", 2)


@T.case("AB-102", "atomic_batch", "NotEnabledOnStreamError where it is off")
async def atomic_off(t: Trial) -> None:
    s = await t.stream()
    assert not (await s.info()).config.allow_atomic
    await _is_off(t, s)


@T.case("AB-103", "Stream.update(allow_atomic=)", "turns batches on and off")
async def atomic_toggled(t: Trial) -> None:
    s = await t.stream()
    await s.update(allow_atomic=True)
    ack = await _batch(t, s, "x")
    assert ack.batch
    assert ack.count == 1
    await s.update(allow_atomic=False)
    await _is_off(t, s)


@T.case(
    "AB-104",
    "create_stream(persist_mode=), Stream.update",
    "StreamInvalidConfigError with async persistence",
)
async def atomic_and_async(t: Trial) -> None:
    on_disk = {"persist_mode": "async", "storage": "file"}
    await refusal(t.stream(**ATOMIC, **on_disk), StreamInvalidConfigError)
    s = await t.stream(**on_disk)
    await refusal(s.update(allow_atomic=True), StreamInvalidConfigError)


T.stream_is_refused(
    "AB-105",
    "for a mirror",
    ATOMIC | {"mirror": True},
    error=MirrorWithAtomicPublishError,
)


@T.case("AB-106", "create_stream(sources=)", "sourced messages have no marks of their batch")
async def atomic_sourced(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    d = await t.sourcing(s, **ATOMIC)
    await _batch(t, s, "abc")
    await has_messages(d, 3)
    for message in await stored(d):
        assert not {ID, NUMBER, COMMIT} & set(headers_of(message))


# -- atomic batches: stored ------------------------------------------------------------------------


@T.case("AB-201", "atomic_batch, commit", "the ack of a batch of one")
async def one(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    ack = await _batch(t, s, "x")
    assert (ack.count, ack.seq) == (1, 1)
    (message,) = await stored(s)
    marks = [headers_of(message)[name] for name in (ID, NUMBER, COMMIT)]
    assert marks == [ack.batch, "1", "1"]


@T.case("AB-202", "flush, commit", "a commit without a message is not stored")
async def one_and_its_end(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        await batch.publish(f"{s.name}.a", b"data")
        await batch.flush()
        ack = await batch.commit()
    assert (ack.count, ack.seq) == (1, 1)
    (message,) = await stored(s)
    assert (message.data, headers_of(message)[NUMBER], headers_of(message)[COMMIT]) == (
        b"data",
        "1",
        "1",
    )


@T.case("AB-203", "atomic_batch, commit", "all messages in order, the last one marked")
async def several(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    ack = await _batch(t, s, "abcd")
    assert ack.count == 4
    messages = await stored(s)
    assert [m.data for m in messages] == [b"a", b"b", b"c", b"d"]
    assert [headers_of(m)[ID] for m in messages] == [ack.batch] * 4
    assert [headers_of(m)[NUMBER] for m in messages] == ["1", "2", "3", "4"]
    assert [COMMIT in headers_of(m) for m in messages] == [False, False, False, True]


@T.case("AB-204", "commit", "PubAck.seq is that of the last message")
async def seq_of_the_last(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (before,) = await t.fill(s, "a")
    assert (await _batch(t, s, "abcde")).seq == before + 5
    assert [headers_of(m)[NUMBER] for m in (await stored(s))[1:]] == ["1", "2", "3", "4", "5"]


@T.case("AB-205", "Client.publish", "a message of a batch needs no reply")
async def without_replies(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    assert await batch.send(1) == {}
    await batch.send_without_reply(2)
    assert (await batch.send(3, "1"))["count"] == 3


# -- atomic batches: ids and numbers ---------------------------------------------------------------


@T.case("AB-301", "Client.request", "an id of 64 characters")
async def longest_id(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s, "i" * 64)
    assert (await batch.send(1, "1"))["batch"] == batch.id
    assert headers_of((await stored(s))[0])[ID] == batch.id


@T.case("AB-302", "Client.request", "error 10179 for 65 characters")
async def too_long_id(t: Trial) -> None:
    assert (
        await RawBatch(t, await t.stream(**ATOMIC), "i" * 65).code(1)
        == err_codes.ATOMIC_PUBLISH_INVALID_BATCH_ID
    )


@T.case("AB-303", "Client.request", "error 10175 without a number")
async def no_first_number(t: Trial) -> None:
    assert (
        await RawBatch(t, await t.stream(**ATOMIC)).code(None)
        == err_codes.ATOMIC_PUBLISH_MISSING_SEQ
    )


@T.case("AB-304", "Client.request, JetStream.events", "error 10175 ends the batch, with an event")
async def no_number(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1)
        assert await batch.code(None) == err_codes.ATOMIC_PUBLISH_MISSING_SEQ
        assert (await next_event()).batch == batch.id
    assert await count(s) == 0


async def _ends_with_an_error(t: Trial, *numbers: int, code: int | None = None) -> Stream:
    """The last message with these numbers, or one before it, is refused; nothing is stored."""
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    codes = [await batch.code(number) for number in numbers]
    assert any(codes[1:] or codes)
    assert code is None or code in codes
    assert await count(s) == 0
    return s


@T.case("AB-305", "Client.request", "an error when the first number is 2")
async def first_is_second(t: Trial) -> None:
    await _ends_with_an_error(t, 2)


@T.case("AB-306", "Client.request", "error 10176 for a gap")
async def gap(t: Trial) -> None:
    await _ends_with_an_error(t, 1, 3, code=err_codes.ATOMIC_PUBLISH_INCOMPLETE_BATCH)


@T.case("AB-307", "Client.request", "an error for a number that came before")
async def repeated(t: Trial) -> None:
    await _ends_with_an_error(t, 1, 1)


@T.case("AB-308", "Client.request", "an error for numbers in another order")
async def decreasing(t: Trial) -> None:
    await _ends_with_an_error(t, 1, 3, 2)


@T.case("AB-309", "Client.request", "an error for an unknown id")
async def unknown(t: Trial) -> None:
    await _ends_with_an_error(t, 5)


@T.case("AB-310", "atomic_batch", "AtomicPublishTooLargeBatchError beyond 1,000 messages")
async def too_large(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    await refusal(_batch(t, s, "x" * 1001), AtomicPublishTooLargeBatchError)
    assert await count(s) == 0


@T.case("AB-311", "atomic_batch", "1,000 messages")
async def largest(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    assert (await _batch(t, s, "x" * 1000)).count == 1000
    assert await count(s) == 1000


# -- atomic batches: expectations ------------------------------------------------------------------


@T.case("AB-401", "add(expect_last_seq=)", "stored when it holds")
async def expected(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "a")
    assert (await _batch(t, s, "abc", expect_last_seq=seq)).seq == seq + 3


@T.case("AB-402", "add(expect_last_seq=)", "WrongLastSequenceError at the commit")
async def not_expected(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "a")
    async with AsyncExitStack() as stack:
        batch = await stack.enter_async_context(t.js.atomic_batch())
        await batch.publish(f"{s.name}.a", b"1", expect_last_seq=seq + 99)
        await batch.publish(f"{s.name}.a", b"2")
        await batch.flush()
        await refusal(batch.commit(), WrongLastSequenceError)
    assert await count(s) == 1


@T.case("AB-403", "add(expect_last_seq=)", "WrongLastSequenceError after another publish")
async def overtaken(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "a")
    async with t.js.atomic_batch() as batch:
        await batch.publish(f"{s.name}.a", b"1", expect_last_seq=seq)
        await batch.publish(f"{s.name}.a", b"2")
        await batch.flush()
        await t.fill(s, "b")
        await refusal(batch.commit(), WrongLastSequenceError)
    assert [m.subject[-1] for m in await stored(s)] == ["a", "b"]


@T.case("AB-404", "add(expect_last_seq=); Client.request", "ConfigError on a later message")
async def expected_later(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        await batch.publish(f"{s.name}.a", b"1")
        await refusal(batch.publish(f"{s.name}.a", b"2", expect_last_seq=77), ConfigError)
    raw = RawBatch(t, s)
    assert await raw.send(1) == {}
    codes = [await raw.code(2, **{EXPECTED_LAST: "77"}), await raw.code(3, "1")]
    # Servers may refuse it, now or at the commit, or ignore it.
    assert await count(s) == (1 if any(codes) else 4)


@T.case(
    "AB-405", "add(headers=)", "AtomicPublishUnsupportedHeaderBatchError for an expected message id"
)
async def expected_id(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    headers = {"Nats-Expected-Last-Msg-Id": "foo"}
    await refusal(_batch(t, s, "ab", headers=headers), AtomicPublishUnsupportedHeaderBatchError)
    assert await count(s) == 0


@T.case("AB-410", "add(expect_last_subject_seq=)", "stored when it holds")
async def expected_of_subject(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "x")
    assert (await _batch(t, s, "ab", "x", expect_last_subject_seq=seq)).count == 2


@T.case("AB-411", "add(expect_last_subject_seq=)", "WrongLastSequenceError, nothing is stored")
async def not_expected_of_subject(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "x")
    wrong = _batch(t, s, "ab", "x", expect_last_subject_seq=seq + 10)
    await refusal(wrong, WrongLastSequenceError)
    assert await count(s) == 1


@T.case("AB-412", "add(expect_last_subject_seq=)", "refused, or stored, after that subject")
async def expected_of_a_written_subject(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    (seq,) = await t.fill(s, "x")
    try:
        async with t.js.atomic_batch() as batch:
            await batch.publish(f"{s.name}.x", b"1")
            await batch.publish(f"{s.name}.x", b"2", expect_last_subject_seq=seq)
            await batch.publish(f"{s.name}.y", b"3")
    except (APIError, ConfigError):
        assert await count(s) == 1
    else:
        assert await count(s) == 4


# -- atomic batches: message ids, API levels -------------------------------------------------------


@T.case("AB-501", "add(msg_id=)", "is kept with each message")
async def message_ids(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        for id in ("m1", "m2", "m3"):
            await batch.publish(f"{s.name}.a", b"x", msg_id=id)
    assert [headers_of(m)["Nats-Msg-Id"] for m in await stored(s)] == ["m1", "m2", "m3"]


async def _with_ids(t: Trial, s: Stream, *ids: str | None) -> None:
    async with t.js.atomic_batch() as batch:
        for id in ids:
            await batch.publish(f"{s.name}.a", b"x", msg_id=id)


@T.case(
    "AB-502", "add(msg_id=)", "AtomicPublishContainsDuplicateMessageError for the same id twice"
)
async def same_id(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    await refusal(_with_ids(t, s, "dup", "dup"), AtomicPublishContainsDuplicateMessageError)
    assert await count(s) == 0


@T.case(
    "AB-503",
    "add(msg_id=)",
    "AtomicPublishContainsDuplicateMessageError for the id of a stored message",
)
async def stored_id(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    await t.fill(s, "a", msg_id="keep")
    await refusal(_with_ids(t, s, "keep", None, None), AtomicPublishContainsDuplicateMessageError)
    assert await count(s) == 1


@T.case("AB-601", "add(headers=)", "stored when the server has the API level")
async def level(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    headers = {LEVEL: str(await _level(t))}
    async with t.js.atomic_batch() as batch:
        for _ in range(3):
            await batch.publish(f"{s.name}.a", b"x", headers=headers)
        assert (await batch.commit()).count == 3


async def _too_high(t: Trial) -> str:
    return str(await _level(t) + 99)


@T.case(
    "AB-602", "add(headers=), JetStream.events", "RequiredApiLevelError, and the event: unsupported"
)
async def level_of_the_first(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.events(ABANDONED, s) as next_event:
        await refusal(
            _batch(t, s, "ab", headers={LEVEL: await _too_high(t)}), RequiredApiLevelError
        )
        assert (await next_event()).reason == "unsupported"
    assert await count(s) == 0


@T.case(
    "AB-603", "add(headers=), JetStream.events", "RequiredApiLevelError, and the event: unsupported"
)
async def level_of_a_later_one(t: Trial) -> None:
    s = await t.stream(**ATOMIC)

    async def publish() -> None:
        async with t.js.atomic_batch() as batch:
            await batch.publish(f"{s.name}.a", b"1")
            await batch.publish(f"{s.name}.a", b"2", headers={LEVEL: await _too_high(t)})

    async with t.events(ABANDONED, s) as next_event:
        await refusal(publish(), RequiredApiLevelError)
        assert (await next_event()).reason == "unsupported"
    assert await count(s) == 0


@T.case("AB-604", "Client.publish, JetStream.events", "the event; an error at the commit")
async def level_without_reply(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1)
        await batch.send_without_reply(2, **{LEVEL: await _too_high(t)})
        event = await next_event()
    assert (event.batch, event.reason) == (batch.id, "unsupported")
    assert await batch.code(3, "1")
    assert await count(s) == 0


# -- atomic batches: commits -----------------------------------------------------------------------


@T.case("AB-701", "commit", "the last message is stored, with the mark of the commit")
async def commit(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    await _batch(t, s, "abc")
    assert [headers_of(m).get(COMMIT) for m in await stored(s)] == [None, None, "1"]


@T.case("AB-702", "flush, commit", "the message before gets the mark, and the count")
async def commit_before(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        for payload in (b"a", b"b"):
            await batch.publish(f"{s.name}.a", payload)
        await batch.flush()
        ack = await batch.commit()
    assert (ack.count, ack.seq) == (2, 2)
    assert [headers_of(m).get(COMMIT) for m in await stored(s)] == [None, "1"]
    assert (await s.info()).state.last_seq == 2


@T.case("AB-703", "commit; Client.request", "ConfigError without a message; nothing is stored")
async def commit_of_nothing(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        await refusal(batch.commit(), ConfigError)
    answer = await RawBatch(t, s).send(1, "eob")
    assert "error" in answer or answer["count"] == 0
    assert await count(s) == 0


@T.case("AB-704", "Client.request", "an error for another mark")
async def commit_unknown(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    await batch.send(1)
    assert await batch.code(2, "nope")
    assert await count(s) == 0


# -- atomic batches: idleness and limits -----------------------------------------------------------


@T.case(
    "AB-801",
    "atomic_batch, JetStream.events",
    "the event: timeout; AtomicPublishIncompleteBatchError later",
)
async def idle(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.events(ABANDONED, s) as next_event, AsyncExitStack() as stack:
        batch = await stack.enter_async_context(t.js.atomic_batch())
        await batch.publish(f"{s.name}.a", b"1")
        await batch.flush()
        assert (await next_event()).reason == "timeout"
        await batch.publish(f"{s.name}.a", b"2")
        await refusal(batch.commit(), AtomicPublishIncompleteBatchError)
    assert await count(s) == 0


@T.case("AB-802", "Client.publish, JetStream.events", "the event: timeout, and no reply")
async def idle_without_reply(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1)
        await batch.send_without_reply(2)
        event = await next_event()
    assert (event.batch, event.reason) == (batch.id, "timeout")
    assert await count(s) == 0


@T.case(
    "AB-803",
    "atomic_batch",
    "AtomicPublishTooManyInflightError for the 51st of a stream; a commit makes room",
)
async def many_in_a_stream(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batches = [RawBatch(t, s) for _ in range(50)]
    assert await asyncio.gather(*(batch.send(1) for batch in batches)) == [{}] * 50
    await refusal(_flushed(t, s), AtomicPublishTooManyInflightError)
    await batches[0].send(2, "1")
    await _flushed(t, s)


async def _flushed(t: Trial, s: Stream) -> None:
    async with t.js.atomic_batch() as batch:
        await batch.publish(f"{s.name}.a", b"x")
        await batch.flush()


@T.case(
    "AB-804",
    "atomic_batch",
    "AtomicPublishTooManyInflightError for the 1,001st of a server",
    alone=True,
)
async def many_in_a_server(t: Trial) -> None:
    streams = [await t.stream(**ATOMIC) for _ in range(21)]
    batches = [RawBatch(t, s) for s in streams[:20] for _ in range(50)]
    assert not any(await asyncio.gather(*(batch.send(1) for batch in batches)))
    await refusal(_flushed(t, streams[20]), AtomicPublishTooManyInflightError)


@T.case("AB-805", "atomic_batch", "stays as long as messages come in time")
async def not_idle(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        for payload in (b"1", b"2", b"3", b"4"):
            await batch.publish(f"{s.name}.a", payload)
            await batch.flush()
            await asyncio.sleep(IDLE / 2)
        assert (await batch.commit()).count == 4
    assert await count(s) == 4


# -- atomic batches: a cluster ---------------------------------------------------------------------


async def _new_leader(t: Trial, s: Stream) -> None:
    cluster = (await s.info()).cluster
    assert cluster is not None
    old = cluster.leader
    await s.step_down_leader()
    impatient = t.nc.jetstream(timeout=1).stream(s.name)

    async def elected() -> bool:
        try:
            now = (await impatient.info()).cluster
        except RequestTimeoutError:  # nobody answers for a stream without a leader
            return False
        return now is not None and now.leader not in (None, "", old)

    await until(elected, 30)


@T.case("AB-901", "Stream.step_down_leader, commit", "all or nothing is stored", clustered=True)
async def leader_before_the_commit(t: Trial) -> None:
    s = await t.stream(**ATOMIC, num_replicas=3)
    async with AsyncExitStack() as stack:
        batch = await stack.enter_async_context(t.js.atomic_batch())
        for payload in (b"1", b"2", b"3", b"4", b"5"):
            await batch.publish(f"{s.name}.a", payload)
        await batch.flush()
        await _new_leader(t, s)
        try:
            await batch.publish(f"{s.name}.a", b"6")
            await batch.commit()
        except APIError:
            assert await count(s) == 0
        else:
            assert await count(s) == 6


@T.case("AB-902", "Stream.step_down_leader", "what was acknowledged is there", clustered=True)
async def leader_after_the_commit(t: Trial) -> None:
    s = await t.stream(**ATOMIC, num_replicas=3)
    ack = await _batch(t, s, "12345")
    await _new_leader(t, s)
    assert [m.seq for m in await stored(s)] == [1, 2, 3, 4, 5]
    assert (await s.info()).state.last_seq == ack.seq


# -- atomic batches: events, others at the same time, forms ----------------------------------------


@T.case("AB-1001", "StreamBatchAbandonedEvent", "its id, time, stream, batch and reason")
async def event(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1)
        event = await next_event()
    assert event.type == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    assert event.id
    assert event.timestamp
    assert (event.stream, event.batch, event.reason) == (s.name, batch.id, "timeout")


@T.case("AB-1002", "JetStream.events", "the event: incomplete")
async def event_incomplete(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1)
        await batch.send(3)
        event = await next_event()
    assert (event.batch, event.reason) == (batch.id, "incomplete")


@T.case("AB-1003", "JetStream.events", "the event: unsupported")
async def event_unsupported(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    batch = RawBatch(t, s)
    async with t.events(ABANDONED, s) as next_event:
        await batch.send(1, **{LEVEL: await _too_high(t)})
        event = await next_event()
    assert (event.batch, event.reason) == (batch.id, "unsupported")


@T.case("AB-1004", "atomic_batch, JetStream.events", "the event: large")
async def event_large(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.events(ABANDONED, s) as next_event:
        await refusal(_batch(t, s, "x" * 1001), AtomicPublishTooLargeBatchError)
        assert (await next_event()).reason == "large"
    assert await count(s) == 0


@T.case("AB-1101", "publish beside an atomic batch", "is stored at once, before the batch")
async def other_publish(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        await batch.publish(f"{s.name}.x", b"1")
        await batch.flush()
        (seq,) = await t.fill(s, "x")
        await batch.publish(f"{s.name}.x", b"2")
        ack = await batch.commit()
    assert ack.seq == seq + 2
    assert [ID in headers_of(m) for m in await stored(s)] == [False, True, True]


@T.case("AB-1102", "two atomic batches at a time", "are stored one after the other")
async def two_batches(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as a, t.js.atomic_batch() as b:
        for payload in (b"1", b"2", b"3"):
            await a.publish(f"{s.name}.a", payload)
            await b.publish(f"{s.name}.b", payload)
        acks = [await a.commit(), await b.commit()]
    assert [ack.count for ack in acks] == [3, 3]
    assert "".join(m.subject[-1] for m in await stored(s)) == "aaabbb"


@T.case("AB-1201", "add", "an empty payload")
async def empty_payloads(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    assert (await _batch(t, s, [b"", b""])).count == 2
    assert [m.data for m in await stored(s)] == [b"", b""]


@T.case("AB-1202", "add(headers=)", "other headers are kept")
async def other_headers(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    async with t.js.atomic_batch() as batch:
        for number in range(2):
            headers = {"X-Test-Tag": f"value-{number}"}
            await batch.publish(f"{s.name}.a", b"x", headers=headers)
    messages = await stored(s)
    assert [headers_of(m)["X-Test-Tag"] for m in messages] == ["value-0", "value-1"]
    assert [headers_of(m)[NUMBER] for m in messages] == ["1", "2"]


@T.case("AB-1203", "publish(headers=)", "the mark of a commit means nothing without a batch")
async def commit_without_batch(t: Trial) -> None:
    s = await t.stream(**ATOMIC)
    try:
        ack = await t.js.publish(f"{s.name}.a", b"x", headers={COMMIT: "1"})
    except APIError:
        return
    assert (ack.batch, ack.count) == (None, None)
    assert ID not in headers_of(await last_on(s, "a"))


# -- steps of fast ingest --------------------------------------------------------------------------


async def _ingest(t: Trial, s: Stream, messages: int, **options: Any) -> PubAck:
    """Publish so many messages by fast ingest; returns the last ack."""
    async with t.js.fast_ingest(**options) as ingest:
        for number in range(1, messages + 1):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        ack = await ingest.commit()
    assert ack is not None
    assert (ingest.acked, ingest.failed) == (messages, [])
    return ack


async def _batched_is_off(t: Trial, s: Stream) -> None:
    error = await refusal(_ingest(t, s, 1), PublishFailedError)
    (failure,) = error.failures
    assert isinstance(failure.error, NotEnabledOnStreamError)
    assert failure.error.err_code == err_codes.BATCH_PUBLISH_DISABLED


async def _raw(t: Trial, **options: Any) -> tuple[Stream, RawIngest]:
    s = await t.stream(**BATCHED)
    raw = RawIngest(t, s, **options)
    await t.nc.flush()
    return s, raw


async def _send_all(raw: RawIngest, numbers: Iterable[int], last: int, end: int = 2) -> None:
    """Start, append these numbers and end with `last`."""
    for number in numbers:
        await raw.send(number, 0 if number == 1 else 1)
    await raw.send(last, end)


# -- fast ingest: configuration --------------------------------------------------------------------


T.option_is_kept("FB-101", "allow_batched", 3)


@T.case("FB-102", "fast_ingest", "NotEnabledOnStreamError where it is off")
async def batched_off(t: Trial) -> None:
    s = await t.stream()
    assert not (await s.info()).config.allow_batched
    await _batched_is_off(t, s)


@T.case("FB-103", "Stream.update(allow_batched=)", "turns it on and off")
async def batched_toggled(t: Trial) -> None:
    s = await t.stream()
    await s.update(allow_batched=True)
    ack = await _ingest(t, s, 1)
    assert ack.batch
    assert ack.count == 1
    await s.update(allow_batched=False)
    await _batched_is_off(t, s)


@T.case("FB-104", "create_stream(persist_mode=)", "goes with async persistence")
async def batched_and_async(t: Trial) -> None:
    s = await t.stream(**BATCHED, persist_mode="async", storage="file")
    assert (await _ingest(t, s, 5)).count == 5


@T.case("FB-105", "atomic_batch and fast_ingest", "both in one stream")
async def both(t: Trial) -> None:
    s = await t.stream(**ATOMIC, **BATCHED)
    assert (await _batch(t, s, "abc")).count == 3
    assert (await _ingest(t, s, 3)).count == 3
    assert await count(s) == 6


T.stream_is_refused(
    "FB-106",
    "for a mirror",
    BATCHED | {"mirror": True},
    error=MirrorWithBatchPublishError,
)


async def _is_copied(t: Trial, copy: Stream, s: Stream, messages: int) -> None:
    await _ingest(t, s, messages)
    await has_messages(copy, messages)
    expected = [str(number).encode() for number in range(1, messages + 1)]
    assert [m.data for m in await stored(copy)] == expected
    assert not any(
        name.startswith("Nats-Batch") for m in await stored(copy) for name in headers_of(m) or {}
    )


@T.case("FB-107", "create_stream(sources=, allow_batched=True)", "sourced messages are ordinary")
async def batched_sourced(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    await _is_copied(t, await t.sourcing(s, **BATCHED), s, 3)


# -- fast ingest: stored ---------------------------------------------------------------------------


@T.case("FB-201", "Client.publish", "one message that commits gets only a PubAck")
async def commit_at_once(t: Trial) -> None:
    s, raw = await _raw(t)
    await raw.send(1, 2)
    ack = (await raw.reply()).document
    assert (ack["batch"], ack["count"], ack["seq"]) == (raw.id, 1, 1)
    assert [m.data for m in await stored(s)] == [b"1"]


@T.case("FB-202", "commit; Client.publish", "None without a message; nothing is stored")
async def end_at_once(t: Trial) -> None:
    s, raw = await _raw(t)
    await raw.send(1, 3)
    answer = await raw.reply()
    assert answer.err_code or answer.document["count"] == 0
    async with t.js.fast_ingest() as ingest:
        assert await ingest.commit() is None
    assert await count(s) == 0


@T.case("FB-301", "Client.publish; fast_ingest", "acks within the agreed flow, then the PubAck")
async def with_commit(t: Trial) -> None:
    s, raw = await _raw(t, flow=100)
    await raw.send(1, 0)
    first = (await raw.reply()).document
    assert first["type"] == "ack"
    assert first["seq"] in (0, 1)
    assert 1 <= first["msgs"] <= 100
    for number in range(2, 51):
        await raw.send(number, 1)
    await raw.send(51, 2)
    *acks, last = await raw.replies_to_end()
    assert all(ack.document["msgs"] <= 100 for ack in acks)
    assert (last.document["batch"], last.document["count"]) == (raw.id, 51)
    assert (last.document["seq"], await count(s)) == (51, 51)


@T.case("FB-302", "fast_ingest", "the end is not stored and not counted")
async def with_end(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    ack = await _ingest(t, s, 9, ack_every=10, gaps="ok")
    assert (ack.count, ack.seq, await count(s)) == (9, 9, 9)


@T.case("FB-303", "Client.publish; fast_ingest", "acks in order, none ahead of what was sent")
async def acks_in_order(t: Trial) -> None:
    _, raw = await _raw(t, flow=20)
    await _send_all(raw, range(1, 100), 100)
    *acks, last = await raw.replies_to_end()
    seqs = [ack.document["seq"] for ack in acks]
    assert seqs == sorted(seqs)
    assert max(seqs) <= 100
    assert last.document["count"] == 100


# -- fast ingest: reply subjects -------------------------------------------------------------------


@T.case("FB-401", "Client.publish", "error 10206 for an unknown operation")
async def unknown_operation(t: Trial) -> None:
    _, raw = await _raw(t)
    await raw.send(1, 9)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_INVALID_PATTERN


@T.case("FB-402", "Client.publish; fast_ingest(gaps=)", "error 10206; ConfigError")
async def unknown_gaps(t: Trial) -> None:
    _, raw = await _raw(t, gap="maybe")
    await raw.send(1, 0)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_INVALID_PATTERN
    with pytest.raises(ConfigError):
        t.js.fast_ingest(gaps="maybe")  # type: ignore[arg-type]


@T.case("FB-403", "Client.publish", "an id of 64 characters")
async def longest_batched_id(t: Trial) -> None:
    s, raw = await _raw(t)
    raw.id = "i" * 64
    await raw.send(1, 2)
    assert (await raw.reply()).document["count"] == 1
    assert await count(s) == 1


@T.case("FB-404", "Client.publish", "error 10207 for 65 characters")
async def too_long_batched_id(t: Trial) -> None:
    _, raw = await _raw(t)
    raw.id = "i" * 65
    await raw.send(1, 0)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_INVALID_BATCH_ID


@T.case("FB-405", "Client.publish", "error 10208 for an unknown id")
async def unknown_batched(t: Trial) -> None:
    _, raw = await _raw(t)
    await raw.send(5, 1)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID


@T.case("FB-406", "Client.publish", "another reply subject starts no batch")
async def no_pattern(t: Trial) -> None:
    _, raw = await _raw(t)
    await raw.send(1, 0, end="")
    answer = await raw.reply()
    assert (
        answer.err_code == err_codes.BATCH_PUBLISH_INVALID_PATTERN or "batch" not in answer.document
    )


# -- fast ingest: gaps -----------------------------------------------------------------------------


async def _gaps(raw: RawIngest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The reported gaps, and the PubAck."""
    *replies, last = await raw.replies_to_end()
    return [reply.document for reply in replies if reply.type == "gap"], last.document


@T.case("FB-501", 'fast_ingest(gaps="ok")', "NotStoredError for a lost message, and it goes on")
async def gap_ok(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    async with (
        t.losing(b".3.1.$FI", kind="unsent") as (js, fault),
        js.fast_ingest(gaps="ok", ack_every=5) as ingest,
    ):
        for number in range(1, 11):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        ack = await ingest.commit()
        (failure,) = ingest.failed
    assert fault.hit
    assert (failure.index, type(failure.error)) == (2, NotStoredError)
    assert ack is not None
    assert (ack.count, await count(s)) == (10, 9)
    _, raw = await _raw(t, flow=5)
    await _send_all(raw, [1, 2, 4, 5, 6, 7, 8, 9], 10)
    (gap,), last = await _gaps(raw)
    assert (gap["last_seq"], gap["seq"], last["count"]) == (3, 4, 10)


@T.case("FB-502", "Client.publish", "each gap is reported")
async def two_gaps(t: Trial) -> None:
    _, raw = await _raw(t, flow=5)
    await _send_all(raw, [1, 2, 5, 6, 9], 10)
    gaps, ack = await _gaps(raw)
    assert len(gaps) == 2
    assert ack["count"] == 10


@T.case("FB-503", "Client.publish", "the report of a gap changes no flow")
async def gap_without_flow(t: Trial) -> None:
    _, raw = await _raw(t, flow=5)
    await _send_all(raw, [1, 2, 4], 5)
    (gap,), _ = await _gaps(raw)
    assert set(gap) == {"type", "last_seq", "seq"}


@T.case("FB-601", 'fast_ingest(gaps="fail")', "NotStoredError for a lost message and all later")
async def gap_fail(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    with pytest.raises((PublishFailedError, NotStoredError)):
        async with (
            t.losing(b".4.1.$FI", kind="unsent") as (js, _),
            js.fast_ingest(gaps="fail", ack_every=5) as ingest,
        ):
            for number in range(1, 11):
                await ingest.publish(f"{s.name}.a", str(number).encode())
    assert ingest.ack is not None
    assert (ingest.ack.count, await count(s)) == (3, 3)
    s, raw = await _raw(t, flow=5, gap="fail")
    for number in (1, 2, 3, 5):
        await raw.send(number, 0 if number == 1 else 1)
    gaps, last = await _gaps(raw)
    assert (len(gaps), last["count"]) == (1, 3)
    await raw.send(6, 1)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID


@T.case("FB-602", "Client.publish", "later messages are not stored")
async def after_a_gap(t: Trial) -> None:
    s, raw = await _raw(t, flow=5, gap="fail")
    for number in (1, 2, 3, 5, 6, 7, 8):
        await raw.send(number, 0 if number == 1 else 1)
    acks: list[dict[str, Any]] = []
    while not acks:
        acks += [d for d in [(await raw.reply()).document] if "count" in d]
    assert acks[0]["count"] == 3
    assert await count(s) == 3


# -- fast ingest: flow -----------------------------------------------------------------------------


@T.case("FB-701", "Client.publish", "the first ack may agree on less")
async def first_flow(t: Trial) -> None:
    _, raw = await _raw(t, flow=100)
    await raw.send(1, 0)
    assert 1 <= (await raw.reply()).document["msgs"] <= 100


@T.case("FB-702", "fast_ingest(ack_every=); Client.publish", "never more than was requested")
async def flow_bound(t: Trial) -> None:
    s, raw = await _raw(t, flow=10)
    await _send_all(raw, range(1, 200), 200)
    *acks, _ = await raw.replies_to_end()
    assert all(ack.document["msgs"] <= 10 for ack in acks)
    assert (await _ingest(t, s, 200, ack_every=10)).count == 200


@T.case("FB-703", "fast_ingest(ack_every=)", "the server may raise it during the batch")
async def flow_rises(t: Trial) -> None:
    s, raw = await _raw(t, flow=64)
    await _send_all(raw, range(1, 500), 500)
    *acks, last = await raw.replies_to_end()
    assert all(ack.document["msgs"] <= 64 for ack in acks)
    assert last.document["count"] == 500
    assert (await _ingest(t, s, 500, ack_every=64)).count == 500


@T.case("FB-704", "fast_ingest", "a later ack stands for one that was lost")
async def lost_ack(t: Trial) -> None:
    await _without_an_ack(t, position=3, outstanding=2)


async def _without_an_ack(t: Trial, position: int, outstanding: int) -> None:
    s = await t.stream(**BATCHED)
    async with (
        t.losing(b'"type":"ack"', position) as (js, fault),
        js.fast_ingest(ack_every=10, outstanding=outstanding) as ingest,
    ):
        for number in range(1, 101):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        ack = await ingest.commit()
    assert fault.hit
    assert (ingest.acked, ingest.failed) == (100, [])
    assert ack is not None
    assert (ack.count, await count(s)) == (100, 100)


# -- fast ingest: expectations ---------------------------------------------------------------------


@T.case("FB-801", 'add(expect_last_seq=), gaps="fail"', "WrongLastSequenceError ends the batch")
async def expected_fail(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    (seq,) = await t.fill(s, "a")

    async def publish() -> None:
        async with t.js.fast_ingest(gaps="fail") as ingest:
            await ingest.publish(f"{s.name}.a", b"1", expect_last_seq=seq + 99)
            for _ in range(3):
                await ingest.publish(f"{s.name}.a", b"x")

    with pytest.raises((PublishFailedError, WrongLastSequenceError)) as raised:
        await publish()
    error = raised.value
    if isinstance(error, PublishFailedError):
        error = error.failures[0].error
    assert isinstance(error, WrongLastSequenceError)
    assert await count(s) == 1


@T.case("FB-802", 'add(expect_last_seq=), gaps="ok"', "WrongLastSequenceError, and it goes on")
async def expected_ok(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    await t.fill(s, "a")
    async with t.js.fast_ingest(gaps="ok") as ingest:
        await ingest.publish(f"{s.name}.a", b"1")
        await ingest.publish(f"{s.name}.a", b"2", expect_last_seq=99)
        for number in range(3, 8):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        ack = await ingest.commit()
        (failure,) = ingest.failed
    assert (failure.index, type(failure.error)) == (1, WrongLastSequenceError)
    assert ack is not None
    assert ack.count == 7
    assert [m.data for m in (await stored(s))[1:]] == [b"1", b"3", b"4", b"5", b"6", b"7"]


@T.case("FB-803", "add(headers=)", "an expected message id is refused, or ignored")
async def expected_batched_id(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    headers = {"Nats-Expected-Last-Msg-Id": "foo"}
    refused = None
    try:
        async with t.js.fast_ingest() as ingest:
            await ingest.publish(f"{s.name}.a", b"1", headers=headers)
    except PublishFailedError as error:
        refused = error.failures[0].error
    assert refused is None or isinstance(refused, APIError)
    assert await count(s) == (refused is None)


# -- fast ingest: pings and idleness ---------------------------------------------------------------


@T.case("FB-901", "fast_ingest(outstanding=1)", "its ping brings an ack that was lost")
async def ping(t: Trial) -> None:
    await _without_an_ack(t, position=3, outstanding=1)
    s, raw = await _raw(t)
    for number in range(1, 16):
        await raw.send(number, 0 if number == 1 else 1)
    await has_messages(s, 15)
    await raw.send(15, 4)
    while (await raw.reply()).document["seq"] < 10:
        pass
    await raw.send(16, 2)
    assert (await raw.replies_to_end())[-1].document["count"] == 16


@T.case("FB-902", "Client.publish", "a ping is no message, and no gap")
async def ping_number(t: Trial) -> None:
    s, raw = await _raw(t)
    for number in (1, 2, 3):
        await raw.send(number, 0 if number == 1 else 1)
    for _ in range(3):
        await raw.send(3, 4)
    await raw.send(4, 1)
    await raw.send(5, 2)
    gaps, ack = await _gaps(raw)
    assert (gaps, ack["count"], await count(s)) == ([], 5, 5)


@T.case("FB-1001", "Client.publish", "error 10208 after a silence; what was stored stays")
async def idle_batched(t: Trial) -> None:
    s, raw = await _raw(t)
    await raw.send(1, 0)
    await raw.reply()
    await asyncio.sleep(IDLE * 1.3)
    await raw.send(2, 1)
    assert (await raw.reply()).err_code == err_codes.BATCH_PUBLISH_UNKNOWN_BATCH_ID
    assert await count(s) == 1


@T.case("FB-1002", "Client.publish", "stays as long as messages come in time")
async def not_idle_batched(t: Trial) -> None:
    _, raw = await _raw(t)
    for number in range(1, 5):
        await raw.send(number, 0 if number == 1 else 1)
        await asyncio.sleep(IDLE / 2)
    await raw.send(5, 2)
    assert (await raw.replies_to_end())[-1].document["count"] == 5


@T.case("FB-1003", "fast_ingest", "its pings keep a silent batch")
async def kept_by_pings(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    async with t.js.fast_ingest() as ingest:
        await ingest.publish(f"{s.name}.a", b"1")
        await asyncio.sleep(IDLE * 1.5)
        await ingest.publish(f"{s.name}.a", b"2")
        ack = await ingest.commit()
    assert ack is not None
    assert ack.count == 2


# -- fast ingest: limits ---------------------------------------------------------------------------


async def _open_many(t: Trial, streams: list[Stream], each: int) -> None:
    """Start so many batches in each stream, all of which the server keeps."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    inbox = t.nc.new_inbox()
    async with t.nc.subscribe(f"{inbox}.>", pending_msgs_limit=10**6) as replies:
        await t.nc.flush()
        for s in streams:
            for number in range(each):
                reply = f"{inbox}.{s.name}-{number}.10.ok.1.0.$FI"
                await t.nc.publish(f"{s.name}.a", b"", reply=reply)
        kept: set[str] = set()
        async for message in replies:
            assert b'"type":"ack"' in message.data, message.data
            kept.add(message.subject)
            if len(kept) == len(streams) * each:
                break
    if loop.time() - begin > IDLE * 0.8:
        pytest.skip("The machine is too slow to open so many batches before the first is idle.")


@T.case("FB-1101", "fast_ingest", "BatchError for the 1,001st of a stream")
async def many_batched_in_a_stream(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    await _open_many(t, [s], 1000)
    error = await refusal(_ingest(t, s, 1), PublishFailedError)
    assert isinstance(error.failures[0].error, BatchError)


@T.case("FB-1102", "fast_ingest", "BatchError for the 50,001st of a server", alone=True)
async def many_batched_in_a_server(t: Trial) -> None:
    streams = [await t.stream(**BATCHED) for _ in range(51)]
    await _open_many(t, streams[:50], 1000)
    error = await refusal(_ingest(t, streams[50], 1), PublishFailedError)
    assert isinstance(error.failures[0].error, BatchError)


@T.case("FB-1103", "fast_ingest", "a batch has no most messages")
async def long_batch(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    assert (await _ingest(t, s, 1002)).count == 1002


# -- fast ingest: a cluster ------------------------------------------------------------------------


@T.case(
    "FB-1201", "Stream.step_down_leader", "all before a gap is stored, in order", clustered=True
)
async def leader_fail(t: Trial) -> None:
    s = await t.stream(**BATCHED, num_replicas=3)
    ended: list[Exception] = []
    try:
        async with t.js.fast_ingest(gaps="fail", ack_every=5) as ingest:
            for number in range(1, 21):
                await ingest.publish(f"{s.name}.a", str(number).encode())
            await _new_leader(t, s)
            for number in range(21, 26):
                await ingest.publish(f"{s.name}.a", str(number).encode())
    except PublishFailedError as error:
        ended += [failure.error for failure in error.failures]
    except JetStreamError as error:
        ended.append(error)
    assert all(isinstance(error, JetStreamError) for error in ended)
    found = [int(m.data) for m in await stored(s)]
    assert found == list(range(1, len(found) + 1))


@T.case(
    "FB-1202", "Stream.step_down_leader", "a gap is listed, and the batch goes on", clustered=True
)
async def leader_ok(t: Trial) -> None:
    s = await t.stream(**BATCHED, num_replicas=3)
    async with t.js.fast_ingest(gaps="ok", ack_every=10) as ingest:
        for number in range(1, 51):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        await _new_leader(t, s)
        for number in range(51, 101):
            await ingest.publish(f"{s.name}.a", str(number).encode())
        ack = await ingest.commit()
        failed = {failure.index + 1 for failure in ingest.failed}
    assert ack is not None
    assert ack.count == 100
    assert {int(m.data) for m in await stored(s)} >= set(range(1, 101)) - failed


# -- fast ingest: copies, the ack ------------------------------------------------------------------


@T.case("FB-1301", "create_stream(mirror=)", "mirrored messages are ordinary")
async def batched_mirror(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    await _is_copied(t, await t.mirror(s), s, 5)


@T.case("FB-1302", "create_stream(sources=)", "sourced messages are ordinary")
async def batched_source(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    await _is_copied(t, await t.sourcing(s), s, 5)


@T.case("FB-1401", "fast_ingest, commit", "PubAck.batch, count and seq")
async def batched_ack(t: Trial) -> None:
    s = await t.stream(**BATCHED)
    ack = await _ingest(t, s, 7)
    assert ack.batch
    assert (ack.count, ack.seq) == (7, (await s.info()).state.last_seq)


@T.case("FB-1402", "Client.publish", "only the PubAck has no type")
async def types(t: Trial) -> None:
    _, raw = await _raw(t, flow=5)
    await _send_all(raw, [number for number in range(1, 50) if number != 7], 50)
    *replies, last = await raw.replies_to_end()
    assert {reply.type for reply in replies} <= {"ack", "gap", "err"}
    assert {"seq", "batch", "count"} <= set(last.document)
