# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: callout."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.identity.callout import STOP_TIMEOUT, CalloutStats
from jetspark.identity.callout import AuthCallout as AsyncAuthCallout
from jetspark.timestamps import Seconds


class GeneratedAuthCallout:
    """The calls of `AuthCallout` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncAuthCallout

    @property
    def stats(self) -> CalloutStats:
        """What it has done so far."""
        return self._inner.stats

    def wait_stopped(self) -> None:
        """Return when `stop` has ended it. Raises what else ends it."""
        self._thread.run(self._inner.wait_stopped)

    def stop(self, timeout: Seconds = STOP_TIMEOUT) -> None:
        """Take no more requests, and return when the handlers have finished.

        Those that take longer than `timeout` seconds are left to finish; their users are not let
        in.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self._inner)
