# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: worker."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.dead_letters.worker import DeadLetterWorker as AsyncDeadLetterWorker


class GeneratedDeadLetterWorker:
    """The calls of `DeadLetterWorker` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncDeadLetterWorker

    @property
    def moved(self) -> int:
        """Letters that this worker has stored."""
        return self._inner.moved

    @property
    def gone(self) -> int:
        """Those of them without payload: the stream did not have the message any more."""
        return self._inner.gone

    def wait(self) -> None:
        """Return when its block is left.

        Raises ConsumerDeletedError, ConnectionLostError and what else ends `PullConsumer.consume`.
        """
        self._thread.run(self._inner.wait)

    def __repr__(self) -> str:
        return repr(self._inner)
