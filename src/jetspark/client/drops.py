"""Messages dropped at a pending limit, and when to say so."""

from __future__ import annotations


class Drops:
    """Told each time it begins: again when a whole queue has come since the last drop."""

    __slots__ = ("_accepted", "count")

    def __init__(self) -> None:
        self.count = 0
        self._accepted: int | None = None

    def add(self, accepted: int, queued: int) -> bool:
        """One more; whether to tell. `accepted`: messages taken so far, `queued`: here now.

        A reader that keeps up with a part of what comes makes room for one message at a time: that
        is one long story. A queue that was emptied and is full again is a new one, whoever
        emptied it, and in how many steps.
        """
        self.count += 1
        last, self._accepted = self._accepted, accepted
        return last is None or accepted - last >= max(queued, 1)
