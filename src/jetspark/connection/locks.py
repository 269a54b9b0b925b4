"""Locks of threads that a signal handler may interrupt with an exception at any moment, as Ctrl-C.

Only a C lock in a `with` statement is always free afterwards: an interrupt may come after `acquire`
has returned and before the next line, and `threading.Condition` is Python code itself. In Python
3.14 an interrupt may come after `__enter__`, too, and before the block: `new_lock` and `new_rlock`
return locks that are free afterwards there as well.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_EVERY = 1.0
"""Seconds between two wake-ups of a waiting thread. A signal just before the wait does not
interrupt it, and its handler only runs when the thread wakes: without this a Ctrl-C could hang."""

_WITH_IS_SAFE = sys.version_info[:2] != (3, 14)


class _SafeLock:
    """A lock for `with` in Python 3.14 (https://github.com/python/cpython/issues/148874).

    Python looks for interrupts after each call, but not after reading a property, nor after the
    return from a function. So none is noticed between taking the lock and the block.
    """

    __slots__ = ("_exit", "acquire", "release")

    def __init__(self, lock: Any) -> None:
        self.acquire, self.release, self._exit = lock.acquire, lock.release, lock.__exit__

    _acquired = property(methodcaller("acquire"))

    def __enter__(self) -> bool:
        return self._acquired  # type: ignore[no-any-return]

    __exit__ = property(attrgetter("_exit"))  # a call of C, for the same reason


def new_lock() -> Any:
    """A lock that an interrupt of a `with` statement leaves free."""
    lock = threading.Lock()
    return lock if _WITH_IS_SAFE else _SafeLock(lock)


def new_rlock() -> Any:
    """A reentrant lock that an interrupt of a `with` statement leaves free."""
    lock = threading.RLock()
    return lock if _WITH_IS_SAFE else _SafeLock(lock)


def locked(lock: Any, work: Callable[..., T], *args: object, missed: T, timeout: float = 0.0) -> T:
    """The result of `work(*args)`, called while this thread has the lock.

    `missed`: the result if other threads have it for `timeout` seconds; -1: wait for ever.
    """
    acquired: list[bool] = []
    try:
        # One call in C takes the lock and notes it: no interrupt comes in between.
        acquired.extend(filter(None, map(lock.acquire, (True,), (timeout,))))
        return work(*args) if acquired else missed
    finally:
        if acquired:
            lock.release()


class Bell:
    """Wakes the threads that wait for something. The thread that rings waits for none of them."""

    def __init__(self) -> None:
        self._sleepers: deque[threading.Lock] = deque()

    def wait(self, is_so: Callable[[], bool], timeout: float = math.inf) -> bool:
        """Wait until `is_so`, at most `timeout` seconds; returns whether it is."""
        end = time.monotonic() + timeout
        asleep = threading.Lock()
        is_listed = False
        while not is_so():
            if not is_listed:
                asleep.acquire(blocking=False)
                self._sleepers.append(asleep)
                is_listed = True
                continue  # it may have become so before the thread was on the list
            left = end - time.monotonic()
            if left <= 0:
                return False
            is_listed = not asleep.acquire(timeout=min(left, LOOK_EVERY))
        return True

    def ring(self) -> None:
        """Something has changed."""
        sleepers = self._sleepers
        try:
            while sleepers:
                sleepers.popleft().release()
        except IndexError:
            pass  # another thread rang, too
