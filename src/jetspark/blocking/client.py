"""Core NATS without async: publish, subscribe, request, from any thread.

Contract
- The same names, arguments, results and errors as the asyncio client's, without `await`. All
  clients of a process share one event-loop thread (`loop_thread`). Clients are thread-safe.
- A publish is checked in the calling thread and put into a buffer, which is handed to the loop as a
  whole; it blocks while the buffer is full. Calls that need a reply block until it arrives.
- Callbacks run in threads of their own and may use the client.
- A forked child has to connect anew: there all calls but `close` raise ConnectionClosedError.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Self

from jetspark.arguments import spelt
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.events import ErrorCallback, EventCallback
from jetspark.blocking.generated.client import GeneratedClient
from jetspark.blocking.leaving import Leaving
from jetspark.blocking.loop_thread import current
from jetspark.blocking.messages import Message
from jetspark.blocking.publish_buffer import PublishBuffer
from jetspark.blocking.worker import Worker, check_callback, in_callback_of
from jetspark.client.client import DRAIN_TIMEOUT, Statistics, in_its_own_callback
from jetspark.client.client import Client as AsyncClient
from jetspark.client.hooks import HookRunner, Hooks
from jetspark.client.messages import Sendable, parts_of
from jetspark.connection.events import Closed, ConnectionEvent, ConnectionStatus
from jetspark.connection.transports import Dial
from jetspark.errors import JetsparkError, RequestTimeoutError
from jetspark.timestamps import Seconds, in_seconds

EXIT_FLUSH_TIMEOUT = 1.0
"""Seconds to wait at interpreter exit for the server to confirm what was published."""


class Client(GeneratedClient, Leaving):
    """One connection to a NATS deployment, thread-safe. Create it, then `connect`."""

    def _make(
        self,
        hooks: Hooks | None,
        event_callback: EventCallback | None,
        error_callback: ErrorCallback | None,
        dial: Dial | None,
    ) -> None:
        for callback in (event_callback, error_callback):
            check_callback(callback)
        self._thread = current()
        self._notices = Worker("jetspark-notices")
        self._event_callback = event_callback
        self._error_callback = error_callback
        self._thread.call(self._make_in_loop, dial)
        if hooks is not None:
            self._hook(hooks)

    def _hook(self, hooks: Hooks) -> None:
        """Call them where messages are sent, and in the callers' threads that get messages."""

        def runner(*, quiet: bool) -> HookRunner:
            return HookRunner(hooks, self._caller.report, self.options.api_prefix, quiet=quiet)

        self._inner.hooks, self._caller.hooks = in_loop, here = (
            runner(quiet=True),
            runner(quiet=False),
        )
        self._inner.publishing.hook(in_loop)
        self._caller.publishing.hook(here)
        self._event_callback = here.event_callback(self._event_callback)

    def _make_in_loop(self, dial: Dial | None) -> None:
        self._inner = AsyncClient(
            self.options, event_callback=self._on_event, error_callback=self._on_error, dial=dial
        )
        link, limit = self._inner.publishing.link, self.options.pending_size
        self._buffer = PublishBuffer(self._thread, link, limit)
        self._caller = CallerSide(self._thread, self._inner, self._buffer)
        self._publishing = self._caller.publishing

    def _on_event(self, event: ConnectionEvent) -> None:
        self._buffer.link_changed()
        if self._event_callback is not None:
            self._notices.post(partial(self._event_callback, event))
        if isinstance(event, Closed):
            self._thread.open.discard(self._end)
            self._notices.stop()

    def _on_error(self, error: JetsparkError) -> None:
        if self._error_callback is not None:
            self._notices.post(partial(self._error_callback, error))

    @property
    def status(self) -> ConnectionStatus:
        if self._thread.forked:
            return ConnectionStatus.CLOSED
        return self._inner.status

    @property
    def is_connected(self) -> bool:
        return not self._thread.forked and self._inner.is_connected

    @property
    def stats(self) -> Statistics:
        stats = self._inner.stats
        return replace(stats, out_msgs=stats.out_msgs + self._buffer.published)

    # -- prepared messages ---------------------------------------------------------------------

    def publish_msg(self, message: Sendable) -> None:
        subject, data, reply, headers = parts_of(message)
        self.publish(subject, data, reply=reply, headers=headers)

    def request_msg(self, message: Sendable, *, timeout: Seconds | None = None) -> Message:
        subject, data, _, headers = parts_of(message)
        return self.request(subject, data, timeout=timeout, headers=headers)

    # -- lifecycle -----------------------------------------------------------------------------

    def connect(self) -> None:
        self._thread.run(self._connect)

    async def _connect(self) -> None:
        await self._inner.connect()
        self._thread.open.add(self._end)

    @spelt
    def flush(self, timeout: Seconds | None = None) -> None:
        self._thread.run(self._flush, timeout)

    async def _flush(self, timeout: Seconds | None) -> None:
        limit = self.options.request_timeout if timeout is None else in_seconds(timeout)
        try:
            async with asyncio.timeout(limit):
                await self._buffer.emptied()
        except TimeoutError:
            raise RequestTimeoutError(
                f"The publish buffer could not be sent within {limit:g} s."
            ) from None
        await self._inner.flush(timeout)

    @spelt
    def drain(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        if in_callback_of(self._inner):
            self._thread.spawn(lambda: self._drain_alone(timeout))
        else:
            self._thread.run(self._drain, timeout)

    async def _drain(self, timeout: Seconds) -> None:
        self._buffer.give()
        await self._inner.drain(timeout)

    async def _drain_alone(self, timeout: Seconds) -> None:
        try:
            await self._drain(timeout)
        except JetsparkError as error:
            self._inner.report(error)

    @spelt
    def barrier(self, timeout: Seconds = DRAIN_TIMEOUT) -> None:
        if in_callback_of(self._inner):
            raise in_its_own_callback()
        self._thread.run(self._inner.barrier, timeout)

    def close(self) -> None:
        if not self._thread.is_over:  # else it is closed, or another process's
            self._thread.run(self._close)

    async def _close(self) -> None:
        self._buffer.give()
        try:
            await self._inner.close()
        finally:
            self._thread.open.discard(self._end)

    async def _end(self) -> None:
        """At interpreter exit."""
        try:
            # Closing a socket with unread input resets the connection, and the server would lose
            # what it had not read by then.
            await self._flush(EXIT_FLUSH_TIMEOUT)
        except JetsparkError:
            pass
        finally:
            await self._close()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def _finish(self) -> None:
        self.close()
