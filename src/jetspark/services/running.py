"""The life of a service on its connection: what it listens to, and how it ends.

Contract
- It ends by `stop`, by the client's drain or close, when the connection is lost for good, and when
  the server refuses one of its subjects later than the call that asked for it.
- `stop` lets no more requests come, takes all that are on their way, and lets the handlers finish.
  What is not finished in time is answered with an error.
- While the link is lost the service lives on: its subscriptions are made again with the next link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Final

from jetspark.client.background import background
from jetspark.client.client import Client
from jetspark.client.frame_reader import closed_on_purpose
from jetspark.client.listener import Listener
from jetspark.client.request_calls import seconds_of
from jetspark.errors import (
    ConnectionClosedError,
    JetsparkError,
    RequestTimeoutError,
    user_error,
)
from jetspark.services.endpoint import FAILED, Endpoint, shown_error
from jetspark.services.protocol import error_headers
from jetspark.timestamps import Seconds
from jetspark.wire.events import MessageFrame

_CLEANING_UP: Final = 1.0
"""Seconds that cancelled handlers have to end."""


class Running:
    """`what`: the service, for a sentence."""

    def __init__(self, client: Client, what: str) -> None:
        self.client = client
        self.what = what
        self.endpoints: list[Endpoint] = []
        self.ended = False
        self._error: JetsparkError | None = None
        self._listeners: list[Listener] = []
        self._confirmed = False
        self._stopped = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._failing: asyncio.Task[None] | None = None
        self._release = client.adopt(self)

    def __repr__(self) -> str:
        return self.what

    # -- listening -------------------------------------------------------------------------------

    async def begin(self, answers: Mapping[str, Callable[[], bytes]]) -> None:
        """Answer on these subjects; returns when the server knows them.

        Without a link at once: the next one begins with them. Raises what the server refuses them
        with, BadSubjectError, RequestTimeoutError, ConnectionClosedError; it has ended then.
        """
        try:
            for subject, answer in answers.items():
                on_frame = partial(self._answer, subject, answer)
                listener = self.client.listen(subject, on_frame, on_end=self._lost)
                self._listeners.append(listener)
            await self._known()
            if self._error is not None:
                raise self._error
        except BaseException:
            self._end(None)
            raise
        self._confirmed = True

    def _answer(self, subject: str, answer: Callable[[], bytes], frame: MessageFrame) -> None:
        """In the read loop."""
        if (reply := frame.reply) is None:
            return
        publishing = self.client.publishing
        try:
            publishing.answer(reply, answer(), None)
        except JetsparkError as error:
            self.client.report(user_error(f"Answering on {subject!r}", error))
            with suppress(JetsparkError):  # reported above
                publishing.answer(reply, b"", error_headers(FAILED, shown_error(error)))

    def add(self, endpoint: Endpoint, *, confirming: bool = False) -> Listener:
        """Listen for its requests. Raises as `Client.listen`.

        `confirming`: somebody awaits `confirm_endpoint`, and gets the error when it is refused.
        """
        options = endpoint.options
        listener = self.client.listen(
            options.subject,
            endpoint.on_frame,
            queue=options.queue_group or None,
            on_run=endpoint.on_run,
            on_end=partial(self._refused, endpoint, confirming),
        )
        self._listeners.append(listener)
        self.endpoints.append(endpoint)
        return listener

    async def confirm_endpoint(self, endpoint: Endpoint, listener: Listener) -> None:
        """Return when the server knows it. Raises as `begin`; the service goes on without it."""
        try:
            await self._known()
            if endpoint.error is not None:
                raise endpoint.error
        except BaseException:
            listener.close()
            self._listeners.remove(listener)
            self.endpoints.remove(endpoint)
            endpoint.give_up()
            endpoint.close()
            raise

    async def _known(self) -> None:
        if self.client.is_connected:
            with suppress(ConnectionClosedError):  # perhaps only the link was lost
                await self.client.rtt()
        self.client.require_open()

    def _refused(self, endpoint: Endpoint, confirming: bool, error: JetsparkError | None) -> None:
        """An endpoint gets no more."""
        if isinstance(error, ConnectionClosedError) or not confirming:
            self._lost(error)
        elif endpoint.error is None:
            endpoint.error = error

    def _lost(self, error: JetsparkError | None) -> None:
        """One of the subjects is gone: so is the service."""
        if self.ended or self._error is not None:
            return
        if isinstance(error, ConnectionClosedError):
            self._error = None if closed_on_purpose(error) else error
            for endpoint in self.endpoints:
                endpoint.frames.clear()
            self._end(self._error)
        else:
            self._error = error
            if self._confirmed:
                self._failing = background(
                    self.stop(None), f"Stopping {self.what}", self.client.report
                )

    # -- ending ----------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Return when it has ended by `stop`, or raise what ended it."""
        await self._stopped.wait()
        if self._error is not None:
            raise copy(self._error)

    async def stop(self, timeout: Seconds | None) -> None:
        """As `Service.stop`."""
        seconds = seconds_of(timeout, self.client.options)
        if self.ended:
            return
        if self._stopping is None:
            self._stopping = self.client.loop.create_task(self._stop(seconds))
            self._stopping.add_done_callback(_seen)
        if self.left_by(asyncio.current_task()):
            return
        # A caller that is cancelled does not keep the others from waiting for it.
        await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float) -> None:
        loop = self.client.loop
        deadline = loop.time() + timeout
        try:
            for listener in self._listeners:
                listener.stop()
            try:
                if self.client.is_connected:
                    await self.client.rtt(timeout)
            except (ConnectionClosedError, RequestTimeoutError):
                pass  # nothing comes over a link that is lost
            for listener in self._listeners:
                listener.close()
            for endpoint in self.endpoints:
                endpoint.end()
            while (tasks := self._tasks()) and (left := deadline - loop.time()) > 0:
                await asyncio.wait(tasks, timeout=left)
            if unfinished := sum(endpoint.give_up() for endpoint in self.endpoints):
                if tasks:
                    await asyncio.wait(tasks, timeout=_CLEANING_UP)
                raise RequestTimeoutError(
                    f"{unfinished} requests of {self.what} were not finished within {timeout:g} s: "
                    "they were answered with errors 503 (not begun) and 500 (begun)."
                )
        finally:
            self._end(self._error)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for endpoint in self.endpoints for task in endpoint.workers.tasks}

    def _end(self, error: JetsparkError | None) -> None:
        if self.ended:
            return
        self.ended = True
        self._error = error
        for listener in self._listeners:
            listener.close()
        for endpoint in self.endpoints:
            endpoint.end()
            endpoint.close()
        self._stopped.set()
        # Handlers that still run are cancelled when the client is closed.
        for task in self._tasks():
            task.add_done_callback(lambda _: self._leave())
        self._leave()

    def _leave(self) -> None:
        if not self._tasks():
            self._release()

    # -- called by the client --------------------------------------------------------------------

    async def drain(self, timeout: Seconds | None = None) -> None:
        """The client drains."""
        await self.stop(timeout)

    def left_by(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this task is in one of its handlers."""
        return any(task in endpoint.workers.tasks for endpoint in self.endpoints)

    def abandon(self) -> asyncio.Task[None] | None:
        """The client has closed the connection."""
        tasks: set[asyncio.Task[None]] = set()
        for endpoint in self.endpoints:
            tasks |= endpoint.abandon()
        self._end(self._error)
        return self.client.loop.create_task(_all_of(tasks)) if tasks else None


async def _all_of(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


def _seen(task: asyncio.Task[None]) -> None:
    """An error of stopping is for who waits for it; perhaps nobody does."""
    if not task.cancelled():
        task.exception()
