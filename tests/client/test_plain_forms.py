"""Values that fit their type in another form: members of a str Enum, NumPy's, tuples, iterators."""

from __future__ import annotations

from enum import Enum

import numpy as np
from tests.conftest import Unique

from jetspark.documents.streams import StreamConfig
from jetspark.full_client import Client, JetStream
from jetspark.kv import Origin


async def test_a_member_of_an_enumeration_is_its_value_in_every_subject(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    """Formatted it is "Named.STREAM"."""

    class Named(str, Enum):  # noqa: UP042 - a StrEnum is formatted as its value
        STREAM = unique("S")
        CONSUMER = "c"
        BUCKET = unique("b")
        STORE = unique("o")
        KEY = "k"

    sub = nc.subscribe(Named.KEY, queue=Named.CONSUMER)
    assert (sub.subject, sub.queue) == ("k", "c")
    info = await js.create_stream(name=Named.STREAM, subjects=[Named.STREAM], allow_direct=True)
    assert info.cached_info.config.subjects == [Named.STREAM.value]
    ack = await js.publish(Named.STREAM, b"x", msg_id=Named.KEY)
    assert (await js.stream(Named.STREAM).get(last_by_subject=Named.STREAM)).seq == ack.seq
    await js.stream(Named.STREAM).create_consumer(name=Named.CONSUMER)
    assert (await js.stream(Named.STREAM).consumer(Named.CONSUMER)).name == "c"
    bucket = await js.create_bucket(Named.BUCKET, storage="memory")
    await bucket.put(Named.KEY, b"x")
    assert (await (await js.bucket(Named.BUCKET)).get(Named.KEY)).value == b"x"
    assert [key async for key in bucket.keys(Named.KEY)] == ["k"]
    assert Origin(Named.BUCKET).mirror().name == f"KV_{Named.BUCKET.value}"
    store = await js.create_object_store(Named.STORE, storage="memory")
    await store.put(Named.KEY, b"x")
    assert await store.get_bytes("k") == b"x"


async def test_numbers_of_numpy_are_numbers(js: JetStream, unique: Unique) -> None:
    name, one = unique("S"), np.int64(1)
    await js.create_stream(name=name, subjects=[name], max_msgs=np.int64(5))  # type: ignore[arg-type]
    await js.publish(name, b"x", expect_last_seq=np.int64(0))  # type: ignore[arg-type]
    assert (await js.stream(name).get(one)).seq == 1  # type: ignore[arg-type]
    assert len(await (await js.stream(name).create_consumer()).fetch(one)) == 1  # type: ignore[arg-type]
    assert await js.stream(name).purge(keep=one) == 0  # type: ignore[arg-type]
    await js.stream(name).delete_msg(one)  # type: ignore[arg-type]


async def test_lists_may_be_tuples_and_iterators(js: JetStream, unique: Unique) -> None:
    one, other = unique("a"), unique("a")
    for subjects in ((one, other), iter([one, other]), {one, other}):
        name = unique("S")
        info = await js.create_stream(name=name, subjects=subjects, storage="memory")
        assert sorted(info.cached_info.config.subjects or ()) == sorted([one, other])
        await js.delete_stream(name)
    name = unique("S")
    plain = StreamConfig(name=name, subjects=one)  # type: ignore[arg-type]
    assert (await js.create_stream(plain)).cached_info.config.subjects == [one]
