"""Stored messages without a consumer: the leader's and direct gets, one and many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conftest import MakeStream, NeedsServer, Unique
from tests.jetstream.conftest import fill_thirds, holds
from tests.jetstream.eventually import eventually
from tests.support.cluster import Cluster
from tests.support.frame_proxy import FrameProxy

from jetspark import errors
from jetspark.client.messages import Message
from jetspark.documents.streams import StoredMsg
from jetspark.full_client import Client, JetStream, connect
from jetspark.server import NatsServer
from jetspark.wire import frames


@pytest.fixture
async def open_stream(js: JetStream, stream: str) -> str:
    """The stream with direct gets."""
    await js.stream(stream).update(allow_direct=True)
    return stream


MISSING = b"NATS/1.0 404 Message Not Found\r\n\r\n"


def stored(seq: int, before: int, pending: int) -> bytes:
    """The headers of a message in a batch: after that one, and with so many to come."""
    return (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.%d\r\nNats-Sequence: %d\r\n"
        b"Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Num-Pending: %d\r\n"
        b"Nats-Last-Sequence: %d\r\n\r\n" % (seq, seq, pending, before)
    )


def end(last: int, pending: int) -> bytes:
    return (
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n"
        b"Nats-UpTo-Sequence: 9\r\n\r\n" % (pending, last)
    )


class ScriptedBatches:
    """Direct gets from S are answered by a script of headers; `asked` are the requests."""

    def __init__(self, nc: Client, prefix: str, *answers: list[bytes]) -> None:
        self.nc, self.answers = nc, list(answers)
        self.asked: list[dict[str, Any]] = []
        self.js = nc.jetstream(api_prefix=prefix, timeout=1)
        nc.subscribe(f"{prefix}.DIRECT.GET.S", callback=self._answer)

    async def _answer(self, msg: Message) -> None:
        self.asked.append(json.loads(msg.data))
        assert msg.reply is not None
        for block in self.answers.pop(0):
            self.nc.publishing.link.outbox.put(frames.hpub(msg.reply, block, b""))


@pytest.mark.parametrize("direct", [None, True, False])
async def test_a_stored_message_is_equal_by_direct_get_and_from_the_leader(
    js: JetStream, open_stream: str, direct: bool | None
) -> None:
    stream = open_stream
    await fill_thirds(js, stream, 6)
    ways: list[tuple[int, dict[str, Any]]] = [
        (4, {"seq": 4}),
        (4, {"last_by_subject": f"{stream}.1"}),
        (6, {"last_by_subject": f"{stream}.*"}),
        (2, {"next_by_subject": f"{stream}.2"}),
        (5, {"seq": 3, "next_by_subject": f"{stream}.2"}),
    ]
    for seq, way in ways:
        found = await js.stream(stream).get(direct=direct, **way)
        assert found.seq == seq
        assert (found.subject, found.data) == (f"{stream}.{found.seq % 3}", b"%d" % found.seq)
        assert found.headers is None
        assert found == await js.stream(stream).get(found.seq, direct=False)
    for way in ({"seq": 7}, {"last_by_subject": f"{stream}.x"}, {"next_by_subject": "x"}):
        with pytest.raises(errors.MessageNotFoundError, match=stream):
            await js.stream(stream).get(direct=direct, **way)


async def test_stored_headers_are_only_the_publishers(js: JetStream, open_stream: str) -> None:
    headers = [("Nats-Sequence", "999"), ("Nats-Subject", "lie"), ("k", "vé"), ("k", "w")]
    await js.publish(f"{open_stream}.a", b"x", headers=headers)
    for direct in (True, False):
        found = await js.stream(open_stream).get(1, direct=direct)
        assert (found.seq, found.subject) == (1, f"{open_stream}.a")
        assert found.headers is not None
        assert list(found.headers.items()) == headers


async def test_a_stream_without_direct_gets_is_read_from_its_leader(
    js: JetStream, nc: Client, stream: str
) -> None:
    await js.publish(f"{stream}.a", b"x")
    handle = js.stream(stream)
    assert (await handle.get(1)).data == b"x"
    before = nc.stats.out_msgs
    assert (await handle.get(1)).data == b"x"
    assert nc.stats.out_msgs == before + 1  # the configuration is not looked at again


async def test_direct_gets_that_are_disabled_later_are_noticed(
    js: JetStream, open_stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.10")  # older ones say nothing
    await js.publish(f"{open_stream}.a", b"x")
    handle = await js.stream(open_stream)
    assert (await handle.get(1)).data == b"x"
    await js.stream(open_stream).update(allow_direct=False)
    assert (await handle.get(1)).data == b"x"
    with pytest.raises(errors.DirectGetError, match="allow_direct") as refused:
        await js.stream(open_stream).get(1, direct=True)
    assert refused.value.status == 503


@pytest.mark.parametrize("direct", [None, True, False])
async def test_reading_a_stream_that_does_not_exist_raises(
    js: JetStream, unique: Unique, needs_server: NeedsServer, direct: bool | None
) -> None:
    if direct:
        needs_server("2.10")
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(unique("S")).get(1, direct=direct)


async def test_a_direct_get_of_the_last_message_has_the_subject_in_its_subject(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    prefix = unique("api")
    asked: list[tuple[str, bytes]] = []
    nc.subscribe(f"{prefix}.>", callback=lambda msg: asked.append((msg.subject, msg.data)))
    elsewhere = nc.jetstream(api_prefix=prefix, timeout=0.05)
    for subject in ("a.b", "a.*"):
        with pytest.raises(errors.RequestTimeoutError):
            await elsewhere.stream("S").get(last_by_subject=subject, direct=True)
    await eventually(lambda: len(asked) == 2)
    assert asked == [
        (f"{prefix}.DIRECT.GET.S.a.b", b""),
        (f"{prefix}.DIRECT.GET.S", b'{"last_by_subj":"a.*"}'),
    ]


async def test_a_message_missing_on_a_lagging_replica_is_read_from_the_leader(
    js: JetStream, nc: Client, stream: str, unique: Unique
) -> None:
    """A replica that lags is too rare to wait for: one answers in its place."""
    await fill_thirds(js, stream, 5)
    prefix = unique("api")

    async def lag(msg: Message) -> None:
        assert msg.reply is not None
        nc.publishing.link.outbox.put(frames.hpub(msg.reply, MISSING, b""))

    async def lead(msg: Message) -> None:
        subject = msg.subject.replace(prefix, "$JS.API", 1)
        await msg.respond((await nc.request(subject, msg.data)).data)

    nc.subscribe(f"{prefix}.DIRECT.GET.{stream}", callback=lag)
    nc.subscribe(f"{prefix}.STREAM.MSG.GET.{stream}", callback=lead)
    nc.subscribe(f"{prefix}.STREAM.INFO.{stream}", callback=lead)
    await js.stream(stream).update(allow_direct=True)
    behind = nc.jetstream(api_prefix=prefix)
    assert (await behind.stream(stream).get(2)).data == b"2"
    with pytest.raises(errors.MessageNotFoundError):
        await behind.stream(stream).get(2, direct=True)
    assert [msg.seq async for msg in behind.stream(stream).get_many(2)] == [2, 3, 4, 5]
    assert await behind.stream(stream).get_many(2, confirm=False).all() == []


async def test_get_msgs_reads_ranges(
    js: JetStream, open_stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    stream = open_stream
    await fill_thirds(js, stream, 30, headers={"h": "v"})
    for gone in (1, 2, 10, 11, 12, 30):
        await js.stream(stream).delete_msg(gone)
    held = [seq for seq in range(1, 31) if seq not in (1, 2, 10, 11, 12, 30)]

    async def read(*arguments: Any, **options: Any) -> list[int]:
        found = []
        async for msg in js.stream(stream).get_many(*arguments, **options):
            assert (msg.subject, msg.data) == (f"{stream}.{msg.seq % 3}", b"%d" % msg.seq)
            assert msg.hdrs == b"NATS/1.0\r\nh: v\r\n\r\n"
            found.append(msg.seq)
        return found

    for batch in (1, 2, 7, 24, 1000):
        assert await read(batch=batch) == held
        assert await read(batch=batch, confirm=False) == held
        assert await read(9, batch=batch, up_to_seq=13) == [9, 13]
        assert await read(batch=batch, max_msgs=8) == held[:8]
        found = await read(4, subject=f"{stream}.1", batch=batch)
        assert found == [seq for seq in held if seq >= 4 and seq % 3 == 1]
    assert await read(max_bytes=1) == held
    assert await read(31) == []
    assert await read(30, up_to_seq=30) == []
    assert await read(subject="other") == []
    tenth = await js.stream(stream).get(13)
    assert await read(start_time=tenth.time) == held[held.index(13) :]
    assert await read(start_time=datetime.now(UTC) + timedelta(hours=1)) == []
    again = js.stream(stream).get_many(28)
    assert [msg.seq for msg in await again.all()] == [28, 29]
    assert [msg.seq async for msg in again] == [28, 29]


async def test_get_last_msgs_of_many_subjects(
    js: JetStream, stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await js.stream(stream).update(allow_direct=True)
    await fill_thirds(js, stream, 9)
    await js.publish(f"{stream}.1.deep", b"10")

    async def read(subjects: str | list[str], **options: Any) -> list[int]:
        return [msg.seq async for msg in js.stream(stream).get_last(subjects, **options)]

    for batch in (1, 2, 1000):
        assert await read(f"{stream}.*", batch=batch) == [7, 8, 9]
        assert await read([f"{stream}.1", f"{stream}.1.>"], batch=batch) == [7, 10]
        assert await read(f"{stream}.*", batch=batch, up_to_seq=5) == [3, 4, 5]
        seventh = await js.stream(stream).get(7)
        assert await read(f"{stream}.*", batch=batch, up_to_time=seventh.time) == [4, 5, 6]
    assert await read(f"{stream}.*", max_bytes=1) == [7, 8, 9]
    assert await read("other") == []


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_last_messages_up_to_a_sequence_to_come_are_those_of_now(
    js: JetStream, make_stream: MakeStream, needs_server: NeedsServer, storage: str
) -> None:
    """A file store answers with nothing there."""
    needs_server("2.11")
    name = await make_stream(storage=storage, allow_direct=True, max_msgs=3)
    for number in (1, 2, 1, 3):
        await js.publish(f"{name}.{number}")
    for batch in (1, 2, 1000):
        found = await js.stream(name).get_last(f"{name}.*", up_to_seq=9, batch=batch).all()
        assert [msg.seq for msg in found] == [2, 3, 4]
    assert await js.stream(name).get_last(f"{name}.*", up_to_seq=1).all() == []
    assert await js.stream(name).get_last(f"{name}.7", up_to_seq=9).all() == []


async def test_later_batches_belong_to_the_moment_of_the_first(
    js: JetStream, open_stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await fill_thirds(js, open_stream, 6)
    found = []
    async for msg in js.stream(open_stream).get_last(f"{open_stream}.*", batch=1):
        found.append(msg.seq)
        await js.publish(f"{open_stream}.new", b"later")
        await js.publish(f"{open_stream}.0", b"later")
    assert found == [4, 5, 6]


async def test_messages_are_complete_when_a_batch_is_broken_off(nc: Client, unique: Unique) -> None:
    # As a server does when another client replaces a message that it was about to send.
    peer = ScriptedBatches(
        nc,
        unique("api"),
        [stored(1, 0, 3), MISSING],
        [stored(1, 0, 2), stored(2, 1, 1), end(2, 2)],
        [stored(3, 0, 1), MISSING],
        [MISSING],
        [stored(5, 0, 0), end(5, 0)],
    )
    found = [msg.seq async for msg in peer.js.stream("S").get_last("s.*")]
    assert found == [1, 2, 3, 5]
    where = [(one.get("seq"), one.get("up_to_seq")) for one in peer.asked]
    assert where == [(None, None), (None, None), (3, 9), (4, 9), (4, 9)]
    peer = ScriptedBatches(nc, unique("api"), [stored(1, 0, 1), stored(2, 1, 1)], [MISSING])
    assert [msg.seq async for msg in peer.js.stream("S").get_many(confirm=False)] == [1, 2]
    assert peer.asked[1]["seq"] == 3


async def test_get_last_msgs_of_too_many_subjects_is_an_error(
    js: JetStream, open_stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    async with js.publisher() as publisher:
        for number in range(1025):
            await publisher.publish(f"{open_stream}.{number}")
    with pytest.raises(errors.DirectGetError, match="fewer at once") as refused:
        await js.stream(open_stream).get_last(f"{open_stream}.*").all()
    assert refused.value.status == 413


async def test_get_msgs_of_a_stream_without_direct_gets_raises(
    js: JetStream, stream: str, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    with pytest.raises(errors.DirectGetError, match="allow_direct"):
        await js.stream(stream).get_many().all()
    with pytest.raises(errors.StreamNotFoundError):
        await js.stream(unique("S")).get_last(">").all()


async def test_get_msgs_is_refused_for_older_servers(
    js: JetStream, nc: Client, open_stream: str, unique: Unique
) -> None:
    assert nc.server_info is not None
    if nc.server_info.at_least(2, 11):
        # Behind an API prefix the version is not known: the answer shows it.
        prefix = unique("api")

        async def answer(msg: Message) -> None:
            asked = f"$JS.API.DIRECT.GET.{open_stream}"
            reply = await nc.request(asked, b'{"seq":1}')
            assert msg.reply is not None
            await nc.publish(msg.reply, reply.data, headers=reply.headers)

        await js.publish(f"{open_stream}.a", b"x")
        nc.subscribe(f"{prefix}.DIRECT.GET.{open_stream}", callback=answer)
        with pytest.raises(errors.UnsupportedByServerError, match=r"2\.11"):
            await nc.jetstream(api_prefix=prefix).stream(open_stream).get_many().all()
        return
    before = nc.stats.out_msgs
    with pytest.raises(errors.UnsupportedByServerError, match=r"2\.11"):
        js.stream(open_stream).get_many()
    with pytest.raises(errors.UnsupportedByServerError, match=r"2\.11"):
        js.stream(open_stream).get_last(">")
    assert nc.stats.out_msgs == before


async def test_mirrors_answer_too(js: JetStream, open_stream: str, make_stream: MakeStream) -> None:
    await fill_thirds(js, open_stream, 3)
    mirror = {"name": open_stream}
    name = await make_stream(subjects=None, mirror=mirror, mirror_direct=True, allow_direct=True)
    await holds(js, name, 3)
    assert (await js.stream(name).get(2, direct=True)).subject == f"{open_stream}.2"
    for _ in range(20):  # one of the two answers
        assert (await js.stream(open_stream).get(2, direct=True)).data == b"2"


async def test_every_acknowledged_message_is_read_on_a_cluster(
    nats_cluster: Cluster, unique: Unique, needs_server: NeedsServer
) -> None:
    """Replicas lag; the leader has the last word."""
    needs_server("2.11")
    stream = unique("S")
    async with connect(nats_cluster.urls) as nc:
        js = nc.jetstream()
        await js.create_stream(
            name=stream, subjects=[f"{stream}.>"], num_replicas=3, allow_direct=True
        )
        for number in range(1, 201):
            ack = await js.publish(f"{stream}.a", b"%d" % number)
            assert (await js.stream(stream).get(ack.seq)).data == b"%d" % number
            if number % 20 == 0:
                assert len(await js.stream(stream).get_many(number - 19).all()) == 20
        await js.delete_stream(stream)


async def test_stored_messages_of_another_domain(
    on_hub: Client, on_leaf: Client, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    stream, js = unique("S"), on_leaf.jetstream(domain="hub")
    await js.create_stream(name=stream, subjects=[f"{stream}.>"], allow_direct=True)
    await fill_thirds(on_hub.jetstream(), stream, 5)
    for direct in (None, True, False):
        found = await js.stream(stream).get(last_by_subject=f"{stream}.1", direct=direct)
        assert (found.seq, found.subject) == (4, f"{stream}.1")
    assert [msg.seq async for msg in js.stream(stream).get_many(2, batch=2)] == [2, 3, 4, 5]
    assert len(await js.stream(stream).get_last(">").all()) == 3
    await js.stream(stream).update(allow_direct=False)
    assert (await on_leaf.jetstream(domain="hub").stream(stream).get(5)).seq == 5
    await js.delete_stream(stream)


async def test_wrong_get_options_are_not_sent(js: JetStream, nc: Client) -> None:
    before = nc.stats.out_msgs
    now = datetime.now(UTC)
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (errors.ConfigError, lambda: js.stream("S").get_many(1, start_time=now)),
        (errors.ConfigError, lambda: js.stream("S").get_many(5, up_to_seq=4)),
        (errors.ConfigError, lambda: js.stream("S").get_last([])),
        (errors.ConfigError, lambda: js.stream("S").get_last("a", up_to_seq=1, up_to_time=now)),
        (errors.BadNameError, lambda: js.stream("a.b").get_many()),
        (errors.BadSubjectError, lambda: js.stream("S").get_many(subject="a..b")),
        (errors.BadSubjectError, lambda: js.stream("S").get_last(["a", "b c"])),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
    with pytest.raises(errors.BadNameError):
        await js.stream("a b").get(1)
    for given in ({}, {"seq": 1, "last_by_subject": "a"}):
        with pytest.raises(errors.ConfigError):
            await js.stream("S").get(**given)  # type: ignore[arg-type]
    assert nc.stats.out_msgs == before


async def test_leaving_a_range_early_leaves_nothing_behind(
    js: JetStream, nc: Client, open_stream: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await fill_thirds(js, open_stream, 10)
    tasks = len(asyncio.all_tasks())
    async for msg in js.stream(open_stream).get_many(batch=2):
        if msg.seq == 3:
            break
    assert len(nc.requests) == 0
    assert len(asyncio.all_tasks()) == tasks


# -- links that are cut before, within and at the end of an answer -----------------------------


async def range_of(js: JetStream, stream: str) -> list[StoredMsg]:
    return await js.stream(stream).get_many(2, max_msgs=7, batch=4).all()


async def last(js: JetStream, stream: str) -> list[StoredMsg]:
    return await js.stream(stream).get_last(f"{stream}.>", batch=2).all()


async def together(js: JetStream, stream: str) -> list[StoredMsg]:
    return (await js.stream(stream).get_last_together(f"{stream}.>")).messages


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("read", [range_of, last, together])
async def test_an_answer_that_is_cut_goes_on_over_the_next_link(
    js: JetStream,
    stream: str,
    shared_server: NatsServer,
    read: Any,
    position: int,
    needs_server: NeedsServer,
) -> None:
    needs_server("2.11")
    await js.stream(stream).update(allow_direct=True)
    for number in range(10):
        await js.publish(f"{stream}.{number % 5}", b"%d" % number)
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect_wait=0.05) as nc,
    ):
        far = nc.jetstream(timeout=60)
        fault = proxy.arm(position, "cut")
        begun = asyncio.get_running_loop().time()
        assert await read(far, stream) == await read(js, stream)
        assert asyncio.get_running_loop().time() - begun < 50  # no timeout
        assert nc.stats.reconnects == 1
    assert fault.hit is not None


async def test_an_answer_that_is_cut_for_good_is_an_error_at_once(
    js: JetStream, stream: str, shared_server: NatsServer, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    await js.stream(stream).update(allow_direct=True)
    await js.publish(f"{stream}.a", b"")
    async with (
        FrameProxy(shared_server.port) as proxy,
        connect(proxy.url, reconnect=False) as nc,
        asyncio.timeout(50),
    ):
        far = nc.jetstream(timeout=60)
        proxy.arm(1, "cut")
        with pytest.raises(errors.ConnectionClosedError):
            await range_of(far, stream)
