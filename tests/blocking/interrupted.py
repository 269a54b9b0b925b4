"""A Ctrl-C while a thread waits for a call of the event loop."""

from __future__ import annotations

import threading

import pytest

from jetspark.blocking.loop_thread import _Call


def interrupt_next_wait(monkeypatch: pytest.MonkeyPatch, begun: threading.Event) -> None:
    """The next call of a blocking client is interrupted when `begun` is set."""

    class Interrupted:
        """A lock whose first waiter gets a Ctrl-C."""

        def acquire(self, timeout: float) -> bool:
            assert begun.wait(30)
            monkeypatch.undo()
            raise KeyboardInterrupt

        def release(self) -> None: ...

    create = _Call.__init__

    def make(self: _Call, *args: object) -> None:
        create(self, *args)  # type: ignore[arg-type]
        self.ended = Interrupted()  # type: ignore[assignment]

    monkeypatch.setattr(_Call, "__init__", make)


def interrupt_wait(
    monkeypatch: pytest.MonkeyPatch, kind: type[_Call], turn: int, *, ended: bool
) -> None:
    """A wait for a call of this kind is interrupted, when it has `ended` or at once."""
    create, made = kind.__init__, 0

    class Interrupted:
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._lock.acquire()
            self._again = False
            self.release = self._lock.release

        def acquire(self, timeout: float) -> bool:
            if self._again:
                return self._lock.acquire(timeout=timeout)
            assert not ended or self._lock.acquire(timeout=30)
            self._again = True
            raise KeyboardInterrupt

    def make(self: _Call, *args: object) -> None:
        nonlocal made
        create(self, *args)  # type: ignore[arg-type]
        made += 1
        if made == turn:
            self.ended = Interrupted()  # type: ignore[assignment]

    monkeypatch.setattr(kind, "__init__", make)
