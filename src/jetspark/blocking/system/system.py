"""Questions to the servers of a system, without async."""

from __future__ import annotations

from jetspark.blocking.generated.system.system import GeneratedSystem
from jetspark.blocking.loop_thread import LoopThread
from jetspark.system.system import System as AsyncSystem


class System(GeneratedSystem):
    """The servers, seen from the system account; made by `Client.system`.

    Each call lists answers, one of each server: iterate the result, or take its `all()`; each
    iteration asks anew. The rest is that of `jetspark.system.System`.
    """

    def __init__(self, thread: LoopThread, inner: AsyncSystem) -> None:
        self._thread = thread
        self._inner = inner
