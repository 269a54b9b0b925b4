"""What became of the messages of a `FastIngest`.

Contract: numbers begin at 1 as in the protocol, indexes at 0. All up to `done` have their fate;
of those after it some may have failed already. Memory is for what is on its way, and for failures.

Threads: `_take` and `_withdraw` are for senders, one at a time, in any thread; all the rest is for
the event loop's. Numbers that were not sent are the senders' own, but for `_fail`.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from jetspark.jetstream.publishing.results import PublishFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jetspark.errors import JetsparkError
    from jetspark.jetstream.documents import PubAck


class MessageFates:
    """The results of a batch, and how they come to be."""

    def __init__(self) -> None:
        self._sent = 0
        self._published = 0  # the last one that is certainly on its way
        self._done = 0
        self._subjects: list[str] = []  # of those after `done`
        self._subject = ""  # of the last one that is `done` and was let through
        self._refused: set[str] = set()  # subjects that may not be published to
        self._failures: set[int] = set()  # of those after `done`
        self._failed: list[PublishFailure] = []
        self._looked_at = 0
        self._ack: PubAck | None = None
        self._lock = Lock()  # between `_withdraw` and `_fail`

    @property
    def sent(self) -> int:
        """Messages taken so far; each is acked, failed or pending."""
        return self._sent

    @property
    def pending(self) -> int:
        """Messages of which nothing is known yet."""
        return self._sent - self._done - len(self._failures)

    @property
    def acked(self) -> int:
        """Messages acknowledged so far."""
        return self._done + len(self._failures) - len(self._failed)

    @property
    def failed(self) -> list[PublishFailure]:
        """The messages that failed so far. Reading counts as having looked at them."""
        failed = self._failed.copy()
        self._looked_at = len(failed)
        return failed

    @property
    def ack(self) -> PubAck | None:
        """The server's last word: `seq` of the last message stored; None before."""
        return self._ack

    def _open_subject(self) -> str | None:
        """That of the last message that may have been let through."""
        with self._lock:
            return next(self._let_through((self._subject, *self._subjects)), None)

    def _let_through(self, subjects: Sequence[str]) -> Iterator[str]:
        """Those of messages in their order; the last one first."""
        return (each for each in reversed(subjects) if each and each not in self._refused)

    def _refuse(self, subject: str) -> tuple[list[int], bool]:
        """Messages with this subject that have no fate yet, and whether that is news here."""
        with self._lock:
            subjects = self._subjects.copy()
        news = subject not in self._refused and subject in (self._subject, *subjects)
        if news:
            self._refused.add(subject)
        numbers = enumerate(subjects, self._done + 1)
        return [number for number, each in numbers if each == subject], news

    def _take(self, subject: str) -> int:
        """One more message: its index."""
        index = self._sent
        self._subjects.append(subject)
        self._sent = index + 1
        return index

    def _withdraw(self, index: int) -> bool:
        """Take back the newest message, which was not sent. False: it has failed already."""
        with self._lock:
            if index + 1 in self._failures:
                return False
            self._sent = index
            self._subjects.pop()
            return True

    def _fail(self, number: int, error: JetsparkError) -> None:
        """The first reason counts."""
        with self._lock:
            if number in self._failures or not self._done < number <= self._sent:
                return
            self._failures.add(number)
            subject = self._subjects[number - self._done - 1]
        self._failed.append(PublishFailure(number - 1, subject, error))

    def _pass(self, number: int) -> None:
        """All up to this one are stored, except what failed."""
        number = min(number, self._sent)
        step = number - self._done
        if step <= 0:
            return
        self._subject = next(self._let_through(self._subjects[:step]), self._subject)
        del self._subjects[:step]
        self._done = number
        if self._failures:
            self._failures = {failed for failed in self._failures if failed > number}
