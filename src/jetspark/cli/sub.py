"""`jetspark sub`: shows messages as they arrive."""

from __future__ import annotations

from jetspark.cli.console import show_message
from jetspark.cli.options import DEFAULT, Connection, JsonOption


def sub(
    subject: str,
    /,
    *,
    connection: Connection = DEFAULT,
    queue: str | None = None,
    count: int | None = None,
    json: JsonOption = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C.

    Args:
        subject: Subject to listen to; * matches one token, > one or more at the end.
        queue: Share the messages with the other members of this queue group.
        count: End after this many messages.
        json: One line of JSON for each message.
    """
    connection.listen(
        lambda nc: nc.subscribe(subject, queue=queue, max_msgs=count or 0),
        lambda message: show_message(message, as_json=json),
        to=f"on {subject}",
        count=count,
    )
