"""Connection events without async: their iterator, and the types of the callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeAlias

from jetspark.blocking.generated.events import GeneratedEventStream
from jetspark.blocking.loop_thread import LoopThread
from jetspark.client.callbacks import EventStream as AsyncEventStream
from jetspark.connection.events import ConnectionEvent
from jetspark.errors import JetsparkError

ErrorCallback: TypeAlias = Callable[[JetsparkError], None]
EventCallback: TypeAlias = Callable[[ConnectionEvent], None]


class EventStream(GeneratedEventStream):
    """Iterator over connection events, for one thread; ends after Closed."""

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
