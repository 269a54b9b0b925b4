"""`jetspark trace`: shows the path of a message through servers and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.cli import console
from jetspark.cli.content_flags import NO_CONTENT, ContentFlags
from jetspark.cli.flags import JsonFlag
from jetspark.cli.listings import show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.tracing.tree import MessageTrace

if TYPE_CHECKING:
    from jetspark.full_client import Client

_ASCII = str.maketrans("├│└─", "||`-")


def trace(
    subject: str,
    payload: str = "",
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    content: ContentFlags = NO_CONTENT,
    deliver: bool = False,
    timeout: float = 2.0,
    json: JsonFlag = False,
) -> int:
    """Show the path of a message: servers, streams, clients, and where it stopped.

    Without --deliver the message is not delivered. The exit code is 1 when a server that got the
    message did not report in time.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        deliver: Also deliver the message, and store it in streams.
        timeout: Seconds to wait for the servers' reports.
        json: One JSON document: the servers' reports, and which ones are missing.
    """
    headers, data = content.headers(), content.payload(payload)

    async def ask(nc: Client) -> MessageTrace:
        return await nc.trace(subject, data, headers=headers, deliver=deliver, timeout=timeout)

    message_trace = connection.run(ask)
    tree = str(message_trace)
    if console.out.options.ascii_only:
        tree = tree.translate(_ASCII)
    show_result(tree, _make_document(message_trace), as_json=json)
    return 0 if message_trace.complete else 1


def _make_document(trace: MessageTrace) -> dict[str, object]:
    """Describe the path of a message for --json: the servers' reports, and which are missing."""
    return {
        "subject": trace.subject,
        "delivered": trace.delivered,
        "complete": trace.complete,
        "no_interest": trace.no_interest,
        "missing": [
            {"hop": hop.hop, "name": hop.name, "sender": hop.sender} for hop in trace.missing
        ],
        "servers": [hop.raw for hop in trace.servers],
    }
