"""Payloads: any bytes-like object, measured in bytes, and never a byte that nobody meant."""

from __future__ import annotations

import array
import asyncio
import ctypes
import enum
import mmap
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.conftest import Connect
from tests.conftest import NeedsServer, Unique

import jetspark
import jetspark.errors as errors
from jetspark import Client, ConnectionStatus, Headers, JetsparkError, blocking
from jetspark.client.publishing import NumberedPublishes
from jetspark.connection.options import ConnectOptions
from jetspark.payload_bytes import payload_bytes
from jetspark.server import NatsServer
from jetspark.wire.headers import parse_headers


class Bytes(bytes):
    def __len__(self) -> int:
        return 1


class Convertible:
    def __len__(self) -> int:
        return 2

    def __bytes__(self) -> bytes:
        return b"xx\r\nPUB evil 4\r\nevil"


def mapped() -> mmap.mmap:
    file = mmap.mmap(-1, 8)
    file[:] = b"\r\nPUB 1\r"
    return file


INJECTION = b"\r\nPUB evil 4\r\nevil\r\n"
WORDS = array.array("I", INJECTION + bytes(-len(INJECTION) % 4))

TAKEN: dict[str, Callable[[], Any]] = {
    "bytes": lambda: INJECTION,
    "bytes whose len lies": lambda: Bytes(INJECTION),
    "bytearray": lambda: bytearray(INJECTION),
    "memoryview": lambda: memoryview(INJECTION),
    "signed bytes": lambda: memoryview(INJECTION).cast("b"),
    "array of words": lambda: WORDS,
    "memoryview of words": lambda: memoryview(WORDS),
    "two dimensions": lambda: memoryview(bytes(range(12))).cast("B", (3, 4)),
    "ctypes array": lambda: (ctypes.c_uint16 * 3)(1, 2, 3),
    "no items": lambda: array.array("I"),
    "mmap": mapped,
}
REFUSED: dict[str, Callable[[], Any]] = {
    "object with __bytes__": Convertible,
    "str": lambda: "text",
    "int": lambda: 5,
    "None": lambda: None,
    "list of bytes": lambda: [1, 2],
    "dict": dict,
    "every second byte": lambda: memoryview(INJECTION)[::2],
    "released memoryview": lambda: released(),
    "addresses": lambda: (ctypes.py_object * 1)(),
}


class Pair(ctypes.Structure):
    """Fields whose names have the letters of formats."""

    _fields_ = (("you", ctypes.c_uint8), ("who", ctypes.c_uint8))


MORE_TAKEN: dict[str, Callable[[], Any]] = {
    "bytes_": lambda: np.bytes_(b"abc"),
    "array of bytes": lambda: np.frombuffer(b"abc", np.uint8),
    "numbers": lambda: np.array([1, 2], "<u2"),
    "structures": lambda: np.zeros(2, [("you", "u1"), ("who", "u1")]),
    "no bytes": lambda: np.zeros(0, np.uint8),
    "structure of ctypes": lambda: Pair(1, 2),
    "text buffer of ctypes": lambda: ctypes.create_string_buffer(b"ab"),
}
# NumPy's texts and numbers have a buffer of their memory, whatever their class.
TEXT = "w" if sys.version_info >= (3, 13) else "u"
MORE_REFUSED: dict[str, Callable[[], Any]] = {
    "str_": lambda: np.str_("abc"),
    "int64": lambda: np.int64(5),
    "uint8": lambda: np.uint8(5),
    "float64": lambda: np.float64(1.5),
    "float32": lambda: np.float32(1.5),
    "complex": lambda: np.complex128(1j),
    "bool": lambda: np.True_,
    "datetime64": lambda: np.datetime64("2026-01-01"),
    "array of one number": lambda: np.array(5),
    "array of texts": lambda: np.array(["abc", "d"]),
    "array of objects": lambda: np.array([None]),
    "one text in an array": lambda: np.array("abc"),
    "texts in a structure": lambda: np.zeros(2, [("name", "U3"), ("n", "i4")]),
    "array.array of text": lambda: array.array(TEXT, "abc"),
    "text of ctypes": lambda: ctypes.create_unicode_buffer("abc"),
    "number of ctypes": lambda: ctypes.c_int(5),
}


def released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


# -- one place decides ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TAKEN | MORE_TAKEN)
def test_bytes_like_payload_is_sent_as_its_bytes(kind: str) -> None:
    payload = (TAKEN | MORE_TAKEN)[kind]()
    found = payload_bytes(payload)
    assert type(found) is bytes
    assert found == memoryview(payload).tobytes()


@pytest.mark.parametrize("kind", REFUSED | MORE_REFUSED)
def test_everything_else_is_refused_with_advice(kind: str) -> None:
    with pytest.raises(TypeError, match=r"A payload is bytes.*: .*") as raised:
        payload_bytes((REFUSED | MORE_REFUSED)[kind]())
    assert isinstance(raised.value, errors.BadPayloadError)
    assert kind in REFUSED or str(raised.value).endswith("encode it first.")


# -- in every call -------------------------------------------------------------------------------


async def core_calls(nc: Client, subject: str) -> dict[str, Callable[[Any], Any]]:
    """Calls that send a payload to a subject; each returns an awaitable or None."""
    asking = nc.subscribe(f"{subject}.ask")
    await nc.publish(asking.subject, reply=subject)
    message = await asking.next(30)
    numbered = NumberedPublishes(nc.publishing, b"numbered.")
    return {
        "publish": lambda data: nc.publish(subject, data),
        "publish with headers": lambda data: nc.publish(subject, data, headers={"a": "b"}),
        "publish_nowait": lambda data: nc.publish_nowait(subject, data, reply="re.ply"),
        "publish_msg": lambda data: nc.publish_msg(jetspark.PreparedMessage(subject, data)),
        "numbered": lambda data: numbered.send(7, subject, data),
        "request": lambda data: _in_vain(nc.request(subject, data, timeout=0.05)),
        "request_msg": lambda data: _in_vain(
            nc.request_msg(jetspark.PreparedMessage(subject, data), timeout=0.05)
        ),
        "request_many": lambda data: _in_vain(_all(nc.request_many, subject, data)),
        "respond": lambda data: message.respond(data),
    }


async def _all(request_many: Any, subject: str, data: Any) -> None:
    await request_many(subject, data, timeout=0.05).all()


async def _in_vain(answer: Awaitable[Any]) -> None:
    with pytest.raises(jetspark.RequestTimeoutError):
        await answer


async def test_every_call_of_the_client_sends_exactly_the_bytes(nc: Client, unique: Unique) -> None:
    everything = nc.subscribe(">")
    subject = unique("p")
    sub = nc.subscribe(subject)
    for name, call in (await core_calls(nc, subject)).items():
        for kind, make in TAKEN.items():
            result = call(make())
            if result is not None:
                await result
            assert (await sub.next(30)).data == memoryview(make()).tobytes(), (name, kind)
        before = nc.stats.out_msgs
        for make in REFUSED.values():
            with pytest.raises(TypeError, match="A payload is bytes"):
                result = call(make())
                if result is not None:
                    await result
        assert nc.stats.out_msgs == before, name
    await nc.flush()
    frames = everything.take_queued(10**6)
    assert {frame.subject for frame in frames} & {b"evil"} == set()
    assert nc.last_error is None


async def test_every_call_of_jetstream_stores_exactly_the_bytes(
    shared_server: NatsServer, connect: Connect, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    nc = await connect(shared_server.url)
    js = nc.jetstream()
    name = unique("P")
    await js.create_stream(
        name=name, subjects=[name], allow_atomic=True, allow_batched=True, storage="memory"
    )
    bucket = await js.create_bucket(unique("P"), storage="memory", history=5)
    store = await js.create_object_store(unique("P"), storage="memory")

    async def publisher(data: Any) -> None:
        async with js.publisher() as pub:
            await pub.publish(name, data)

    async def submitted(data: Any) -> None:
        async with js.publisher() as pub:
            await (await pub.publish_async(name, data))

    async def batch(data: Any) -> None:
        async with js.atomic_batch() as batch:
            await batch.publish(name, data)

    async def ingest(data: Any) -> None:
        async with js.fast_ingest() as ingest:
            await ingest.publish(name, data)

    seq = 0
    for call in (partial(js.publish, name), publisher, submitted, batch, ingest):
        for kind, make in TAKEN.items():
            await call(make())
            seq += 1
            stored = await js.stream(name).get(seq)
            assert stored.data == memoryview(make()).tobytes(), (call, kind)
        for make in REFUSED.values():
            with pytest.raises(TypeError, match="A payload is bytes"):
                await call(make())
    for make in TAKEN.values():
        expected = memoryview(make()).tobytes()
        revision = await bucket.put("key", make())
        assert (await bucket.get("key")).value == expected
        revision = await bucket.update("key", make(), revision)
        await bucket.delete("key", revision)
        await bucket.create("key", make())
        assert (await bucket.get("key")).value == expected
        coded = bucket.with_codecs(values=jetspark.kv.ZlibCodec())
        await coded.put("coded", make())
        assert (await coded.get("coded")).value == expected
        await store.put("object", make())
        assert await store.get_bytes("object") == expected
    for make in REFUSED.values():
        for write in (bucket.put, bucket.create, partial(bucket.update, revision=1)):
            with pytest.raises(TypeError, match="A payload is bytes"):
                await write("no", make())
    for data in ("text", None, 5, memoryview(INJECTION)[::2], ["text"], [None]):
        with pytest.raises((ValueError, TypeError)):
            await store.put("no", cast(Any, data))
    assert sorted(await bucket.keys().all()) == ["coded", "key"]
    assert nc.last_error is None


def test_every_call_of_the_blocking_client_sends_exactly_the_bytes(
    shared_server: NatsServer, unique: Unique
) -> None:
    subject, stream = unique("b"), unique("B")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=stream, subjects=[f"{stream}.>"], storage="memory")
        bucket = js.create_bucket(unique("B"), storage="memory")
        everything = nc.subscribe(">")
        sub = nc.subscribe(f"{stream}.{subject}")

        def send(data: Any) -> None:
            with js.publisher() as pub:
                pub.publish(sub.subject, data)

        def ask(data: Any) -> None:
            # The stream answers, with an ack.
            nc.request(sub.subject, data)

        calls: dict[str, Callable[[Any], object]] = {
            "publish": lambda data: nc.publish(sub.subject, data),
            "publish_nowait": lambda data: nc.publish_nowait(sub.subject, data),
            "request": ask,
            "request_many": lambda data: nc.request_many(sub.subject, data, max_msgs=1).all(),
            "js.publish": lambda data: js.publish(sub.subject, data),
            "publisher": send,
        }
        for name, call in calls.items():
            for make in TAKEN.values():
                call(make())
                assert sub.next(30).data == memoryview(make()).tobytes(), name
            for make in REFUSED.values():
                with pytest.raises(TypeError, match="A payload is bytes"):
                    call(make())
        for make in TAKEN.values():
            bucket.put("key", make())
            assert bucket.get("key").value == memoryview(make()).tobytes()
        for make in REFUSED.values():
            with pytest.raises(TypeError, match="A payload is bytes"):
                bucket.put("no", make())
        nc.flush()
        while everything.pending_msgs:
            assert everything.next(30).subject != "evil"
        assert nc.last_error is None


# -- sizes and changes ---------------------------------------------------------------------------


async def test_max_payload_is_judged_by_bytes(nc: Client) -> None:
    with pytest.raises(errors.MaxPayloadError) as raised:
        await nc.publish("a", array.array("Q", bytes(nc.max_payload + 8)))
    assert raised.value.size == nc.max_payload + 8
    await nc.publish("a", array.array("Q", bytes(nc.max_payload)))
    await nc.flush()
    assert nc.last_error is None


async def test_a_buffer_that_is_changed_after_the_call_changes_no_message(
    nc: Client, unique: Unique
) -> None:
    sub = nc.subscribe(unique("m"))
    data = bytearray(b"first")
    await nc.publish(sub.subject, data)
    data[:] = b"and another"
    await nc.publish(sub.subject, data)
    replies = nc.request_many(sub.subject, data, timeout=0.05)
    data[:] = b"!"
    with pytest.raises(jetspark.RequestTimeoutError):
        await replies.all()
    assert [(await sub.next(30)).data for _ in range(3)] == [b"first"] + [b"and another"] * 2


async def test_an_object_whose_buffer_changes_while_it_is_put_can_be_read(
    shared_server: NatsServer, connect: Connect, unique: Unique
) -> None:
    js = (await connect(shared_server.url)).jetstream()
    store = await js.create_object_store(unique("M"), storage="memory")
    data = bytearray(6 * 1024 * 1024)
    done = asyncio.Event()

    async def change() -> None:
        while not done.is_set():
            for at in range(0, len(data), 64 * 1024):
                data[at] = (data[at] + 1) % 256
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    try:
        await store.put("object", data)
    finally:
        done.set()
        await changing
    assert len(await store.get_bytes("object")) == len(data)  # its digest fits


# -- whatever is passed --------------------------------------------------------------------------


class Place(str, enum.Enum):  # noqa: UP042
    """What formats as another text than it encodes."""

    HERE = "here"


TEXTS = st.one_of(
    st.sampled_from(["a", "a.b", "ü.x", "a b", "a\r\nPUB x 0", "\t", "", "a\u2028b", Place.HERE]),
    st.text(st.characters(), max_size=8),
    st.text("ab.*> \r\n\t\x00\ud800", max_size=8),
    st.sampled_from([None, 5, b"a"]),
)
PAYLOADS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([*TAKEN.values(), *REFUSED.values()]).map(lambda make: make()),
    st.binary(max_size=10).map(lambda data: array.array("H", data * 2)),
)
HEADERS = st.none() | st.lists(st.tuples(TEXTS, TEXTS | st.lists(TEXTS, max_size=2)), max_size=3)


def frames_of(data: bytes) -> list[tuple[list[bytes], bytes]]:
    """What a server reads: the words of each first line, and what follows it."""
    found = []
    while data:
        line, _, data = data.partition(b"\r\n")
        words = line.replace(b"\t", b" ").split(b" ")
        size = int(words[-1]) if words[0] in (b"PUB", b"HPUB") else None
        if size is None:
            found.append((words, b""))
            continue
        assert data[size : size + 2] == b"\r\n"
        found.append((words, data[:size]))
        data = data[size + 2 :]
    return found


def written_by(act: Callable[[Client], object]) -> list[tuple[list[bytes], bytes]] | None:
    """The frames that a client writes, which believes to be connected; None: it refused, and
    wrote nothing."""

    async def written() -> list[tuple[list[bytes], bytes]] | None:
        client = Client(ConnectOptions(check_subjects=False))
        found: list[bytes] = []
        link = client.publishing.link
        link.status = ConnectionStatus.CONNECTED
        link.outbox.open()
        link.outbox.attach(found.append)
        try:
            act(client)
        except (JetsparkError, TypeError):
            link.outbox.flush()
            assert found == []
            return None
        link.outbox.flush()
        return frames_of(b"".join(found))

    return asyncio.run(written())


@given(subject=TEXTS, reply=TEXTS, payload=PAYLOADS, headers=HEADERS)
def test_what_is_written_reads_as_exactly_what_was_passed(
    subject: Any, reply: Any, payload: Any, headers: Any
) -> None:
    options = {"reply": reply, "headers": headers}
    if (frames := written_by(lambda nc: nc.publish_nowait(subject, payload, **options))) is None:
        return
    [(words, body)] = frames
    targets = [subject.encode()] + ([] if reply is None else [reply.encode()])
    assert words[1 : 1 + len(targets)] == targets
    data = memoryview(payload).tobytes()
    if headers is None:
        assert words == [b"PUB", *targets, b"%d" % len(data)]
        assert body == data
        return
    block = int(words[-2])
    assert words == [b"HPUB", *targets, b"%d" % block, b"%d" % (block + len(data))]
    assert body[block:] == data
    assert parse_headers(body[:block])[0] == Headers(headers)


@given(subject=TEXTS, queue=TEXTS)
def test_subscribe_sends_exactly_one_sub_line(subject: Any, queue: Any) -> None:
    if (frames := written_by(lambda nc: nc.subscribe(subject, queue=queue))) is not None:
        group = [queue.encode()] if queue else []
        assert frames == [([b"SUB", subject.encode(), *group, b"1"], b"")]


async def test_text_that_is_no_utf8_is_refused_with_a_sentence(
    nc: Client, shared_server: NatsServer, connect: Connect
) -> None:
    js = nc.jetstream()
    calls: list[tuple[type[JetsparkError], Callable[[], Any]]] = [
        (errors.BadSubjectError, lambda: nc.publish("a\ud800")),
        (errors.BadSubjectError, lambda: nc.publish("a", reply="a\udcff")),
        (errors.BadSubjectError, lambda: nc.subscribe("a\ud800")),
        (errors.ConfigError, lambda: nc.subscribe("a", queue="a\ud800")),
        (errors.BadHeaderError, lambda: nc.publish("a", headers={"a": "\ud800"})),
        (errors.ConfigError, lambda: js.stream("a\ud800").info()),
        (errors.ConfigError, lambda: js.create_stream(name="A", description="\ud800")),
        (errors.ConfigError, lambda: jetspark.connect(shared_server.url, name="\ud800")),
    ]
    for kind, call in calls:
        with pytest.raises(kind, match="lone surrogate"):
            await call()
    await nc.flush()
    assert nc.last_error is None
