"""`jetspark group`: shows the partitioned consumer groups of a stream."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jetspark.cli import app
from jetspark.cli.app import command
from jetspark.cli.flags import JsonFlag, JsonOption
from jetspark.cli.listings import show_infos, show_list
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing
from jetspark.errors import ConfigError

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.groups import ElasticGroup, StaticGroup

group = app.group("group", "jetspark group ls ORDERS", "jetspark group info ORDERS workers")
_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    **{name: itemgetter(name) for name in ("group", "kind", "partitions")},
    "members": lambda document: len(document["members"]),
    "active": lambda document: sum(member["active"] for member in document["members"]),
}
_MEMBERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "member": itemgetter("member"),
    "active": lambda member: "yes" if member["active"] else "no",
    "partitions": lambda member: ", ".join(map(str, member["partitions"])) or "none",
}


@command(group, "jetspark group ls ORDERS")
def ls(
    stream: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """List the consumer groups of a stream.

    Args:
        stream: Name of the stream.
    """

    async def ask(js: JetStream) -> list[dict[str, Any]]:
        return [await _make_document(group) for group in await _list_groups(js, stream)]

    show_list(connection.jetstream(ask, stream=stream), _COLUMNS, as_json=json, document=dict)


@command(group, "jetspark group info ORDERS workers")
def info(
    stream: str, name: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonFlag = False
) -> None:
    """Show the members of a consumer group, and the partitions of each.

    Args:
        stream: Name of the stream.
        name: Name of the group.
        json: Print one JSON array: a stream may have a static and an elastic group of one name.
    """

    async def ask(js: JetStream) -> list[dict[str, Any]]:
        """Fetch the groups of this name: two if a static and an elastic one share it."""
        groups = await _list_groups(js, stream)
        chosen = [group for group in groups if group.name == name]
        if not chosen:
            described = f'Consumer group "{name}" of stream "{stream}"'
            names = [group.name for group in groups]
            raise ConfigError(describe_missing(described, js.client, name, names))
        return [await _make_document(group) for group in chosen]

    documents = connection.jetstream(ask, stream=stream)
    members = itemgetter("members")
    show_infos(documents, _describe_group, members, _MEMBERS, as_json=json, document=dict)


def _describe_group(document: dict[str, Any]) -> dict[str, object]:
    """The facts that `group info` prints of a consumer group above its members, by label."""
    facts = {name: document[name] for name in ("group", "kind", "stream", "partitions")}
    return facts | {"subjects": ", ".join(document["subjects"])}


async def _list_groups(js: JetStream, stream: str) -> list[StaticGroup | ElasticGroup]:
    """List the consumer groups of a stream, static and elastic ones, sorted by name."""
    await js.stream(stream).info()  # raises for a missing stream
    groups: list[StaticGroup | ElasticGroup] = [
        await js.consumer_groups(stream).elastic(name)
        async for name in js.consumer_groups(stream).elastic_names()
    ]
    groups += [
        await js.consumer_groups(stream).static(name)
        async for name in js.consumer_groups(stream).static_names()
    ]
    return sorted(groups, key=lambda group: group.name)


async def _make_document(group: StaticGroup | ElasticGroup) -> dict[str, Any]:
    """Describe a consumer group for --json and for the tables that people read.

    The document has the group's facts and, for each member, whether it is active and its
    partitions.
    """
    from jetspark.groups import ElasticGroup
    from jetspark.groups.documents import members_of

    active = set(await group.active_members().all())
    config = group.config
    return {
        "group": group.name,
        "kind": "elastic" if isinstance(group, ElasticGroup) else "static",
        "stream": group.stream,
        "subjects": list(config.filters) or [">"],
        "partitions": config.max_members,
        "members": [
            {"member": member, "active": member in active, "partitions": group.partitions(member)}
            for member in members_of(config)
        ],
    }
