"""Publishing many messages without async: with a window, as an atomic batch, by fast ingest.

As `jetspark.jetstream.publisher` and `jetspark.jetstream.batches`; any number of threads may send.
They take places in the window one at a time, and put messages into the publish buffer without a
thread switch; the event loop's read loop counts the acks. A thread that waits, for space or for the
end, waits on a condition, which is notified whenever the loop's thread has changed the window. Of
an atomic batch only the calls that wait for the server switch threads: the second `add`, `flush`
and `commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.loop_thread import LOOK_EVERY
from jetspark.blocking.twin import AsyncBlock
from jetspark.documents.streams import PubAck
from jetspark.errors import JetsparkError
from jetspark.jetstream.api import Api
from jetspark.jetstream.batches import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.batches import FastIngest as AsyncFastIngest
from jetspark.jetstream.batches import Ingesting, Staging
from jetspark.jetstream.publisher import Publisher as AsyncPublisher
from jetspark.jetstream.publisher import (
    PublisherOptions,
    PublishFailure,
    TimeToLive,
    WindowedPublishing,
)
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike

P = ParamSpec("P")
T = TypeVar("T")


class Window(Protocol):
    """The messages in flight."""

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""


class Core(Protocol):
    """The part that runs in the event loop's thread: it sends and follows the acks."""

    @property
    def window(self) -> Window:
        """What is in flight."""

    def open(self) -> None:
        """At the beginning of the block."""

    def close(self) -> None:
        """At its end."""

    def tell_failures(self, error: BaseException | None) -> None:
        """After its end: raises PublishFailedError if messages failed."""


class WindowSender:
    """The part of a publisher that waits. `_inner` is set by the class itself."""

    _inner: Core

    def __init__(self, caller: CallerSide) -> None:
        self._thread = caller.thread
        self._buffer = caller.buffer
        self._sending = threading.Lock()
        self._fates = threading.Condition()

    def _complete(self) -> None:
        """Wait until every message is acknowledged or failed, at the end of the block."""
        raise NotImplementedError

    def _wait_for_space(self) -> None:
        """Wait for space in window and buffer. Raises Suspended in the event loop's thread."""
        window = self._inner.window
        while True:
            if window.full:
                self._wait(lambda: not window.full)
            elif self._buffer.crowded:
                self._buffer.block()
            else:
                return

    def _wait(self, is_so: Callable[[], bool]) -> None:
        self._thread.check_may_wait()
        with self._fates:
            while not is_so():
                self._fates.wait(LOOK_EVERY)
        self._thread.sleep_in_daemons()

    def _changed(self) -> None:
        with self._fates:
            self._fates.notify_all()

    def __enter__(self) -> Self:
        self._thread.call(self._inner.open)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        goes_on = kind is None or issubclass(kind, Exception)
        try:
            if goes_on:
                self._complete()
        finally:
            self._thread.call(self._inner.close)
        self._inner.tell_failures(error)


@twin_of(AsyncPublisher)
class Publisher(WindowSender):
    """See the module and `JetStream.publisher`. Any number of threads may send."""

    _inner: WindowedPublishing

    def __init__(self, caller: CallerSide, api: Api, options: PublisherOptions) -> None:
        super().__init__(caller)
        self._hooked = caller.publishing.hooked
        self._inner = WindowedPublishing(api, options, caller.publishing, self._changed)
        self._window = self._inner.window

    @property
    def acked(self) -> int:
        return self._inner.acked

    @property
    def duplicates(self) -> int:
        return self._inner.duplicates

    @property
    def pending(self) -> int:
        return self._window.count()

    @property
    def sent(self) -> int:
        return self._window.sent

    @property
    def failed(self) -> list[PublishFailure]:
        return self._inner.failed()

    def send(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy: it may wait, and be sent again
        window = self._window
        with self._sending:
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._inner.publish(subject, payload, headers, msg_id, ttl, None, self._hooked)

    def submit(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
    ) -> Future[PubAck]:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy: it may wait, and be sent again
        future: Future[PubAck] = Future()
        with self._sending:
            self._wait_for_space()
            told = partial(_resolve, future)
            self._inner.publish(subject, payload, headers, msg_id, ttl, told, self._hooked)
        return future

    def flush(self) -> None:
        self._wait(lambda: not self._window.count())

    def _complete(self) -> None:
        self.flush()


def _resolve(future: Future[PubAck], fate: PubAck | JetsparkError) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(fate, PubAck):
        future.set_result(fate)
    else:
        future.set_exception(fate)


@twin_of(AsyncFastIngest)
class FastIngest(WindowSender):
    """See the module and `JetStream.fast_ingest`. Any number of threads may add."""

    _inner: Ingesting

    def __init__(self, caller: CallerSide, inner: Ingesting) -> None:
        super().__init__(caller)
        self._inner = inner
        self._window = inner.window
        inner.changed = self._changed

    @property
    def sent(self) -> int:
        return self._window.sent

    @property
    def pending(self) -> int:
        return self._window.pending

    @property
    def acked(self) -> int:
        return self._window.acked

    @property
    def failed(self) -> list[PublishFailure]:
        return self._inner.failed()

    @property
    def ack(self) -> PubAck | None:
        return self._inner.ack

    def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
    ) -> int:
        whole = self._inner.headers(
            headers,
            msg_id,
            ttl,
            expect_last_seq,
            expect_last_subject_seq,
            expect_last_subject_seq_of,
        )
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, before waiting for space
        window = self._window
        with self._sending:
            if window.sent >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._inner.add(subject, payload, whole)

    def commit(self) -> PubAck | None:
        self._thread.check_may_wait()
        with self._sending:  # the commit must follow a message that is being added
            self._thread.call(self._inner.finish)
        self._wait(lambda: self._inner.over is not None)
        return self._inner.ack

    def _complete(self) -> None:
        self.commit()


@twin_of(AsyncAtomicBatch)
class AtomicBatch(AsyncBlock):
    """See the module and `JetStream.atomic_batch`. Any number of threads may add.

    Calls run one at a time, and the end of the block waits for them.
    """

    _inner: AsyncAtomicBatch

    def __init__(self, caller: CallerSide, staging: Staging) -> None:
        super().__init__(caller, AsyncAtomicBatch(staging))
        self._buffer = caller.buffer
        self._staging = staging
        self._turn = threading.Lock()

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def ack(self) -> PubAck | None:
        return self._inner.ack

    def add(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        expect_last_seq: int | None = None,
        expect_last_subject_seq: int | None = None,
        expect_last_subject_seq_of: str | None = None,
    ) -> int:
        options: dict[str, Any] = {
            "headers": headers,
            "msg_id": msg_id,
            "ttl": ttl,
            "expect_last_seq": expect_last_seq,
            "expect_last_subject_seq": expect_last_subject_seq,
            "expect_last_subject_seq_of": expect_last_subject_seq_of,
        }
        payload = payload_bytes(payload)  # a copy: it is sent with a later call
        with self._turn:
            if self._staging.window.waits:  # the first message is sent now, and its ack awaited
                return self._thread.run(self._inner.add, subject, payload, **options)
            message = self._staging.message(subject, payload, **options)
            if self._buffer.crowded:
                self._buffer.block()
            return self._staging.add(message)

    def flush(self) -> None:
        self._run_in_turn(self._inner.flush)

    def commit(self) -> PubAck:
        return self._run_in_turn(self._inner.commit)

    def _run_in_turn(
        self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with self._turn:
            return self._thread.run(function, *args, **kwargs)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._turn:
            super().__exit__(kind, error, trace)
