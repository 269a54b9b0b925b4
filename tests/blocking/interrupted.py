"""A Ctrl-C while a thread waits for a call of the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.blocking.loop_thread import _Call

if TYPE_CHECKING:
    import threading

    import pytest


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
