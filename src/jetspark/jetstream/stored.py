"""Stored messages: read without a consumer (direct gets, or from the leader), and deleted.

The stream's leader has every acknowledged message. Any replica of the stream or its mirrors answers
a direct get (ADR-31), so the answer may be older than the last ack: a missing message or the end of
a batch is a hint, not a proof. Batches are requested one after the other, small enough not to hold
up the stream's publishers. Each message names the sequence sent before it, and the end of a batch
the last one, so a lost message shows at once (a lost end after the context's timeout, or with the
link), and the next request starts after the last message in order.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jetspark.errors as errors
from jetspark.client.listing import Listing
from jetspark.client.messages import Message
from jetspark.documents.configuration import given
from jetspark.documents.document import Timestamp, from_wire, text_of_time
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import StoredMsg
from jetspark.err_codes import NO_MESSAGE_FOUND, SEQUENCE_NOT_FOUND, STREAM_MSG_DELETE_FAILED
from jetspark.jetstream.api import Api
from jetspark.jetstream.stream_handle import StreamHandle
from jetspark.jetstream.stream_requests import stream_info
from jetspark.subjects import check_subscribe_subject
from jetspark.validation import check_moment, check_sequence, check_whole, texts_of
from jetspark.wire import js_api
from jetspark.wire.direct_get import DirectReply, parse_direct_reply, parse_end_of_batch
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import frame_of
from jetspark.wire.status import END_OF_BATCH, NO_RESPONDERS, NOT_FOUND, TOO_MANY_RESULTS, Status

BATCHES = "reading stored messages in batches"

TOGETHER = 1024
"""Most subjects that a server answers for."""
TOGETHER_BYTES = 32 * 1024 * 1024
"""Half of what a server buffers for one client by default."""

_NOT_FOUND = "Message Not Found"
"""A batch of last messages ends where one was replaced while the server made it."""

_ATTEMPTS = 3
"""Minimum requests for a batch of last messages that is broken off each time."""


class StoredMsgs(Listing[StoredMsg]):
    """Stored messages, in the order of their sequences: `async for`, or `await msgs.all()`.

    Requests nothing before the first message; each `async for` starts anew.

    Example:
        ```python
        msgs = js.stream("ORDERS").get_many(2)
        print([msg.seq for msg in await msgs.all()])  # [2, 3]
        ```
    """


async def direct_get(api: Api, stream: str, body: Mapping[str, Any]) -> StoredMsg:
    """One message. Raises NoRespondersError without direct gets (see `no_direct_gets`).

    Without them servers before 2.10 do not answer. Raises MessageNotFoundError, DirectGetError,
    RequestTimeoutError.
    """
    call, names, payload = js_api.DIRECT_GET, {"stream": stream}, encode_document(body)
    last = body.get("last_by_subj")
    if last is not None and not any(wildcard in last for wildcard in "*>"):
        # With the subject in the request's subject, permissions can be by subject.
        call, names, payload = js_api.DIRECT_GET_LAST, {**names, "subject": last}, b""
    request_subject = js_api.subject_of(api.prefix, call, names)
    return _stored(*await _ask(api, stream, request_subject, payload))


async def _ask(
    api: Api, stream: str, request_subject: str, payload: bytes
) -> tuple[DirectReply, bytes]:
    """The stored message and its payload. Raises the errors of `direct_get`."""
    api.note_request(request_subject, payload)
    reply = await api.client.ask(request_subject, payload, timeout=api.timeout)
    api.note_answer(request_subject, reply.data)
    stored = parse_direct_reply(frame_of(reply).headers)
    if stored is None:
        raise _refusal(stream, reply.status)
    return stored, reply.data


StoredParts: TypeAlias = tuple[bytes, int, int, bytes | None]
"""Payload, sequence, nanoseconds since the epoch and header block of a stored message."""


class DirectLastGets:
    """Direct gets of the last messages of a stream's subjects, for millions of them."""

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = stream
        names = {"stream": stream, "subject": ""}
        self._request_subject = js_api.subject_of(api.prefix, js_api.DIRECT_GET_LAST, names)

    async def get(self, subject: str) -> tuple[str, StoredParts]:
        """The message's subject and parts. `subject`: checked, and without wildcards.

        Raises MessageNotFoundError, StreamNotFoundError, DirectGetError, RequestTimeoutError.
        """
        api, stream = self._api, self._stream
        try:
            stored, data = await _ask(api, stream, self._request_subject + subject, b"")
        except errors.NoRespondersError:
            raise await no_direct_gets(api, stream) from None
        return stored.subject, (data, stored.seq, stored.time_ns, stored.hdrs)


async def read_range(
    api: Api,
    stream: str,
    position: Mapping[str, Any],
    subject: str | None,
    up_to_seq: int | None,
    max_msgs: int | None,
    batch: int,
    max_bytes: int,
    confirm: bool,
) -> AsyncIterator[StoredMsg]:
    """Messages in order until the end. Raises the errors of `StoredCalls.get_many`."""
    only = given(next_by_subj=subject)
    left = sys.maxsize if max_msgs is None else max_msgs
    last = sys.maxsize if up_to_seq is None else up_to_seq
    while True:
        size = min(batch, left, last - position.get("seq", 1) + 1)
        request = {**position, **only, "batch": size, "max_bytes": max_bytes}
        page = await _request_batch(api, stream, request)
        if page.messages:
            position = {"seq": page.messages[-1].seq + 1}
        left -= len(page.messages)
        if confirm and not page.more and left and position.get("seq", 1) <= last:
            with suppress(errors.MessageNotFoundError):
                late = await leader_get(api, stream, {"next_by_subj": ">", **position, **only})
                page.messages.append(late)
                page.more = True
                position = {"seq": late.seq + 1}
                left -= 1
        for message in page.messages:
            if message.seq > last:
                return
            yield message
        if not page.more or not left or position.get("seq", 1) > last:
            return


async def read_last(api: Api, stream: str, body: Mapping[str, Any]) -> AsyncIterator[StoredMsg]:
    """The last message of each subject of `body`, as of one moment, over all batches."""
    request = dict(body)
    attempts = 0
    give_up = api.client.loop.time() + api.timeout
    beyond: int | None = None
    while True:
        page = await _request_batch(api, stream, request)
        if page.broken_off and not (page.messages and "up_to_seq" in request):
            # The batch's end names the moment; without it, the next batch would have another one.
            attempts += 1
            if attempts >= _ATTEMPTS and api.client.loop.time() >= give_up:
                raise errors.RequestTimeoutError(
                    f'No batch of direct gets from stream "{stream}" was completed.'
                )
            continue
        first = beyond is None and "seq" not in request
        if first and not page.messages and "up_to_seq" in request:
            # A file store finds nothing up to a sequence that it has not reached; then the answer
            # is everything that it has.
            beyond = request.pop("up_to_seq")
            continue
        if beyond is not None and (page.up_to_seq or 0) > beyond:
            return
        for message in page.messages:
            yield message
        if not page.more and not page.broken_off:
            return
        attempts, give_up = 0, api.client.loop.time() + api.timeout
        if page.messages:
            request["seq"] = page.messages[-1].seq + 1
        if page.up_to_seq is not None:
            request.pop("up_to_time", None)
            request["up_to_seq"] = page.up_to_seq


class LastMsgs(NamedTuple):
    """The last messages of some subjects, as of one sequence of the stream."""

    messages: list[StoredMsg]
    """Messages in sequence order; none for a subject without a message."""
    up_to_seq: int
    """The stream's last sequence at that moment; 0 without messages."""


async def read_together(api: Api, stream: str, subjects: list[str]) -> LastMsgs:
    """Read for `StoredCalls.get_last_together`.

    Only one complete batch proves that nothing is missing, since messages may be replaced between
    two. From 2.14 on the server makes it while nothing is stored; older servers break it off when a
    message is replaced.
    """
    if len(subjects) > TOGETHER:  # a second answer may lack messages replaced since the first
        raise _refusal(stream, Status(TOO_MANY_RESULTS, "Too Many Results"))
    request = {"multi_last": subjects, "batch": TOGETHER, "max_bytes": TOGETHER_BYTES}
    end = api.client.loop.time() + api.timeout
    attempts = 0
    while True:
        page = await _request_batch(api, stream, request)
        attempts += 1
        if page.up_to_seq is not None and not page.lost:
            if page.more:
                raise errors.DirectGetError(
                    END_OF_BATCH,
                    "EOB",
                    f"The last messages have more than {TOGETHER_BYTES >> 20} MiB: "
                    "ask for fewer subjects at once.",
                )
            return LastMsgs(page.messages, page.up_to_seq)
        if page.nothing:
            return LastMsgs([], 0)
        if attempts >= _ATTEMPTS and api.client.loop.time() >= end:
            problem = "did not come whole" if page.lost else "were replaced while they were read"
            raise errors.RequestTimeoutError(
                f'The last messages of stream "{stream}" {problem}, again and again for '
                f"{api.timeout:g} s."
            )


@dataclass(slots=True)
class _Page:
    """One batch."""

    messages: list[StoredMsg] = field(default_factory=list)
    more: bool = True
    """Whether more may follow; also True when its end was lost."""
    nothing: bool = False
    """Whether the server says that no message matches."""
    pending: int = 0
    lost: bool = True
    """Whether a part of it, or its end, is missing."""
    up_to_seq: int | None = None

    @property
    def broken_off(self) -> bool:
        """Whether a batch of last messages ended before its end."""
        return self.up_to_seq is None and not self.nothing


async def _request_batch(api: Api, stream: str, request: Mapping[str, Any]) -> _Page:
    """One batch, as far as it arrived. Raises RequestTimeoutError when nothing arrived."""
    page = _Page()
    last = 0
    subject = js_api.subject_of(api.prefix, js_api.DIRECT_GET, {"stream": stream})
    payload = encode_document(request)
    api.note_request(subject, payload)
    try:
        async with api.client.ask_many(subject, payload, timeout=api.timeout) as replies:
            async for reply in replies:
                stored = parse_direct_reply(frame_of(reply).headers)
                if stored is None:
                    _end(page, stream, reply)
                    break
                if stored.pending is None:  # servers before 2.11 answer with one message
                    raise errors.UnsupportedByServerError(BATCHES, "2.11", "older")
                if stored.seq <= last:
                    continue  # it came twice
                if stored.before != last:
                    break  # one was lost
                last = stored.seq
                page.messages.append(_stored(stored, reply.data))
                page.pending = stored.pending
    except errors.NoRespondersError:
        raise await no_direct_gets(api, stream) from None
    return page


def _end(page: _Page, stream: str, reply: Message) -> None:
    status = reply.status
    if status is None or status.code not in (END_OF_BATCH, NOT_FOUND):
        raise _refusal(stream, status)
    page.more = page.lost = False
    page.nothing = status.code == NOT_FOUND and status.description != _NOT_FOUND
    if status.code == END_OF_BATCH:
        end = parse_end_of_batch(frame_of(reply).headers or b"")
        last = page.messages[-1].seq if page.messages else 0
        # Both are needed: the end counts messages stored meanwhile, and before 2.12 one too few of
        # last messages; one too many costs an empty batch.
        page.lost = last != end.last_seq
        page.more = page.lost or (max(end.pending, page.pending) > 0 and last > 0)
        page.up_to_seq = end.up_to_seq


async def leader_get(api: Api, stream: str, body: Mapping[str, Any]) -> StoredMsg:
    """One message from the stream's leader. Raises MessageNotFoundError."""
    answer = await api.call(js_api.MSG_GET, body, stream=stream)
    return from_wire(StoredMsg, answer["message"])


async def no_direct_gets(api: Api, stream: str) -> errors.JetStreamError:
    """Why there were no responders: StreamNotFoundError, or DirectGetError."""
    try:
        await api.call(js_api.STREAM_INFO, stream=stream)
    except errors.APIError as error:
        return error
    except errors.RequestTimeoutError:
        pass  # no leader, or no permission
    return errors.DirectGetError(
        NO_RESPONDERS,
        "No Responders",
        f'Stream "{stream}" does not allow direct gets: set its allow_direct.',
    )


def _refusal(stream: str, status: Status | None) -> errors.JetStreamError:
    if status is None:
        return errors.JetStreamError(f'Unreadable answer to a direct get of stream "{stream}".')
    code, description = status.code, status.description
    if code == NOT_FOUND:
        sentence = f'No such message in stream "{stream}".'
        return errors.MessageNotFoundError(code, NO_MESSAGE_FOUND, description, sentence)
    if code == TOO_MANY_RESULTS:
        sentence = (
            f'More than {TOGETHER:,} subjects of stream "{stream}" were requested, but a server '
            "answers for as many at most: ask for fewer at once."
        )
        return errors.DirectGetError(code, description, sentence)
    return errors.DirectGetError(code, description)


def _stored(stored: DirectReply, data: bytes) -> StoredMsg:
    return StoredMsg(
        subject=stored.subject,
        seq=stored.seq,
        time=Timestamp.from_ns(stored.time_ns),
        data=data,
        hdrs=stored.hdrs,
    )


# -------------------------------------------------------------------------------------------------
# The calls. Names, subjects and limits are checked before anything is sent.

BATCH = 1000
"""Messages requested at once: a large batch holds up publishers to the stream."""
BATCH_BYTES = 4 * 1024 * 1024

_NO_MESSAGE = ("EOF", "message found", "message not found", "deleted message")


class StoredCalls(StreamHandle):
    """The calls of a stream for its stored messages."""

    _is_outdated = False
    """Whether a direct get failed, so that the configuration may have changed."""

    async def get(
        self,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        direct: bool | None = None,
    ) -> StoredMsg:
        """One stored message.

        By `seq`; the last of a subject; or the first of a subject, from `seq` on if given.
        `direct`: False reads from the stream's leader, True from any replica or mirror. None: from
        any if the stream's `allow_direct` is on (as in `cached_info`), and from the leader if it is
        off or the message was not found. A replica may lag and answer with an older message, and a
        mirror with one that was deleted from its origin.

        Raises MessageNotFoundError, StreamNotFoundError, DirectGetError when `direct` is True and
        not allowed, ConfigError, BadSubjectError.

        Example:
            ```python
            stream = await js.stream("ORDERS")
            print((await stream.get(1)).data)  # b'1 apple'
            print((await stream.get(last_by_subject="orders.eu")).seq)  # 3
            ```
        """
        if last_by_subject is not None and (seq is not None or next_by_subject is not None):
            raise errors.ConfigError("last_by_subject goes with neither seq nor next_by_subject.")
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise errors.ConfigError("Give seq, last_by_subject or next_by_subject.")
        if seq is not None:
            check_sequence("seq", seq)
        for subject in (last_by_subject, next_by_subject):
            if subject is not None:
                check_subscribe_subject(subject)
        body = given(seq=seq, last_by_subj=last_by_subject, next_by_subj=next_by_subject)
        if direct or (direct is None and await self._may_be_direct()):
            try:
                return await direct_get(self._api, self.name, body)
            except (errors.NoRespondersError, errors.RequestTimeoutError) as error:
                self._is_outdated = True
                if direct and isinstance(error, errors.NoRespondersError):
                    raise await no_direct_gets(self._api, self.name) from None
                if isinstance(error, errors.RequestTimeoutError):
                    raise
            except errors.MessageNotFoundError:
                if direct:
                    raise
        return await leader_get(self._api, self.name, body)

    async def _may_be_direct(self) -> bool:
        """Whether the stream's configuration allows direct gets, as far as it is known here."""
        if self._info is None or self._is_outdated:
            self._info, self._is_outdated = await stream_info(self._api, self.name), False
        return bool(self._info.config.allow_direct)

    def get_many(
        self,
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

        From `seq` (default: the first) or `start_time` to the end, or to `up_to_seq` inclusive, or
        `max_msgs` at most. `subject`: only matching ones. Batches have up to `batch` messages and
        about `max_bytes` bytes. `confirm`: at the end, ask the leader too, since a replica may lag.

        The stream's `allow_direct` must be on. Raises UnsupportedByServerError before 2.11,
        ConfigError, BadNameError, BadSubjectError; while iterating StreamNotFoundError,
        DirectGetError.

        Example:
            ```python
            async for msg in js.stream("ORDERS").get_many(1, subject="orders.eu"):
                print(msg.seq, msg.data)  # 1 b'1 apple' 3 b'3 plums'
            ```
        """
        if seq is not None and start_time is not None:
            raise errors.ConfigError("Give either seq or start_time, not both.")
        first = 1 if seq is None else check_sequence("seq", seq)
        if max_msgs is not None:
            check_whole("max_msgs", max_msgs)
        if up_to_seq is not None and check_sequence("up_to_seq", up_to_seq) < first:
            raise errors.ConfigError("up_to_seq is before seq.")
        if subject is not None:
            check_subscribe_subject(subject)
        position: dict[str, Any] = {"seq": first}
        if start_time is not None:
            position = {"start_time": text_of_time(check_moment("start_time", start_time))}
        self._check_batches(batch, max_bytes)
        arguments = (self.name, position, subject, up_to_seq, max_msgs, batch, max_bytes, confirm)
        return StoredMsgs(partial(read_range, self._api, *arguments))

    def get_last(
        self,
        subjects: str | Sequence[str],
        *,
        up_to_seq: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = BATCH,
        max_bytes: int = BATCH_BYTES,
    ) -> StoredMsgs:
        """The last message of each subject that matches one of `subjects`, in stream order.

        All as of one moment: now, or just after `up_to_seq`, or just before `up_to_time` (a future
        one is now), if the stream still has those messages. Beyond 1,024 subjects the server
        refuses: DirectGetError, status 413. `batch`, `max_bytes` and other errors: see `get_many`.

        Example:
            ```python
            async for msg in js.stream("ORDERS").get_last("orders.*"):
                print(msg.subject, msg.data)  # orders.us b'2 pears' orders.eu b'3 plums'
            ```
        """
        checked = _checked_subjects(subjects)
        if up_to_seq is not None and up_to_time is not None:
            raise errors.ConfigError("Give either up_to_seq or up_to_time, not both.")
        if up_to_seq is not None:
            check_sequence("up_to_seq", up_to_seq)
        if up_to_time is not None:
            check_moment("up_to_time", up_to_time)
        self._check_batches(batch, max_bytes)
        body = given(
            multi_last=checked,
            up_to_seq=up_to_seq,
            up_to_time=None if up_to_time is None else text_of_time(up_to_time),
            batch=batch,
            max_bytes=max_bytes,
        )
        return StoredMsgs(partial(read_last, self._api, self.name, body))

    async def get_last_together(self, subjects: str | Sequence[str]) -> LastMsgs:
        """The last message of each subject that matches, proven to be as of one sequence.

        Unlike with `get_last`, no message replaced during the read can be missing. The server
        answers for at most 1,024 subjects and 32 MiB: otherwise DirectGetError. The replica that
        answers may lag behind the last ack. Raises RequestTimeoutError when messages were replaced
        again and again, and the errors of `get_many`.
        """
        checked = _checked_subjects(subjects)
        self._check_batches(1, 1)
        return await read_together(self._api, self.name, checked)

    async def delete_msg(self, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError, StreamNotFoundError.
        """
        check_sequence("seq", seq)
        body = {"seq": seq} if erase else {"seq": seq, "no_erase": True}
        try:
            await self._api.call(js_api.MSG_DELETE, body, stream=self.name)
        except errors.APIError as error:
            # A file store has one code for every failure; only the text has the reason.
            if error.err_code == SEQUENCE_NOT_FOUND or (
                error.err_code == STREAM_MSG_DELETE_FAILED
                and error.description.endswith(_NO_MESSAGE)
            ):
                sentence = f'No message {seq} in stream "{self.name}".'
                raise errors.MessageNotFoundError(
                    error.code, error.err_code, error.description, sentence
                ) from None
            raise

    def _check_batches(self, batch: int, max_bytes: int) -> None:
        check_whole("batch", batch)
        check_whole("max_bytes", max_bytes)
        check_feature(BATCHES, (2, 11), self._api.server)


def _checked_subjects(subjects: str | Sequence[str]) -> list[str]:
    checked = texts_of("subjects", subjects)
    if not checked:
        raise errors.ConfigError("subjects is empty.")
    for subject in checked:
        check_subscribe_subject(subject)
    return checked
