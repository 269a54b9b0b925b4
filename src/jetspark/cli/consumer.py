"""`jetspark consumer`: shows a stream's consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from jetspark.cli.app import COMMANDS, examples
from jetspark.cli.stream_session import (
    JsonOption,
    limit,
    moment,
    show_facts,
    show_json,
    show_table,
    span,
    with_jetstream,
)
from jetspark.documents.document import to_wire

if TYPE_CHECKING:
    from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo
    from jetspark.full_client import JetStream

consumer = App(
    name="consumer",
    help=COMMANDS["consumer"].line,
    help_epilogue=examples(
        "jetspark consumer ls ORDERS", "jetspark consumer info ORDERS worker --json"
    ),
)


@consumer.command(sort_key=0, help_epilogue=examples("jetspark consumer ls ORDERS"))
def ls(
    stream: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    json: JsonOption = False,
) -> None:
    """List the consumers of a stream.

    Args:
        stream: Name of the stream.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print one JSON array with the server's document of each consumer.
    """

    async def ask(js: JetStream) -> list[ConsumerInfo]:
        return sorted(await js.consumers(stream).all(), key=lambda info: info.name)

    infos = with_jetstream(server, context, ask, stream=stream)
    if json:
        show_json([to_wire(info) for info in infos])
        return
    headings = ("consumer", "kind", "delivered", "acknowledged", "unacked", "pending", "waiting")
    show_table(*headings, rows=map(_row, infos))


def _row(info: ConsumerInfo) -> tuple[object, ...]:
    return (
        info.name,
        _kind(info.config),
        f"{info.delivered.stream_seq:,}",
        f"{info.ack_floor.stream_seq:,}",
        f"{info.num_ack_pending:,}",
        f"{info.num_pending:,}",
        info.num_waiting,
    )


def _kind(config: ConsumerConfig) -> str:
    kind = "push" if config.deliver_subject else "pull"
    return kind if config.durable_name else f"{kind}, ephemeral"


@consumer.command(sort_key=1, help_epilogue=examples("jetspark consumer info ORDERS worker --json"))
def info(
    stream: str,
    name: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    json: JsonOption = False,
) -> None:
    """Show a consumer's configuration and position.

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print the server's JSON document.
    """
    found = with_jetstream(
        server, context, lambda js: js.consumer_info(stream, name), stream=stream, consumer=name
    )
    if json:
        show_json(to_wire(found))
    else:
        show_facts(_facts(found))


def _facts(found: ConsumerInfo) -> dict[str, object]:
    config = found.config
    filters = config.filter_subjects or [config.filter_subject or ">"]
    return {
        "consumer": found.name,
        "stream": found.stream_name,
        "description": config.description,
        "kind": _kind(config),
        "delivers to": config.deliver_subject,
        "queue group": config.deliver_group,
        "subjects": ", ".join(filters),
        "created": moment(found.created),
        "leader": found.cluster and found.cluster.leader,
        "begins at": config.deliver_policy,
        "acks": f"{config.ack_policy}, within {span(config.ack_wait)}",
        "max deliveries": limit(config.max_deliver),
        "delivered": f"sequence {found.delivered.stream_seq:,} of the stream",
        "acknowledged": f"up to sequence {found.ack_floor.stream_seq:,}",
        "unacknowledged": f"{found.num_ack_pending:,}, {found.num_redelivered:,} redelivered",
        "to be delivered": f"{found.num_pending:,}",
        "waiting pulls": found.num_waiting,
        "paused until": config.pause_until and moment(config.pause_until),
        "priority groups": ", ".join(config.priority_groups or ()),
    }
