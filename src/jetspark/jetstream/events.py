"""Advisories, metrics and API audits: the events that JetStream publishes.

They are core NATS messages: earlier ones, and those published while the connection is down, are
missed. The server filters by kind, stream and consumer where subjects allow it; API audits have the
stream in their payload and are filtered here. Beyond the pending limits events are dropped and
reported, as for a Subscription. A message that is not an event is reported and left out. The
iterator raises when the connection was lost for good or the server refused a subject.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Self, TypeAlias

from jetspark.client.callbacks import check_no_callback
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT, CoreClient
from jetspark.client.subscription import Listener, QueueReader, weakly
from jetspark.documents.events import (
    DEFAULT_EVENT_PREFIX,
    Event,
    event_kinds,
    event_subjects,
    parse_event,
)
from jetspark.errors import ConnectionClosedError, JetsparkError, JetStreamError
from jetspark.jetstream.api import Api

EventCallback: TypeAlias = Callable[[Event], Awaitable[None] | None]


class Events(QueueReader[Event]):
    """The result of `JetStream.events`: iterate it, or give it a callback.

    Example:
        ```python
        async with js.events(kinds=["stream_action"]) as events:
            await js.create_stream(name="INVOICES", storage="memory")
            async for event in events:
                print(event.stream, event.action)  # INVOICES create
        ```
    """

    _client: CoreClient

    def __init__(
        self,
        client: CoreClient,
        subjects: list[str],
        is_wanted: Callable[[Event], bool],
        *,
        callback: EventCallback | None,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
        parse: Callable[[bytes], Event] = parse_event,
    ) -> None:
        super().__init__(
            client,
            callback,
            ", ".join(subjects),
            pending_msgs_limit,
            pending_bytes_limit,
            hooked=False,
        )
        incoming = self._incoming
        self._parse = parse
        self._subjects = subjects
        self._is_wanted = is_wanted
        on_end = weakly(self._end)
        self._listeners = listeners = [
            client.listen(subject, incoming.on_frame, on_run=incoming.on_run, on_end=on_end)
            for subject in subjects
        ]
        self._begin_reading("jetspark-events", partial(_unsubscribe, listeners))

    # -- state ---------------------------------------------------------------------------------

    @property
    def subjects(self) -> list[str]:
        """The subjects subscribed to."""
        return list(self._subjects)

    @property
    def pending(self) -> int:
        """Messages received and not taken yet."""
        return len(self._frames)

    # -- taking events -------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        check_no_callback(self._callback)
        return self

    @property
    def source(self) -> str:
        return "events"

    def _take(self) -> Event | None:
        frame = self._frames.popleft()
        self._incoming.pending_bytes -= len(frame.payload)
        try:
            event = self._parse(frame.payload)
        except JetStreamError as error:
            subject = frame.subject.decode("utf-8", "replace")
            self._client.report(JetStreamError(f"{error} It came on {subject!r}."))
            return None
        return event if self._is_wanted(event) else None

    async def _begin_block(self) -> None:
        """Wait until the server has the subscriptions; without a link it gets them with the next.

        Raises RequestTimeoutError, ConnectionClosedError.
        """
        with suppress(ConnectionClosedError):  # the link was lost, which `require_open` tells apart
            if self._client.is_connected:
                await self._client.rtt()
        self._client.require_open()

    # -- ending --------------------------------------------------------------------------------

    def close(self) -> None:
        """Unsubscribe; events received can still be read. May be called again."""
        self._end(None)

    def _end(self, error: JetsparkError | None) -> None:
        _unsubscribe(self._listeners)
        self._end_reading(error)

    async def _stop_deliveries(self, timeout: float | None) -> None:
        await self._client.rtt(timeout)

    def _leave(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Events({', '.join(self._subjects)}, pending={self.pending})"


def _unsubscribe(listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        listener.close()


class EventCalls:
    """The call of JetStream for events."""

    _api: Api

    def events(
        self,
        *,
        kinds: str | Iterable[str] | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        callback: EventCallback | None = None,
        prefix: str = DEFAULT_EVENT_PREFIX,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> Events:
        """Advisories, metrics and API audits from now on: iterate the result, or give a callback.

        Entering its block waits until the server has the subscription.

        `kinds`: EventKind values or their words; None for all, even unknown ones. `stream`,
        `consumer`: only events about these. A context with a domain gets only that domain's events.
        `prefix`: where the events of another account are imported to. A user of the system account
        also gets the events of servers.

        Raises ConfigError for an unknown kind, or for a kind without a stream or consumer when one
        is given; BadNameError, BadSubjectError, ConnectionClosedError.

        Example:
            ```python
            async with js.events(kinds="consumer_action", stream="ORDERS") as events:
                await js.stream("ORDERS").create_consumer(name="worker")
                event = await events.next(timeout=5)
                print(event.kind, event.consumer)  # consumer_action worker
            ```
        """
        selected_kinds = None if kinds is None else event_kinds(kinds)
        domain = self._api.domain

        def is_wanted(event: Event) -> bool:
            return (
                (selected_kinds is None or event.kind in selected_kinds)
                and (domain is None or event.domain == domain)
                and _names(event, "stream", stream)
                and _names(event, "consumer", consumer)
            )

        return Events(
            self._api.client,
            event_subjects(selected_kinds, stream, consumer, prefix=prefix),
            is_wanted,
            callback=callback,
            pending_msgs_limit=pending_msgs_limit,
            pending_bytes_limit=pending_bytes_limit,
        )


def _names(event: Event, field: str, name: str | None) -> bool:
    """Whether an event is about this name; one of an unknown type was filtered by its subject."""
    return name is None or getattr(event, field, name) == name
