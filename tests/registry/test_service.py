"""The registry over a bucket, and its client."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.conftest import Unique
from tests.registry.conftest import avro
from tests.support.cluster import Cluster

from jetspark.errors import (
    BadNameError,
    ConfigError,
    JetsparkError,
    RegistryError,
    RequestTimeoutError,
    SchemaNotFoundError,
    ServiceError,
)
from jetspark.full_client import Client, JetStream, connect
from jetspark.registry import Schema, SchemaRegistry, SchemaVersion
from jetspark.registry.compatibility import violations
from jetspark.registry.documents import Code
from jetspark.registry.service import serve_registry
from jetspark.server import NatsServer
from jetspark.services import Request, error_headers

ORDER = avro("id int")


def numbers(found: SchemaVersion) -> tuple[int, int]:
    return found.version, found.revision


@pytest.fixture
async def registry(served: Client) -> SchemaRegistry:
    return served.schema_registry(timeout=20)


async def test_a_schema_is_added_changed_and_found(registry: SchemaRegistry) -> None:
    added = await registry.add(
        "shop.Order", ORDER, format="avro", description="Orders", metadata={"team": "shop"}
    )
    assert numbers(added) == (1, 1)
    found = await registry.get("shop.Order")
    assert (found.definition, found.description, found.metadata) == (
        *(ORDER, "Orders", {"team": "shop"}),
    )
    assert (found.compat_policy, found.delete) == ("backwards", None)
    second = await registry.update("shop.Order", avro("id int", "note string?"), format="avro")
    assert numbers(second) == (2, 1)
    third = await registry.update("shop.Order", format="avro", description="All orders")
    assert numbers(third) == (2, 2)
    latest = await registry.get("shop.Order")
    assert (latest.version, latest.revision, latest.description) == (2, 2, "All orders")
    assert latest.metadata == {"team": "shop"}
    assert (await registry.get("shop.Order", 1)).definition == ORDER
    assert (await registry.get("shop.Order", 2, revision=1)).description == "Orders"
    everything = await registry.schemas().all()
    assert [numbers(one) for one in everything] == [(1, 1), (2, 1), (2, 2)]  # type: ignore[arg-type]
    assert await registry.schemas("shop.*").all() == everything
    assert await registry.schemas("other.>").all() == []


async def test_a_request_that_changes_nothing_may_be_repeated(registry: SchemaRegistry) -> None:
    for _ in range(2):
        assert numbers(await registry.add("orders", ORDER, format="avro")) == (1, 1)
    for _ in range(2):
        changed = await registry.update("orders", avro("id int", "a string?"), format="avro")
        assert numbers(changed) == (2, 1)
    assert len(await registry.schemas().all()) == 2


async def test_formats_of_a_name_are_apart(registry: SchemaRegistry) -> None:
    await registry.add("orders", ORDER, format="avro")
    await registry.add("orders", '{"type": "object"}', format="jsonschema")
    assert (await registry.get("orders", format="avro")).definition == ORDER
    assert (await registry.get("orders")).format == "jsonschema"  # what was stored last


@pytest.mark.parametrize(
    ("policy", "definition", "taken"),
    [
        ("Backward", avro("id long"), True),
        ("backwards", avro("id int", "new string"), False),
        ("forward", avro("id int", "new string"), True),
        ("full", avro("id int", "new string"), False),
    ],
)
async def test_a_version_follows_the_policy_of_the_first(
    registry: SchemaRegistry, policy: str, definition: str, taken: bool
) -> None:
    await registry.add("orders", ORDER, format="avro", compat_policy=policy)
    if taken:
        assert numbers(await registry.update("orders", definition, format="avro")) == (2, 1)
        assert (await registry.get("orders")).compat_policy == policy  # as it was written
        return
    with pytest.raises(ServiceError, match=rf"Not compatible \({policy}\) with avro orders") as no:
        await registry.update("orders", definition, format="avro")
    assert no.value.code == Code.INCOMPATIBLE
    assert len(await registry.schemas().all()) == 1


async def test_the_latest_can_be_named_by_who_changes_it(registry: SchemaRegistry) -> None:
    await registry.add("orders", ORDER, format="avro")
    wider = avro("id long")
    assert numbers(await registry.update("orders", wider, format="avro", version=1)) == (2, 1)
    with pytest.raises(ServiceError, match="The latest is avro orders version 2 revision 1") as no:
        await registry.update("orders", ORDER, format="avro", version=1)
    assert no.value.code == Code.CHANGED


async def test_a_number_is_not_given_again(registry: SchemaRegistry) -> None:
    await registry.add("orders", ORDER, format="avro", compat_policy="none")
    await registry.update("orders", avro("b int"), format="avro")
    await registry.remove("orders", format="avro", version=2)
    assert (await registry.get("orders")).version == 1
    with pytest.raises(SchemaNotFoundError, match="There is no schema orders version 2"):
        await registry.get("orders", 2)
    assert numbers(await registry.update("orders", avro("c int"), format="avro")) == (3, 1)
    changed = await registry.update("orders", format="avro", description="One")
    assert numbers(changed) == (3, 2)
    await registry.remove("orders", format="avro", version=3, revision=2)
    changed = await registry.update("orders", format="avro", description="Another")
    assert numbers(changed) == (3, 3)
    await registry.remove("orders", format="avro")
    with pytest.raises(SchemaNotFoundError):
        await registry.remove("orders", format="avro")
    assert await registry.schemas().all() == []
    assert numbers(await registry.add("orders", ORDER, format="avro")) == (4, 1)


async def test_a_refusal_has_the_published_code(served: Client) -> None:
    await served.schema_registry().add("there", ORDER, format="avro")
    requests: list[tuple[str, Any, int]] = [
        ("ADD.orders", "{", 10400),
        ("ADD.orders", '{"format": "avro"}', 10400),
        ("ADD.orders", {"format": "avro", "definition": ORDER, "compat_policy": "x"}, 10400),
        ("ADD.a,b", {"format": "avro", "definition": ORDER}, 11000),
        ("ADD.there", {"format": "avro", "definition": avro("x int")}, 11001),
        ("GET.avro.1.1.orders", "", 11002),
        ("UPDATE.avro.*.*.orders", {"definition": ORDER}, 11002),
        ("REMOVE.avro.*.*.orders", "", 11002),
        ("ADD.orders", {"definition": ORDER}, 11004),
        ("UPDATE.*.*.*.there", {"definition": ORDER}, 11004),
        ("ADD.orders", {"format": "avro", "definition": "{}"}, 11005),
        ("UPDATE.avro.*.*.there", {"definition": "{}"}, 11005),
        ("ADD.orders", {"format": "protobuf", "definition": "AAAA"}, 11005),
        ("ADD.orders", {"format": "xml", "definition": "{}"}, 11007),
        ("LIST", {"filter": "a..b"}, 10400),
        ("LIST", {"after": "there"}, 10400),
        ("ADD.orders", {"format": "avro", "definition": avro("x int?")}, 11005),
        ("ADD.orders", {"format": "jsonschema", "definition": '{"$ref": "#/x"}'}, 11005),
    ]
    for subject, body, code in requests:
        payload = body if isinstance(body, str) else json.dumps(body)
        with pytest.raises(ServiceError) as refused:
            await served.services().request(f"$SR.v1.{subject}", payload.encode(), timeout=20)
        assert refused.value.code == code, subject


async def test_arguments_are_checked_before_anything_is_sent(client: Client) -> None:
    registry = client.schema_registry()
    with pytest.raises(BadNameError, match="Bad schema name"):
        await registry.get("a b")
    with pytest.raises(ConfigError, match="format is one of avro, protobuf, jsonschema"):
        await registry.add("a", "{}", format="json")
    with pytest.raises(ConfigError, match="compat_policy is one of none, backwards"):
        await registry.add("a", "{}", format="avro", compat_policy="transitive")
    with pytest.raises(ConfigError, match="version must be at least 1"):
        await registry.get("a", 0)
    with pytest.raises(RegistryError, match="No schema registry answers on nats://"):
        await registry.get("a")


async def test_a_list_of_more_than_a_message_comes_in_parts(tmp_path: Path, unique: Unique) -> None:
    config = tmp_path / "small.conf"
    config.write_text("host: 127.0.0.1, port: -1, max_payload: 8192")
    with NatsServer(name="small", config=config, jetstream=True) as server:
        async with (
            connect(server.url) as nc,
            await serve_registry(nc, nc.jetstream(timeout=20), bucket=unique("schemas")),
        ):
            registry = nc.schema_registry(timeout=20)
            for name in ("a", "b", "c.d", "e"):
                await registry.add(name, avro("id int", doc="x" * 3000), format="avro")
            await registry.update("c.d", avro("id long", doc="x" * 3000), format="avro")
            await registry.remove("e", format="avro")
            with pytest.raises(ServiceError, match="give a filter, or ask for parts") as refused:
                await nc.services().request("$SR.v1.LIST", b"{}", timeout=20)
            assert refused.value.code == Code.TOO_LARGE
            found = [(one.name, one.version) for one in await registry.schemas().all()]
            assert found == [("a", 1), ("b", 1), ("c.d", 1), ("c.d", 2)]
            assert [one.version for one in await registry.schemas("c.*").all()] == [1, 2]
            with pytest.raises(ServiceError, match="e version 2 revision 1 would have") as refused:
                await registry.add("e", avro("id int", doc="x" * 7200), format="avro")
            assert refused.value.code == Code.TOO_LARGE
            await registry.add("e", avro("id int", doc="x" * 6800), format="avro")
            assert len((await registry.get("e")).definition) > 6800
            assert len(await registry.schemas("e").all()) == 1


async def test_requests_to_a_registry_that_just_started_do_not_meet_half_a_library(
    client: Client, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    add_service = client.add_service

    async def added(*args: Any, **options: Any) -> Any:
        steps.append("added")
        return await add_service(*args, **options)

    monkeypatch.setattr("jetspark.registry.service.load_rules", lambda: steps.append("loaded"))
    monkeypatch.setattr(client, "add_service", added)
    async with await serve_registry(client, client.jetstream(timeout=20), bucket=unique("schemas")):
        assert steps == ["loaded", "added"]


# -- other clients ---------------------------------------------------------------------------------


async def test_nats_py_registers_and_reads_by_hand(
    registry_server: NatsServer, served: Client
) -> None:
    async with await nats.connect(registry_server.url) as nc:

        async def ask(subject: str, **body: Any) -> Any:
            reply = await nc.request(f"$SR.v1.{subject}", json.dumps(body).encode(), timeout=20)
            assert not reply.headers, reply.headers
            return json.loads(reply.data)

        person = {"name": "Person", "format": "jsonschema", "definition": '{"type": "object"}'}
        assert await ask("ADD.Person", **person, compat_policy="none") == {
            "version": 1,
            "revision": 1,
        }
        # As orbit.rs asks, and as orbit.go does.
        for found in (await ask("GET.*.*.*.Person"), await ask("GET.Person", name="Person")):
            schema = found["schema"]
            time = schema.pop("time")
            assert time.endswith("Z")
            assert schema == {
                **person,
                "version": 1,
                "revision": 1,
                "compat_policy": "none",
                "description": "",
                "metadata": {},
            }
        changed = {"name": "Person", "format": "jsonschema", "description": "Somebody"}
        assert await ask("UPDATE.Person", **changed) == {"version": 1, "revision": 2}
        assert await ask("UPDATE.jsonschema.*.*.Person", definition="true") == {
            "version": 2,
            "revision": 1,
        }
        listed = (await ask("LIST"))["schemas"]
        assert [(one["version"], one["revision"]) for one in listed] == [(1, 1), (1, 2), (2, 1)]
        assert (await ask("GET.Person", revision=2, version=1))["schema"][
            "description"
        ] == "Somebody"
        assert await ask("REMOVE.jsonschema.*.*.Person") == {}
        reply = await nc.request("$SR.v1.GET.Person", b"", timeout=20)
        assert reply.headers == {
            "Nats-Service-Error-Code": "11002",
            "Nats-Service-Error": "There is no schema Person.",
        }


async def test_our_client_asks_another_registry(client: Client) -> None:
    schema = {
        "name": "Person",
        "version": 1,
        "revision": 2,
        "time": "2025-09-08T10:20:22.317318+10:00",
        "format": "jsonschema",
        "compat_policy": "none",
        "definition": "{}",
        "description": "A Person schema",
        "metadata": None,
    }
    answers: dict[str, Any] = {
        "$SR.v1.ADD.Person": {"revision": 1, "version": 1},
        "$SR.v1.GET.*.*.*.Person": {"schema": schema},
        "$SR.v1.UPDATE.jsonschema.*.*.Person": {"revision": 4, "version": 1},
        "$SR.v1.LIST": {"schemas": [schema]},
        "$SR.v1.REMOVE.jsonschema.1.2.Person": {},
    }
    bodies: dict[str, Any] = {}

    async def answer(request: Request) -> None:
        bodies[request.subject] = request.json()
        if request.subject not in answers:
            await request.respond(b"null", error_headers(11002, "schema not found"))
            return
        await request.respond_json(answers[request.subject])

    async with await client.add_service("theirs", "1.0.0") as theirs:
        await theirs.add_endpoint("all", answer, subject="$SR.v1.>")
        registry = client.schema_registry()
        assert numbers(await registry.add("Person", "{}", format="jsonschema")) == (1, 1)
        found = await registry.get("Person")
        assert (found.revision, found.metadata) == (2, {})
        assert found.time is not None
        assert found.time.isoformat() == "2025-09-08T00:20:22.317318+00:00"
        changed = await registry.update("Person", "true", format="jsonschema")
        assert numbers(changed) == (1, 4)
        assert await registry.schemas().all() == [found]
        await registry.remove("Person", format="jsonschema", version=1, revision=2)
        with pytest.raises(SchemaNotFoundError, match="schema not found"):
            await registry.get("Other")
    assert bodies["$SR.v1.ADD.Person"] == {"definition": "{}", "format": "jsonschema"}
    assert bodies["$SR.v1.UPDATE.jsonschema.*.*.Person"] == {"definition": "true"}
    assert bodies["$SR.v1.GET.*.*.*.Person"] == bodies["$SR.v1.LIST"] == {}


# -- races -----------------------------------------------------------------------------------------


def of_turn(number: int, turn: int) -> str:
    """What may follow depends on what came before: a shared int, a shared string, or none."""
    fields: list[dict[str, Any]] = [
        {"name": f"f{number}_{turn}", "type": "string", "default": ""},
        {"name": "shared", "type": "int", "default": 0},
        {"name": "shared", "type": "string", "default": ""},
    ]
    kept = [fields[at] for at in sorted({0, (number + turn) % 3})]
    return json.dumps({"type": "record", "name": "Order", "fields": kept})


def check_history(versions: list[Schema], given: list[tuple[int, str]]) -> None:
    """Every version once, those that were given among them, and none breaks the policy."""
    assert [one.version for one in versions] == list(range(1, len(versions) + 1))
    stored = {one.version: one.definition for one in versions}
    assert len(dict(given)) == len(given)
    assert dict(given).items() <= stored.items()
    for before, after in pairwise(versions):
        assert violations("full", before.payload_schema(), after.payload_schema()) == []


async def test_eight_writers_get_each_version_once_and_none_breaks_the_policy(
    registry_server: NatsServer, served: Client, bucket: str
) -> None:
    await served.schema_registry().add("orders", avro(), format="avro", compat_policy="full")
    given: list[tuple[int, str]] = []
    refused: list[int] = []

    async def write(number: int) -> None:
        async with connect(registry_server.url) as nc:
            registry = nc.schema_registry(timeout=30)
            for turn in range(6):
                definition = of_turn(number, turn)
                try:
                    found = await registry.update("orders", definition, format="avro")
                    given.append((found.version, definition))
                except ServiceError as error:
                    refused.append(error.code)

    async with (
        connect(registry_server.url) as other,
        await serve_registry(other, other.jetstream(timeout=20), bucket=bucket),
    ):
        await asyncio.gather(*map(write, range(8)))
    assert set(refused) == {Code.INCOMPATIBLE}
    assert len(given) + len(refused) == 48
    assert len(given) >= 16
    versions = await served.schema_registry().schemas().all()
    assert len(versions) == len(given) + 1
    check_history(versions, given)


async def test_leaders_of_the_bucket_come_and_go_while_versions_are_registered(
    nats_cluster: Cluster, unique: Unique
) -> None:
    bucket = unique("schemas")
    given: list[tuple[int, str]] = []

    async def write(number: int) -> None:
        async with connect(nats_cluster.urls[number % 3]) as nc:
            registry = nc.schema_registry(timeout=30)
            for turn in range(4):
                definition = of_turn(number, turn)
                # Without a leader the outcome may be unknown.
                with suppress(ServiceError, RequestTimeoutError):
                    found = await registry.update("orders", definition, format="avro")
                    given.append((found.version, definition))

    async def replace_leaders(js: JetStream) -> None:
        for _ in range(3):
            await asyncio.sleep(0.1)
            with suppress(JetsparkError):  # another one is elected already
                await js.stream(f"KV_{bucket}").step_down_leader()

    async with connect(nats_cluster.urls[0]) as one, connect(nats_cluster.urls[1]) as other:
        js = one.jetstream(timeout=2)  # a leader that is replaced may not answer
        await one.jetstream(timeout=20).create_bucket(bucket, replicas=3)
        async with (
            await serve_registry(one, js, bucket=bucket),
            await serve_registry(other, other.jetstream(timeout=2), bucket=bucket),
        ):
            registry = one.schema_registry(timeout=30)
            await registry.add("orders", avro(), format="avro", compat_policy="full")
            await asyncio.gather(replace_leaders(js), *map(write, range(8)))
            assert len(given) >= 8
            found = None
            async with asyncio.timeout(60):
                while found is None:
                    with suppress(ServiceError):  # the last leader is not yet elected
                        found = await registry.schemas().all()
            check_history(found, given)
        await js.delete_bucket(bucket)
