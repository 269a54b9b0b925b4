# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: dead letters."""

from __future__ import annotations

from jetspark.blocking.dead_letters.worker import DeadLetterWorker
from jetspark.blocking.listing import Listing
from jetspark.blocking.loop_thread import LoopThread
from jetspark.dead_letters.dead_letters import DeadLetters as AsyncDeadLetters
from jetspark.dead_letters.dead_letters import Replayed
from jetspark.dead_letters.letter import DeadLetter


class GeneratedDeadLetters:
    """The calls of `DeadLetters` that hand on to its asyncio twin."""

    _thread: LoopThread
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
        """Moves messages inside its block: `with dead.worker():`.

        `remove_originals`: delete each message from its stream when its letter is stored; in work
        queues it would stay for ever. Entering raises ConsumerNotFoundError or StreamNotFoundError
        when the dead letters were deleted. What fails later is reported and tried again.
        """
        return DeadLetterWorker(self._thread, self._inner.worker(remove_originals=remove_originals))

    def move(self, *, remove_originals: bool = False) -> int:
        """Move all messages that wait now; returns how many. For scheduled jobs.

        What fails is reported, and left to the next call or worker. What a killed worker had is
        free after 30 seconds. Raises as entering a worker.
        """
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
        """The letters that are there now, oldest first.

        `stream`, `consumer`: only of these. `subject`: only of messages on it, wildcards allowed.
        `reason`: only "max_deliver" or "terminated". A message that is no letter is reported and
        left out. Iterating raises ConfigError for a stream or consumer that is not watched and has
        no letter.
        """
        return Listing(
            self._thread,
            self._inner.letters(stream=stream, consumer=consumer, subject=subject, reason=reason),
        )

    def letter(self, seq: int) -> DeadLetter:
        """The letter with this sequence. Raises MessageNotFoundError, StreamNotFoundError."""
        return self._thread.run(self._inner.letter, seq)

    def delete(self, letter: DeadLetter) -> None:
        """Delete a letter. Raises MessageNotFoundError when it is not there any more."""
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
        """Publish the messages of the letters again, in their order, and delete these letters.

        `stream`, `consumer`, `subject`, `reason`: as for `letters`. `to`: the subject for all;
        default: each message's own. `keep`: do not delete the letters. A letter without payload
        stays. A message keeps its headers, without those of its first publish (Nats-Msg-Id,
        conditions). A second replay repeats no message within the duplicate window of the stream
        that takes it. If that stream has removed the message since, the letter is reported and
        stays.

        Raises ConfigError when `to` is a subject of dead letters or of the server;
        NoStreamResponseError when no stream takes a message, and as `publish` and `letters`. The
        letters from there on are untouched.
        """
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
        """`replay` for one letter. False: an earlier replay has stored its message.

        Raises MessageNotFoundError when it has no payload, NotStoredError when its message was
        stored before and is not there now, and as `replay`.
        """
        return self._thread.run(self._inner.replay_letter, letter, to=to, keep=keep)

    def __repr__(self) -> str:
        return repr(self._inner)
