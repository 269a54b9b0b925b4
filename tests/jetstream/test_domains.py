"""JetStream of other domains and accounts: contexts, mirrors, sources.

A hub and a leaf node with a domain each; two accounts of one server, one importing the other's API.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from tests.conftest import MakeServer, NeedsServer, Unique
from tests.jetstream.conftest import holds
from tests.support.js_peer import cache
from tests.support.leaf import HubAndLeaf

from jetspark import blocking, errors
from jetspark.connection.options import make_options
from jetspark.documents.streams import External, Republish, Source, SubjectTransform
from jetspark.full_client import Client, JetStream, connect
from jetspark.links import link as links
from jetspark.links.stream_api import StreamAPI
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange


async def filled(js: JetStream, name: str, *tails: str, **options: Any) -> None:
    """A stream that listens to "<name>.>", with one message for each tail."""
    await js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory", **options)
    for tail in tails:
        await js.publish(f"{name}.{tail}", tail.encode())


async def content(js: JetStream, name: str, messages: int) -> list[tuple[str, bytes]]:
    """Subject and payload of what a stream holds, once it has so many messages."""
    await holds(js, name, messages)
    last = (await js.stream(name).info()).state.last_seq
    stored = [await js.stream(name).get(seq) for seq in range(1, last + 1)]
    return [(msg.subject, msg.data) for msg in stored]


# -- contexts ------------------------------------------------------------------------------------


async def test_one_connection_works_with_both_domains(on_leaf: Client, unique: Unique) -> None:
    here, hub = on_leaf.jetstream(timeout=20), on_leaf.jetstream(domain="hub", timeout=21)
    assert (here.timeout, hub.timeout) == (20, 21)
    name, there = unique("HERE"), unique("THERE")
    await filled(here, name, "a")
    await filled(hub, there, "a", "b")
    assert (await here.account_info()).domain == "leaf"
    assert (await hub.account_info()).domain == "hub"
    with pytest.raises(errors.StreamNotFoundError):
        await here.stream(there).info()
    assert (await hub.stream(there).info()).state.messages == 2
    assert (await hub.publish(f"{there}.c")).domain == "hub"
    worker = await hub.stream(there).create_consumer(durable_name="worker")
    for msg in await worker.fetch(3, timeout=20):
        await msg.ack_sync()
    info = await worker.info()
    assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (0, 0, 3)


async def test_a_domain_of_the_options_is_the_default_of_every_context(
    hub_and_leaf: HubAndLeaf,
) -> None:
    url = hub_and_leaf.leaf.url
    async with connect(url, jetstream_domain="hub") as nc:
        assert nc.jetstream().api_prefix == "$JS.hub.API"
        assert (await nc.jetstream().account_info()).domain == "hub"
        assert (await nc.jetstream(domain="leaf").account_info()).domain == "leaf"
        assert (await nc.jetstream(api_prefix="$JS.API").account_info()).domain == "leaf"
    async with connect(url, jetstream_api_prefix="$JS.hub.API") as nc:
        assert (await nc.jetstream().account_info()).domain == "hub"
    with blocking.connect(url, jetstream_domain="hub") as bc:
        assert bc.jetstream().account_info().domain == "hub"
        assert bc.jetstream(domain="leaf").account_info().domain == "leaf"


async def test_a_range_is_read_from_another_domain(
    hub_and_leaf: HubAndLeaf, on_hub: Client, unique: Unique
) -> None:
    name = unique("S")
    await filled(on_hub.jetstream(), name, *(str(n) for n in range(100)))
    options = make_options(hub_and_leaf.leaf.url, jetstream_domain="hub")

    def read() -> list[int]:
        link = links.connect(options)
        created = StreamAPI(link).stream(name).created
        link.close()
        batches = read_range(options, SequenceRange(name, 1, 101, created))
        return [seq for batch in batches for seq in batch["seq"].to_pylist()]

    assert await asyncio.to_thread(read) == [*range(1, 101)]


async def test_creating_changes_no_consumer_of_an_old_server_behind_a_domain() -> None:
    old = cache() / "servers" / "2.9" / "nats-server"
    if not os.access(old, os.X_OK):
        pytest.skip("no nats-server 2.9 in the cache: python scripts/servers.py 2.9")
    with HubAndLeaf(hub_binary=old) as both:
        async with connect(both.leaf.url) as nc:
            await creates_and_changes_no_consumer(nc.jetstream(domain="hub"), "S")


async def test_create_changes_no_consumer_behind_a_domain(on_leaf: Client, unique: Unique) -> None:
    await creates_and_changes_no_consumer(on_leaf.jetstream(domain="hub"), unique("S"))


async def creates_and_changes_no_consumer(hub: JetStream, name: str) -> None:
    await filled(hub, name)
    await hub.stream(name).create_consumer(durable_name="c", max_deliver=5)
    with pytest.raises(errors.NameInUseError):
        await hub.stream(name).create_consumer(durable_name="c", max_deliver=6)
    assert (await hub.stream(name).consumer("c")).cached_info.config.max_deliver == 5
    assert (await hub.stream(name).create_consumer(durable_name="c", max_deliver=5)).name == "c"


# -- mirrors and sources -------------------------------------------------------------------------


def test_a_domain_is_written_as_the_prefix_of_its_api() -> None:
    assert External.of_domain("hub") == External(api="$JS.hub.API")
    assert External.of_domain("hub", deliver="d") == External(api="$JS.hub.API", deliver="d")
    with pytest.raises(errors.BadNameError):
        External.of_domain("a.b")


async def test_a_mirror_follows_a_stream_of_the_hub(
    on_hub: Client, on_leaf: Client, unique: Unique
) -> None:
    name, mirror = unique("S"), unique("M")
    await filled(on_hub.jetstream(), name, "a", "b")
    js = on_leaf.jetstream()
    origin = Source(name=name, external=External.of_domain("hub"))
    made = await js.create_stream(name=mirror, mirror=origin, storage="memory")
    assert made.cached_info.config.mirror == origin
    await on_hub.jetstream().publish(f"{name}.c", b"c")
    assert await content(js, mirror, 3) == [(f"{name}.{t}", t.encode()) for t in "abc"]
    state = (await js.stream(mirror).info()).mirror
    assert state is not None
    assert (state.name, state.lag, state.error) == (name, 0, None)
    assert state.external == External.of_domain("hub")
    assert state.extra == {}


async def test_stream_on_the_leaf_sources_two_streams_of_the_hub(
    on_hub: Client, on_leaf: Client, unique: Unique
) -> None:
    first, second, both = unique("A"), unique("B"), unique("BOTH")
    await filled(on_hub.jetstream(), first, "a", "skipped", "x.a")
    await filled(on_hub.jetstream(), second, "b1", "b2")
    hub = External.of_domain("hub")
    js = on_leaf.jetstream()
    sources = [
        Source(name=first, external=hub, filter_subject=f"{first}.*", opt_start_seq=2),
        Source(name=second, external=hub),
    ]
    await js.create_stream(name=both, sources=sources, storage="memory")
    found = await content(js, both, 3)
    assert sorted(found) == [
        (f"{first}.skipped", b"skipped"),
        (f"{second}.b1", b"b1"),
        (f"{second}.b2", b"b2"),
    ]
    states = {state.name: state for state in (await js.stream(both).info()).sources}
    assert states[first].filter_subject in (f"{first}.*", None)  # servers before 2.10 keep silent
    assert states[second].external == hub


async def test_sources_transform_subjects(
    on_hub: Client, on_leaf: Client, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    name, aggregate = unique("S"), unique("AGG")
    await filled(on_hub.jetstream(), name, "foo.1", "bar.2", "other.3")
    transforms = [
        SubjectTransform(src=f"{name}.foo.*", dest="foo2.{{wildcard(1)}}"),
        SubjectTransform(src=f"{name}.bar.*", dest="bar2.{{wildcard(1)}}"),
    ]
    origin = Source(name=name, external=External.of_domain("hub"), subject_transforms=transforms)
    js = on_leaf.jetstream()
    await js.create_stream(name=aggregate, sources=[origin], storage="memory")
    assert await content(js, aggregate, 2) == [("foo2.1", b"foo.1"), ("bar2.2", b"bar.2")]
    (state,) = (await js.stream(aggregate).info()).sources
    assert state.subject_transforms == transforms


ACCOUNTS = """
accounts {
  HUB {
    jetstream: enabled
    users: [{user: hub, password: p}]
    exports: [
      {service: "$JS.API.>", response_type: stream}
      {service: "$JS.ACK.>"}
      {service: "$JS.FC.>"}
      {stream: "deliver.shop.>"}
    ]
  }
  SHOP {
    jetstream: enabled
    users: [{user: shop, password: p}]
    imports: [
      {service: {account: HUB, subject: "$JS.API.>"}, to: "hub.api.>"}
      {service: {account: HUB, subject: "$JS.ACK.>"}}
      {service: {account: HUB, subject: "$JS.FC.>"}}
      {stream: {account: HUB, subject: "deliver.shop.>"}}
    ]
  }
}
"""


async def test_streams_of_another_account(make_server: MakeServer) -> None:
    url = make_server(ACCOUNTS).url
    async with (
        connect(url, user="hub", password="p") as hub,
        connect(url, user="shop", password="p") as shop,
    ):
        await filled(hub.jetstream(), "ORDERS", "a", "b")
        js, imported = shop.jetstream(), shop.jetstream(api_prefix="hub.api")
        with pytest.raises(errors.StreamNotFoundError):
            await js.stream("ORDERS").info()
        assert (await imported.stream("ORDERS").info()).state.messages == 2

        origin = Source(name="ORDERS", external=External(api="hub.api", deliver="deliver.shop"))
        await js.create_stream(name="MIRROR", mirror=origin)
        await js.create_stream(name="AGGREGATE", sources=[origin])
        for copy in ("MIRROR", "AGGREGATE"):
            assert await content(js, copy, 2) == [("ORDERS.a", b"a"), ("ORDERS.b", b"b")]

        worker = await imported.stream("ORDERS").create_consumer(name="worker")
        for msg in await worker.fetch(2, timeout=20):
            await msg.ack_sync()
        assert (await worker.info()).ack_floor.stream_seq == 2


async def test_an_import_with_one_answer_to_a_request_is_told(make_server: MakeServer) -> None:
    url = make_server(ACCOUNTS.replace(", response_type: stream", "")).url
    told: asyncio.Queue[errors.JetsparkError] = asyncio.Queue()
    async with (
        connect(url, user="hub", password="p") as hub,
        connect(url, user="shop", password="p", error_callback=told.put_nowait) as shop,
    ):
        await filled(hub.jetstream(), "ORDERS", "a", "b", "c")
        imported = shop.jetstream(api_prefix="hub.api")
        consumer = await imported.stream("ORDERS").create_consumer(name="worker")
        fetched = await consumer.fetch(3, timeout=0.5)
        assert len(fetched) == 1
        assert "response_type: stream" in str(fetched.error)
        async with imported.stream("ORDERS").ordered(heartbeat=0.5) as messages:
            assert [(await messages.next(20)).seq for _ in range(2)] == [1, 2]
        assert "response_type: stream" in str(await asyncio.wait_for(told.get(), 20))


# -- transforms and republishing of a stream itself ------------------------------------------------


async def test_a_stream_transforms_the_subjects_of_its_messages(
    js: JetStream, unique: Unique, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    name = unique("S")
    transform = SubjectTransform(src=f"{name}.in.*", dest=f"{name}.out.{{{{wildcard(1)}}}}")
    await filled(js, name, "in.1", "plain", subject_transform=transform)
    assert await content(js, name, 2) == [(f"{name}.out.1", b"in.1"), (f"{name}.plain", b"plain")]


@pytest.mark.parametrize("headers_only", [False, True])
async def test_stored_messages_are_republished(
    js: JetStream, nc: Client, unique: Unique, headers_only: bool
) -> None:
    name = unique("S")
    again = Republish(src=f"{name}.>", dest=f"again.{name}.>", headers_only=headers_only)
    await filled(js, name, republish=again)
    assert (await js.stream(name).info()).config.republish is not None
    async with nc.subscribe(f"again.{name}.>") as sub:
        await nc.flush()
        ack = await js.publish(f"{name}.a", b"payload", headers={"k": "v"})
        msg = await sub.next(2)
    assert msg.subject == f"again.{name}.a"
    assert msg.data == (b"" if headers_only else b"payload")
    assert msg.headers is not None
    assert (msg.headers["k"], msg.headers["Nats-Stream"]) == ("v", name)
    assert int(msg.headers["Nats-Sequence"]) == ack.seq
    assert msg.headers.get("Nats-Msg-Size") == ("7" if headers_only else None)
