"""Publishing many messages without async: with a window, as an atomic batch, by fast ingest.

See `jetspark.jetstream.in_flight`; any number of threads may send. They take places in the window
one at a time, and put messages into the publish buffer without a thread switch; the event loop's
read loop counts the acks. Threads wait, for space or for results, for a bell, which the loop's
thread rings after changes. In an atomic batch only calls that wait for the server switch threads:
the second `publish`, `flush` and `commit`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, Self, Unpack

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.twin import twin_of
from jetspark.client.requests import no_reply
from jetspark.connection.locks import Bell, new_lock
from jetspark.documents.streams import PubAck
from jetspark.errors import JetsparkError
from jetspark.jetstream.atomic_batch import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.atomic_batch import AtomicSender
from jetspark.jetstream.fast_ingest import FastIngest as AsyncFastIngest
from jetspark.jetstream.fast_ingest import IngestSender
from jetspark.jetstream.in_flight import BasePublisher as AsyncBasePublisher
from jetspark.jetstream.in_flight import Results, SenderT, sender_of
from jetspark.jetstream.publish_request import BatchOptions, MessageOptions
from jetspark.jetstream.publisher import Publisher as AsyncPublisher
from jetspark.jetstream.publisher import PublisherSender
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.wire.headers import PayloadCodec, codec_of

_SETTLING = 100
"""Milliseconds, since a hook around the publish may itself wait for the event loop."""


class BasePublisher(Generic[SenderT]):
    """The asyncio publisher's twin, for any number of threads."""

    def __init__(self, caller: CallerSide, inner: AsyncBasePublisher[SenderT]) -> None:
        self._thread = caller.thread
        self._buffer = caller.buffer
        self._sender = sender = sender_of(inner)
        self._window = sender.window
        self._turn = new_lock()
        self._waits = False  # the thread that has the turn
        self._change = Bell()
        sender.changed = self._change.ring
        sender.settle = self._settle
        sender.send_with(caller.publishing)

    def _wait_for_space(self) -> None:
        """Wait for space in window and buffer. Raises Suspended in the event loop's thread."""
        while True:
            try:
                if self._window.full:
                    self._waits = True
                    self._until(lambda: not self._window.full)
                elif self._buffer.crowded:
                    self._waits = True
                    self._wait_for_room()
                else:
                    return
            finally:
                self._waits = False

    def _wait_for_room(self) -> None:
        self._buffer.block()

    def _settle(self) -> None:
        for _ in range(_SETTLING):
            if self._waits:
                return  # it looks again whether there is space
            if self._turn.acquire(timeout=0.001):
                self._turn.release()
                return

    def _until(self, is_so: Callable[[], bool]) -> None:
        self._thread.check_may_wait()
        self._change.wait(is_so)
        self._thread.sleep_in_daemons()

    def _complete(self, *, failed: bool) -> None:
        """Wait for all results. `failed`: the block raised an exception."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.enter(self._sender.open, self._sender.close)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                self._complete(failed=kind is not None)
        finally:
            self._thread.leave(None, self._sender.close)
        self._sender.check_failures(error)


@twin_of(AsyncPublisher)
class Publisher(BasePublisher[PublisherSender], Results[PublisherSender]):
    """See the module and `JetStream.publisher`. Any number of threads may publish."""

    @property
    def duplicates(self) -> int:
        return self._sender.duplicates

    def publish(
        self,
        subject: str,
        payload: Value = b"",
        *,
        codec: PayloadCodec | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since it may wait and be sent again
        publish_headers = self._sender.headers(**options) if options else None
        window = self._window
        with self._turn:
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._sender.put(subject, payload, publish_headers, None)

    def publish_async(
        self,
        subject: str,
        payload: Value = b"",
        *,
        codec: PayloadCodec | None = None,
        **options: Unpack[MessageOptions],
    ) -> Future[PubAck]:
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since it may wait and be sent again
        publish_headers = self._sender.headers(**options) if options else None
        future: Future[PubAck] = Future()
        with self._turn:
            self._wait_for_space()
            self._sender.put(subject, payload, publish_headers, partial(_resolve, future))
        return future

    def flush(self) -> None:
        self._until(lambda: not self._window.count())

    def _complete(self, *, failed: bool) -> None:
        self.flush()


def _resolve(future: Future[PubAck], result: PubAck | JetsparkError) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(result, PubAck):
        future.set_result(result)
    else:
        future.set_exception(result)


@twin_of(AsyncFastIngest)
class FastIngest(BasePublisher[IngestSender], Results[IngestSender]):
    """See the module and `JetStream.fast_ingest`. Any number of threads may publish."""

    @property
    def ack(self) -> PubAck | None:
        return self._sender.ack

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        **options: Unpack[BatchOptions],
    ) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, before waiting for space
        publish_headers = self._sender.headers(**options) if options else None
        window = self._window
        with self._turn:
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._sender.put(subject, payload, publish_headers, None)

    def commit(self) -> PubAck | None:
        self._thread.check_may_wait()
        with self._turn:  # the commit must follow a message that is being added
            self._thread.call(self._sender.finish)
        self._until(lambda: self._window.ended is not None)
        return self._sender.ack

    def _complete(self, *, failed: bool) -> None:
        self.commit()


@twin_of(AsyncAtomicBatch)
class AtomicBatch(BasePublisher[AtomicSender]):
    """See the module and `JetStream.atomic_batch`. Any number of threads may publish."""

    @property
    def size(self) -> int:
        return self._window.sent

    @property
    def ack(self) -> PubAck | None:
        return self._sender.window.ack

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        **options: Unpack[BatchOptions],
    ) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, since a later call sends it
        publish_headers = self._sender.headers(**options) if options else None
        window = self._window
        is_first = options.get("expect_last_seq") is not None
        with self._turn:
            message = self._sender.message(subject, payload, publish_headers, is_first=is_first)
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._sender.add(message)

    def _wait_for_space(self) -> None:
        if self._window.full:
            self._ask(self._sender.stage)
        super()._wait_for_space()

    def flush(self) -> None:
        with self._turn:
            self._ask(self._sender.flush)
            self._sender.check_open()

    def commit(self) -> PubAck:
        with self._turn:
            self._ask(self._sender.commit)
            return self._sender.committed()

    def _ask(self, ask: Callable[[], None]) -> None:
        if self._buffer.crowded:
            self._wait_for_room()
        self._thread.call(ask)
        self._until(lambda: self._sender.answered)

    def _wait_for_room(self) -> None:
        if not self._buffer.block(self._sender.timeout):
            raise no_reply(self._sender.window.subject, self._sender.timeout, sent=False)

    def _complete(self, *, failed: bool) -> None:
        if not failed and self.size and not self._sender.window.committing:
            self.commit()
