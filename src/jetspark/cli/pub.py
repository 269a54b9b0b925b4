"""`jetspark pub`: publishes a message, for subscribers or into a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import jetspark
from jetspark.arguments import check_whole
from jetspark.cli import console
from jetspark.cli.console import (
    CountOption,
    HeaderOption,
    StdinOption,
    read_headers,
    read_payload,
    stdin_waits,
)
from jetspark.cli.signals import run_until_signal
from jetspark.cli.stream_session import where
from jetspark.errors import ConfigError, JetsparkError

if TYPE_CHECKING:
    from jetspark.wire.headers import Headers

_LAST_FLUSH = 2.0  # seconds, after Ctrl-C
_RETRY_FOR = 5.0  # seconds for a stream to get a leader


def pub(
    subject: str,
    payload: str | None = None,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    header: HeaderOption = None,
    stdin: StdinOption = False,
    reply: str | None = None,
    count: CountOption = 1,
    jetstream: Annotated[bool, Parameter(name=("--jetstream",), negative=())] = False,
) -> None:
    """Publish a message; returns when the server has received it, with or without subscribers.

    With --jetstream it returns when a stream has stored it, and fails when none does.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        reply: Reply subject.
        count: Publish it this many times.
        jetstream: Wait for the stream's acknowledgement of each message, and say how many are
            stored. Without it nothing shows that a stream refused or dropped a message.
    """
    if jetstream and reply is not None:
        raise ConfigError("--reply cannot be used with --jetstream: the stream's ack goes there.")
    options = where(server, context)
    headers = read_headers(header)
    check_whole("--count", count)
    if payload is None and not stdin and stdin_waits():
        raise ConfigError(
            'No payload is given, and standard input has one: add --stdin, or "" for none.'
        )
    data = read_payload(payload or "", stdin=stdin)

    size = console.counted(len(data), "byte")
    if jetstream:
        run_until_signal(lambda: _store(options, subject, data, headers, count, size))
        return

    async def publish() -> None:
        import asyncio

        async with jetspark.connect(**options) as nc:
            sent = 0
            try:
                while sent < count:
                    await nc.publish(subject, data, reply=reply, headers=headers)
                    sent += 1
                await nc.flush()
            except asyncio.CancelledError as stopped:
                most = ""
                try:
                    await nc.flush(_LAST_FLUSH)
                except JetsparkError:
                    most = "at most "  # the server may not have all of them
                stopped.add_note(f"Stopped: {most}{sent:,} of {count:,} published to {subject}.")
                raise
            # The server reports a refused subject before it answers the flush.
            if isinstance(nc.last_error, jetspark.PermissionsError):
                raise nc.last_error

    run_until_signal(publish)
    console.say(f"{count:,} published to {subject}, {size} each.")


async def _store(
    options: dict[str, Any],
    subject: str,
    data: bytes,
    headers: Headers | None,
    count: int,
    size: str,
) -> None:
    import asyncio

    async with jetspark.connect(**options) as nc:
        publisher = nc.jetstream().publisher(retry_for=_RETRY_FOR)
        try:
            async with publisher:
                for _ in range(count):
                    await publisher.send(subject, data, headers=headers)
        except asyncio.CancelledError as stopped:
            stopped.add_note(f"Stopped: {publisher.acked:,} of {count:,} are in the stream.")
            raise
    known = publisher.duplicates
    again = f", {known:,} not again: the stream has its id" if known else ""
    console.say(f"{publisher.acked - known:,} stored from {subject}, {size} each{again}.")
