"""Checks that a consumer's deliveries have no gap (ADR-17).

A consumer numbers its deliveries from 1 on; the reply subject has that consumer sequence. To be
fast, only this token is parsed, and the tokens before it are compared as one prefix.
"""

from __future__ import annotations

from jetspark.errors import NotJetStreamMessageError
from jetspark.wire.reply_subject import delivery_parts

_NEVER = b"\x00"
_NOTHING = [b"", b"0", b"", b"0"]


class ConsumerOrder:
    """The position in the deliveries of a consumer, and of those created to replace it.

    A new consumer is in order when its first delivery has consumer sequence 1 and a stream sequence
    after the last one. To look ahead, use a `copy`.
    """

    __slots__ = ("_cut", "_last", "_next", "_prefix")  # _last: the numbers of the last delivery

    def __init__(self) -> None:
        self._prefix = _NEVER
        self._cut = 0
        self._next = 1
        self._last = _NOTHING

    def follows(self, reply: bytes | None) -> bool:
        """Whether this delivery is the next one; if so, move on to it."""
        if reply is None or not reply.startswith(self._prefix):
            return self._follows_change(reply)
        # <deliveries>.<stream sequence>.<consumer sequence>.<rest>
        numbers = reply[self._cut :].split(b".", 3)
        try:
            if int(numbers[2]) != self._next:
                return False
        except (IndexError, ValueError):
            return False
        self._next += 1
        self._last = numbers
        return True

    def _follows_change(self, reply: bytes | None) -> bool:
        try:
            prefix, stream_seq, consumer_seq = delivery_parts(reply)
        except NotJetStreamMessageError:
            return False
        if reply is None or consumer_seq != 1 or stream_seq <= self.stream_seq:
            return False
        self._prefix, self._cut = prefix, len(prefix)
        self._next = 2
        self._last = reply[self._cut :].split(b".", 3)
        return True

    @property
    def stream_seq(self) -> int:
        """Stream sequence of the last delivery in order; 0 before the first."""
        return int(self._last[1])

    @property
    def time_ns(self) -> int:
        """When that message was stored, nanoseconds since the epoch; 0 before the first."""
        try:
            return int(self._last[3].partition(b".")[0])
        except (IndexError, ValueError):
            return 0

    @property
    def expected(self) -> int:
        """The consumer sequence of the next delivery."""
        return self._next

    def copy(self) -> ConsumerOrder:
        """An independent copy at the same position."""
        other = ConsumerOrder()
        other._prefix, other._cut = self._prefix, self._cut
        other._next, other._last = self._next, self._last
        return other
