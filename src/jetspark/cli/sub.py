"""`jetspark sub`: shows messages as they arrive."""

from __future__ import annotations

from jetspark.cli.flags import JsonLines
from jetspark.cli.scopes import NO_SCHEMA, SchemaFlags, codec_of
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.show_message import show_message


def sub(
    subject: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    decode: str | None = None,
    schema: SchemaFlags = NO_SCHEMA,
    queue: str | None = None,
    count: int | None = None,
    json: JsonLines = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C.

    Args:
        subject: Subject to listen to; * matches one token, > one or more at the end.
        decode: Format of the payloads: avro, protobuf, json or cloudevents. They are shown as JSON.
        queue: Share the messages with the other members of this queue group.
        count: End after this many messages.
    """
    codec = codec_of(schema, "decode", decode, connection)
    connection.listen(
        lambda nc: nc.subscribe(subject, queue=queue, max_msgs=count or 0),
        lambda message: show_message(message, as_json=json, codec=codec),
        to=f"on {subject}",
        count=count,
    )
