"""With the official JavaScript client as the other side, for every operation.

Needs node and npm, and the network the first time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.conftest import NeedsServer, Unique
from tests.kv.conftest import take
from tests.support.js_peer import JsPeer

from jetspark.full_client import JetStream
from jetspark.kv import Bucket

Theirs = Callable[..., Awaitable[Any]]


@pytest.fixture
def theirs(js_peer: JsPeer, bucket: Bucket) -> Theirs:
    """A method of their object for our bucket: `await theirs("put", "k", "v")`."""

    async def call(name: str, *args: object) -> Any:
        answer = await js_peer.run("kv", bucket=bucket.name, call=name, args=list(args))
        return answer.get("result")

    return call


async def test_they_read_what_we_write(bucket: Bucket, theirs: Theirs) -> None:
    revision = await bucket.put("a.b", b"1")
    found = await theirs("get", "a.b")
    assert (found["key"], found["value"], found["revision"]) == ("a.b", "1", revision)
    assert found["operation"] == "PUT"
    created = (await bucket.get("a.b")).created
    assert found["created"] == created.strftime("%Y-%m-%dT%H:%M:%S.") + f"{created:%f}"[:3] + "Z"
    revision = await bucket.update("a.b", b"2", revision)
    assert (await theirs("get", "a.b"))["value"] == "2"
    assert (await theirs("get", "a.b", {"revision": 1}))["value"] == "1"
    await bucket.delete("a.b", revision)
    assert (await theirs("get", "a.b"))["operation"] == "DEL"
    await bucket.create("a.b", b"3")
    await bucket.create("c", b"4")
    history = [one["operation"] for one in await theirs("history", {"key": "a.b"})]
    assert history == ["PUT", "PUT", "DEL", "PUT"]
    assert await theirs("keys") == ["a.b", "c"]
    await bucket.purge("a.b")
    assert [one["operation"] for one in await theirs("history", {"key": "a.b"})] == ["PURGE"]
    await bucket.revert("c", 5)
    assert (await theirs("get", "c"))["revision"] == 7


async def test_buckets_of_theirs_and_of_ours(
    js: JetStream, js_peer: JsPeer, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    options: dict[str, object] = {"history": 3, "ttl": 60_000, "markerTTL": 2000}
    options |= {"description": "a bucket", "compression": True, "maxValueSize": 100}
    name = unique("THEIRS")
    await js_peer.run("kv_create", bucket=name, options=options)
    config = (await (await js.bucket(name)).status()).config
    assert (config.history, config.ttl) == (3, timedelta(minutes=1))
    assert (config.description, config.compression) == ("a bucket", True)
    assert (config.limit_marker_ttl, config.max_value_size) == (timedelta(seconds=2), 100)
    # Equal to one that we would make: creating it again only binds.
    ours = await js.create_bucket(
        unique("OURS"),
        history=3,
        ttl=timedelta(minutes=1),
        limit_marker_ttl=timedelta(seconds=2),
        description="a bucket",
        compression=True,
        max_value_size=100,
    )
    status = (await js_peer.run("kv", bucket=ours.name, call="status"))["result"]
    assert status["bucket"] == ours.name
    assert (status["history"], status["ttl"], status["markerTTL"]) == (3, 60_000, 2000)
    assert (status["description"], status["compression"]) == ("a bucket", True)
    for made in (name, ours.name):
        await js.delete_bucket(made)


async def test_times_to_live_of_theirs_and_of_ours(
    js: JetStream, js_peer: JsPeer, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    bucket = await js.create_bucket(unique("TTL"), limit_marker_ttl=timedelta(minutes=1))
    await js_peer.run("kv_watch", bucket=bucket.name, options={"include": "updates"})
    async with bucket.watch() as changes:
        assert await take(changes, 1) == [None]
        await js_peer.run("kv", bucket=bucket.name, call="create", args=["theirs", "1", "1s"])
        await bucket.create("ours", b"2", ttl=1)
        # On a busy machine a value may be gone before its delivery; its marker never is.
        seen: dict[str, list[str]] = {"theirs": [], "ours": []}
        while not all("PURGE" in told for told in seen.values()):
            for one in await take(changes, 1):
                assert one is not None
                seen[one.key].append(str(one.operation))
        heard: dict[str, list[str]] = {"theirs": [], "ours": []}
        while not all("PURGE" in told for told in heard.values()):
            entry = await js_peer.hear()
            heard[entry["key"]].append(entry["operation"])
        for told in (*seen.values(), *heard.values()):
            assert told in (["PUT", "PURGE"], ["PURGE"])
    await js.delete_bucket(bucket.name)
