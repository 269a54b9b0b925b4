"""Messages dropped at a pending limit, and when to report it."""

from __future__ import annotations


class Drops:
    """Drops are reported once an episode, which ends when a whole queue was accepted since."""

    __slots__ = ("_accepted", "count")

    def __init__(self) -> None:
        self.count = 0
        self._accepted: int | None = None

    def add(self, accepted: int, queued: int) -> bool:
        """Count one more drop; returns whether to report it.

        `accepted`: messages accepted so far; `queued`: messages in the queue. A slow reader makes
        room for one message at a time: that is one episode. When the queue was emptied and is full
        again, a new one begins.
        """
        self.count += 1
        last, self._accepted = self._accepted, accepted
        return last is None or accepted - last >= max(queued, 1)
