"""`jetspark sub`: shows messages as they arrive."""

from __future__ import annotations

from jetspark.cli.console import show_message
from jetspark.cli.options import DEFAULT, Connection, JsonOption
from jetspark.cli.scopes import NO_SCHEMA, SchemaFlags, codec_of


def sub(
    subject: str,
    /,
    *,
    connection: Connection = DEFAULT,
    decode: str | None = None,
    schema: SchemaFlags = NO_SCHEMA,
    queue: str | None = None,
    count: int | None = None,
    json: JsonOption = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C.

    Args:
        subject: Subject to listen to; * matches one token, > one or more at the end.
        decode: Format of the payloads: avro, protobuf, json or cloudevents. They are shown as JSON.
        queue: Share the messages with the other members of this queue group.
        count: End after this many messages.
        json: One line of JSON for each message.
    """
    codec = codec_of(schema, "decode", decode, connection)
    connection.listen(
        lambda nc: nc.subscribe(subject, queue=queue, max_msgs=count or 0),
        lambda message: show_message(message, as_json=json, codec=codec),
        to=f"on {subject}",
        count=count,
    )
