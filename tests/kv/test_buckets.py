"""Buckets: their streams, binding, changing, emptying, deleting, listing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique
from tests.support.raw_client import RawClient

from jetspark import errors
from jetspark.documents.streams import Placement, Republish
from jetspark.full_client import JetStream
from jetspark.kv import BucketConfig, Origin
from jetspark.kv.config import bucket_config, stream_options
from jetspark.server import NatsServer


@pytest.fixture
async def name(shared_server: NatsServer, unique: Unique) -> AsyncIterator[str]:
    """A name that is free, and whose bucket goes after the test."""
    name = unique("B")
    yield name
    with RawClient(shared_server.url) as raw:
        raw.api(f"STREAM.DELETE.KV_{name}")


async def test_bucket_stream_has_the_default_configuration(js: JetStream, name: str) -> None:
    await js.create_bucket(name)
    config = (await js.stream(f"KV_{name}").info()).config
    assert (config.subjects, config.retention) == ([f"$KV.{name}.>"], "limits")
    assert (config.max_msgs_per_subject, config.discard) == (1, "new")
    assert (config.allow_rollup_hdrs, config.deny_delete) == (True, True)
    assert not config.deny_purge
    assert (config.storage, config.num_replicas, config.allow_direct) == ("file", 1, True)
    assert config.duplicate_window == timedelta(minutes=2)


async def test_every_option_reaches_the_stream(
    js: JetStream, name: str, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    options: dict[str, Any] = {
        "description": "prices of fruit",
        "max_value_size": 1000,
        "history": 64,
        "ttl": timedelta(hours=1),
        "max_bucket_size": 1_000_000,
        "storage": "memory",
        "replicas": 1,
        "compression": True,
        "republish": Republish(src=f"$KV.{name}.>", dest="told.>", headers_only=True),
        "limit_marker_ttl": timedelta(seconds=30),
    }
    bucket = await js.create_bucket(name, **options, metadata={"owner": "me"})
    config = (await js.stream(bucket.stream).info()).config
    assert (config.description, config.storage) == ("prices of fruit", "memory")
    assert (config.max_msg_size, config.max_msgs_per_subject) == (1000, 64)
    assert (config.max_age, config.duplicate_window) == (timedelta(hours=1), timedelta(minutes=2))
    assert (config.max_bytes, config.compression) == (1_000_000, "s2")
    assert (config.republish, config.allow_msg_ttl) == (options["republish"], True)
    assert config.subject_delete_marker_ttl == timedelta(seconds=30)
    status = await bucket.status()
    assert {option: getattr(status.config, option) for option in options} == options
    for _ in range(3):
        await bucket.put("k", b"1")
    status = await bucket.status()
    assert (status.bucket, status.values, status.history) == (name, 3, 64)
    assert status.bytes == status.stream_state.bytes > 0
    assert (status.ttl, status.limit_marker_ttl) == (options["ttl"], options["limit_marker_ttl"])
    assert (status.is_compressed, status.backing_store) == (True, "JetStream")
    assert status.metadata["owner"] == "me"
    assert (status.mirror_name, status.mirror_domain) == (None, None)
    assert (status.stream_config.name, status.stream_state.last_seq) == (f"KV_{name}", 3)


async def test_a_short_ttl_shortens_the_duplicate_window(js: JetStream, name: str) -> None:
    bucket = await js.create_bucket(name, ttl=timedelta(seconds=30))
    status = await bucket.status()
    assert status.stream_config.duplicate_window == timedelta(seconds=30)
    assert status.limit_marker_ttl == timedelta(0)
    await js.update_bucket(name, ttl=timedelta(0))
    config = (await bucket.status()).stream_config
    assert (config.max_age, config.duplicate_window) == (timedelta(0), timedelta(minutes=2))


def test_a_placement_is_passed_on() -> None:
    placement = Placement(cluster="c", tags=["t"])
    assert stream_options(bucket_config(None, {"placement": placement})) == {"placement": placement}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"history": 0}, "from 1 to 64"),
        ({"history": 65}, "from 1 to 64"),
        ({"ttl": timedelta(seconds=-1)}, "negative"),
        ({"limit_marker_ttl": timedelta(milliseconds=999)}, "one second"),
        ({"limit_marker_ttl": timedelta(0)}, "one second"),
        ({"replicas": 6}, "from 1 to 5"),
        ({"max_value_size": 0}, "max_value_size"),
        ({"max_bucket_size": -2}, "max_bucket_size"),
        ({"mirror_domain": "hub"}, "needs mirror_name"),
    ],
)
async def test_impossible_bucket_options_are_refused(
    js: JetStream, options: dict[str, Any], sentence: str
) -> None:
    for call in (js.create_bucket, js.update_bucket, js.create_or_update_bucket):
        with pytest.raises(errors.ConfigError, match=sentence):
            await call("B", **options)


async def test_impossible_bucket_names_are_refused(js: JetStream) -> None:
    for call in (
        js.create_bucket("a.b"),
        js.bucket("a b"),
        js.delete_bucket(""),
        js.update_bucket("a/b"),
        js.create_bucket_aggregate("a.b", [Origin("o")]),
    ):
        with pytest.raises(errors.BadNameError):
            await call


@pytest.mark.parametrize("history", [-1, 3])
async def test_a_stream_that_is_no_bucket_is_neither_taken_nor_changed(
    js: JetStream, name: str, history: int
) -> None:
    stream = f"KV_{name}"
    await js.create_stream(name=stream, subjects=[f"{name}.x"], max_msgs_per_subject=history)
    await js.publish(f"{name}.x", b"precious")
    before = await js.stream(stream).info()
    for create in (js.create_bucket, js.create_or_update_bucket):
        with pytest.raises(errors.NameInUseError, match=f'Bucket "{name}" exists'):
            await create(name, ttl=timedelta(hours=1))
    for call in (js.bucket, js.update_bucket, js.delete_bucket):
        with pytest.raises(errors.BucketNotFoundError):
            await call(name)
    assert name not in [one.bucket async for one in js.buckets()]
    after = await js.stream(stream).info()
    assert (after.config, after.state.messages) == (before.config, 1)
    await js.delete_stream(stream)


async def test_update_bucket_keeps_options_not_given(js: JetStream, name: str) -> None:
    with pytest.raises(errors.BucketNotFoundError):
        await js.update_bucket(name, history=2)
    await js.create_or_update_bucket(name, history=3, description="first", ttl=3600)
    bucket = await js.update_bucket(name, BucketConfig(history=9), description="second")
    config = (await bucket.status()).config
    assert (config.history, config.description, config.ttl) == (9, "second", timedelta(hours=1))
    status = await (await js.create_or_update_bucket(name, history=7)).status()
    assert (status.history, status.config.description) == (7, "second")


async def test_binding_to_a_bucket(js: JetStream, name: str) -> None:
    with pytest.raises(errors.BucketNotFoundError, match=f'Bucket "{name}" not found') as caught:
        await js.bucket(name)
    assert isinstance(caught.value, errors.StreamNotFoundError)
    await (await js.create_bucket(name, history=3)).put("k", b"1")
    bucket = await js.bucket(name)
    assert (bucket.name, bucket.stream) == (name, f"KV_{name}")
    again = await js.create_bucket(name, BucketConfig(history=3))
    assert await again.get_value("k") == b"1"
    with pytest.raises(errors.NameInUseError, match=f'Bucket "{name}" exists'):
        await js.create_bucket(name, history=4)


async def test_emptying_keeps_the_revisions_counting(js: JetStream, name: str) -> None:
    bucket = await js.create_bucket(name, history=2)
    for number in range(3):
        await bucket.put("k", b"%d" % number)
    assert await (await js.bucket(name)).empty() == 2
    with pytest.raises(errors.KeyNotFoundError):
        await bucket.get("k")
    assert await bucket.create("k", b"new") == 4
    await js.delete_bucket(name)
    for call in (bucket.empty(), js.delete_bucket(name)):
        with pytest.raises(errors.BucketNotFoundError):
            await call


async def test_buckets_are_listed_with_names_and_status(js: JetStream, name: str) -> None:
    await js.create_bucket(name, history=2)
    await js.create_stream(name=f"not_{name}", subjects=[f"not_{name}"])
    assert name in await js.bucket_names().all()
    statuses = {status.bucket: status async for status in js.buckets()}
    assert statuses[name].history == 2
    assert not any(one.startswith("not_") for one in statuses)
    await js.delete_stream(f"not_{name}")


async def test_limit_markers_need_a_server_that_has_them(
    js: JetStream, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account_info = js.account_info

    async def old() -> Any:
        return (await account_info()).replace(api=None)

    monkeypatch.setattr(js, "account_info", old)
    with pytest.raises(errors.UnsupportedByServerError, match=r"limit_marker_ttl needs .* 2\.11"):
        await js.create_bucket(name, limit_marker_ttl=timedelta(seconds=1))


async def test_markers_may_come_later(js: JetStream, name: str, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    await js.create_bucket(name)
    bucket = await js.update_bucket(name, limit_marker_ttl=timedelta(seconds=3))
    assert (await bucket.status()).limit_marker_ttl == timedelta(seconds=3)
    await bucket.create("k", b"1", ttl=timedelta(hours=1))
