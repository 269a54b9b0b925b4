"""`jetspark request`: ask and show the answer, for a first try."""

from __future__ import annotations

import asyncio

import jetspark
from jetspark.cli.messages import (
    DEFAULT_SERVER,
    CountOption,
    HeaderOption,
    JsonOption,
    StdinOption,
    read_headers,
    read_payload,
    show,
)


def request(
    subject: str,
    payload: str = "",
    /,
    *,
    server: str = DEFAULT_SERVER,
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
        server: URL of the server, several with commas; user and password may stand in it.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        timeout: Seconds to wait.
        count: Gather so many answers; 0 gathers all that come in time.
        json: One line of JSON for each answer.
    """
    headers = read_headers(header)
    data = read_payload(payload, stdin=stdin)

    async def ask() -> None:
        async with jetspark.connect(server) as nc:
            replies = nc.request_many(
                subject, data, timeout=timeout, headers=headers, max_msgs=count
            )
            async for reply in replies:
                show(reply, as_json=json)

    asyncio.run(ask())
