"""Handlers of requests in threads, which may block and use the blocking client.

Contract: as many threads as the endpoint handles requests at once, started when they are first
needed. A thread takes one request after the other until none is queued, so many requests cost one
thread switch. What a handler raises becomes an answer, as in asyncio. A handler that runs when the
service gives up is left to finish: its requester has been told by then.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any, TypeAlias, TypeVar

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.services.request import Request
from jetspark.blocking.worker import Worker, check_callback
from jetspark.errors import ConfigError, shown
from jetspark.services.endpoint import Answering, Endpoint, Handling, no_answer
from jetspark.services.protocol import SharedTally
from jetspark.wire.kernel import MessageFrame

Handler: TypeAlias = Callable[[Request], None]
HandlerT = TypeVar("HandlerT", bound=Handler)

_here = threading.local()


def endpoint_here() -> Endpoint | None:
    """The endpoint whose handler the calling thread runs."""
    found: Endpoint | None = getattr(_here, "endpoint", None)
    return found


class _Thread(Worker):
    """One thread, and the request that it handles."""

    frame: MessageFrame | None = None


class HandlingInThreads:
    """Handles requests of an endpoint in threads of its own."""

    def __init__(self, caller: CallerSide, handler: Handler, endpoint: Endpoint) -> None:
        self.answering = Answering(caller.publishing, caller.report, SharedTally())
        self._caller = caller
        self._handler: Callable[[Request], Any] = caller.hooks.handler(handler, endpoint.failed)
        self._endpoint = endpoint
        self._idle: list[_Thread] = []
        self._threads: list[_Thread] = []

    async def work_off(self) -> None:
        """As `Handling.work_off`."""
        endpoint = self._endpoint
        if not endpoint.frames:
            return
        if len(endpoint.frames) > 1:
            endpoint.workers.call()  # for the others
        thread = self._idle.pop() if self._idle else self._new()
        try:
            await thread.run(self._caller.thread, partial(self._work_off, thread))
        except asyncio.CancelledError:
            if endpoint.stopping and (frame := thread.frame) is not None:
                endpoint.break_off(frame)
            raise
        self._idle.append(thread)

    def _new(self) -> _Thread:
        thread = _Thread(f"jetspark-{self._endpoint.options.name}", self._caller.inner)
        self._threads.append(thread)
        return thread

    def _work_off(self, thread: _Thread) -> None:
        """In the thread."""
        endpoint, answering, handler = self._endpoint, self.answering, self._handler
        frames, tally = endpoint.frames, answering.tally
        _here.endpoint = endpoint
        while True:
            try:
                frame = frames.popleft()
            except IndexError:
                return
            thread.frame = frame
            tally.begun(len(frame.payload))
            start = perf_counter_ns()
            try:
                if (result := handler(Request(answering, frame))) is not None:
                    raise no_answer(result)
            except BaseException as error:  # SystemExit would end the thread silently
                endpoint.failed(frame, error)
            finally:
                thread.frame = None
                tally.handled(perf_counter_ns() - start)

    def close(self) -> None:
        """No more will come: the threads end."""
        for thread in self._threads:
            thread.stop()


def handling_in_threads(caller: CallerSide, handler: Handler) -> Callable[[Endpoint], Handling]:
    """For `Endpoint`: this handler, in threads. Raises ConfigError unless it is a function."""
    if not callable(handler):
        raise ConfigError(f"A handler is a function, not {shown(handler)}.")
    check_callback(handler)
    return partial(HandlingInThreads, caller, handler)
