"""Stored messages, read without a consumer and without async.

Contract: that of `jetspark.jetstream.stored.direct_get`. They cross to the caller's thread in lots.
"""

from __future__ import annotations

from collections.abc import Iterator

from jetspark.blocking.generated.jetstream.stored import GeneratedStoredMsgs
from jetspark.blocking.jetstream.paging import LOT
from jetspark.blocking.listing import take_lot
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.stored.direct_get import StoredMsgs as AsyncStoredMsgs


class StoredMsgs(GeneratedStoredMsgs):
    """Stored messages, in the order of their sequences: iterate them, or `msgs.all()`.

    Nothing is asked before the first message is; each `for` asks anew.
    """

    __slots__ = ("_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: AsyncStoredMsgs) -> None:
        self._thread = thread
        self._inner = inner

    def __iter__(self) -> Iterator[StoredMsg]:
        messages = self._inner.__aiter__()
        while lot := self._thread.run(take_lot, messages, LOT):
            yield from lot
