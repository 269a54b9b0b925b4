"""The worker of dead letters without async: it works in the event loop's thread."""

from __future__ import annotations

from jetspark.blocking.generated.dead_letters.worker import GeneratedDeadLetterWorker
from jetspark.blocking.leaving import Entering
from jetspark.blocking.loop_thread import LoopThread
from jetspark.dead_letters.worker import DeadLetterWorker as AsyncDeadLetterWorker


class DeadLetterWorker(GeneratedDeadLetterWorker, Entering):
    """What `DeadLetters.worker` returns: it moves messages inside its block."""

    _thread: LoopThread
    _inner: AsyncDeadLetterWorker

    def __init__(self, thread: LoopThread, inner: AsyncDeadLetterWorker) -> None:
        self._thread = thread
        self._inner = inner
