"""Dead letters without async."""

from __future__ import annotations

from jetspark.blocking.generated.dead_letters.dead_letters import GeneratedDeadLetters
from jetspark.blocking.loop_thread import LoopThread
from jetspark.dead_letters.dead_letters import DeadLetters as AsyncDeadLetters


class DeadLetters(GeneratedDeadLetters):
    """The dead letters of some streams or consumers; see `JetStream.create_dead_letters`."""

    def __init__(self, thread: LoopThread, inner: AsyncDeadLetters) -> None:
        self._thread = thread
        self._inner = inner
