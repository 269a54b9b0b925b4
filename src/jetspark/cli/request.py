"""`jetspark request`: sends a request and shows the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.cli.content_flags import NO_CONTENT, ContentFlags
from jetspark.cli.flags import JsonLines, RawOption, check_json_or_raw
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.show_message import show_message
from jetspark.errors import RequestTimeoutError
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.full_client import Client


def request(
    subject: str,
    payload: str = "",
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    content: ContentFlags = NO_CONTENT,
    timeout: float = 2.0,
    count: int = 1,
    json: JsonLines = False,
    raw: RawOption = False,
) -> None:
    """Send a request and show the reply.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        timeout: Seconds to wait.
        count: Replies to wait for; fewer within --timeout is an error. 0: all that arrive.
        raw: Only the payload of each reply, unchanged.
    """
    check_whole("--count", count, 0)
    check_json_or_raw(as_json=json, raw=raw)
    headers, data = content.headers(), content.payload(payload)

    async def ask(nc: Client) -> None:
        """Send the request and print each reply as it comes; too few replies are an error."""
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
