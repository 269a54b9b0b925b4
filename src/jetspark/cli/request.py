"""`jetspark request`: sends a request and shows the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.cli import options
from jetspark.cli.console import show_message
from jetspark.errors import RequestTimeoutError
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.full_client import Client


def request(
    subject: str,
    payload: str = "",
    /,
    *,
    connection: options.Connection = options.DEFAULT,
    content: options.Content = options.NO_CONTENT,
    timeout: float = 2.0,
    count: int = 1,
    json: options.JsonOption = False,
    raw: options.RawOption = False,
) -> None:
    """Send a request and show the reply.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        timeout: Seconds to wait.
        count: Replies to wait for; fewer within --timeout is an error. 0: all that arrive.
        json: One line of JSON for each reply.
        raw: Only the payload of each reply, unchanged.
    """
    check_whole("--count", count, 0)
    options.check_form(as_json=json, raw=raw)
    headers, data = content.headers(), content.payload(payload)

    async def ask(nc: Client) -> None:
        replies = nc.request_many(subject, data, timeout=timeout, headers=headers, max_msgs=count)
        received = 0
        async for reply in replies:
            show_message(reply, as_json=json, raw=raw)
            received += 1
        if received < count:
            raise RequestTimeoutError(
                f"{received} of {count} replies from {subject!r} within {timeout:g} s."
            )

    connection.run(ask)
