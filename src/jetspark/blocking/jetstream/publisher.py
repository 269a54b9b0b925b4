"""Publishing many messages with a bounded window of unacknowledged ones, without async.

As `jetspark.jetstream.publisher`; any number of threads may send. `send` does not switch
threads: it takes a place in the window and puts the message into the publish buffer. The event
loop's read loop counts the acks.
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.publisher import GeneratedPublisher
from jetspark.documents.streams import PubAck
from jetspark.errors import JetsparkError
from jetspark.jetstream.api import Api
from jetspark.jetstream.publisher import PublisherOptions, TimeToLive, Window, WindowedPublishing
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import HeadersLike


class Publisher(GeneratedPublisher):
    """See the module and `JetStream.publisher`. Any number of threads may send."""

    _inner: WindowedPublishing
    _window: Window

    def __init__(self, client: CallerSide, api: Api, options: PublisherOptions) -> None:
        super().__init__(client)
        self._hooked = client.publishing.hooked
        self._inner = WindowedPublishing(api, options, client.publishing, self._changed)
        self._window = self._inner.window

    def _send_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
    ) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy: it may wait, and be sent again
        window = self._window
        with self._sending:
            if window.count() >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._inner.publish(subject, payload, headers, msg_id, ttl, None, self._hooked)

    def _submit_message(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
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
