# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: events."""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.loop_thread import LoopThread
from jetspark.blocking.taking import drain
from jetspark.blocking.worker import Worker
from jetspark.documents.events import Event
from jetspark.jetstream.events import Events as AsyncEvents
from jetspark.timestamps import Seconds


class GeneratedEvents:
    """The calls of `Events` that hand on to its asyncio twin."""

    _thread: LoopThread
    _client: CallerSide
    _worker: Worker
    _inner: AsyncEvents

    @property
    def subjects(self) -> list[str]:
        """The subjects subscribed to."""
        return self._inner.subjects

    @property
    def active(self) -> bool:
        """Whether more events may arrive."""
        return self._inner.active

    @property
    def pending(self) -> int:
        """Messages received and not taken yet."""
        return self._inner.pending

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    def next(self, timeout: Seconds | None = None) -> Event:
        """The next event; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, ConnectionClosedError when no more will come, PermissionsError
        when the server refused a subject, and ConfigError when there is a callback.
        """
        return self._thread.run(self._inner.next, timeout)

    def close(self) -> None:
        """Unsubscribe; events received can still be read. May be called again."""
        raise NotImplementedError

    def drain(self, timeout: Seconds | None = None) -> None:
        """Take the events that the server has sent so far, then `close`.

        Returns when they have arrived; with a callback, when it was called for the last one.
        `timeout` (seconds) limits the wait for the server (default: request_timeout) and, if
        given, that for the callback. Raises RequestTimeoutError, ConnectionClosedError; it has
        ended in any case.
        """
        drain(self._client, self._worker, self._inner.drain, timeout)

    def __repr__(self) -> str:
        return repr(self._inner)
