"""Atomic batches, without async.

As `jetspark.jetstream.batches`; any number of threads may add. Only the calls that wait for
the server switch to the event loop's thread: the second `add`, `flush` and `commit`.
"""

from __future__ import annotations

import threading
from typing import Any

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.jetstream.batch import GeneratedAtomicBatch
from jetspark.jetstream.batches import AtomicBatch as AsyncAtomicBatch
from jetspark.jetstream.batches import Staging
from jetspark.payloads import Payload, payload_bytes


class AtomicBatch(GeneratedAtomicBatch):
    """See the module and `JetStream.atomic_batch`. Any number of threads may add."""

    def __init__(self, client: CallerSide, staging: Staging) -> None:
        self._thread = client.thread
        self._buffer = client.buffer
        self._staging = staging
        self._inner = AsyncAtomicBatch(staging)
        self._turn = threading.Lock()

    def _add_message(self, subject: str, payload: Payload, **options: Any) -> int:
        payload = payload_bytes(payload)  # a copy: it is sent with a later call
        with self._turn:
            if self._staging.window.waits:  # the first message is sent now, and its ack awaited
                return self._thread.run(self._inner.add, subject, payload, **options)
            message = self._staging.message(subject, payload, **options)
            if self._buffer.crowded:
                self._buffer.block()
            return self._staging.add(message)
