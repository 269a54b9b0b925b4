# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: stored calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jetspark.blocking.jetstream.stored import StoredMsgs
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.streams import StoredMsg
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.stored import BATCH, BATCH_BYTES, LastMsgs


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

        By `seq`; the last of a subject; or the first of a subject, from `seq` on if given.
        `direct`: False reads from the stream's leader, True from any replica or mirror. None:
        from any if the stream's `allow_direct` is on (looked up once for each stream), and from
        the leader if it is off or the message was not found. A replica may miss what was stored a
        moment ago, and answer with an older message.

        Raises MessageNotFoundError, StreamNotFoundError, DirectGetError when `direct` is True and
        not allowed, ConfigError, BadSubjectError, and as every API call (see `JetStream`).
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

        From `seq` (default: the first) or `start_time`, to the end, to `up_to_seq` included, or
        `max_msgs` at most. `subject`: only matching ones. Batches have up to `batch` messages and
        about `max_bytes` bytes. `confirm`: when a replica has no more, the leader is asked too,
        since the replica may lag.

        The stream's `allow_direct` must be on. Raises UnsupportedByServerError before 2.11,
        ConfigError, BadNameError, BadSubjectError; while iterating StreamNotFoundError,
        DirectGetError, and as every API call (see `JetStream`).
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

        All as of one moment: now, or after `up_to_seq`, or before `up_to_time`, as far as the
        stream still has those messages; one that is yet to come is now. The server answers for
        1,024 subjects at most: otherwise DirectGetError, status 413. `batch`, `max_bytes` and other
        errors: see `get_msgs`.
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

    def get_last_msgs_together(self, stream: str, subjects: str | Sequence[str]) -> LastMsgs:
        """The last message of each subject that matches, proven to be as of one sequence.

        Unlike `get_last_msgs`, nothing that is replaced while it is read can be missing. The
        server answers for 1,024 subjects and 32 MiB at most: otherwise DirectGetError. The replica
        that answers may lag behind the last ack. Raises RequestTimeoutError when messages were
        replaced again and again, and as `get_msgs`.
        """
        return self._thread.run(self._inner.get_last_msgs_together, stream, subjects)

    def delete_msg(self, stream: str, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        self._thread.run(self._inner.delete_msg, stream, seq, erase=erase)
