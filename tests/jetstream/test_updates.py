"""Updates: what is not given stays, None removes, and many at once agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Unique

from jetspark import JetStream
from jetspark.documents import ConsumerConfig, Republish, StreamConfig, SubjectTransform
from jetspark.documents.configuration import changes_to_wire, config_to_wire, merged
from jetspark.documents.document import Document, field_names, to_wire

FORMS: Mapping[str, Callable[[StreamConfig, str], tuple[Any, dict[str, Any]]]] = {
    "option": lambda config, field: (None, {"name": config.name, field: None}),
    "mapping": lambda config, field: ({"name": config.name, field: None}, {}),
    "json": lambda config, field: (f'{{"name": "{config.name}", "{field}": null}}', {}),
    "replace": lambda config, field: (config.replace(**{field: None}), {}),
}
"""The ways to say that an update is without a field: the arguments of the update."""


@pytest.mark.parametrize("form", FORMS)
async def test_an_update_removes_what_is_none_and_keeps_the_rest(
    js: JetStream, unique: Unique, form: str
) -> None:
    name = unique("S")
    removable: dict[str, Any] = {
        "description": "d",
        "max_age": 3600,
        "max_msgs": 7,
        "max_msg_size": 100,
        "republish": Republish(dest=f"elsewhere.{name}.>"),
        "subject_transform": SubjectTransform(src=f"{name}.a.>", dest=f"{name}.b.>"),
    }
    plain = (await js.create_stream(name=name, subjects=[f"{name}.>"])).cached_info.config
    for field, value in removable.items():
        options: dict[str, Any] = {field: value}
        before = (await js.stream(name).update(max_bytes=10_000, **options)).config
        assert getattr(before, field) != getattr(plain, field)
        config, options = FORMS[form](before, field)
        after = (await js.stream(name).update(config, **options)).config
        assert getattr(after, field) == getattr(plain, field), field
        assert after.max_bytes == 10_000


async def test_a_consumer_loses_its_filter(js: JetStream, stream: str) -> None:
    await js.stream(stream).create_consumer(name="c", filter_subject=f"{stream}.a", description="d")
    consumer = await js.stream(stream).consumer("c")
    info = await consumer.update(filter_subject=None)
    assert (info.config.filter_subject, info.config.description) == (None, "d")
    info = await consumer.update(info.config.replace(description=None))
    assert not info.config.description


async def test_buckets_and_stores_get_their_own_defaults(js: JetStream, unique: Unique) -> None:
    name = unique("B")
    republish = Republish(src=f"$KV.{name}.>", dest=f"kv.{name}.>")
    await js.create_bucket(name, history=5, ttl=60, republish=republish)
    bucket = await js.update_bucket(name, history=None, republish=None)
    config = (await bucket.status()).config
    assert (config.history, config.republish) == (1, None)
    assert config.ttl is not None
    assert config.ttl.total_seconds() == 60
    bucket = await js.create_or_update_bucket(name, config.replace(ttl=None))
    status = await bucket.status()
    assert (status.ttl.total_seconds(), status.history) == (0, 1)
    await js.create_object_store(name, ttl=60, description="d")
    store = await js.update_object_store(name, ttl=None)
    assert (await store.status()).ttl.total_seconds() == 0
    assert (await store.status()).stream_info.config.description == "d"


async def test_a_mirror_restored_as_a_stream(js: JetStream, unique: Unique, tmp_path: Path) -> None:
    origin, mirror = unique("S"), unique("M")
    await js.create_stream(name=origin, subjects=[origin])
    await js.create_stream(name=mirror, mirror={"name": origin})
    await js.backup_stream(mirror, tmp_path / "b")
    await js.delete_stream(mirror)
    info = await js.restore_stream(tmp_path / "b", mirror=None, subjects=[mirror])
    assert (info.cached_info.config.mirror, info.cached_info.config.subjects) == (None, [mirror])


async def test_none_is_the_default_of_what_is_created(js: JetStream, unique: Unique) -> None:
    name = unique("S")
    options: dict[str, Any] = dict.fromkeys(field_names(StreamConfig))
    info = await js.create_stream(**options | {"name": name})
    assert info.cached_info.config == (await js.create_stream(name=name)).cached_info.config
    fields: dict[str, Any] = dict.fromkeys(field_names(ConsumerConfig))
    consumer = await js.stream(name).create_consumer(
        **fields | {"name": "c", "ack_policy": "explicit"}
    )
    assert await consumer.info()
    await js.create_or_update_stream(**options | {"name": unique("T")})


async def test_many_that_create_or_update_at_once_all_succeed(js: JetStream, stream: str) -> None:
    name, to = stream, f"{stream}-to"
    pull, push = (
        js.stream(name).create_or_update_consumer,
        js.stream(name).create_or_update_push_consumer,
    )
    calls: list[Callable[[int], Awaitable[object]]] = [
        lambda n: pull(name=f"c{n // 8}", max_ack_pending=10 + n),
        lambda n: push(durable_name=f"p{n // 8}", deliver_subject=to, ack_wait=30 + n),
        lambda n: js.create_or_update_stream(name=f"{name}-{n // 8}", max_msgs=100 + n),
        lambda n: js.create_or_update_bucket(f"{name}-{n // 8}", max_bucket_size=10_000 + n),
    ]
    for call in calls:
        for turn in range(3):
            await asyncio.gather(*(call(turn * 8 + number) for number in range(8)))


@pytest.mark.parametrize("cls", [StreamConfig, ConsumerConfig])
def test_replacing_by_none_is_said_to_updates_only(cls: type[Document]) -> None:
    options: dict[str, Any] = {"description": "d", "metadata": {"a": "b"}}
    full = cls(**options)
    without = full.replace(description=None)
    assert changes_to_wire(cls, without, {}) == {"description": None, "metadata": {"a": "b"}}
    assert config_to_wire(cls, without, {}) == {"metadata": {"a": "b"}}
    assert without.replace(description="d") == full
    assert cls().replace(description=None) == cls()
    assert merged(to_wire(full), changes_to_wire(cls, without, {})) == {"metadata": {"a": "b"}}
