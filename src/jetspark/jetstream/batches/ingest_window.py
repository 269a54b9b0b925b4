"""The window of a fast-ingest batch: messages in flight, until they are acknowledged or fail.

Contract. No I/O, no event loop, no clock. Messages are numbered from 1, as in the protocol; users
see indexes, from 0. A message ends exactly once: acknowledged, or in `failures`, or taken back by
`withdraw`. All messages up to `done` have ended; of those after it, some may have failed already.
Memory is used only for messages that have not ended, and for failures.

Threads. `reserve`, `withdraw` and `published` are for senders, one at a time, in any thread; all
the rest is for the event loop's thread; attributes and counts may be read anywhere. Both sides use
one list, whose single operations are atomic. Where two operations belong together there is a lock,
which the sender of a successful message does not need.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import TYPE_CHECKING

from jetspark.errors import NoStreamResponseError
from jetspark.jetstream.publishing.results import PublishFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetspark.errors import JetsparkError


class IngestWindow:
    """`flow`: messages for one ack. `outstanding`: acks that may be missing. Closed at first."""

    __slots__ = (
        "_doubted",
        "_failed_ahead",
        "_flow",
        "_lock",
        "_outstanding",
        "_refused",
        "_subject",
        "_subjects",
        "closed",
        "done",
        "failures",
        "limit",
        "published",
        "sent",
    )

    def __init__(self, *, flow: int, outstanding: int) -> None:
        self.sent = 0
        """Messages taken so far."""
        self.published = 0
        """The last message that was certainly sent; senders set it."""
        self.done = 0
        """All messages up to this one have ended."""
        self.limit: float = math.inf
        """No message is let in while so many were taken. Without end when closed: none waits."""
        self.failures: list[PublishFailure] = []
        """What failed, in the order in which that was known."""
        self._flow = flow
        self._outstanding = outstanding
        self._subjects: list[str] = []  # of the messages after `done`
        self._subject = ""  # of the last one that is `done`, as `_newest` chooses
        self._refused: set[str] = set()  # subjects that may not be published to
        self._doubted: set[str] = set()  # subjects that nobody took a message of
        self._failed_ahead: set[int] = set()  # numbers after `done`
        self.closed = True
        """Whether no more messages are taken."""
        self._lock = Lock()

    @property
    def full(self) -> bool:
        """Whether a sender has to wait."""
        return self.sent >= self.limit

    @property
    def pending(self) -> int:
        """Messages that have not ended."""
        return self.sent - self.done - len(self._failed_ahead)

    @property
    def acked(self) -> int:
        """Messages acknowledged."""
        return self.done + len(self._failed_ahead) - len(self.failures)

    # -- senders -------------------------------------------------------------------------------

    def reserve(self, subject: str) -> int:
        """Take a message: its index. Never waits. Whether it may be sent, `closed` says then.

        In this order: whoever closes the window sees the message, or the sender sees `closed`.
        """
        index = self.sent
        self._subjects.append(subject)
        self.sent = index + 1
        return index

    def withdraw(self, index: int) -> bool:
        """Take back the newest message, which was not sent. False: it has ended already."""
        with self._lock:
            if index + 1 in self._failed_ahead or index < self.done:
                return False
            self.sent = index
            self._subjects.pop()
            return True

    # -- the event loop's thread -----------------------------------------------------------------

    def open(self) -> None:
        """Accept messages: one, until the server has said how many may be in flight."""
        self.closed = False
        self.limit = 1

    def close(self) -> None:
        """Take no more; those that were taken may still be acknowledged."""
        self.closed = True
        self.limit = math.inf

    def acked_up_to(self, number: int, flow: int | None = None) -> None:
        """All messages up to this one are stored, except those that failed.

        `flow`: the server's word on how many messages get one ack from now on.
        """
        if flow is not None:
            self._flow = flow
        with self._lock:
            number = min(number, self.sent)
            step = number - self.done
            if step > 0:
                self._subject = self._newest([self._subject, *self._subjects[:step]]) or ""
                del self._subjects[:step]
                self.done = number
                if self._failed_ahead:
                    self._failed_ahead = {each for each in self._failed_ahead if each > number}
        self._let_in()

    def failed(self, numbers: Sequence[int], error: JetsparkError) -> None:
        """These messages are lost or refused; the first reason that is given counts."""
        for number in numbers:
            with self._lock:
                if number in self._failed_ahead or not self.done < number <= self.sent:
                    continue
                self._failed_ahead.add(number)
                subject = self._subjects[number - self.done - 1]
            self.failures.append(PublishFailure(number - 1, subject, error))
        self._let_in()

    def over(self, error: JetsparkError) -> None:
        """No more replies will arrive: close, and fail the messages that have not ended."""
        self.close()
        self.failed(range(self.done + 1, self.sent + 1), error)

    def _let_in(self) -> None:
        """What failed does not count as outstanding."""
        if not self.closed:
            self.limit = self.done + len(self._failed_ahead) + self._flow * self._outstanding

    # -- subjects --------------------------------------------------------------------------------

    def open_subject(self) -> str | None:
        """The subject of the newest message that may have been let through."""
        with self._lock:
            return self._newest([self._subject, *self._subjects])

    def nobody_took(self, number: int) -> None:
        """There were no responders for this message: others' subjects serve better to ask."""
        with self._lock:
            at = number - self.done - 1
            subject = self._subjects[at] if 0 <= at < len(self._subjects) else ""
            self._doubted.add(subject)
        self.failed((number,), NoStreamResponseError(subject))

    def refuse(self, subject: str) -> tuple[list[int], bool]:
        """The subject may not be published to: its messages, and whether that is news here."""
        with self._lock:
            news = subject not in self._refused and subject in (self._subject, *self._subjects)
            if news:
                self._refused.add(subject)
            numbers = enumerate(self._subjects, self.done + 1)
            return [number for number, each in numbers if each == subject], news

    def _newest(self, subjects: list[str]) -> str | None:
        """The last that may be published to, if possible one that had responders."""
        fitting = (each for each in reversed(subjects) if each and each not in self._refused)
        if not self._doubted:
            return next(fitting, None)
        kept = [*fitting]
        return next((each for each in kept if each not in self._doubted), kept[0] if kept else None)
