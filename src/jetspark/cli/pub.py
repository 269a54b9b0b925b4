"""`jetspark pub`: publishes a message, for subscribers or into a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from jetspark.cli import scopes
from jetspark.cli.content_flags import NO_CONTENT, ContentFlags, is_stdin_waiting
from jetspark.cli.flags import JsonOption
from jetspark.cli.formatting import format_count
from jetspark.cli.listings import show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.errors import ConfigError, JetsparkError, PermissionsError
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.wire.headers import HeadersLike

_LAST_FLUSH_TIMEOUT = 2.0  # after Ctrl-C
_STREAMS_TIMEOUT = 1.0  # to find out which streams store a subject
_LEADER_TIMEOUT = 5.0  # within which a stream must have a leader


def pub(
    subject: str,
    payload: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    content: ContentFlags = NO_CONTENT,
    encode: str | None = None,
    schema: scopes.SchemaFlags = scopes.NO_SCHEMA,
    reply: str | None = None,
    count: int = 1,
    jetstream: Annotated[bool, Parameter(name=("--jetstream",), negative=())] = False,
    json: JsonOption = False,
) -> None:
    """Publish a message; returns when the server has received it, with or without subscribers.

    It says so if no stream stores the subject. With --jetstream it returns when a stream has stored
    the message, and fails when none does.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        encode: Encode the payload, a value in JSON, as avro, protobuf, json or cloudevents.
        reply: Reply subject.
        count: Publish it this many times.
        jetstream: Wait for the stream's acknowledgement of each message, and print how many are
            stored. Without it nothing shows that a stream refused or dropped a message.
    """
    if jetstream and reply is not None:
        raise ConfigError("--reply cannot be used with --jetstream: the stream's ack goes there.")
    headers: HeadersLike | None = content.headers()
    check_whole("--count", count)
    if payload is None and not content.stdin and is_stdin_waiting():
        raise ConfigError(
            'No payload is given, and standard input has one: add --stdin, or "" for none.'
        )
    data = content.payload(payload or "")
    if (codec := scopes.codec_of(schema, "encode", encode, connection)) is not None:
        data, headers = codec.encode(data, headers, as_json=True)
    size = format_count(len(data), "byte")
    result: dict[str, object] = {"subject": subject, "bytes": len(data)}

    async def publish(nc: Client) -> str:
        """Publish for subscribers; returns the sentence to print, and adds facts to `result`."""
        message = partial(nc.publish, subject, data, reply=reply, headers=headers)
        await _publish_and_flush(nc, message, count, subject)
        result["published"] = count
        sentence = f"{count:,} published to {subject}, {size} each."
        streams = await _list_streams(nc, subject)
        if streams is None:  # unknown
            return sentence
        result["streams"] = streams
        return sentence if streams else f"{sentence} No stream stores this subject."

    async def store(nc: Client) -> str:
        """Publish into a stream, and wait for its acks; returns the sentence to print."""
        # A stream without a leader cannot store anything until it has elected one.
        publisher = nc.jetstream().publisher(retry_for=_LEADER_TIMEOUT)
        try:
            async with publisher:
                for _ in range(count):
                    await publisher.publish(subject, data, headers=headers)
        except asyncio.CancelledError as stopped:  # by a signal; the note is printed
            stopped.add_note(f"Stopped: {publisher.acked:,} of {count:,} are in the stream.")
            raise
        duplicates = result["duplicates"] = publisher.duplicates
        stored = result["stored"] = publisher.acked - duplicates
        skipped = f", {duplicates:,} not again: the stream has the id" if duplicates else ""
        return f"{stored:,} stored from {subject}, {size} each{skipped}."

    show_result(connection.run(store if jetstream else publish), result, as_json=json)


async def _publish_and_flush(
    nc: Client, publish: Callable[[], Awaitable[object]], count: int, subject: str
) -> None:
    """Publish a message `count` times, and wait until the server has received all.

    `publish`: publishes it once to `subject`. Raises PermissionsError if the server refuses the
    subject. A signal's CancelledError gets a note with the number published, which is printed.
    """
    sent = 0
    try:
        while sent < count:
            await publish()
            sent += 1
        await nc.flush()
    except asyncio.CancelledError as stopped:
        bound = ""
        try:
            await nc.flush(_LAST_FLUSH_TIMEOUT)
        except JetsparkError:  # the server may not have received all
            bound = "at most "
        stopped.add_note(f"Stopped: {bound}{sent:,} of {count:,} published to {subject}.")
        raise
    # The server reports a refused subject before it answers the flush.
    if isinstance(nc.last_error, PermissionsError):
        raise nc.last_error


async def _list_streams(nc: Client, subject: str) -> list[str] | None:
    """The names of the streams that store a subject's messages.

    None: unknown, for example because the user may not ask.
    """
    try:
        return await nc.jetstream(timeout=_STREAMS_TIMEOUT).stream_names(subject).all()
    except JetsparkError:
        return None
