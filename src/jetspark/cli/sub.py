"""`jetspark sub`: shows messages as they arrive."""

from __future__ import annotations

import jetspark
from jetspark.cli import console
from jetspark.cli.console import EndOption, JsonOption, check_count, run_until_stopped, show
from jetspark.cli.stream_session import where


def sub(
    subject: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    queue: str | None = None,
    count: EndOption = None,
    json: JsonOption = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C.

    Args:
        subject: Subject to listen to; * matches one token, > one or more at the end.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        queue: Share the messages with the other members of this queue group.
        count: End after this many messages.
        json: One line of JSON for each message.
    """

    check_count(count)
    options = where(server, context)
    listening = False

    async def listen() -> None:
        nonlocal listening
        async with (
            jetspark.connect(**options) as nc,
            nc.subscribe(subject, queue=queue, max_msgs=count or 0) as messages,
        ):
            await nc.flush()
            console.err.print(f"Listening on {subject}; Ctrl-C ends.", markup=False)
            listening = True
            async for message in messages:
                show(message, as_json=json)

    run_until_stopped(listen, endless=lambda: listening and not count)
