"""Whether a consumer's deliveries follow each other (ADR-17).

A consumer counts its deliveries in the reply subjects, from 1, without a gap. Of each reply only
that number is looked at; everything up to the consumer's name is one comparison of bytes.
"""

from __future__ import annotations

from jetspark.errors import NotJetStreamMessageError
from jetspark.wire.reply_subject import delivery_parts

_NEVER = b"\x00"


class ConsumerOrder:
    """The position in the deliveries of consumers that were made one after the other.

    A change to another consumer is in order when its first delivery comes, and continues in the
    stream behind the last one. `copy` looks ahead without moving.
    """

    __slots__ = ("_cut", "_last", "_next", "_prefix")

    def __init__(self) -> None:
        self._prefix = _NEVER
        self._cut = 0
        self._next = 1
        self._last = b"0"

    def follows(self, reply: bytes | None) -> bool:
        """Whether this delivery is the next one; then it is the last one from now on."""
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
        self._last = numbers[1]
        return True

    def _follows_change(self, reply: bytes | None) -> bool:
        try:
            prefix, stream_seq, consumer_seq = delivery_parts(reply)
        except NotJetStreamMessageError:
            return False
        if consumer_seq != 1 or stream_seq <= self.stream_seq:
            return False
        self._prefix, self._cut = prefix, len(prefix)
        self._next = 2
        self._last = b"%d" % stream_seq
        return True

    @property
    def stream_seq(self) -> int:
        """Of the last delivery in order; 0 before the first."""
        return int(self._last)

    @property
    def expected(self) -> int:
        """The number of the next delivery of the present consumer."""
        return self._next

    def copy(self) -> ConsumerOrder:
        """Another one at the same position."""
        other = ConsumerOrder()
        other._prefix, other._cut = self._prefix, self._cut
        other._next, other._last = self._next, self._last
        return other
