# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: lock."""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.kv.lock import Lock as AsyncLock
from jetspark.kv.lock import LockRecord
from jetspark.timestamps import Seconds


class GeneratedLock:
    """The calls of `Lock` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncLock

    @property
    def key(self) -> str:
        """The key that has the holder's record."""
        return self._inner.key

    @property
    def held(self) -> bool:
        """Whether it is held by this object, and its lease goes on."""
        return self._inner.held

    @property
    def lost(self) -> bool:
        """Whether it was held and its lease is over, or another client holds it."""
        return self._inner.lost

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every holder before.

        Give it to what the lock guards, with every write. Raises LockLostError when the lock is
        lost, ConfigError when it was not acquired.
        """
        return self._inner.token

    def wait_lost(self) -> None:
        """Return when it is not held any more: lost, or released."""
        self._thread.run(self._inner.wait_lost)

    def owner(self) -> LockRecord | None:
        """Who holds it, from the bucket's leader; None: nobody.

        A record whose holder has died stays until its TTL or another holder. Raises CodecError
        when the key has something else.
        """
        return self._thread.run(self._inner.owner)

    def acquire(self, timeout: Seconds | None = None) -> int:
        """Wait until it is held, `timeout` seconds at most, None: for ever; returns the token.

        Failures that may pass, such as an outage, are waited for. Raises RequestTimeoutError,
        ConfigError when it is held already, CodecError when the key has something else than a
        lock's record, LockLostError when its lease ended while this process stood still,
        ConnectionClosedError when the client is drained or closed.
        """
        return self._thread.run(self._inner.acquire, timeout)

    def release(self) -> None:
        """Let the others have it. Raises LockLostError when it was lost, ConfigError if not held.

        Without an answer of the server, as when the link is lost, it is tried again until the lease
        ends; then it raises as every call of a bucket.
        """
        self._thread.run(self._inner.release)

    def __repr__(self) -> str:
        return repr(self._inner)
