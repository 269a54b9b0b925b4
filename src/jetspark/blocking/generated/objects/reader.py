# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: reader."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.objects.info import ObjectInfo
from jetspark.objects.reader import ObjectReader as AsyncObjectReader


class GeneratedObjectReader:
    """The calls of `ObjectReader` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncObjectReader

    @property
    def info(self) -> ObjectInfo:
        """The object's info; of a link, that of its target."""
        return self._inner.info

    def all(self) -> bytes:
        """The whole content. Raises as reading (see `ObjectReader`)."""
        return self._thread.run(self._inner.all)

    def stop(self) -> None:
        """Read no more. May be called again."""
        raise NotImplementedError

    def next_lot(self) -> list[bytes]:
        """The next chunks: all that have arrived; none at the end. Raises as reading."""
        return self._thread.run(self._inner.next_lot)

    def __repr__(self) -> str:
        return repr(self._inner)
