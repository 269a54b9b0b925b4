"""An endpoint: a queue of requests between the read loop and a handler.

Contract
- The read loop only appends raw frames and wakes a worker, which creates the Request. A request has
  no task of its own, and a handler that does not wait needs no switch of tasks.
- A handler may answer at any time, several times, and even after it has returned.
- A handler's exception becomes its answer: a ServiceError as it is, any other as error 500, which
  is also reported. The next request follows.
- When the service stops, requests that no handler has begun get error 503, and are safe to send
  again; unfinished ones get error 500. Requests beyond `max_pending` get error 503, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, Protocol, TypeAlias, TypedDict, TypeVar, overload

import jetspark.errors as errors
from jetspark.client.client import PENDING_BYTES_LIMIT, CoreClient
from jetspark.client.messages import MessageView
from jetspark.client.publishing import Publishing
from jetspark.client.tasks import background
from jetspark.documents.document import Duration
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.services.protocol import EndpointInfo, EndpointStats, Tally, error_headers, one_line
from jetspark.wire.documents import decode_json, encode_document
from jetspark.wire.headers import HeadersLike
from jetspark.wire.kernel import MessageFrame

MAX_PENDING: Final = 65_536

FAILED: Final = 500
UNAVAILABLE: Final = 503
NOT_BEGUN: Final = "The service was stopped before the request was handled"
HALF_DONE: Final = (
    "The service was stopped while the request was handled: it may have been done, or a part of it"
)

T = TypeVar("T")


class Answering:
    """Answers the requests of an endpoint, and counts errors."""

    def __init__(
        self, publishing: Publishing, report: Callable[[errors.JetsparkError], None], tally: Tally
    ) -> None:
        self.publishing = publishing
        self.report = report
        self.tally = tally

    async def room(self) -> None:
        if self.publishing.outbox.crowded:
            await self.publishing.outbox.wait()

    def send(self, reply: bytes | None, payload: Payload, headers: HeadersLike | None) -> None:
        """Send an answer. Raises ConfigError without a reply subject, and as `Publishing.send`."""
        if reply is None:
            raise _no_reply()
        self.publishing.answer(reply, payload, headers)

    def send_error(
        self,
        reply: bytes | None,
        code: int,
        description: str,
        payload: Payload = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """Answer with an error, which counts even if it cannot be sent.

        Raises the errors of `send`, and ConfigError for a code below 1, which does not count.
        """
        all_headers = error_headers(code, description, headers)
        try:
            self.send(reply, payload, all_headers)
        finally:
            self.tally.failed(f"{code}:{one_line(description)}")


class RequestView(MessageView):
    """The readable part of a request, for both clients."""

    __slots__ = ()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The payload as JSON, of this type: a msgspec.Struct, a dataclass, list[int] and so on.

        Raises ServiceError with code 400, which becomes the answer unless the handler catches it.
        """
        try:
            return decode_json(self.data, type, "request")
        except errors.DocumentError as error:
            raise errors.ServiceError(400, f"The request cannot be read: {error.reason}") from None


class Request(RequestView):
    """One request to an endpoint of a service.

    Answering raises ConfigError without a reply subject, ConnectionClosedError, OutboundBufferError
    during an outage, MaxPayloadError, BadPayloadError, BadHeaderError.

    Example:
        ```python
        async def price(request):
            if request.data != b"apples":
                await request.respond_error(404, "no such fruit")
                return
            await request.respond(b"1.20")

        async with await nc.add_service("prices", "1.0.0") as service:
            await service.add_endpoint("price", price)
            print((await nc.request("price", b"apples")).data)  # b'1.20'
        ```
    """

    __slots__ = ()

    _client: Answering

    async def respond(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """Send an answer; waits while the link is blocked (see `Request`)."""
        publishing = self._client.publishing
        if publishing.outbox.crowded:
            payload = payload_bytes(payload)  # a copy, since the caller may change it
            await publishing.outbox.wait()
        if (reply := self._frame.reply) is None:
            raise _no_reply()
        publishing.answer(reply, payload, headers)

    async def respond_json(self, value: Any, headers: HeadersLike | None = None) -> None:
        """Answer with the JSON of any value that msgspec can encode; otherwise ConfigError."""
        await self.respond(encode_document(value), headers)

    async def respond_error(
        self,
        code: int,
        description: str,
        payload: Payload = b"",
        headers: HeadersLike | None = None,
    ) -> None:
        """Answer with an error, like a handler that raises ServiceError; it is counted.

        `description`: one line for people; `payload` and `headers` may have more for programs.
        """
        await self._client.room()
        self._client.send_error(self._frame.reply, code, description, payload, headers)

    def respond_nowait(self, payload: Payload = b"", headers: HeadersLike | None = None) -> None:
        """`respond` at the end of the loop's turn, for handlers that are plain functions."""
        self._client.send(self._frame.reply, payload, headers)


def _no_reply() -> errors.ConfigError:
    return errors.ConfigError("The request asks for no answer: it has no reply subject.")


class Workers:
    """Up to `limit` tasks that handle a queue; there is no task for each item.

    `call` it when the queue may have an item: one more worker checks, unless a called one has not
    checked yet. A worker cancelled from outside, or by its item, is replaced. `work` takes from
    `queue` until it is empty. `name`: the tasks' name.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queue: Sized,
        work: Callable[[], Coroutine[Any, Any, None]],
        limit: int,
        name: str,
        on_error: Callable[[errors.JetsparkError], None],
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._work = work
        self._limit = limit
        self._name = name
        self._on_error = on_error
        self._idle: list[asyncio.Future[None]] = []
        self._ended = False
        self._cancelled = False
        self.called = False
        """Whether a called worker has not checked yet."""
        self.tasks: set[asyncio.Task[None]] = set()

    def call(self) -> None:
        if self.called:
            return
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(None)
                self.called = True
                return
        if len(self.tasks) < self._limit:
            self.called = True
            task = background(self._run(), self._name, self._on_error, name=self._name)
            self.tasks.add(task)
            task.add_done_callback(self._done)

    async def _run(self) -> None:
        while True:
            self.called = False
            await self._work()
            if self._queue:
                continue  # an item came after a thread saw the queue empty
            if self._ended:
                return
            waiting = self._loop.create_future()
            self._idle.append(waiting)
            await waiting

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not self._cancelled:
            self.called = False  # it may have been cancelled before it checked
            if self._queue:
                self.call()

    def end(self) -> None:
        """Let each worker end when the queue is empty."""
        self._ended = True
        for waiting in self._idle:
            if not waiting.done():
                waiting.set_result(None)
        self._idle.clear()

    def cancel(self) -> set[asyncio.Task[None]]:
        """End all but the calling task now; returns the cancelled ones."""
        self.end()
        self._cancelled = True
        cancelled = self.tasks - {asyncio.current_task()}
        for task in cancelled:
            task.cancel()
        return cancelled


Handler: TypeAlias = Callable[[Request], Awaitable[None] | None]


class EndpointSettings(TypedDict, total=False):
    """Options of `add_endpoint`, for type checkers."""

    subject: str | None
    queue_group: str | None
    metadata: Mapping[str, str] | None
    concurrency: int
    max_pending: int


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Name, subject and limits of an endpoint; checked."""

    name: str
    subject: str
    queue_group: str
    concurrency: int
    max_pending: int
    metadata: dict[str, str] = field(default_factory=dict)


class Handling(Protocol):
    """Handles the requests of an endpoint: in the event loop, or in threads."""

    answering: Answering

    async def work_off(self) -> None:
        """Handle requests until none is queued."""

    def close(self) -> None:
        """No more requests will come."""


class Endpoint:
    """One endpoint, created by its service. `label`: for messages, as "endpoint 'a' of …"."""

    def __init__(
        self,
        client: CoreClient,
        options: EndpointOptions,
        label: str,
        handling: Callable[[Endpoint], Handling],
    ) -> None:
        self.client = client
        self.options = options
        self.label = label
        self.frames: deque[MessageFrame] = deque()
        self.stopping = False
        """Whether the service's end is cancelling handlers."""
        self._abandoned = False
        self._bytes_queued = 0
        self.error: errors.JetsparkError | None = None
        """Why the server refused its subscription."""
        self._handling = handling(self)
        self.answering = self._handling.answering
        self.workers = Workers(
            client.loop,
            self.frames,
            self._handling.work_off,
            options.concurrency,
            f"jetspark-{label}",
            client.report,
        )

    # -- called by the read loop ---------------------------------------------------------------

    def on_run(self, frames: list[MessageFrame], size: int) -> bool:
        """Queue requests; False when there is no room for all of them."""
        queued = self._bytes_queued + size
        if (
            len(self.frames) + len(frames) > self.options.max_pending
            or queued - self.answering.tally.bytes_dequeued > PENDING_BYTES_LIMIT
        ):
            return False
        self._bytes_queued = queued
        self.frames += frames
        if not self.workers.called:
            self.workers.call()
        return True

    def on_frame(self, frame: MessageFrame) -> None:
        if not self.on_run([frame], len(frame.payload)):
            self.answering.tally.count_request(0)
            full = f"{len(self.frames)} requests wait for the endpoint already: try again later"
            self.refuse(frame, full)

    # -- errors ----------------------------------------------------------------------------------

    def refuse(self, frame: MessageFrame, reason: str) -> None:
        self._send_error(frame, UNAVAILABLE, reason)

    def break_off(self, frame: MessageFrame) -> None:
        self._send_error(frame, FAILED, HALF_DONE)

    def failed(self, frame: MessageFrame, error: BaseException) -> None:
        """The handler raised this error: answer, count and report it."""
        if isinstance(error, errors.ServiceError):
            self._send_error(frame, error.code, error.description, error.data)
            return
        self._send_error(frame, FAILED, shown_error(error))
        self.answering.report(errors.user_error(f"The handler of {self.label}", error))

    def _send_error(
        self, frame: MessageFrame, code: int, description: str, data: bytes = b""
    ) -> None:
        if frame.reply is None or self._abandoned:
            self.answering.tally.failed(f"{code}:{one_line(description)}")
            return
        try:
            self.answering.send_error(frame.reply, code, description, data)
        except errors.JetsparkError as error:
            # For example a payload that is too large, or a code below 1.
            self.answering.report(errors.user_error(f"Answering an error of {self.label}", error))
            if isinstance(error, errors.ConfigError) or data:
                with suppress(errors.JetsparkError):  # reported above
                    self.answering.send_error(frame.reply, FAILED, shown_error(error))

    def info(self) -> EndpointInfo:
        options = self.options
        return EndpointInfo(
            name=options.name,
            subject=options.subject,
            queue_group=options.queue_group,
            metadata=dict(options.metadata),
        )

    def stats(self) -> EndpointStats:
        tally, options = self.answering.tally, self.options
        requests, ns = tally.requests, tally.ns
        return EndpointStats(
            name=options.name,
            subject=options.subject,
            queue_group=options.queue_group,
            num_requests=requests,
            num_errors=tally.errors,
            last_error=tally.last_error,
            processing_time=Duration.from_ns(ns),
            average_processing_time=Duration.from_ns(ns // requests if requests else 0),
        )

    # -- ending ----------------------------------------------------------------------------------

    def end(self) -> None:
        """No more requests come: workers end after those in the queue."""
        self.workers.end()

    def give_up(self) -> int:
        """Answer queued and running requests with an error; returns how many."""
        self.stopping = True
        unfinished = len(self.frames)
        while self.frames:
            self.refuse(self.frames.popleft(), NOT_BEGUN)
        return unfinished + len(self.workers.cancel())

    def abandon(self) -> set[asyncio.Task[None]]:
        """The connection closed: nothing can be answered. Returns the cancelled tasks."""
        self.stopping = self._abandoned = True
        self.frames.clear()
        cancelled = self.workers.cancel()
        self._handling.close()
        return cancelled

    def close(self) -> None:
        self._handling.close()


class HandlingHere:
    def __init__(self, handler: Handler, endpoint: Endpoint) -> None:
        client = endpoint.client
        self.answering = Answering(client.publishing, client.report, Tally())
        self._handler = client.hooks.callback(handler, endpoint.failed)
        self._endpoint = endpoint
        self._is_async = inspect.iscoroutinefunction(self._handler)

    async def work_off(self) -> None:
        endpoint, answering, handler = self._endpoint, self.answering, self._handler
        frames, workers, tally = endpoint.frames, endpoint.workers, answering.tally
        is_async, clock = self._is_async, perf_counter_ns
        # All in this thread: the counters are changed without the tally's calls.
        while frames:
            frame = frames.popleft()
            if frames and not workers.called:
                workers.call()  # in case this handler waits
            tally.requests += 1
            tally.bytes_dequeued += len(frame.payload)
            start = clock()
            try:
                rest: Any = handler(Request(answering, frame))
                if rest is not None:
                    left = await rest if is_async or inspect.isawaitable(rest) else rest
                    if left is not None:
                        raise no_answer(left)
            except asyncio.CancelledError as error:
                self._cancelled(frame, error)
            except GeneratorExit as error:
                self._closing(frame, error)
            except BaseException as error:
                endpoint.failed(frame, error)
                if isinstance(error, SystemExit | KeyboardInterrupt):
                    raise
            finally:
                tally.ns += clock() - start

    def _cancelled(self, frame: MessageFrame, error: BaseException) -> None:
        """End the worker if it was cancelled itself, not something that the handler awaited."""
        if self._endpoint.stopping:
            self._endpoint.break_off(frame)
            raise error
        self._endpoint.failed(frame, error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error

    def _closing(self, frame: MessageFrame, error: BaseException) -> None:
        """End the worker if its coroutine is being closed, and the handler did not raise it."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            raise error from None
        if task not in self._endpoint.workers.tasks:
            raise error
        self._endpoint.failed(frame, error)

    def close(self) -> None:
        """Nothing to close."""


def handling_here(handler: Handler) -> Callable[[Endpoint], Handling]:
    return partial(HandlingHere, handler)


def shown_error(error: BaseException) -> str:
    """Class and text of an error, as the requester sees it."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def no_answer(result: object) -> errors.ConfigError:
    return errors.ConfigError(
        f"The handler returned {errors.safe_repr(result)}: it answers with request.respond, and "
        "returns nothing."
    )
