"""`jetspark request`: sends a request and shows the reply."""

from __future__ import annotations

import jetspark
from jetspark.arguments import check_whole
from jetspark.cli.console import (
    CountOption,
    HeaderOption,
    JsonOption,
    RawOption,
    StdinOption,
    check_form,
    read_headers,
    read_payload,
    show,
)
from jetspark.cli.signals import run_until_signal
from jetspark.cli.stream_session import where
from jetspark.errors import RequestTimeoutError


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
    raw: RawOption = False,
) -> None:
    """Send a request and show the reply.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        timeout: Seconds to wait.
        count: Number of replies to gather; it is an error if fewer arrive in time. 0: all that do.
        json: One line of JSON for each reply.
        raw: The payload of each reply alone, as it came.
    """
    check_whole("--count", count, 0)
    options = where(server, context)
    check_form(as_json=json, raw=raw)
    headers = read_headers(header)
    data = read_payload(payload, stdin=stdin)

    async def ask() -> None:
        async with jetspark.connect(**options) as nc:
            replies = nc.request_many(
                subject, data, timeout=timeout, headers=headers, max_msgs=count
            )
            shown = 0
            async for reply in replies:
                show(reply, as_json=json, raw=raw)
                shown += 1
            if shown < count:
                raise RequestTimeoutError(
                    f"{shown} of {count} replies from {subject!r} within {timeout:g} s."
                )

    run_until_signal(ask)
