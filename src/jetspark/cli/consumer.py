"""`jetspark consumer`: shows a stream's consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jetspark.cli.app import command, group
from jetspark.cli.flags import JsonOption
from jetspark.cli.formatting import format_duration, format_limit, format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.documents.document import to_wire

if TYPE_CHECKING:
    from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo

consumer = group(
    "consumer", "jetspark consumer ls ORDERS", "jetspark consumer info ORDERS worker --json"
)
_COLUMNS: dict[str, Callable[[ConsumerInfo], object]] = {
    "consumer": lambda info: info.name,
    "kind": lambda info: _describe_kind(info.config),
    "delivered": lambda info: f"{info.delivered.stream_seq:,}",
    "acknowledged": lambda info: f"{info.ack_floor.stream_seq:,}",
    "unacked": lambda info: f"{info.num_ack_pending:,}",
    "pending": lambda info: f"{info.num_pending:,}",
    "waiting": lambda info: info.num_waiting,
}


@command(consumer, "jetspark consumer ls ORDERS")
def ls(
    stream: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """List the consumers of a stream.

    Args:
        stream: Name of the stream.
    """

    infos = connection.jetstream(lambda js: js.stream(stream).consumers().all(), stream=stream)
    show_list(sorted(infos, key=lambda info: info.name), _COLUMNS, as_json=json)


def _describe_kind(config: ConsumerConfig) -> str:
    """The kind of a consumer as a text: "pull" or "push", with ", ephemeral" if it is that."""
    kind = "push" if config.deliver_subject else "pull"
    return kind if config.durable_name else f"{kind}, ephemeral"


@command(consumer, "jetspark consumer info ORDERS worker --json")
def info(
    stream: str, name: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Show a consumer's configuration and position.

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
    """
    from jetspark.jetstream.consumers import consumer_info

    info = connection.jetstream(
        lambda js: consumer_info(js.api, stream, name), stream=stream, consumer=name
    )
    show_result(_describe_consumer(info), to_wire(info), as_json=json)


def _describe_consumer(info: ConsumerInfo) -> dict[str, object]:
    """The configuration and position of a consumer as `consumer info` prints them, by label."""
    config = info.config
    filters = config.filter_subjects or [config.filter_subject or ">"]
    return {
        "consumer": info.name,
        "stream": info.stream_name,
        "description": config.description,
        "kind": _describe_kind(config),
        "delivers to": config.deliver_subject,
        "queue group": config.deliver_group,
        "subjects": ", ".join(filters),
        "created": format_time(info.created),
        "leader": info.cluster and info.cluster.leader,
        "begins at": config.deliver_policy,
        "acks": f"{config.ack_policy}, within {format_duration(config.ack_wait)}",
        "max deliveries": format_limit(config.max_deliver),
        "delivered": f"sequence {info.delivered.stream_seq:,} of the stream",
        "acknowledged": f"up to sequence {info.ack_floor.stream_seq:,}",
        "unacknowledged": f"{info.num_ack_pending:,}, {info.num_redelivered:,} redelivered",
        "to be delivered": f"{info.num_pending:,}",
        "waiting pulls": info.num_waiting,
        "paused until": config.pause_until and format_time(config.pause_until),
        "priority groups": ", ".join(config.priority_groups or ()),
    }
