"""The iterator over changes of the connection, blocking."""

from __future__ import annotations

from typing import Self

from jetspark.blocking.generated.events import GeneratedEventStream
from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.notices import EventStream as AsyncEventStream
from jetspark.connection.events import ConnectionEvent


class EventStream(GeneratedEventStream):
    """Iterator over connection events; ends after Closed. One reader."""

    def __init__(self, thread: LoopThread, inner: AsyncEventStream) -> None:
        self._thread = thread
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConnectionEvent:
        try:
            return self._thread.run(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
