"""Watching JetStream's advisories, metrics and API audits, without async.

Contract: that of `jetspark.jetstream.events.events`. A callback runs in a thread of its own, one
event after the other, so it may block and use the blocking client; one that runs when the
connection is closed is left to finish. `drain` called in the callback itself does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Self, TypeAlias

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.taking import drain
from jetspark.blocking.worker import Worker, check_callback
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.events.documents import Event
from jetspark.jetstream.events.events import Events as AsyncEvents
from jetspark.jetstream.events.kinds import DEFAULT_EVENT_PREFIX
from jetspark.timestamps import Seconds

EventCallback: TypeAlias = Callable[[Event], None]


class Events(Leaving):
    """What `JetStream.events` returns: iterate it, or give it a callback."""

    def __init__(self, client: CallerSide, inner: AsyncEvents, worker: Worker) -> None:
        self._client = client
        self._thread = client.thread
        self._inner = inner
        self._worker = worker

    @property
    def subjects(self) -> list[str]:
        """What is subscribed to."""
        return self._inner.subjects

    @property
    def active(self) -> bool:
        """Whether more events may arrive."""
        return self._inner.active

    @property
    def pending(self) -> int:
        """Messages received and not looked at yet."""
        return self._inner.pending

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    def __iter__(self) -> Self:
        self._inner.__aiter__()  # refuses events that have a callback
        return self

    def __next__(self) -> Event:
        try:
            return self._thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def next(self, timeout: Seconds | None = None) -> Event:
        """The next event; waits `timeout` seconds, or for ever.

        Raises RequestTimeoutError, and ConnectionClosedError when no more will come.
        """
        return self._thread.run(self._inner.next, timeout)

    def close(self) -> None:
        """Listen no more; events that are here can still be read. Any number of times."""
        if not self._thread.is_over:
            self._thread.call(self._inner.close)

    def drain(self, timeout: Seconds | None = None) -> None:
        """Take what the server has sent until now, then `close`.

        Returns when the events are here; with a callback, when it was called for the last one.
        `timeout` in seconds bounds the wait for the server (request_timeout by default) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        drain(self._client, self._worker, self._inner.drain, timeout)

    def _leave(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)


class EventCalls:
    """The part of JetStream that is about events."""

    _caller: CallerSide
    _thread: LoopThread
    _inner: AsyncJetStream

    def events(
        self,
        *,
        kinds: Iterable[str] | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        callback: EventCallback | None = None,
        prefix: str = DEFAULT_EVENT_PREFIX,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> Events:
        """Advisories, metrics and API audits from now on: iterate the result, or give a callback.

        `kinds`: EventKind or their words, None for all, unknown ones too. `stream`, `consumer`:
        only what is about these. A context with a domain gets that domain's events only. `prefix`:
        where the events of another account were imported to. Connected as a user of the system
        account, it gives the events of servers too.

        Raises ConfigError for an unknown kind, or one that is about no stream or consumer when
        one is named; BadNameError, BadSubjectError, ConnectionClosedError.
        """
        check_callback(callback)

        worker = Worker("jetspark-events", self._caller.inner)

        def listen() -> AsyncEvents:
            inner = self._inner.events(
                kinds=kinds,
                stream=stream,
                consumer=consumer,
                callback=None
                if callback is None
                else lambda event: worker.run(self._thread, partial(callback, event)),
                prefix=prefix,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            )
            if inner._task is not None:
                inner._task.add_done_callback(lambda _: worker.stop())
            return inner

        return Events(self._caller, self._thread.call(listen), worker)
