"""`jetspark events`: shows JetStream's events as they happen."""

from __future__ import annotations

import json as json_module
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.text import Text

import jetspark.errors as errors
from jetspark.cli import console
from jetspark.cli.flags import JsonLines, Repeated
from jetspark.cli.formatting import format_count
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing, with_name_hints
from jetspark.documents.document import field_names, to_wire
from jetspark.documents.events import ApiAuditEvent, Caller, Event
from jetspark.documents.streams import StreamState

if TYPE_CHECKING:
    from jetspark.full_client import Client, JetStream
    from jetspark.jetstream.events import Events

_FIELDS_PRINTED_FIRST = frozenset({"type", "id", "timestamp", "stream", "consumer"})
_FIELDS_TOO_LONG = frozenset({"request", "response"})  # whole pages of an API audit


def events(
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    stream: str | None = None,
    consumer: str | None = None,
    kind: Repeated = None,
    count: int | None = None,
    json: JsonLines = False,
) -> None:
    """Show advisories, metrics and API audits as they arrive, until Ctrl-C.

    A user of the system account sees events of servers, too.

    Args:
        stream: Only events of this stream, which must exist.
        consumer: Only events of this consumer, which must exist.
        kind: Only events of this kind, such as max_deliver; may be given again.
        count: End after this many events.
    """

    def show(event: Event) -> None:
        """Print one event, as JSON or as a line for people."""
        if json:
            console.say_json(to_wire(event))
        else:
            console.say(_format_event(event))

    @asynccontextmanager
    async def open_events(nc: Client) -> AsyncIterator[Events]:
        """Check the names, then subscribe to the events."""
        await _check_names(nc, stream, consumer)  # first, since its requests are events, too
        async with nc.jetstream().events(kinds=kind, stream=stream, consumer=consumer) as events:
            yield events

    connection.listen(open_events, show, to="for events", count=count)


async def _check_names(nc: Client, stream: str | None, consumer: str | None) -> None:
    """Raise an error, with a hint, for a stream or consumer that does not exist.

    None means any. Nothing is checked if this user may not ask, or without JetStream.
    """

    async def check(js: JetStream) -> None:
        """Ask for the consumer of the stream, for the stream, or for a consumer of any stream."""
        if stream is not None and consumer is not None:
            from jetspark.jetstream.consumers import consumer_info

            await consumer_info(js.api, stream, consumer)
        elif stream is not None:
            await js.stream(stream).info()
        elif consumer is not None:
            names = [
                n async for s in js.stream_names() async for n in js.stream(s).consumer_names()
            ]
            if consumer not in names:
                raise errors.ConfigError(
                    describe_missing(f'Consumer "{consumer}"', nc, consumer, names)
                )

    no_jetstream = errors.JetStreamNotEnabledError, errors.JetStreamNotEnabledForAccountError
    with suppress(errors.PermissionsError, *no_jetstream):
        await with_name_hints(nc, check, [stream or ""], consumer or "")


def _format_event(event: Event) -> Text:
    """Format an event as a line: local time, kind, stream > consumer, then name=value pairs."""
    time = event.timestamp.astimezone().strftime("%H:%M:%S.%f")[:-3] if event.timestamp else ""
    names = [getattr(event, attribute, None) for attribute in ("stream", "consumer")]
    return Text.assemble(
        (f"{time:12}  ", "dim"),
        (f"{event.kind}  ", "bold"),
        " > ".join(filter(None, names)),
        ("".join(f"  {name}={value}" for name, value in _other_fields(event)), "dim"),
    )


def _other_fields(event: Event) -> Iterator[tuple[str, str]]:
    """The name and the text of each field that stands at the end of an event's line.

    Fields that are empty, too long, or printed first are left out.
    """
    for name in field_names(type(event)):
        value = getattr(event, name)
        if value not in (None, []) and name not in _FIELDS_PRINTED_FIRST | _FIELDS_TOO_LONG:
            yield name, _format_value(value)
    for name, value in event.extra.items():  # fields that jetspark does not know
        yield name, _format_value(value)
    if isinstance(event, ApiAuditEvent) and event.error is not None:
        yield "error", event.error.description


def _format_value(value: Any) -> str:
    """Format the value of an event's field as a short text."""
    if isinstance(value, Caller):
        return f"{value.user or value.name or value.id}@{value.acc}"
    if isinstance(value, StreamState):
        return format_count(value.messages, "message")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, list):
        return ",".join(str(getattr(item, "name", item)) for item in value)
    return json_module.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
