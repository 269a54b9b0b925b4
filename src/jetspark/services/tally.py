"""What an endpoint has done, counted. Pure."""

from __future__ import annotations

import threading


class Tally:
    """Counts of one endpoint, from one thread."""

    __slots__ = ("errors", "last_error", "ns", "requests", "taken")

    def __init__(self) -> None:
        self.taken = 0
        """Bytes of the requests that have left the queue."""
        self.reset()

    def reset(self) -> None:
        """Begin the statistics again."""
        self.requests = 0
        self.errors = 0
        self.last_error = ""
        self.ns = 0
        """In the handler, nanoseconds."""

    def begun(self, size: int) -> None:
        """A request more, taken from the queue."""
        self.requests += 1
        self.taken += size

    def failed(self, description: str) -> None:
        """An error more."""
        self.errors += 1
        self.last_error = description

    def handled(self, ns: int) -> None:
        """A handler has ended."""
        self.ns += ns


class SharedTally(Tally):
    """The same from several threads."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        super().__init__()

    def reset(self) -> None:
        with self._lock:
            super().reset()

    # Written out again: a call of the base is half of the time.

    def begun(self, size: int) -> None:
        with self._lock:
            self.requests += 1
            self.taken += size

    def failed(self, description: str) -> None:
        with self._lock:
            self.errors += 1
            self.last_error = description

    def handled(self, ns: int) -> None:
        with self._lock:
            self.ns += ns
