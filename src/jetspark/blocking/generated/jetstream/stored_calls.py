# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: stored calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jetspark.blocking.jetstream.stored import StoredMsgs
from jetspark.blocking.loop_thread import LoopThread
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.stored.calls import BATCH, BATCH_BYTES


class GeneratedStoredCalls:
    """The calls of `StoredCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def get_msg(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        direct: bool | None = None,
    ) -> StoredMsg:
        """One stored message.

        By `seq`; the last of a subject; or the first of a subject, from `seq` on when given.
        `direct`: False asks the stream's leader, True any server that has a copy. None asks any
        server if the stream's `allow_direct` is on (looked up once for each stream), and the
        leader if it is off or if that server does not have the message. A server other than the
        leader may miss what was stored a moment ago, and answer with an older message.

        Raises MessageNotFoundError, and DirectGetError when `direct` is True and not allowed.
        """
        return self._thread.run(
            self._inner.get_msg,
            stream,
            seq,
            last_by_subject=last_by_subject,
            next_by_subject=next_by_subject,
            direct=direct,
        )

    def get_msgs(
        self,
        stream: str,
        seq: int | None = None,
        *,
        start_time: datetime | None = None,
        subject: str | None = None,
        up_to_seq: int | None = None,
        max_msgs: int | None = None,
        batch: int = BATCH,
        max_bytes: int = BATCH_BYTES,
        confirm: bool = True,
    ) -> StoredMsgs:
        """Stored messages in order, without a consumer.

        From `seq` (default: the first), or from `start_time`, to what is the end when it is
        reached, to `up_to_seq` included, or until there were `max_msgs`. `subject`: only matching
        ones. They are asked for in batches of up to `batch` messages and about `max_bytes` bytes.
        `confirm`: when the server that answers has no more, the leader is asked too, since the
        others may lag.

        The stream's `allow_direct` must be on. Needs server 2.11, or raises
        UnsupportedByServerError. While iterating: StreamNotFoundError, DirectGetError,
        RequestTimeoutError.
        """
        return StoredMsgs(
            self._thread,
            self._inner.get_msgs(
                stream,
                seq,
                start_time=start_time,
                subject=subject,
                up_to_seq=up_to_seq,
                max_msgs=max_msgs,
                batch=batch,
                max_bytes=max_bytes,
                confirm=confirm,
            ),
        )

    def get_last_msgs(
        self,
        stream: str,
        subjects: str | Sequence[str],
        *,
        up_to_seq: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = BATCH,
        max_bytes: int = BATCH_BYTES,
    ) -> StoredMsgs:
        """The last message of each subject that matches one of `subjects`, in stream order.

        All as of one moment: now, or as the stream was after `up_to_seq` or before `up_to_time`,
        as far as it still holds those messages. The server answers for 1024 subjects at most
        (DirectGetError, status 413). `batch`, `max_bytes` and errors: see `get_msgs`.
        """
        return StoredMsgs(
            self._thread,
            self._inner.get_last_msgs(
                stream,
                subjects,
                up_to_seq=up_to_seq,
                up_to_time=up_to_time,
                batch=batch,
                max_bytes=max_bytes,
            ),
        )

    def delete_msg(self, stream: str, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError.
        """
        self._thread.run(self._inner.delete_msg, stream, seq, erase=erase)
