"""`jetspark trace`: shows which way a message takes through servers and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.cli import console
from jetspark.cli.console import HeaderOption, JsonOption, StdinOption, read_headers, read_payload
from jetspark.cli.stream_session import show_json, with_client
from jetspark.tracing.tree import MessageTrace

if TYPE_CHECKING:
    from jetspark.full_client import Client

_ASCII = str.maketrans("├│└─", "||`-")


def trace(
    subject: str,
    payload: str = "",
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    header: HeaderOption = None,
    stdin: StdinOption = False,
    deliver: bool = False,
    timeout: float = 2.0,
    json: JsonOption = False,
) -> int:
    """Show the path of a message: servers, streams, clients, and where it went no further.

    Nobody gets the message, unless --deliver is given. The exit code is 1 when a server that has
    got the message did not report in time.

    Args:
        subject: Subject to publish to.
        payload: The payload; empty by default.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        header: Header as name:value; may be given again, also with the same name.
        stdin: Read the payload from standard input.
        deliver: Deliver the message, too, and store it in streams.
        timeout: Seconds to wait for the servers' reports.
        json: One JSON document: the servers' reports as they came, and which are missing.
    """
    headers = read_headers(header)
    data = read_payload(payload, stdin=stdin)

    async def ask(nc: Client) -> MessageTrace:
        return await nc.trace(subject, data, headers=headers, deliver=deliver, timeout=timeout)

    found = with_client(server, context, ask)
    if json:
        show_json(_document(found))
    else:
        tree = str(found)
        console.say(tree.translate(_ASCII) if console.out.options.ascii_only else tree)
    return 0 if found.complete else 1


def _document(trace: MessageTrace) -> dict[str, object]:
    return {
        "subject": trace.subject,
        "delivered": trace.delivered,
        "complete": trace.complete,
        "no_interest": trace.no_interest,
        "missing": [
            {"hop": one.hop, "name": one.name, "sender": one.sender} for one in trace.missing
        ],
        "servers": [one.raw for one in trace.servers],
    }
