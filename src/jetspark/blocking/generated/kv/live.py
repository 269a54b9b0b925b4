# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: live."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping, ValuesView

from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import JetsparkError
from jetspark.kv.codecs import Entry
from jetspark.kv.watch import LiveBucket as AsyncLiveBucket


class GeneratedLiveBucket(Mapping[str, bytes]):
    """The calls of `LiveBucket` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncLiveBucket

    @property
    def error(self) -> JetsparkError | None:
        """Why it cannot follow any more; None while it can."""
        return self._inner.error

    def entry(self, key: str) -> Entry:
        """The entry of a key. Raises KeyError, CodecError, and `error` (see there)."""
        return self._inner.entry(key)

    def entries(self) -> dict[str, Entry]:
        """All entries as of this moment. Raises `error`."""
        return self._inner.entries()

    def snapshot(self) -> dict[str, bytes]:
        """All values as of this moment. Raises `error`."""
        return self._inner.snapshot()

    def items(self) -> ItemsView[str, bytes]:
        """The items of a `snapshot`, which does not change meanwhile."""
        return self._inner.items()

    def values(self) -> ValuesView[bytes]:
        """The values of a `snapshot`."""
        return self._inner.values()

    def __repr__(self) -> str:
        return repr(self._inner)
