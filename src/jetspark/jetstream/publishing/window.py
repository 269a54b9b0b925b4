"""The window of a publisher: messages in flight, until they are acknowledged or fail.

Contract. No I/O, no event loop, no clock: times are numbers that the caller gives. A message ends
exactly once: by `take`, when its reply has arrived, or in a list that `overdue`, `lost` or `close`
returns. A message that was `refused` temporarily keeps its place, and the window is held: in each
round one message of each subject is tried again, and one new message is admitted, which shows
whether only some subjects are refused. When one of them gets a reply, the others are sent again in
their order, and then new ones.

Messages are sent again if they are certainly not stored; if that is unknown, `unknown_again`
decides. After `retry_for` seconds they fail. Those that are refused later fail at the same time as
the first one if nothing was acknowledged since: a whole window has waited already.

Threads. `reserve` and `withdraw` are for senders, one at a time, in any thread; all the rest is
for the event loop's thread; `count`, `limit` and `sent` may be read anywhere. Both sides use one
dict, whose single operations are atomic, and which is only iterated as a copy. Where two operations
belong together there is a lock, which a successful message does not need.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.errors import JetsparkError
    from jetspark.jetstream.documents import PubAck
    from jetspark.wire.headers import Headers

Told: TypeAlias = "Callable[[PubAck | JetsparkError], None]"
"""Called once with the ack or the error of one message, in the event loop's thread."""

Unacked: TypeAlias = "tuple[str, bytes, Headers | None, float, Told | None]"
"""(subject, payload, headers, deadline, told); a plain tuple, since there is one per message."""

CLOSED = -1


class Window:
    """`size`: most messages in flight. Closed until `open`."""

    __slots__ = (
        "_closed",
        "_entries",
        "_held_at",
        "_lock",
        "_refused",
        "_refused_at",
        "_refused_since",
        "_retry_for",
        "_unknown",
        "_unknown_again",
        "_waiting",
        "count",
        "deadline",
        "find",
        "held",
        "limit",
        "released",
        "sent",
        "size",
        "take",
        "troubled",
    )

    def __init__(
        self, size: int, *, retry_for: float, unknown_again: Callable[[Unacked], bool]
    ) -> None:
        self.size = size
        self.limit = size
        """Senders wait at this count: `size`, or less while messages are refused."""
        self.sent = 0
        """Messages accepted so far."""
        self.held = False
        """Whether messages were refused, without a reply to one since."""
        self.released = False
        """Whether that is over, and the other refused ones can be sent `again` at once."""
        self.deadline = 0.0
        """When a message that is sent now becomes overdue; the owner updates it."""
        self.troubled: dict[int, float] = {}
        """Messages with a failed attempt, and when to give up on them."""
        self._retry_for = retry_for
        self._unknown_again = unknown_again
        self._entries: dict[int, Unacked] = {}
        self._waiting: set[int] = set()  # of the troubled: to be sent again
        self._refused: set[int] = set()  # of the troubled: that kept new ones out
        self._unknown: set[int] = set()  # of the troubled: they may be stored
        self._refused_since: float | None = None
        """When the first message was refused, if none was acknowledged since."""
        self._refused_at = 0.0  # the last one
        self._held_at = 0
        self._closed = True
        self._lock = Lock()
        # Methods of the dict itself: they are called for every message.
        self.count = self._entries.__len__
        """Messages that have not ended."""
        self.find = self._entries.get
        """The entry of an index; None when it has ended."""
        self.take = self._entries.pop
        """Remove and return the entry of an index. KeyError when it has ended."""

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""
        return self.count() >= self.limit

    # -- senders -------------------------------------------------------------------------------

    def reserve(
        self, subject: str, payload: bytes, headers: Headers | None, told: Told | None
    ) -> int:
        """Add a message and return its index; CLOSED when the window is closed. Never waits."""
        index = self.sent
        # In this order: either `close` finds the entry, or we find that it is closed.
        self._entries[index] = (subject, payload, headers, self.deadline, told)
        self.sent = index + 1
        if self._closed and self.withdraw(index):
            return CLOSED
        return index

    def withdraw(self, index: int) -> bool:
        """Remove the newest message, which was not sent. False: it has ended already."""
        with self._lock:
            if index in self.troubled or self._entries.pop(index, None) is None:
                return False
            self.sent = index
            return True

    # -- the loop's thread: answers ------------------------------------------------------------

    def acknowledged(self, index: int) -> None:
        """A message that was taken is stored. Needed only while the window is `watched`."""
        self._refused_since = None
        self.settled(index)

    def settled(self, index: int) -> None:
        """A message that was taken has ended. Needed only while the window is `watched`."""
        if self._forget(index) or index >= self._held_at:
            self._let_in()

    def _forget(self, index: int) -> bool:
        """Whether it was troubled."""
        for some in (self._waiting, self._refused, self._unknown):
            some.discard(index)
        return self.troubled.pop(index, None) is not None

    def refused(self, index: int, now: float, *, stored: bool = False) -> bool:
        """It was not stored and waits to be sent again. False: its time is over, give it up.

        `stored`: an earlier attempt may be stored.
        """
        if self._refused_since is None or now - self._refused_at > self._retry_for:
            self._refused_since = now
        self._refused_at = now
        if self.troubled.setdefault(index, self._refused_since + self._retry_for) <= now:
            return False
        if stored:
            self._unknown.add(index)
        self._waiting.add(index)
        if index not in self._refused:
            self._refused.add(index)
            self.hold()
        return True

    def hold(self) -> None:
        """Messages are refused: until one gets a reply, admit only one new message per round."""
        self._held_at = self.sent
        self.held, self.released = True, False
        self.limit = 0

    @property
    def watched(self) -> bool:
        """Whether `settled` and `acknowledged` have to be called."""
        return self.held or self._refused_since is not None or bool(self.troubled)

    def _let_in(self) -> None:
        """Admit new messages; after a hold, first send the waiting ones again."""
        self.released = bool(self._waiting) and (self.held or self.released)
        self.held = False
        self.limit = 0 if self.released else self.size

    def may_be_stored(self, index: int) -> bool:
        """Whether an attempt to send it may have succeeded."""
        return index in self._unknown

    # -- the loop's thread: time and the link ----------------------------------------------------

    def overdue(self, now: float) -> list[tuple[int, Unacked]]:
        """Remove and return messages without a reply in time, unless they are sent again."""
        return self._end([item for item in self._on_their_way() if item[1][3] <= now], now)

    def lost(self, now: float) -> list[tuple[int, Unacked]]:
        """The link was lost: as `overdue`, for all messages in flight."""
        return self._end(self._on_their_way(), now)

    def refused_for_good(self, is_so: Callable[[int, Unacked], bool]) -> list[tuple[int, Unacked]]:
        """Remove and return those in flight for which `is_so`: they never reached a stream."""
        return self._out([item for item in self._on_their_way() if is_so(*item)])

    def due(self, now: float) -> list[int]:
        """Start a round: the indexes to send `again` now, in order."""
        indexes = sorted(self._waiting)
        if not self.held:
            return indexes
        self.limit = min(self.size, self.count() + 1)
        tried: set[str] = set()
        due = []
        for index in indexes:
            subject = self._entries[index][0]
            # The first of its subject, or its last attempt.
            if subject not in tried or self.troubled[index] <= now:
                tried.add(subject)
                due.append(index)
        return due

    def again(self, index: int) -> Unacked | None:
        """The entry of one that is `due`, to be sent now. None: no longer needed."""
        if index not in self._waiting:
            return None
        self._waiting.discard(index)
        subject, payload, headers, _, told = self._entries[index]
        entry = self._entries[index] = (subject, payload, headers, self.deadline, told)
        if self.released and not self._waiting:
            self._let_in()
        return entry

    def open(self) -> None:
        """Accept messages from now on."""
        self.held = self.released = False
        self.limit = self.size
        self._closed = False

    def close(self) -> list[tuple[int, Unacked]]:
        """Accept no more; remove and return all."""
        self._closed = True
        return self._out(list(self._entries.copy().items()))

    def _on_their_way(self) -> list[tuple[int, Unacked]]:
        items = self._entries.copy().items()
        return [item for item in items if item[0] not in self._waiting]

    def _end(self, items: list[tuple[int, Unacked]], now: float) -> list[tuple[int, Unacked]]:
        out = []
        for index, entry in items:
            until = self.troubled.get(index, now + self._retry_for)
            if until <= now or not self._unknown_again(entry):
                out.append((index, entry))
                continue
            with self._lock:
                if index in self._entries:
                    self.troubled[index] = until
                    self._unknown.add(index)
                    self._waiting.add(index)
        return self._out(out)

    def _out(self, items: list[tuple[int, Unacked]]) -> list[tuple[int, Unacked]]:
        out = [item for item in items if self._entries.pop(item[0], None) is not None]
        for index, _ in out:
            self._forget(index)
        if self.released and not self._waiting:
            self._let_in()
        return out
