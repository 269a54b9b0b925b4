"""Locks that an interrupt leaves free: the moment is random, and none may be unlucky."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jetspark.connection.locks import new_lock, new_rlock


class Interrupted(BaseException):
    """Raised by the signal handler."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
@pytest.mark.parametrize("make", [new_lock, new_rlock])
def test_an_interrupt_leaves_a_lock_free(make: Callable[[], Any]) -> None:
    moments = random.Random(1)
    armed = True

    def handler(*_: object) -> None:
        if armed:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(500):
            lock = make()
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, moments.random() * 0.0003 + 1e-6)
                while True:
                    with lock:
                        pass
            except Interrupted:
                armed = False
            assert taken_elsewhere(lock)
    finally:
        signal.signal(signal.SIGALRM, before)


def taken_elsewhere(lock: Any) -> bool:
    """Whether another thread gets the lock, which it keeps."""
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return taken == [True]


@pytest.mark.parametrize("make", [new_lock, new_rlock])
def test_a_block_has_the_lock_until_its_end(make: Callable[[], Any]) -> None:
    lock = make()
    with lock:
        assert not taken_elsewhere(lock)
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert lock.acquire(blocking=False)
    lock.release()


def test_reentrant_lock_is_entered_again() -> None:
    lock = new_rlock()
    with lock, lock:
        assert not taken_elsewhere(lock)
    assert taken_elsewhere(lock)
