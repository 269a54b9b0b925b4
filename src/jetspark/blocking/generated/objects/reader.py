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
        """What it is; of a link, what it leads to."""
        return self._inner.info

    def all(self) -> bytes:
        """All of it."""
        return self._thread.run(self._inner.all)

    def stop(self) -> None:
        """Read no more. Any number of times."""
        raise NotImplementedError

    def next_lot(self) -> list[bytes]:
        """The next chunks, those that are here at once; none at the end."""
        return self._thread.run(self._inner.next_lot)

    def __repr__(self) -> str:
        return repr(self._inner)
