"""`jetspark events`: shows JetStream's events as they happen."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

import jetspark
from jetspark.cli import console
from jetspark.cli.console import EndOption, JsonOption, check_count, run_until_stopped
from jetspark.cli.stream_session import where
from jetspark.documents.document import field_names, to_wire
from jetspark.documents.events import ApiAuditEvent, Caller, Event
from jetspark.documents.streams import StreamState

_SAID_BEFORE = frozenset({"type", "id", "timestamp", "stream", "consumer"})
_TOO_LONG = frozenset({"request", "response"})  # of an API audit: whole pages


def events(
    *,
    server: str | None = None,
    context: str | None = None,
    stream: str | None = None,
    consumer: str | None = None,
    kind: Annotated[list[str] | None, Parameter(negative="")] = None,
    count: EndOption = None,
    json: JsonOption = False,
) -> None:
    """Show advisories, metrics and API audits as they arrive, until Ctrl-C.

    Args:
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
            A user of the system account sees events of servers, too.
        context: A context of the nats command, in place of --server.
        stream: Only events of this stream.
        consumer: Only events of this consumer.
        kind: Only events of this kind, such as max_deliver; may be given again.
        count: End after this many events.
        json: Print each event as one line of JSON.
    """
    options = where(server, context)
    check_count(count)

    listening = False

    async def listen() -> None:
        nonlocal listening
        async with (
            jetspark.connect(**options) as nc,
            nc.jetstream().events(kinds=kind, stream=stream, consumer=consumer) as found,
        ):
            await nc.flush()
            console.err.print("Listening for events; Ctrl-C ends.", markup=False)
            listening = True
            left = count or 0
            async for event in found:
                if json:
                    console.say_json(to_wire(event))
                else:
                    console.say(_line(event))
                left -= 1
                if left == 0:
                    return

    run_until_stopped(listen, endless=lambda: listening and not count)


def _line(event: Event) -> Text:
    """Local time, kind, stream and consumer, and the rest as name=value."""
    time = event.timestamp.astimezone().strftime("%H:%M:%S.%f")[:-3] if event.timestamp else ""
    named = [getattr(event, what, None) for what in ("stream", "consumer")]
    return Text.assemble(
        (f"{time:12}  ", "dim"),
        (f"{event.kind}  ", "bold"),
        " > ".join(name for name in named if name),
        ("".join(f"  {name}={value}" for name, value in _details(event)), "dim"),
    )


def _details(event: Event) -> Iterator[tuple[str, str]]:
    for name in field_names(type(event)):
        value = getattr(event, name)
        if value not in (None, []) and name not in _SAID_BEFORE | _TOO_LONG:
            yield name, _shown(value)
    for name, value in event.extra.items():
        yield name, _shown(value)
    if isinstance(event, ApiAuditEvent) and event.error is not None:
        yield "error", event.error.description


def _shown(value: Any) -> str:
    if isinstance(value, Caller):
        return f"{value.user or value.name or value.id}@{value.acc}"
    if isinstance(value, StreamState):
        return console.counted(value.messages, "message")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, list):
        return ",".join(str(getattr(one, "name", one)) for one in value)
    return json_module.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
