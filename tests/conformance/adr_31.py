"""Direct gets (ADR-31)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.conformance.trial import Table, Trial, has_messages, headers_of, refusal, status_of

from jetspark.errors import ConfigError, DirectGetError, MessageNotFoundError
from jetspark.jetstream.stream import Stream

T = Table(31)


async def _is_answered(s: Stream, token: str = "a") -> None:
    assert (await s.get(last_by_subject=f"{s.name}.{token}", direct=True)).subject.endswith(token)


async def _is_not_answered(s: Stream) -> None:
    error = await refusal(s.get(last_by_subject=f"{s.name}.a", direct=True), DirectGetError)
    assert error.status == 503


async def _people(t: Trial) -> tuple[Stream, int]:
    """A stream with three facts about one person; the address has changed since this sequence."""
    s = await t.stream(allow_direct=True)
    old = (await t.fill(s, ["1.name", "1.surname", "1.address"]))[-1]
    await asyncio.sleep(0.12)
    await t.js.publish(f"{s.name}.1.address", b"new")
    return s, old


# -- configuration ---------------------------------------------------------------------------------


@T.case("DG-101", "Stream.get(last_by_subject=, direct=True)", "the message, with all that it has")
async def on(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    assert (await s.info()).config.allow_direct
    (seq,) = await t.fill(s, ["a"])
    message = await s.get(last_by_subject=f"{s.name}.a", direct=True)
    assert (message.subject, message.seq, message.data) == (f"{s.name}.a", seq, b"1")
    assert message.time == (await s.get(seq, direct=False)).time


@T.case("DG-102", "Stream.get(direct=True)", "DirectGetError 503 where direct gets are off")
async def off(t: Trial) -> None:
    s = await t.stream(allow_direct=False)
    await t.fill(s, ["a"])
    await _is_not_answered(s)


@T.case("DG-103", "create_stream(max_msgs_per_subject=)", "does not turn direct gets on")
async def not_turned_on(t: Trial) -> None:
    s = await t.stream(max_msgs_per_subject=5)
    assert not (await s.info()).config.allow_direct
    await t.fill(s, ["a"])
    await _is_not_answered(s)


@T.case("DG-104", "create_stream(allow_direct=True)", "is on without a limit by subject")
async def without_limit(t: Trial) -> None:
    s = await t.stream(allow_direct=True, max_msgs_per_subject=-1)
    assert (await s.info()).config.allow_direct
    await t.fill(s, ["a"])
    await _is_answered(s)


@T.case("DG-105", "Stream.update(allow_direct=)", "turns direct gets on and off")
async def toggled(t: Trial) -> None:
    s = await t.stream(allow_direct=False)
    await t.fill(s, ["a"])
    await s.update(allow_direct=True)
    await _is_answered(s)
    await s.update(allow_direct=False)
    await _is_not_answered(s)


@T.case("DG-106", "Stream.get(direct=True)", "is answered by a stream of three", clustered=True)
async def replicated(t: Trial) -> None:
    s = await t.stream(allow_direct=True, num_replicas=3)
    await t.fill(s, ["a"])
    assert (await s.get(last_by_subject=f"{s.name}.a", direct=True)).data == b"1"


# -- one message -----------------------------------------------------------------------------------


@T.case("DG-201", "Stream.get(seq, direct=True)", "the message of that sequence")
async def by_seq(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    _, second, _ = await t.fill(s, "abc")
    message = await s.get(second, direct=True)
    assert (message.seq, message.subject, message.data) == (second, f"{s.name}.b", b"2")


@T.case("DG-202", "Stream.get(last_by_subject=, direct=True)", "the newest of the subject")
async def last(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    _, second = await t.fill(s, "aa")
    message = await s.get(last_by_subject=f"{s.name}.a", direct=True)
    assert (message.seq, message.data) == (second, b"2")


@T.case("DG-203", "Stream.get(next_by_subject=, direct=True)", "the first of the subject")
async def first(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    seqs = await t.fill(s, "aba")
    assert (await s.get(next_by_subject=f"{s.name}.a", direct=True)).seq == seqs[0]


@T.case("DG-204", "Stream.get(seq, next_by_subject=, direct=True)", "the first from there on")
async def next_from(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    seqs = await t.fill(s, "aba")
    assert (await s.get(seqs[1], next_by_subject=f"{s.name}.a", direct=True)).seq == seqs[2]


@T.case("DG-205", "Stream.get_many(start_time=, max_msgs=1)", "the first at that time or later")
async def from_time(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    for token in "abc":
        await t.fill(s, token)
        await asyncio.sleep(0.12)
    second = await s.get(2)
    start = second.time - timedelta(milliseconds=20)
    assert [m.seq async for m in s.get_many(start_time=start, max_msgs=1)] == [2]


@T.case("DG-206", "Stream.get(1, direct=True)", "MessageNotFoundError in an empty stream")
async def empty(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    assert (await refusal(s.get(1, direct=True), MessageNotFoundError)).code == 404


@T.case("DG-207", "Stream.get(last_by_subject=, direct=True)", "MessageNotFoundError without one")
async def no_such_subject(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "a")
    await refusal(s.get(last_by_subject=f"{s.name}.b", direct=True), MessageNotFoundError)


@T.case("DG-208", "Client.request_many; Stream.get()", "status 408; ConfigError without a position")
async def without_request(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    (reply,) = await t.direct(s, b"")
    assert status_of(reply)[0] == 408
    await refusal(s.get(direct=True), ConfigError)


@T.case("DG-209", "Client.request_many", "status 408 for a request that is not JSON")
async def not_json(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    (reply,) = await t.direct(s, b"{this is not json")
    assert status_of(reply)[0] == 408


@T.case("DG-210", "Stream.get_many(subject=)", "begins with the first message")
async def from_the_first(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    seqs = await t.fill(s, "aaa")
    assert [m.seq async for m in s.get_many(subject=f"{s.name}.a", max_msgs=3)] == seqs
    messages, end = await t.direct_page(s, {"batch": 3, "next_by_subj": f"{s.name}.a"})
    assert [int(headers_of(m)["Nats-Sequence"]) for m in messages] == seqs
    assert status_of(end)[0] == 204


# -- the subject in the request's subject ----------------------------------------------------------


@T.case("DG-301", "Stream.get(last_by_subject=, direct=True)", "asks by the request's subject")
async def appended(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aa")
    subject = f"{s.name}.a"
    async with t.nc.subscribe(f"$JS.API.DIRECT.GET.{s.name}.>") as requests:
        await t.nc.flush()
        message = await s.get(last_by_subject=subject, direct=True)
        request = await requests.next(timeout=5)
    assert (request.subject, request.data) == (f"$JS.API.DIRECT.GET.{s.name}.{subject}", b"")
    assert (message.data, message.subject) == (b"2", subject)


@T.case("DG-302", "Client.request_many", "status 408 for a request with a payload")
async def appended_with_payload(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "a")
    (reply,) = await t.direct(s, {"seq": 1}, f"{s.name}.a")
    assert status_of(reply)[0] == 408


@T.case("DG-303", "Stream.get(last_by_subject=, direct=True)", "a subject of many tokens")
async def many_tokens(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, ["users.1234.name"])
    message = await s.get(last_by_subject=f"{s.name}.users.1234.name", direct=True)
    assert (message.data, message.subject) == (b"1", f"{s.name}.users.1234.name")


@T.case("DG-304", "Stream.get(last_by_subject=, direct=True)", "MessageNotFoundError, status 404")
async def appended_missing(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    missing = s.get(last_by_subject=f"{s.name}.missing", direct=True)
    assert (await refusal(missing, MessageNotFoundError)).code == 404


# -- batches ---------------------------------------------------------------------------------------


@T.case("DG-401", "Stream.get_many(max_msgs=)", "so many, and the end says how many are left")
async def batch(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aaaaa")
    assert [m.seq async for m in s.get_many(subject=f"{s.name}.a", max_msgs=3)] == [1, 2, 3]
    messages, end = await t.direct_page(s, {"batch": 3, "seq": 1, "next_by_subj": f"{s.name}.a"})
    assert [headers_of(m)["Nats-Sequence"] for m in messages] == ["1", "2", "3"]
    assert [headers_of(m).get("Nats-Last-Sequence") for m in messages[1:]] == ["1", "2"]
    assert (status_of(end), end.data) == ((204, "EOB"), b"")
    assert (headers_of(end)["Nats-Num-Pending"], headers_of(end)["Nats-Last-Sequence"]) == (
        "2",
        "3",
    )


@T.case("DG-402", "Stream.get_many(start_time=)", "all from that time on")
async def batch_from_time(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    for _ in range(5):
        await t.fill(s, "a")
        await asyncio.sleep(0.05)
    start = (await s.get(3)).time
    assert [m.seq async for m in s.get_many(start_time=start, subject=f"{s.name}.a")] == [3, 4, 5]


@T.case(
    "DG-403",
    "Stream.get_many(max_bytes=)",
    "a batch ends at so many bytes; jetspark asks for the rest",
    differs="The message that reaches max_bytes is in the batch.",
)
async def batch_of_bytes(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    for _ in range(10):
        await t.js.publish(f"{s.name}.a", b"x" * 100)
    request = {"batch": 10, "max_bytes": 250, "seq": 1, "next_by_subj": f"{s.name}.a"}
    messages, end = await t.direct_page(s, request)
    assert 1 <= len(messages) <= 3
    assert int(headers_of(end)["Nats-Num-Pending"]) > 0
    assert len(await s.get_many(batch=10, max_bytes=250).all()) == 10


@T.case("DG-404", "Stream.get_many(max_msgs=)", "fewer, when the stream has no more")
async def batch_exhausted(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aa")
    assert len(await s.get_many(max_msgs=10).all()) == 2
    _, end = await t.direct_page(s, {"batch": 10, "seq": 1, "next_by_subj": f"{s.name}.a"})
    assert headers_of(end)["Nats-Num-Pending"] == "0"


@T.case("DG-405", "Stream.get_many", "each reply names the one before it, so none is missed")
async def chain(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "abacada")
    messages, end = await t.direct_page(s, {"batch": 5, "seq": 1, "next_by_subj": f"{s.name}.a"})
    seqs = [headers_of(m)["Nats-Sequence"] for m in messages]
    assert [headers_of(m)["Nats-Last-Sequence"] for m in [*messages[1:], end]] == seqs
    found = [m.seq async for m in s.get_many(subject=f"{s.name}.a", batch=2)]
    assert found == [int(seq) for seq in seqs]


@T.case("DG-406", "Stream.get_many", "Nats-Num-Pending tells a server that knows batches")
async def pending_of_messages(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aaa")
    messages, _ = await t.direct_page(s, {"batch": 3, "seq": 1, "next_by_subj": f"{s.name}.a"})
    assert "Nats-Num-Pending" in headers_of(messages[0])


@T.case("DG-407", "Client.request_many; Stream.get_many", "one reply; ConfigError for a batch of 0")
async def batch_of_none(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aa")
    request = {"batch": 0, "seq": 1, "next_by_subj": f"{s.name}.a"}
    (reply,) = await t.direct(s, request, stall=0.3)
    assert (reply.status, headers_of(reply)["Nats-Sequence"]) == (None, "1")
    assert "Nats-Num-Pending" not in headers_of(reply)
    await refusal(_all(s, batch=0), ConfigError)


async def _all(s: Stream, batch: int) -> object:
    return await s.get_many(batch=batch).all()


# -- the last messages of many subjects ------------------------------------------------------------


@T.case("DG-501", "Stream.get_last(subjects)", "the last message of each")
async def last_of_each(t: Trial) -> None:
    s, _ = await _people(t)
    wanted = [f"{s.name}.1.name", f"{s.name}.1.address"]
    found = {m.subject: m.data async for m in s.get_last(wanted)}
    assert found == {f"{s.name}.1.name": b"1", f"{s.name}.1.address": b"new"}
    together = await s.get_last_together(wanted)
    assert (len(together.messages), together.up_to_seq) == (2, 4)


@T.case("DG-502", "Stream.get_last(pattern)", "the last message of each subject that matches")
async def last_by_pattern(t: Trial) -> None:
    s, _ = await _people(t)
    found = {m.subject: m.data async for m in s.get_last(f"{s.name}.1.>")}
    assert len(found) == 3
    assert found[f"{s.name}.1.address"] == b"new"


@T.case("DG-503", "Stream.get_last(up_to_seq=)", "the values as of that sequence")
async def as_of_seq(t: Trial) -> None:
    s, old = await _people(t)
    found = {m.subject: m.data async for m in s.get_last(f"{s.name}.1.>", up_to_seq=old)}
    assert len(found) == 3
    assert found[f"{s.name}.1.address"] == b"3"
    _, end = await t.direct_page(s, {"multi_last": [f"{s.name}.1.>"], "up_to_seq": old})
    assert headers_of(end)["Nats-UpTo-Sequence"] == str(old)


@T.case("DG-504", "Stream.get_last(up_to_time=)", "the values as of that time")
async def as_of_time(t: Trial) -> None:
    s, old = await _people(t)
    moment = (await s.get(old)).time + timedelta(milliseconds=30)
    found = {m.subject: m.data async for m in s.get_last(f"{s.name}.1.>", up_to_time=moment)}
    assert found[f"{s.name}.1.address"] == b"3"


@T.case("DG-505", "Stream.get_last(batch=)", "pages without overlap, as of one moment")
async def pages(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "abcde")
    first, end = await t.direct_page(s, {"multi_last": [f"{s.name}.>"], "batch": 2})
    assert len(first) == 2
    assert int(headers_of(end)["Nats-Num-Pending"]) > 0
    rest, last_end = await t.direct_page(
        s,
        {
            "multi_last": [f"{s.name}.>"],
            "batch": 5,
            "seq": int(headers_of(end)["Nats-Last-Sequence"]) + 1,
            "up_to_seq": int(headers_of(end)["Nats-UpTo-Sequence"]),
        },
    )
    assert len({headers_of(m)["Nats-Subject"] for m in first + rest}) == 5
    assert headers_of(last_end)["Nats-Num-Pending"] == "0"
    assert len({m.subject async for m in s.get_last(f"{s.name}.>", batch=2)}) == 5


@T.case("DG-506", "Stream.get_last", "DirectGetError 413 beyond 1,024 subjects")
async def too_many_subjects(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill_many(s, map(str, range(1025)))
    assert (await refusal(s.get_last(f"{s.name}.>").all(), DirectGetError)).status == 413


@T.case("DG-507", "Stream.get_last", "1,024 subjects at once")
async def most_subjects(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill_many(s, map(str, range(1024)))
    assert len(await s.get_last(f"{s.name}.>").all()) == 1024
    assert len((await s.get_last_together(f"{s.name}.>")).messages) == 1024


@T.case("DG-508", "Stream.get_last(batch=)", "a value replaced meanwhile does not come")
async def replaced_meanwhile(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "abcd")
    found = []
    async for message in s.get_last(f"{s.name}.>", batch=2):
        found.append((message.subject[-1], message.data))
        if len(found) == 2:
            await t.js.publish(f"{s.name}.a", b"late")
    assert found == [("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]


# -- the form of replies ---------------------------------------------------------------------------


@T.case("DG-601", "Client.request_many", "stream, subject, sequence and time; no status")
async def headers_of_a_reply(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "a")
    (reply,) = await t.direct(s, {"last_by_subj": f"{s.name}.a"})
    assert reply.status is None
    assert headers_of(reply)["Nats-Stream"] == s.name
    assert {"Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} <= set(headers_of(reply))


@T.case("DG-602", "Client.request_many", "204 EOB, with what is pending and the last sequence")
async def end_of_a_batch(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "aaa")
    _, end = await t.direct_page(s, {"batch": 3, "seq": 1})
    assert (status_of(end), end.data) == ((204, "EOB"), b"")
    assert {"Nats-Num-Pending", "Nats-Last-Sequence"} <= set(headers_of(end))


@T.case("DG-603", "Stream.get_last_together", "the sequence that the answer is as of")
async def moment_of_an_answer(t: Trial) -> None:
    s, _ = await _people(t)
    _, end = await t.direct_page(s, {"multi_last": [f"{s.name}.1.>"]})
    assert {"Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"} <= set(headers_of(end))
    together = await s.get_last_together(f"{s.name}.1.>")
    assert together.up_to_seq == int(headers_of(end)["Nats-UpTo-Sequence"])


@T.case("DG-604", "Stream.get(direct=True)", "the payload as it was published")
async def raw_payload(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.js.publish(f"{s.name}.a", b'{"foo":"bar"}')
    assert (await s.get(1, direct=True)).data == b'{"foo":"bar"}'


@T.case("DG-605", "Stream.get(direct=True)", "the headers as they were published")
async def published_headers(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    await t.fill(s, "a", headers={"X-Custom": "hello"})
    message = await s.get(1, direct=True)
    assert headers_of(message)["X-Custom"] == "hello"


# -- mirrors ---------------------------------------------------------------------------------------


@T.case("DG-701", "Stream.get(direct=True)", "the source is answered for, by itself or a mirror")
async def with_a_mirror(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    m = await t.mirror(s)
    await t.fill(s, "aaaaa")
    await has_messages(m, 5)
    assert (await s.get(last_by_subject=f"{s.name}.a", direct=True)).data == b"5"


@T.case("DG-702", "JetStream.stream, Stream.get(direct=True)", "a mirror answers for its source")
async def only_the_mirror(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    m = await t.mirror(s)
    await t.fill(s, "aaa")
    await has_messages(m, 3)
    await t.js.delete_stream(s.name)
    gone = t.js.stream(s.name)
    assert (await gone.get(last_by_subject=f"{s.name}.a", direct=True)).data == b"3"


@T.case("DG-703", "Stream.get(direct=True)", "DirectGetError where the source has them off")
async def mirror_of_one_without(t: Trial) -> None:
    s = await t.stream(allow_direct=False)
    await t.mirror(s)
    await t.fill(s, "a")
    await _is_not_answered(s)


@T.case("DG-704", "StreamInfo.config.mirror_direct", "is the source's allow_direct by default")
async def default_of_a_mirror(t: Trial) -> None:
    for allowed in (True, False):
        m = await t.mirror(await t.stream(allow_direct=allowed))
        assert bool((await m.info()).config.mirror_direct) is allowed


@T.case("DG-705", "create_stream(mirror=, mirror_direct=True)", "is kept")
async def explicit_of_a_mirror(t: Trial) -> None:
    m = await t.mirror(await t.stream(allow_direct=True), mirror_direct=True)
    assert (await m.info()).config.mirror_direct


@T.case("DG-706", "Stream.update of a mirror", "takes over what the source has now")
async def follows_by_update(t: Trial) -> None:
    s = await t.stream(allow_direct=True)
    m = await t.mirror(s)
    await s.update(allow_direct=False)
    assert (await m.info()).config.mirror_direct
    info = await m.update(description="again")
    assert not info.config.mirror_direct
