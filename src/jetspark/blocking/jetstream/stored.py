"""Stored messages: read without a consumer, deleted one by one, without async.

Contract: that of `jetspark.jetstream.stored`.
"""

from __future__ import annotations

from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.documents import StoredMsg


class StoredCalls:
    """The part of JetStream that is about single stored messages."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def get_msg(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
    ) -> StoredMsg:
        """One stored message, as the stream's leader has it.

        By `seq`; the last of a subject; or the first of a subject, from `seq` on when given.
        Raises MessageNotFoundError.
        """
        return self._thread.run(
            self._inner.get_msg,
            stream,
            seq,
            last_by_subject=last_by_subject,
            next_by_subject=next_by_subject,
        )

    def delete_msg(self, stream: str, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError.
        """
        self._thread.run(self._inner.delete_msg, stream, seq, erase=erase)
