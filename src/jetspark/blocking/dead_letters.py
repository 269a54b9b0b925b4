# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Dead letters without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.iterators import Listing
from jetspark.blocking.twin import AsyncBlock, Twin
from jetspark.dead_letters.dead_letters import DeadLetters as AsyncDeadLetters
from jetspark.dead_letters.dead_letters import Replayed
from jetspark.dead_letters.letter import DeadLetter
from jetspark.dead_letters.worker import DeadLetterWorker as AsyncDeadLetterWorker

__all__ = ["DeadLetterWorker", "DeadLetters"]


@twin_of(AsyncDeadLetterWorker)
class DeadLetterWorker(AsyncBlock):
    """The result of `DeadLetters.worker`: it moves messages inside its block."""

    _inner: AsyncDeadLetterWorker

    @property
    def moved(self) -> int:
        """Letters that this worker stored."""
        return self._inner.moved

    @property
    def gone(self) -> int:
        """Letters without payload, since the stream no longer had the message."""
        return self._inner.gone

    def wait(self) -> None:
        """Wait until its block is left."""
        self._thread.run(self._inner.wait)


@twin_of(AsyncDeadLetters)
class DeadLetters(Twin):
    """The dead letters of some streams or consumers; see `JetStream.create_dead_letters`."""

    _inner: AsyncDeadLetters

    @property
    def name(self) -> str:
        """The name of the stream that stores the letters."""
        return self._inner.name

    @property
    def advisories(self) -> str:
        """The name of the stream that stores the advisories until they are handled."""
        return self._inner.advisories

    def worker(self, *, remove_originals: bool = False) -> DeadLetterWorker:
        """Moves messages inside its block: `with dead.worker():`."""
        return DeadLetterWorker(self._caller, self._inner.worker(remove_originals=remove_originals))

    def move(self, *, remove_originals: bool = False) -> int:
        """Move all messages that wait now; returns how many. For scheduled jobs."""
        return self._thread.run(self._inner.move, remove_originals=remove_originals)

    def waiting(self) -> int:
        """How many advisories wait for a worker."""
        return self._thread.run(self._inner.waiting)

    def letters(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
    ) -> Listing[DeadLetter]:
        """The letters that are stored now, oldest first."""
        return Listing(
            self._caller,
            self._inner.letters(stream=stream, consumer=consumer, subject=subject, reason=reason),
        )

    def letter(self, seq: int) -> DeadLetter:
        """The letter with this sequence. Raises MessageNotFoundError, StreamNotFoundError."""
        return self._thread.run(self._inner.letter, seq)

    def delete(self, letter: DeadLetter) -> None:
        """Delete a letter. Raises MessageNotFoundError when it no longer exists."""
        self._thread.run(self._inner.delete, letter)

    def replay(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        keep: bool = False,
    ) -> Replayed:
        """Publish the messages of the letters again, in their order, and delete these letters."""
        return self._thread.run(
            self._inner.replay,
            stream=stream,
            consumer=consumer,
            subject=subject,
            reason=reason,
            to=to,
            keep=keep,
        )

    def replay_letter(
        self, letter: DeadLetter, *, to: str | None = None, keep: bool = False
    ) -> bool:
        """`replay` for one letter. False: an earlier replay stored its message."""
        return self._thread.run(self._inner.replay_letter, letter, to=to, keep=keep)
