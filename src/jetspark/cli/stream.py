"""`jetspark stream`: shows, creates, purges and removes streams, backs them up and restores them.

Changes of a stream's configuration are left to the administrator's tool `nats`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cyclopts import App

from jetspark.cli.commands import COMMANDS, examples
from jetspark.cli.stream_backup import backup, restore, verify
from jetspark.cli.stream_changes import add, purge, rm
from jetspark.cli.stream_session import (
    JsonOption,
    limit,
    moment,
    show_facts,
    show_json,
    show_table,
    size,
    span,
    with_jetstream,
)
from jetspark.jetstream.documents.document import to_wire

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.jetstream.documents import StreamInfo

stream = App(
    name="stream",
    help=COMMANDS["stream"].line,
    help_epilogue=examples(
        "jetspark stream ls",
        'jetspark stream add ORDERS --subject "orders.>"',
        "jetspark stream backup ORDERS backups/orders",
    ),
)


@stream.command(
    sort_key=0, help_epilogue=examples("jetspark stream ls", "jetspark stream ls --json")
)
def ls(*, server: str | None = None, context: str | None = None, json: JsonOption = False) -> None:
    """List the streams.

    Args:
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print one JSON array with the server's document of each stream.
    """

    async def ask(js: JetStream) -> list[StreamInfo]:
        return sorted(await js.streams().all(), key=lambda info: info.name)

    infos = with_jetstream(server, context, ask)
    if json:
        show_json([to_wire(info) for info in infos])
        return
    headings = ("stream", "messages", "size", "first", "last", "consumers", "last message")
    show_table(*headings, rows=map(_row, infos))


def _row(info: StreamInfo) -> tuple[object, ...]:
    state = info.state
    return (
        info.name,
        f"{state.messages:,}",
        size(state.bytes),
        f"{state.first_seq:,}",
        f"{state.last_seq:,}",
        state.consumer_count,
        moment(state.last_ts),
    )


@stream.command(sort_key=1, help_epilogue=examples("jetspark stream info ORDERS"))
def info(
    name: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    json: JsonOption = False,
) -> None:
    """Show a stream's configuration and state.

    Args:
        name: Name of the stream.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print the server's JSON document.
    """
    found = with_jetstream(server, context, lambda js: js.stream_info(name), stream=name)
    if json:
        show_json(to_wire(found))
    else:
        show_facts(_facts(found))


def _facts(found: StreamInfo) -> dict[str, object]:
    config, state, cluster = found.config, found.state, found.cluster
    return {
        "stream": found.name,
        "description": config.description,
        "subjects": ", ".join(config.subjects or ()),
        "mirror of": config.mirror and config.mirror.name,
        "sources": ", ".join(source.name for source in config.sources or ()),
        "created": moment(found.created),
        "storage": config.storage,
        "replicas": config.num_replicas,
        "retention": config.retention,
        "leader": cluster and cluster.leader,
        "messages": f"{state.messages:,} ({size(state.bytes)})",
        "sequences": f"{state.first_seq:,} to {state.last_seq:,}, {state.num_deleted:,} deleted",
        "times": f"{moment(state.first_ts)} to {moment(state.last_ts)}",
        "of subjects": f"{state.num_subjects:,}",
        "consumers": state.consumer_count,
        "max messages": limit(config.max_msgs),
        "max size": limit(config.max_bytes, size),
        "max age": span(config.max_age),
        "max per subject": limit(config.max_msgs_per_subject),
        "max message": limit(config.max_msg_size, size),
    }


_OTHERS: dict[Callable[..., None], tuple[str, ...]] = {
    add: (
        'jetspark stream add ORDERS --subject "orders.>"',
        "jetspark stream add ORDERS --config orders.json --replicas 3",
    ),
    purge: (
        'jetspark stream purge ORDERS --subject "orders.old.>"',
        "jetspark stream purge ORDERS --keep 1000 --force",
    ),
    rm: ("jetspark stream rm ORDERS", "jetspark stream rm ORDERS --force"),
    backup: ("jetspark stream backup ORDERS backups/orders",),
    restore: (
        "jetspark stream restore backups/orders --server nats://other:4222",
        "jetspark stream restore backups/orders --replicas 3",
    ),
    verify: ("jetspark stream verify backups/orders",),
}
for place, (function, lines) in enumerate(_OTHERS.items(), 2):
    stream.command(function, sort_key=place, help_epilogue=examples(*lines))
