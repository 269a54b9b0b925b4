"""Publishing many messages with a bounded window of unacknowledged ones, without async.

Contract: that of `jetspark.jetstream.publishing.publisher`; any number of threads may send. Sending
changes no thread: the message gets its place in the window and goes to the publish buffer here, and
its ack is counted in the event loop's read loop. Who has to wait does so on a condition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.publisher import GeneratedPublisher
from jetspark.blocking.loop_thread import LOOK_EVERY
from jetspark.errors import JetsparkError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import PubAck
from jetspark.jetstream.publishing.headers import TimeToLive
from jetspark.jetstream.publishing.results import tell_failures
from jetspark.jetstream.publishing.windowed import PublisherOptions
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike


class Publisher(GeneratedPublisher):
    """See the module and `JetStream.publisher`. Any number of threads may send."""

    def __init__(self, client: CallerSide, api: Api, options: PublisherOptions) -> None:
        super().__init__(api, options)
        self._raise_failures = options.raise_failures
        self._thread = client.thread
        self._buffer = client.buffer
        # One thread at a time takes places in the window; the loop's thread gives them back.
        self._sending = threading.Lock()
        self._fates = threading.Condition()

    def _send_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
    ) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        window = self._window
        with self._sending:
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._publish(subject, payload, headers, msg_id, ttl, None)

    def _submit_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
    ) -> Future[PubAck]:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # as it is now: it may wait, and be sent again
        future: Future[PubAck] = Future()
        with self._sending:
            self._wait_for_space()
            self._publish(subject, payload, headers, msg_id, ttl, partial(_resolve, future))
        return future

    def flush(self) -> None:
        self._wait(lambda: not self._window.count())

    # -- waiting -------------------------------------------------------------------------------

    def _wait_for_space(self) -> None:
        """In the window and in the buffer. Raises Suspended in the loop's own thread."""
        window = self._window
        while True:
            if window.count() >= window.limit:
                self._wait(lambda: window.count() < window.limit)
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

    # -- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.call(self._open)
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
                self.flush()
        finally:
            self._thread.call(self._close)
        if self._raise_failures:
            tell_failures(self._failed[self._looked_at :], error)


def _resolve(future: Future[PubAck], fate: PubAck | JetsparkError) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(fate, PubAck):
        future.set_result(fate)
    else:
        future.set_exception(fate)
