# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: event calls."""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.events import EventCallback, Events
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.documents.events import DEFAULT_EVENT_PREFIX
from jetspark.full_client import JetStream as AsyncJetStream


class GeneratedEventCalls:
    """The calls of `EventCalls` that hand on to its asyncio twin."""

    _caller: CallerSide
    _inner: AsyncJetStream

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

        `kinds`: EventKind values or their words, None for all, unknown ones too. `stream`,
        `consumer`: only events about these. A context with a domain gets that domain's events
        only. `prefix`: where the events of another account are imported to. A user of the system
        account gets the events of servers too.

        Raises ConfigError for an unknown kind, or one without a stream or consumer when one is
        given; BadNameError, BadSubjectError, ConnectionClosedError.
        """
        return Events(
            self._caller,
            lambda forward: self._inner.events(
                kinds=kinds,
                stream=stream,
                consumer=consumer,
                callback=forward,
                prefix=prefix,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )
