"""Fast ingest, without async.

Contract: that of `jetspark.jetstream.batches.fast_ingest`; any number of threads may add. Adding
changes no thread while there is space: the message goes to the publish buffer here, and acks are
counted in the event loop's read loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

from jetspark.blocking.caller_side import CallerSide, drive
from jetspark.blocking.generated.jetstream.fast_ingest import GeneratedFastIngest
from jetspark.blocking.loop_thread import Suspended
from jetspark.jetstream.batches.fast_ingest import FastIngest as AsyncFastIngest


class FastIngest(GeneratedFastIngest):
    """See the module and `JetStream.fast_ingest`. Any number of threads may add."""

    def __init__(self, client: CallerSide, inner: AsyncFastIngest) -> None:
        self._thread = client.thread
        self._inner = inner
        # Only one thread takes places; the loop's thread gives them back.
        self._turn = threading.Lock()

    def _add(self, add: Callable[[], Coroutine[Any, Any, int]]) -> int:
        inner = self._inner
        with self._turn:
            while True:
                while inner._sent >= inner._limit:
                    self._thread.run(self._space)
                try:
                    return drive(add())
                except Suspended:
                    # A failure took the space between two looks, or this is the loop's own thread.
                    if self._thread.is_current:
                        raise

    async def _space(self) -> None:
        # Looked at again where acks arrive: the last one may have come meanwhile.
        if self._inner._sent >= self._inner._limit:
            await self._inner._wait_for_space()
