"""Stored messages: read without a consumer, and deleted.

Contract: names, subjects and limits are checked before anything is sent. A message is read from
the stream's leader, which has everything that was acknowledged, or by a direct get (`direct_get`),
which any replica or mirror answers and which may lag a little behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from jetspark.arguments import MOST_SEQUENCE, check_flag, check_whole, checked_but
from jetspark.err_codes import (
    MESSAGE_DELETE_FAILED,
    SEQUENCE_NOT_FOUND,
)
from jetspark.errors import (
    APIError,
    ConfigError,
    MessageNotFoundError,
    NoRespondersError,
    RequestTimeoutError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.documents.configuration import given
from jetspark.jetstream.exact_times import text_of_time
from jetspark.jetstream.requirements import check_feature
from jetspark.jetstream.stored.direct_get import (
    BATCHES,
    LastMsgs,
    Range,
    StoredMsgs,
    direct_get,
    leader_get,
    no_direct_gets,
    read_last,
    read_range,
    read_together,
)
from jetspark.kinds import StreamSequence
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api

BATCH = 1000
"""Messages requested at once: a large batch holds up publishers to the stream."""
BATCH_BYTES = 4 * 1024 * 1024

_NO_MESSAGE = ("EOF", "message found", "message not found", "deleted message")


@checked_but("get_msg")
class StoredCalls:
    """The calls of JetStream for stored messages."""

    _api: Api

    async def get_msg(
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
        if last_by_subject is not None and (seq is not None or next_by_subject is not None):
            raise ConfigError("last_by_subject goes with neither seq nor next_by_subject.")
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise ConfigError("Give seq, last_by_subject or next_by_subject.")
        if seq is not None:
            check_whole("seq", seq, most=MOST_SEQUENCE)
        if direct is not None:
            direct = check_flag("direct", direct)
        for subject in (last_by_subject, next_by_subject):
            if subject is not None:
                check_subscribe_subject(subject)
        check_name("stream", stream)
        body = given(seq=seq, last_by_subj=last_by_subject, next_by_subj=next_by_subject)
        if direct or (direct is None and await self._allows_direct(stream)):
            try:
                return await direct_get(self._api, stream, body)
            except (NoRespondersError, RequestTimeoutError) as error:
                self._api.direct.pop(stream, None)
                if direct and isinstance(error, NoRespondersError):
                    raise await no_direct_gets(self._api, stream) from None
                if isinstance(error, RequestTimeoutError):
                    raise
            except MessageNotFoundError:
                if direct:
                    raise
        return await leader_get(self._api, stream, body)

    def get_msgs(
        self,
        stream: str,
        seq: StreamSequence | None = None,
        *,
        start_time: datetime | None = None,
        subject: str | None = None,
        up_to_seq: StreamSequence | None = None,
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
        if seq is not None and start_time is not None:
            raise ConfigError("Give either seq or start_time, not both.")
        first = 1 if seq is None else seq
        if max_msgs is not None:
            check_whole("max_msgs", max_msgs)
        if up_to_seq is not None and up_to_seq < first:
            raise ConfigError("up_to_seq is before seq.")
        if subject is not None:
            check_subscribe_subject(subject)
        where = {"seq": first} if start_time is None else {"start_time": text_of_time(start_time)}
        self._check_batches(stream, batch, max_bytes)
        wanted = Range(stream, where, subject, up_to_seq, max_msgs, batch, max_bytes, confirm)
        return StoredMsgs(partial(read_range, self._api, wanted))

    def get_last_msgs(
        self,
        stream: str,
        subjects: str | Sequence[str],
        *,
        up_to_seq: StreamSequence | None = None,
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
        wanted = _checked_subjects(subjects)
        if up_to_seq is not None and up_to_time is not None:
            raise ConfigError("Give either up_to_seq or up_to_time, not both.")
        self._check_batches(stream, batch, max_bytes)
        body = given(
            multi_last=wanted,
            up_to_seq=up_to_seq,
            up_to_time=None if up_to_time is None else text_of_time(up_to_time),
            batch=batch,
            max_bytes=max_bytes,
        )
        return StoredMsgs(partial(read_last, self._api, stream, body))

    async def get_last_msgs_together(self, stream: str, subjects: str | Sequence[str]) -> LastMsgs:
        """The last message of each subject that matches, proven to be as of one sequence.

        Unlike `get_last_msgs`, nothing that is replaced while it is read can be missing. The
        server answers for 1,024 subjects and 32 MiB at most: otherwise DirectGetError. The replica
        that answers may lag behind the last ack. Raises RequestTimeoutError when messages were
        replaced again and again, and as `get_msgs`.
        """
        wanted = _checked_subjects(subjects)
        self._check_batches(stream, 1, 1)
        return await read_together(self._api, stream, wanted)

    async def delete_msg(self, stream: str, seq: StreamSequence, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        body = {"seq": seq} if erase else {"seq": seq, "no_erase": True}
        try:
            await self._api.call(js_api.MSG_DELETE, body, stream=stream)
        except APIError as error:
            # A file store has one code for every failure, and the reason only in the text.
            if error.err_code == SEQUENCE_NOT_FOUND or (
                error.err_code == MESSAGE_DELETE_FAILED and error.description.endswith(_NO_MESSAGE)
            ):
                raise MessageNotFoundError(
                    error.code,
                    error.err_code,
                    error.description,
                    f'No message {seq} in stream "{stream}".',
                ) from None
            raise

    async def _allows_direct(self, stream: str) -> bool:
        if stream not in self._api.direct:
            info = await self._api.call(js_api.STREAM_INFO, stream=stream)
            self._api.direct[stream] = bool(info["config"].get("allow_direct"))
        return self._api.direct[stream]

    def _check_batches(self, stream: str, batch: int, max_bytes: int) -> None:
        check_name("stream", stream)
        check_whole("batch", batch)
        check_whole("max_bytes", max_bytes)
        check_feature(BATCHES, (2, 11), self._api.server)


def _checked_subjects(subjects: str | Sequence[str]) -> list[str]:
    wanted = [subjects] if isinstance(subjects, str) else list(subjects)
    if not wanted:
        raise ConfigError("subjects is empty.")
    for subject in wanted:
        check_subscribe_subject(subject)
    return wanted
