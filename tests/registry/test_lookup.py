"""Schemas for tasks: looked up over NATS or HTTP, once in a process."""

from __future__ import annotations

import pickle
from asyncio import to_thread
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.payloads.test_framing import batch, confluent
from tests.registry.conftest import avro

from jetspark.connection.options import make_options
from jetspark.errors import ConfigError, RegistryError, SchemaNotFoundError
from jetspark.full_client import Client
from jetspark.payloads import Codec
from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.schema import PayloadSchema
from jetspark.registry import lookup
from jetspark.registry.confluent import ConfluentRegistry
from jetspark.registry.lookup import CachingLookup, NatsRegistry, schema_lookup
from jetspark.registry.service import serve_registry
from jetspark.server import NatsServer


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_answers", {})
    monkeypatch.setattr(lookup, "_unknown", {})


async def test_a_task_finds_versions_over_nats(registry_server: NatsServer, served: Client) -> None:
    registry = served.schema_registry(timeout=20)
    await registry.add("orders", avro("id int"), format="avro", compat_policy="none")
    await registry.update("orders", avro("id long"), format="avro")
    found = schema_lookup("nats", make_options(registry_server.url))
    found = pickle.loads(pickle.dumps(found))
    first = await to_thread(found.by_name, "orders", 1)
    assert first == PayloadSchema("avro", avro("id int"), "orders", 1)
    assert (await to_thread(found.by_name, "orders", None)).version == 2
    await registry.add("orders", '{"type": "object", "properties": {}}', format="jsonschema")
    for format_, text in (
        ("avro", avro("id long")),
        ("json", '{"type": "object", "properties": {}}'),
    ):
        assert (await to_thread(found.by_name, "orders", None, format_)).text == text
    for name in ("other", "not a name"):
        with pytest.raises(SchemaNotFoundError, match=r"There is no (such )?schema"):
            await to_thread(found.by_name, name, None)


async def test_a_registry_that_starts_late_is_waited_for(
    registry_server: NatsServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_RETRY_SECONDS", 0.3)
    found = NatsRegistry(make_options(registry_server.url))
    with pytest.raises(RegistryError, match="No schema registry answers on nats://"):
        await to_thread(found.by_name, "orders", None)
    monkeypatch.setattr(lookup, "_RETRY_SECONDS", 20.0)
    async with await serve_registry(client, client.jetstream(timeout=20)):
        await client.schema_registry(timeout=20).add("orders", avro("id int"), format="avro")
    asked = to_thread(found.by_name, "orders", None)
    async with await serve_registry(client, client.jetstream(timeout=20)):
        assert (await asked).version == 1


@dataclass(frozen=True)
class Counted:
    """A registry with the ids below 100; the number of questions in place of the text."""

    asked: list[int] = field(default_factory=list, compare=False)

    def by_id(self, number: int) -> PayloadSchema:
        self.asked.append(number)
        if number >= 100:
            raise SchemaNotFoundError(f"There is no schema {number}.")
        return PayloadSchema("avro", str(len(self.asked)))

    def by_name(self, name: str, version: int | None, format: str | None = None) -> PayloadSchema:
        return self.by_id(version or 0)


class Known(CachingLookup):
    """The ids below 100 are all of one schema."""

    def by_id(self, number: int) -> PayloadSchema:
        super().by_id(number)
        return PayloadSchema("avro", '"long"')


def test_a_process_asks_once_and_soon_again_for_what_may_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr("jetspark.registry.lookup.time.monotonic", lambda: now[0])
    counted = Counted()
    found = CachingLookup(counted)
    for _ in range(2):
        assert found.by_id(1).text == "1"
        assert found.by_name("a", 2).text == "2"
        assert found.by_name("a", None).text == "3"
        with pytest.raises(SchemaNotFoundError, match="no schema 100"):
            found.by_id(100)
    assert counted.asked == [1, 2, 0, 100]
    now[0] += 61
    assert [found.by_id(1).text, found.by_name("a", 2).text] == ["1", "2"]
    assert found.by_name("a", None).text == "5"
    with pytest.raises(SchemaNotFoundError):
        found.by_id(100)
    assert counted.asked == [1, 2, 0, 100, 0, 100]
    assert [found.by_id(7).text, found.by_name("a", None).text] == ["7", "8"]


def test_damaged_ids_are_remembered_in_a_bounded_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MAX_ANSWERS", 10)
    found = CachingLookup(Counted())
    for number in range(100, 150):
        with pytest.raises(SchemaNotFoundError):
            found.by_id(number)
    assert len(lookup._answers) <= 10


def test_a_publisher_cannot_make_us_ask_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("jetspark.registry.lookup.time.monotonic", lambda: now[0])
    counted = Counted()
    decoding = Decoding(PayloadSchema("avro", '"long"'), Framing("confluent"), (), Known(counted))
    rows = batch([confluent(1, b"\x02")] * 2 + [confluent(100 + at, b"\x02") for at in range(900)])
    found = decoding.decoder().decode_batch(rows)
    assert found.column("value").to_pylist()[:2] == [1, 1]
    assert found.column(REASON).null_count == 2
    assert counted.asked[0] == 1  # what most payloads name is asked for first
    assert len(counted.asked) <= 1 + lookup.MAX_UNKNOWN
    decoding.decoder().decode_batch(rows)
    assert len(counted.asked) <= 1 + lookup.MAX_UNKNOWN
    now[0] += 61
    decoding.decoder().decode_batch(rows)
    assert 100 < len(counted.asked) <= 1 + 2 * lookup.MAX_UNKNOWN


def test_where_says_which_registry_is_asked() -> None:
    options = make_options("nats://127.0.0.1:1", user="u", password="s3cret")
    over_http = schema_lookup("https://registry:8081", options, user="key", password="s3cret")
    assert over_http == CachingLookup(ConfluentRegistry("https://registry:8081", "key", "s3cret"))
    over_nats = schema_lookup("nats", options)
    assert over_nats == CachingLookup(NatsRegistry(options))
    for one in (over_http, over_nats):
        assert "s3cret" not in repr(one)
        assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(ConfigError, match="has the credentials of the connection"):
        schema_lookup("nats", options, token="t")
    with pytest.raises(ConfigError, match="no ids: payloads in Confluent's frame need"):
        over_nats.by_id(1)


@pytest.mark.parametrize("framing", ["confluent", "apicurio"])
def test_frames_with_ids_are_refused_with_a_registry_over_nats(framing: Any) -> None:
    over_nats = schema_lookup("nats", make_options("nats://127.0.0.1:1"))
    how: dict[str, Any] = {"schema": '"long"', "lookup": over_nats, "framing": framing}
    for make in (Decoding.make, Codec):
        with pytest.raises(ConfigError, match="a registry over NATS has only names"):
            make("avro", **how)
    over_http = schema_lookup("https://registry", make_options("nats://127.0.0.1:1"))
    Decoding.make("avro", **how | {"lookup": over_http})
