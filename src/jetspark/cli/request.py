"""`jetspark request`: ask and show the answer, for a first try."""

from __future__ import annotations

import asyncio

import jetspark
from jetspark.cli.messages import (
    CountOption,
    HeaderOption,
    JsonOption,
    StdinOption,
    read_headers,
    read_payload,
    show,
)
from jetspark.cli.where import where


def request(
    subject: str,
    payload: str = "",
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    header: HeaderOption = None,
    stdin: StdinOption = False,
    timeout: float = 2.0,
    count: CountOption = 1,
    json: JsonOption = False,
) -> None:
    """Ask and show the answer.

    Args:
        subject: Whom to ask.
        payload: The question; empty without one.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        timeout: Seconds to wait.
        count: Gather so many answers; 0 gathers all that come in time.
        json: One line of JSON for each answer.
    """
    options = where(server, context)
    headers = read_headers(header)
    data = read_payload(payload, stdin=stdin)

    async def ask() -> None:
        async with jetspark.connect(**options) as nc:
            replies = nc.request_many(
                subject, data, timeout=timeout, headers=headers, max_msgs=count
            )
            async for reply in replies:
                show(reply, as_json=json)

    asyncio.run(ask())
