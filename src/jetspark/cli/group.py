"""`jetspark group`: shows the partitioned consumer groups of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.cli import app
from jetspark.cli.app import command
from jetspark.cli.console import say_json, show_facts, show_table
from jetspark.cli.options import DEFAULT, Connection, JsonOption, not_found
from jetspark.errors import ConfigError

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.groups import ElasticGroup, StaticGroup

group = app.group("group", "jetspark group ls ORDERS", "jetspark group info ORDERS workers")


@command(group, "jetspark group ls ORDERS")
def ls(stream: str, /, *, connection: Connection = DEFAULT, json: JsonOption = False) -> None:
    """List the consumer groups of a stream.

    Args:
        stream: Name of the stream.
        json: Print one JSON array.
    """

    async def ask(js: JetStream) -> list[dict[str, Any]]:
        return [await _document(one) for one in await _groups(js, stream)]

    found = connection.jetstream(ask, stream=stream)
    if json:
        say_json(found, indent=True)
        return
    rows = [
        (one["group"], one["kind"], one["partitions"], len(one["members"]), _active(one))
        for one in found
    ]
    show_table("group", "kind", "partitions", "members", "active", rows=rows)


@command(group, "jetspark group info ORDERS workers")
def info(
    stream: str, name: str, /, *, connection: Connection = DEFAULT, json: JsonOption = False
) -> None:
    """Show the members of a consumer group, and the partitions of each.

    Args:
        stream: Name of the stream.
        name: Name of the group.
        json: Print one JSON array: a stream may have a static and an elastic group of one name.
    """

    async def ask(js: JetStream) -> list[dict[str, Any]]:
        groups = await _groups(js, stream)
        chosen = [one for one in groups if one.name == name]
        if not chosen:
            what = f'Consumer group "{name}" of stream "{stream}"'
            raise ConfigError(not_found(what, js.client, name, [one.name for one in groups]))
        return [await _document(one) for one in chosen]

    found = connection.jetstream(ask, stream=stream)
    if json:
        say_json(found, indent=True)
        return
    for one in found:
        show_facts(
            {
                "group": one["group"],
                "kind": one["kind"],
                "stream": one["stream"],
                "subjects": ", ".join(one["subjects"]),
                "partitions": one["partitions"],
            }
        )
        rows = [
            (
                member["member"],
                "yes" if member["active"] else "no",
                ", ".join(map(str, member["partitions"])) or "none",
            )
            for member in one["members"]
        ]
        show_table("member", "active", "partitions", rows=rows)


async def _groups(js: JetStream, stream: str) -> list[StaticGroup | ElasticGroup]:
    await js.stream_info(stream)  # an error for a stream that does not exist
    found: list[StaticGroup | ElasticGroup] = [
        await js.elastic_group(stream, name) async for name in js.elastic_group_names(stream)
    ]
    found += [await js.static_group(stream, name) async for name in js.static_group_names(stream)]
    return sorted(found, key=lambda one: one.name)


async def _document(group: StaticGroup | ElasticGroup) -> dict[str, Any]:
    from jetspark.groups import ElasticGroup
    from jetspark.groups.documents import members_of

    active = set(await group.active_members())
    config = group.config
    return {
        "group": group.name,
        "kind": "elastic" if isinstance(group, ElasticGroup) else "static",
        "stream": group.stream,
        "subjects": list(config.filters) or [">"],
        "partitions": config.max_members,
        "members": [
            {"member": one, "active": one in active, "partitions": group.partitions(one)}
            for one in members_of(config)
        ],
    }


def _active(document: dict[str, Any]) -> int:
    return sum(one["active"] for one in document["members"])
