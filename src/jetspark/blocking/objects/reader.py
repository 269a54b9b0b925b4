"""Reading an object, without async.

As `jetspark.objects.reader`. Each thread switch brings the chunks that have arrived, up to about
1 MB.
"""

from __future__ import annotations

from collections.abc import Iterator

from jetspark.blocking.generated.objects.reader import GeneratedObjectReader
from jetspark.blocking.loop_thread import LoopThread
from jetspark.objects.reader import ObjectReader as AsyncObjectReader


class ObjectReader(GeneratedObjectReader):
    """What `ObjectStore.get` returns: `for chunk in reader`, or `reader.all()`, once.

    Reading raises ObjectDamagedError and DigestMismatchError instead of returning the last chunk,
    ObjectStoreNotFoundError, and ConnectionClosedError.
    """

    def __init__(self, thread: LoopThread, inner: AsyncObjectReader) -> None:
        self._thread = thread
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        try:
            while lot := self.next_lot():
                yield from lot
        finally:
            # Not waited for: the garbage collector may be running this.
            if not self._thread.is_over:
                self._thread.post(self._inner.stop)

    def stop(self) -> None:
        if not self._thread.is_over:
            self._thread.call(self._inner.stop)
