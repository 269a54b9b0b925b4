"""`jetspark pub`: publishes a message."""

from __future__ import annotations

import jetspark
from jetspark.arguments import check_whole
from jetspark.cli import console
from jetspark.cli.messages import (
    CountOption,
    HeaderOption,
    StdinOption,
    read_headers,
    read_payload,
    stdin_waits,
)
from jetspark.cli.signals import run_until_signal
from jetspark.cli.where import where
from jetspark.errors import ConfigError, JetsparkError

_LAST_FLUSH = 2.0  # seconds, after Ctrl-C


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
) -> None:
    """Publish a message; returns when the server has received it, with or without subscribers.

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
    """
    options = where(server, context)
    headers = read_headers(header)
    check_whole("--count", count)
    if payload is None and not stdin and stdin_waits():
        raise ConfigError(
            'No payload is given, and standard input has one: add --stdin, or "" for none.'
        )
    data = read_payload(payload or "", stdin=stdin)

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
    console.say(f"{count:,} published to {subject}, {console.counted(len(data), 'byte')} each.")
