"""Fast ingest, without async.

As `jetspark.jetstream.batches`; any number of threads may add. `add` does not switch
threads: it takes a place in the window and puts the message into the publish buffer. The event
loop's read loop counts the acks.
"""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.fast_ingest import GeneratedFastIngest
from jetspark.documents.streams import PubAck
from jetspark.jetstream.batches import Ingesting, IngestWindow
from jetspark.payloads import Payload, payload_bytes
from jetspark.wire.headers import Headers


class FastIngest(GeneratedFastIngest):
    """See the module and `JetStream.fast_ingest`. Any number of threads may add."""

    _window: IngestWindow

    def __init__(self, client: CallerSide, inner: Ingesting) -> None:
        super().__init__(client)
        self._inner = inner
        self._window = inner.window
        inner.changed = self._changed

    def _add_message(self, subject: str, payload: Payload, headers: Headers | None) -> int:
        if type(payload) is not bytes:
            payload = payload_bytes(payload)  # a copy, before waiting for space
        window = self._window
        with self._sending:
            if window.sent >= window.limit or self._buffer.crowded:
                self._wait_for_space()
            return self._inner.add(subject, payload, headers)

    def commit(self) -> PubAck | None:
        self._thread.check_may_wait()
        with self._sending:  # the commit must follow a message that is being added
            self._thread.call(self._inner.finish)
        self._wait(lambda: self._inner.over is not None)
        return self._inner.ack

    def _complete(self) -> None:
        self.commit()
