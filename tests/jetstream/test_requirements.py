"""A feature that the server lacks is refused, and not ignored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeServer, NeedsServer, Unique
from tests.support.js_peer import cache

from jetspark import blocking
from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.document import field_names
from jetspark.documents.requirements import (
    API_LEVELS,
    CONSUMER_FIELDS,
    SOURCE_FIELDS,
    STREAM_FIELDS,
    check_consumer,
    check_stream,
)
from jetspark.documents.streams import Source, StreamConfig
from jetspark.errors import StreamNotFoundError, UnsupportedByServerError
from jetspark.full_client import Client, JetStream, connect
from jetspark.server import NatsServer
from jetspark.wire.documents import ServerInfo

OLD = ServerInfo(version="2.9.10")
NEW = ServerInfo(version="2.15.1")
LEVEL = "Nats-Required-Api-Level"


def test_requirement_tables_name_existing_fields() -> None:
    for table, document in (
        (STREAM_FIELDS, StreamConfig),
        (SOURCE_FIELDS, Source),
        (CONSUMER_FIELDS, ConsumerConfig),
    ):
        assert table.keys() <= set(field_names(document))
        assert set(table.values()) <= API_LEVELS.keys()


@pytest.mark.parametrize(
    ("check", "name"),
    [
        *((check_stream, name) for name in STREAM_FIELDS),
        *((check_consumer, name) for name in CONSUMER_FIELDS),
    ],
)
def test_a_field_of_a_newer_server_is_refused(check: Callable[..., None], name: str) -> None:
    with pytest.raises(UnsupportedByServerError, match=f"^{name} needs"):
        check({name: "something"}, OLD)
    check({name: "something"}, NEW)
    check({name: "something"}, None)  # an unknown server


def test_values_equal_to_not_given_need_no_version() -> None:
    check_stream({"compression": "none", "allow_atomic": False, "metadata": {}}, OLD)
    check_stream({"mirror": {"name": "A"}, "sources": None}, OLD)
    check_consumer({"filter_subjects": [], "priority_policy": "none"}, OLD)


def test_values_and_sources_have_their_own_versions() -> None:
    with pytest.raises(UnsupportedByServerError, match="preferred"):
        check_stream({"placement": {"preferred": "n1"}}, OLD)
    middle = ServerInfo(version="2.11.4")
    with pytest.raises(UnsupportedByServerError, match="prioritized"):
        check_consumer({"priority_policy": "prioritized"}, middle)
    for wire in (
        {"mirror": {"consumer": {}, "subject_transforms": [1]}},
        {"sources": [{}, {"subject_transforms": [1]}]},
    ):
        with pytest.raises(UnsupportedByServerError, match="a source's subject_transforms"):
            check_stream(wire, OLD)


VALUES: dict[str, Any] = {
    "compression": "s2",
    "first_seq": 7,
    "metadata": {"k": "v"},
    "allow_msg_ttl": True,
    "allow_msg_counter": True,
    "allow_atomic": True,
    "allow_msg_schedules": True,
    "persist_mode": "async",
    "allow_batched": True,
}


@pytest.mark.parametrize("name", VALUES)
async def test_this_server_keeps_every_field_that_is_not_refused(
    js: JetStream, nc: Client, unique: Unique, name: str
) -> None:
    stream = unique("S")
    options = {"name": stream, "subjects": [stream], name: VALUES[name]}
    assert nc.server_info is not None
    sent = nc.stats.out_msgs
    if nc.server_info.at_least(*STREAM_FIELDS[name]):
        made = (await js.create_stream(options)).cached_info.config
        kept = getattr(made, name)
        assert VALUES[name].items() <= kept.items() if name == "metadata" else kept == VALUES[name]
        await js.delete_stream(stream)
    else:
        with pytest.raises(UnsupportedByServerError):
            await js.create_stream(options)
        assert nc.stats.out_msgs == sent


# -- API levels (ADR-44) ---------------------------------------------------------------------------


async def test_requests_say_which_api_level_they_need(
    nats_server: NatsServer, tmp_path: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    later = datetime.now(UTC) + timedelta(hours=1)
    async with connect(nats_server.url) as nc, nc.subscribe("$JS.API.>") as calls:
        await nc.flush()
        js = nc.jetstream()
        await js.create_stream(name="PLAIN", subjects=["p"])
        await js.create_stream(name="S", subjects=["s"], allow_batched=True)
        await js.stream("S").update(description="the update sends allow_batched, too")
        consumer = await js.stream("S").create_consumer(
            durable_name="c",
            priority_groups=["g"],
            priority_policy="pinned_client",
            priority_timeout=timedelta(seconds=60),
        )
        await (await js.stream("S").consumer("c")).pause(later)
        await (await js.stream("S").consumer("c")).reset()
        await consumer.unpin("g")
        await js.backup_stream("S", tmp_path / "backup")
        await js.delete_stream("S")
        await js.restore_stream(tmp_path / "backup")
        levels = {}
        while calls.pending_msgs:
            msg = await calls.next(1)
            if msg.headers is not None:
                levels[msg.subject.removeprefix("$JS.API.")] = msg.headers[LEVEL]
        assert nc.server_info is not None
        newest = nc.server_info.at_least(2, 15)
    assert levels == {
        "STREAM.CREATE.S": "4",
        "STREAM.UPDATE.S": "4",
        "CONSUMER.CREATE.S.c": "1",
        "CONSUMER.PAUSE.S.c": "1",
        "CONSUMER.INFO.S.c": "4",  # before the reset
        "CONSUMER.RESET.S.c": "4",
        "CONSUMER.UNPIN.S.c": "1",
        "STREAM.RESTORE.S": "5" if newest else "4",  # 2.15 makes backups of another form
    }


DOMAIN = "jetstream { domain: hub, strict: false }"


async def test_a_server_behind_a_domain_refuses_what_it_would_ignore(
    make_server: MakeServer,
) -> None:
    old = cache() / "servers" / "2.12" / "nats-server"
    if not os.access(old, os.X_OK):
        pytest.skip("no nats-server 2.12 in the cache: python scripts/servers.py 2.12")
    url = make_server(DOMAIN, binary=old).url
    async with connect(url) as nc:
        js = nc.jetstream(domain="hub")  # so its version is not known
        await js.create_stream(name="PLAIN", subjects=["p"], allow_atomic=True)
        await js.stream("PLAIN").create_consumer(durable_name="c")
        needs = r"^{} needs nats-server >= 2\.14; this server is older\.$"
        with pytest.raises(UnsupportedByServerError, match=needs.format("allow_batched")) as caught:
            await js.create_stream(name="S", subjects=["s"], allow_batched=True)
        assert (caught.value.needs, caught.value.server) == ("2.14", "older")
        with pytest.raises(UnsupportedByServerError, match=needs.format("allow_batched")):
            await asyncio.to_thread(create_blocking, url)
        with pytest.raises(StreamNotFoundError):
            await js.stream("S").info()
        with pytest.raises(UnsupportedByServerError, match=needs.format("allow_batched")):
            await js.stream("PLAIN").update(allow_batched=True)
        with pytest.raises(UnsupportedByServerError, match=needs.format("resetting a consumer")):
            await (await js.stream("PLAIN").consumer("c")).reset()


async def test_a_server_behind_a_domain_takes_what_it_has(
    make_server: MakeServer, needs_server: NeedsServer
) -> None:
    needs_server("2.14")
    async with connect(make_server(DOMAIN).url) as nc:
        js = nc.jetstream(domain="hub")
        made = await js.create_stream(name="S", subjects=["s"], allow_batched=True)
        assert made.cached_info.config.allow_batched
        await js.stream("S").create_consumer(durable_name="c")
        assert (await (await js.stream("S").consumer("c")).reset()).name == "c"


def create_blocking(url: str) -> None:
    with blocking.connect(url) as bc:
        bc.jetstream(domain="hub").create_stream(name="S", subjects=["s"], allow_batched=True)
