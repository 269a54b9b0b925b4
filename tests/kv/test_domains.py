"""Buckets of other domains and accounts: contexts, aggregates, mirrors (ADR-57).

A hub and a leaf node with a domain each; two accounts of one server, one importing the other's API.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.conftest import MakeServer, NeedsServer, Unique
from tests.jetstream.conftest import holds
from tests.jetstream.eventually import eventually
from tests.kv.conftest import take

from jetspark.documents.streams import Source, SubjectTransform
from jetspark.errors import ConfigError, JetsparkError, KeyNotFoundError, WrongLastSequenceError
from jetspark.full_client import Client, JetStream, connect
from jetspark.kv import Bucket, Origin


async def has(bucket: Bucket, key: str, value: bytes | None) -> None:
    """Returns when the key has this value, or none."""

    async def holds() -> bool:
        with suppress(KeyNotFoundError):
            return await bucket.get_value(key) == value
        return value is None

    await eventually(holds)


# -- contexts ------------------------------------------------------------------------------------


async def test_a_bucket_of_another_domain(on_hub: Client, on_leaf: Client, unique: Unique) -> None:
    name = unique("B")
    far = await on_leaf.jetstream(domain="hub").create_bucket(name, history=3)
    near = await on_hub.jetstream().bucket(name)
    revision = await far.put("a.b", b"1")
    assert (await near.get("a.b")).revision == revision
    assert await far.get_value("a.b") == b"1"
    revision = await far.update("a.b", b"2", revision)
    with pytest.raises(WrongLastSequenceError):
        await far.update("a.b", b"3", 1)
    assert await near.get_value("a.b") == b"2"
    assert await far.keys().all() == ["a.b"]
    assert [entry.value for entry in await far.history("a.*").all()] == [b"1", b"2"]
    async with far.watch() as changes, far.live() as live:
        first, end = await take(changes, 2)
        assert first is not None
        assert (first.key, first.value, end) == ("a.b", b"2", None)
        assert live.snapshot() == {"a.b": b"2"}
    await far.delete("a.b", revision)
    with pytest.raises(KeyNotFoundError):
        await near.get("a.b")
    assert await far.create("a.b", b"4")
    await far.purge("a.b")
    assert (await near.status()).values == 1
    await on_leaf.jetstream(domain="hub").delete_bucket(name)


# -- aggregates ----------------------------------------------------------------------------------


@pytest.fixture
def js(on_leaf: Client) -> JetStream:
    return on_leaf.jetstream()


@pytest.fixture
async def hub(on_hub: Client, unique: Unique, needs_server: NeedsServer) -> Bucket:
    """A bucket of the hub with "k"."""
    needs_server("2.10")
    hub = await on_hub.jetstream().create_bucket(unique("HUB"), history=3)
    await hub.put("k", b"1")
    return hub


async def test_a_writable_aggregate_of_some_keys_of_another_domain(
    hub: Bucket, js: JetStream, unique: Unique
) -> None:
    await hub.put("new.a", b"1")
    await hub.put("old.a", b"2")
    leaf = await js.create_bucket_aggregate(
        unique("LEAF"), [Origin(hub.name, keys=["new.>"], domain="hub")], description="filtered"
    )
    await has(leaf, "new.a", b"1")
    await hub.put("new.b", b"3")
    await has(leaf, "new.b", b"3")
    await leaf.put("own", b"4")
    assert await leaf.get_value("own") == b"4"
    for bucket, key in ((leaf, "old.a"), (hub, "own")):
        with pytest.raises(KeyNotFoundError):
            await bucket.get(key)
    await hub.delete("new.a")
    await has(leaf, "new.a", None)
    assert (await leaf.status()).config.description == "filtered"
    # Bound later it is writable still.
    await (await js.bucket(leaf.name)).put("own", b"5")


async def test_a_read_only_aggregate_of_several_origins(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    one, two = [await js.create_bucket(unique("O")) for _ in range(2)]
    await one.put("eu.1", b"one")
    await two.put("us.1", b"two")
    await two.put("left.out", b"")
    both = await js.create_bucket_aggregate(
        unique("AGG"), [Origin(one.name), Origin(two.name, keys=["us.*", "ca.>"])], writable=False
    )
    await has(both, "eu.1", b"one")
    await has(both, "us.1", b"two")
    await two.put("ca.x.y", b"three")
    await has(both, "ca.x.y", b"three")
    with pytest.raises(KeyNotFoundError):
        await both.get("left.out")
    bound = await js.bucket(both.name)
    for call in (both.put("k"), both.delete("k"), both.create("k"), bound.put("eu.1", b"")):
        with pytest.raises(ConfigError, match="read-only"):
            await call
    with pytest.raises(JetsparkError):
        await js.publish(f"$KV.{both.name}.k", b"", timeout=0.3)
    assert both.name in await js.bucket_names().all()


async def test_an_aggregate_of_a_stream_that_is_not_a_bucket(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    events, name = unique("EVENTS"), unique("AGG")
    await js.create_stream(name=events, subjects=[f"{events}.>"])
    await js.publish(f"{events}.done.7", b"seven")
    source = Source(
        name=events,
        subject_transforms=[
            SubjectTransform(src=f"{events}.done.*", dest=f"$KV.{name}.{{{{wildcard(1)}}}}")
        ],
    )
    cache = await js.create_bucket_aggregate(name, [source])
    await has(cache, "7", b"seven")


async def test_impossible_aggregates_are_refused(js: JetStream) -> None:
    with pytest.raises(ConfigError, match="at least one origin"):
        await js.create_bucket_aggregate("a", [])
    with pytest.raises(ConfigError, match="subject_transforms"):
        await js.create_bucket_aggregate("a", [Source(name="KV_b")])
    with pytest.raises(ConfigError, match="mirror_name"):
        await js.create_bucket_aggregate("a", [Origin("b")], mirror_name="b")  # type: ignore[call-arg]
    for options, sentence in (
        ({"keys": ["a b"]}, "key"),
        ({"domain": "a", "api": "b"}, "either"),
        ({"deliver": "x"}, "needs"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Origin("b", **options)


def test_a_filter_becomes_a_transform_that_keeps_every_token() -> None:
    source = Origin("from", keys=["a.*.b.*", ">"]).source_of("to")
    assert source.subject_transforms == [
        SubjectTransform(src="$KV.from.a.*.b.*", dest="$KV.to.a.{{wildcard(1)}}.b.{{wildcard(2)}}"),
        SubjectTransform(src="$KV.from.>", dest="$KV.to.>"),
    ]


# -- mirrors -------------------------------------------------------------------------------------


async def test_a_mirror_answers_for_its_origin_and_cannot_be_bound(
    hub: Bucket, js: JetStream, unique: Unique
) -> None:
    await hub.put("a.1", b"one")
    await hub.put("b.1", b"two")
    name = unique("MIRROR")
    info = await js.create_bucket_mirror(name, Origin(hub.name, keys=["a.*"], domain="hub"))
    assert info.cached_info.config.mirror_direct
    await holds(js, name, 1)
    stored = await js.stream(name).get(last_by_subject=f"$KV.{hub.name}.a.1", direct=True)
    assert stored.data == b"one"
    assert name not in await js.bucket_names().all()
    for bad in ("KV_x", "a.b"):
        with pytest.raises(ConfigError):
            await js.create_bucket_mirror(bad, Origin(hub.name))
    await js.delete_stream(name)


async def test_an_aggregate_of_a_mirror(hub: Bucket, js: JetStream, unique: Unique) -> None:
    mirror = unique("MIRROR")
    await js.create_bucket_mirror(mirror, Origin(hub.name, domain="hub"))
    copy = await js.create_bucket_aggregate(
        unique("AGG"), [Origin(hub.name, stream=mirror)], writable=False
    )
    await has(copy, "k", b"1")


async def test_the_deprecated_mirror_is_a_bucket_that_writes_to_its_origin(
    hub: Bucket, js: JetStream, unique: Unique
) -> None:
    name = unique("COPY")
    await js.create_bucket(name, mirror_name=hub.name, mirror_domain="hub", history=3)
    copy = await js.bucket(name)
    await has(copy, "k", b"1")
    assert await copy.update("k", b"2", 1) == 2
    await has(copy, "k", b"2")
    assert await hub.get_value("k") == b"2"
    assert await copy.keys().all() == ["k"]
    assert [entry.revision for entry in await copy.history("k").all()] == [1, 2]
    await copy.purge("k")
    await has(hub, "k", None)
    await has(copy, "k", None)
    status = await copy.status()
    assert (status.mirror_name, status.mirror_domain) == (hub.name, "hub")
    with pytest.raises(ConfigError, match="cannot become"):
        await js.update_bucket(name, mirror_name=hub.name)


# -- another account -----------------------------------------------------------------------------

ACCOUNTS = """
accounts {
  OWNER: {
    jetstream: enabled
    users: [ { user: owner, password: p } ]
    exports: [
      { service: "$JS.API.>", response: stream }
      { service: "$KV.>" }
      { stream: "deliver.>" }
    ]
  }
  GUEST: {
    jetstream: enabled
    users: [ { user: guest, password: p } ]
    imports: [
      { service: { account: OWNER, subject: "$JS.API.>" }, to: "owner.API.>" }
      { service: { account: OWNER, subject: "$KV.>" }, to: "owner.API.$KV.>" }
      { stream: { account: OWNER, subject: "deliver.>" } }
    ]
  }
}
"""


async def test_buckets_of_another_account(
    make_server: MakeServer, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    url = make_server(ACCOUNTS).url
    async with (
        connect(url, user="owner", password="p") as owner,
        connect(url, user="guest", password="p") as guest,
    ):
        theirs = await owner.jetstream().create_bucket("B", history=3)
        await theirs.put("a.k", b"1")
        # Through a context with the imported prefix …
        far = await guest.jetstream(api_prefix="owner.API").bucket("B")
        assert await far.get_value("a.k") == b"1"
        assert await far.put("a.k", b"2") == 2
        assert await theirs.get_value("a.k") == b"2"
        assert await far.keys("a.>").all() == ["a.k"]
        # … and as an origin.
        own = await guest.jetstream().create_bucket_aggregate(
            "AGG", [Origin("B", keys=["a.>"], api="owner.API", deliver="deliver.guest")]
        )
        await has(own, "a.k", b"2")
        await theirs.put("a.k", b"3")
        await has(own, "a.k", b"3")
