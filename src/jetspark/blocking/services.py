"""Services (ADR-32) without async: their handlers run in threads.

Contract: a handler may block and use the blocking client. There are as many threads as the endpoint
handles requests at once, started on demand. A thread takes one request after the other until none
is queued, so many requests cost one thread switch. A handler's exception becomes an answer, as in
asyncio. A handler that still runs when the service gives up finishes, but its requester already has
an error.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, TypeAlias, TypeVar, Unpack, overload

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.client import Message
from jetspark.blocking.iterators import Listing
from jetspark.blocking.jetstream import EventCallback, Events
from jetspark.blocking.twin import Block, Read, Sends, Twin, awaits, calls, drives, makes, twin_of
from jetspark.blocking.worker import WorkerPool, plain_callback
from jetspark.client.tasks import reported
from jetspark.payload_bytes import Payload
from jetspark.services.discovery import Services as AsyncServices
from jetspark.services.discovery import answered, json_answer, json_payload
from jetspark.services.endpoint import (
    Answering,
    Endpoint,
    EndpointOptions,
    EndpointSettings,
    Handling,
    RequestView,
    no_answer,
)
from jetspark.services.endpoint import Request as AsyncRequest
from jetspark.services.protocol import Tally
from jetspark.services.service import STOP_TIMEOUT
from jetspark.services.service import EndpointCalls as AsyncEndpointCalls
from jetspark.services.service import Group as AsyncGroup
from jetspark.services.service import Service as AsyncService
from jetspark.timestamps import Seconds
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import MessageFrame, frame_of

__all__ = ["Group", "Listing", "Request", "Service", "Services"]


@twin_of(AsyncRequest)
class Request(Sends, RequestView):
    __slots__ = ()

    _client: Answering

    respond_json = drives(AsyncRequest.respond_json)
    respond_error = drives(AsyncRequest.respond_error)

    def _twin(self) -> AsyncRequest:
        return AsyncRequest(self._client, frame_of(self))

    def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        if self._client.publishing.outbox.crowded:
            drive(self._twin().respond(payload, headers))
        else:
            self._client.send(self._frame.reply, payload, headers)

    def respond_nowait(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """`respond` without waiting while the link is blocked. Raises the errors of answering."""
        self._client.send(self._frame.reply, payload, headers)


# -------------------------------------------------------------------------------------------------
# Handlers in threads

Handler: TypeAlias = Callable[[Request], None]
T = TypeVar("T")
HandlerT = TypeVar("HandlerT", bound=Handler)
_current = threading.local()


class HandlingInThreads:
    """Handles an endpoint's requests in threads of its own."""

    def __init__(self, caller: CallerSide, handler: Handler, endpoint: Endpoint) -> None:
        self.answering = Answering(caller.publishing, caller.report, Tally())
        self._caller = caller
        self._handler: Callable[[Request], Any] = caller.hooks.callback(handler, endpoint.failed)
        self._endpoint = endpoint
        self._workers = WorkerPool(f"jetspark-{endpoint.options.name}", caller.inner)

    async def work_off(self) -> None:
        """See `Handling.work_off`."""
        endpoint = self._endpoint
        if not endpoint.frames:
            return
        if len(endpoint.frames) > 1:
            endpoint.workers.call()  # for the other threads
        handled: list[MessageFrame] = []
        try:
            await self._workers.run(self._caller.thread, partial(self._work_off, handled))
        except asyncio.CancelledError:
            for frame in handled[:1] if endpoint.stopping else ():
                endpoint.break_off(frame)
            raise

    def _work_off(self, handled: list[MessageFrame]) -> None:
        """Runs in the worker's thread. `handled`: the current request."""
        endpoint, answering, handler = self._endpoint, self.answering, self._handler
        frames, tally = endpoint.frames, answering.tally
        _current.endpoint = endpoint
        while True:
            try:
                frame = frames.popleft()
            except IndexError:
                return
            handled.append(frame)
            tally.count_request(len(frame.payload))
            start = perf_counter_ns()
            try:
                if (result := handler(Request(answering, frame))) is not None:
                    raise no_answer(result)
            except BaseException as error:  # SystemExit would end the thread silently
                endpoint.failed(frame, error)
            finally:
                handled.clear()
                tally.handled(perf_counter_ns() - start)

    def close(self) -> None:
        """No more requests will come: end the threads."""
        self._workers.stop()


# -------------------------------------------------------------------------------------------------
# Services


@twin_of(AsyncEndpointCalls)
class EndpointCalls(Twin):
    _inner: AsyncEndpointCalls
    prefix = Read[str]()
    queue_group = Read[str]()

    def add_endpoint(
        self, name: str, handler: Handler, **options: Unpack[EndpointSettings]
    ) -> None:
        """Answer requests with a handler in a thread; returns when the server knows it.

        `concurrency`: requests handled at once, each in a thread; by default one. See
        `jetspark.services.Service.add_endpoint`.
        """
        checked = self._inner.endpoint_options(name, **options)
        self._thread.run(self._inner.running.add, checked, self._handling(handler))

    def endpoint(
        self, name: str | None = None, **options: Unpack[EndpointSettings]
    ) -> Callable[[HandlerT], HandlerT]:
        def add(checked: EndpointOptions, handler: Handler) -> None:
            self._thread.call(self._inner.running.add_nowait, checked, self._handling(handler))

        return self._inner.decorator(add, name, **options)

    def _handling(self, handler: Handler) -> Callable[[Endpoint], Handling]:
        """Raise ConfigError for an async function."""
        return partial(HandlingInThreads, self._caller, plain_callback(handler))

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        return Group(self._caller, self._inner.add_group(name, queue_group=queue_group))


@twin_of(AsyncService)
class Service(EndpointCalls, Block):
    _inner: AsyncService
    name = Read[str]()
    id = Read[str]()
    version = Read[str]()
    description = Read[str]()
    metadata = Read[Mapping[str, str]]()
    active = Read[bool]()
    info = calls(AsyncService.info)
    stats = calls(AsyncService.stats)
    reset = calls(AsyncService.reset)
    wait_stopped = awaits(AsyncService.wait_stopped)

    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Accept no more requests, handle the others, and end.

        After `timeout` seconds it answers unhandled requests with an error, and raises
        RequestTimeoutError. In a handler, which would wait for itself, it returns at once and
        continues in the background; its errors are reported. See `jetspark.services.Service.stop`.
        """
        if getattr(_current, "endpoint", None) in self._inner.running.endpoints:
            report = self._caller.inner.report
            self._thread.spawn(lambda: reported(self._inner.stop(timeout), report))
        else:
            self._thread.leave(None, self._inner.stop, timeout)


@twin_of(AsyncServices)
class Services(Twin):
    _inner: AsyncServices
    ping = makes(AsyncServices.ping, Listing)
    info = makes(AsyncServices.info, Listing)
    stats = makes(AsyncServices.stats, Listing)

    def latencies(self, subject: str, *, callback: EventCallback | None = None) -> Events:
        return Events(
            self._caller,
            lambda forward: self._inner.latencies(subject, callback=forward),
            callback,
        )

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        reply = self._caller.ask(subject, payload, timeout, headers)
        return answered(Message(self._caller, reply))

    @overload
    def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        type: builtins.type[T],
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> T: ...
    @overload
    def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Any: ...
    def request_json(
        self,
        subject: str,
        value: Any = None,
        *,
        type: Any = Any,
        timeout: Seconds | None = None,
        headers: HeadersLike | None = None,
    ) -> Any:
        payload = json_payload(value)
        reply = self.request(subject, payload, timeout=timeout, headers=headers)
        return json_answer(subject, reply, type)


@twin_of(AsyncGroup)
class Group(EndpointCalls):
    pass
