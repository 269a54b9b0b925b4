"""Atomic batches, without async.

Contract: that of `jetspark.jetstream.batches.atomic`; any number of threads may add. Only what has
to wait for the server changes the thread: the second `add`, `flush` and `commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.generated.jetstream.batch import GeneratedAtomicBatch
from jetspark.jetstream.batches.atomic import AtomicBatch as AsyncAtomicBatch


class AtomicBatch(GeneratedAtomicBatch):
    """See the module and `JetStream.atomic_batch`. Any number of threads may add."""

    def __init__(self, client: CallerSide, inner: AsyncAtomicBatch) -> None:
        self._thread = client.thread
        self._inner = inner
        self._turn = threading.Lock()

    def _add(self, add: Callable[[], Coroutine[Any, Any, int]]) -> int:
        with self._turn:
            # The second one sends the first, whose answer is waited for.
            return self._thread.run(add) if self._inner.size == 1 else drive(add())
