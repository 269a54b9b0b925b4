# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from jetspark.blocking.dead_letters.dead_letters import DeadLetters
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.streams import StreamSettings
from jetspark.full_client import JetStream as AsyncJetStream


class GeneratedDeadLetterCalls:
    """The calls of `DeadLetterCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_dead_letters(
        self,
        name: str,
        streams: str | Iterable[str],
        *,
        consumers: str | Iterable[str] | None = None,
        **options: Unpack[StreamSettings],
    ) -> DeadLetters:
        """Store the messages that consumers of `streams` give up, from now on.

        These are messages delivered `max_deliver` times without an ack, and those that were
        terminated (`term`). A worker moves them (`DeadLetters.worker`). `consumers`: only of these.
        `name`: of the stream for the letters; a second one, `<name>_ADVISORIES`, holds what is to
        be moved. A second call changes what is there. `options`: fields of StreamConfig for the
        stream of the letters, such as max_age; storage, num_replicas and placement are for both.

        Raises ConfigError when another stream has one of the names or stores these advisories
        already, and when letters that are given up would come back to these dead letters;
        StreamNotFoundError for one of `streams` that does not exist; and as every API call (see
        `JetStream`).
        """
        return DeadLetters(
            self._thread,
            self._thread.run(
                self._inner.create_dead_letters, name, streams, consumers=consumers, **options
            ),
        )

    def dead_letters(self, name: str) -> DeadLetters:
        """The dead letters of this name.

        Raises StreamNotFoundError, ConfigError for another stream, and as every API call (see
        `JetStream`).
        """
        return DeadLetters(self._thread, self._thread.run(self._inner.dead_letters, name))

    def delete_dead_letters(self, name: str) -> None:
        """Delete dead letters and what is still to be moved, and store no more.

        Raises as `dead_letters`.
        """
        self._thread.run(self._inner.delete_dead_letters, name)
