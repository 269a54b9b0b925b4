# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: election."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.errors import JetsparkError
from jetspark.kv.lock import Election as AsyncElection
from jetspark.kv.lock import ElectionState, LockRecord
from jetspark.timestamps import Seconds


class GeneratedElection:
    """The calls of `Election` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncElection

    @property
    def key(self) -> str:
        """The key that has the leader's record."""
        return self._inner.key

    @property
    def leading(self) -> bool:
        """Whether this client leads at this moment."""
        return self._inner.leading

    @property
    def token(self) -> int:
        """The fencing token of this leadership, to be given to what the leader changes.

        Raises LockLostError when the leadership is lost, ConfigError when there was none.
        """
        return self._inner.token

    @property
    def error(self) -> JetsparkError | None:
        """Why it is no candidate any more; None while it is one, and after its end."""
        return self._inner.error

    def leader(self) -> LockRecord | None:
        """Who leads, from the bucket's leader; None: nobody. Raises as `Lock.owner`."""
        return self._thread.run(self._inner.leader)

    def next(self, timeout: Seconds | None = None) -> ElectionState:
        """The next state, as when iterating; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError after its end, ConfigError when there is a
        callback, and `error`.
        """
        raise NotImplementedError

    def resign(self) -> None:
        """End the candidacy, and let another one lead. Raises as `Lock.release`."""
        self._thread.run(self._inner.resign)

    def __repr__(self) -> str:
        return repr(self._inner)
