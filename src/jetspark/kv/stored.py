"""One question or write of a bucket: what is stored of a key, with errors in a bucket's terms."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from jetspark.documents.streams import StoredMsg, StreamInfo
from jetspark.err_codes import MESSAGE_TOO_LARGE, TTL_DISABLED
from jetspark.errors import (
    APIError,
    BucketNotFoundError,
    DirectGetError,
    KeyNotFoundError,
    MessageNotFoundError,
    NoStreamResponseError,
    RequestTimeoutError,
    StreamNotFoundError,
)
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.publisher import TimeToLive
from jetspark.jetstream.stored import TOGETHER, LastMsgs
from jetspark.kv.codecs import BucketEncoding, Entry, Snapshot
from jetspark.kv_rules import OPERATION, Operation
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds

_TOO_MANY = 413
_UNAVAILABLE = 503

_REFUSALS: Final = {
    TTL_DISABLED: "it has no limit_marker_ttl, which a ttl needs",
    MESSAGE_TOO_LARGE: "with its headers it is larger than max_value_size",
}
"""In terms of a bucket's options."""


async def bucket_info(js: JetStreamContext, encoding: BucketEncoding) -> StreamInfo:
    """Of its stream, from the leader. Raises BucketNotFoundError, and as every API call."""
    try:
        return await js.stream_info(encoding.stream)
    except StreamNotFoundError:
        raise BucketNotFoundError(encoding.name) from None


async def read_entry(
    js: JetStreamContext,
    encoding: BucketEncoding,
    key: str,
    revision: int | None = None,
    *,
    leader: bool,
) -> Entry:
    """As `Bucket.get`."""
    subject = encoding.subject(key)
    try:
        last = subject if revision is None else None
        stored = await _stored(js, encoding, revision, last, leader=leader)
    except MessageNotFoundError:
        raise KeyNotFoundError(encoding.name, key, revision=revision) from None
    if stored.subject != subject:
        raise KeyNotFoundError(encoding.name, key, revision=revision)
    entry = encoding.entry_of(stored, key)
    if entry.is_deleted:
        raise KeyNotFoundError(
            encoding.name, key, revision=entry.revision, operation=entry.operation
        )
    return entry


async def _stored(
    js: JetStreamContext,
    encoding: BucketEncoding,
    seq: int | None,
    subject: str | None,
    *,
    leader: bool,
) -> StoredMsg:
    direct = encoding.direct and not leader
    try:
        return await js.get_msg(encoding.stream, seq, last_by_subject=subject, direct=direct)
    except StreamNotFoundError:
        raise BucketNotFoundError(encoding.name) from None
    except RequestTimeoutError:
        server = js.client.server_info
        if direct and server is not None and not server.at_least(2, 10):
            await _check_there(js, encoding)  # they do not answer where others answer 503
        raise
    except DirectGetError as error:
        raise _in_its_terms(encoding, error) from None


def _in_its_terms(encoding: BucketEncoding, error: DirectGetError) -> DirectGetError:
    if error.status == _TOO_MANY:
        text = (
            f'More than {TOGETHER:,} keys of bucket "{encoding.name}" are asked for, and a server '
            "answers for as many at most: ask for fewer at once."
        )
        return DirectGetError(error.status, error.description, text)
    if error.status != _UNAVAILABLE:
        return error
    text = f'Bucket "{encoding.name}" is unavailable: no server with it answered.'
    if not encoding.direct:
        text = f'Bucket "{encoding.name}" does not allow direct gets, which this call needs.'
    return DirectGetError(error.status, error.description, text)


async def read_snapshot(
    js: JetStreamContext, encoding: BucketEncoding, subjects: list[str], *, leader: bool
) -> Snapshot:
    """As `Bucket.get_many`."""
    least = (await bucket_info(js, encoding)).state.last_seq if leader else 0
    end = js.client.loop.time() + js.api.timeout
    while True:
        try:
            found = await js.get_last_msgs_together(encoding.stream, subjects)
        except StreamNotFoundError:
            raise BucketNotFoundError(encoding.name) from None
        except DirectGetError as error:
            raise _in_its_terms(encoding, error) from None
        if found.up_to_seq >= least or (
            not found.messages and await _has_none(js, encoding, subjects)
        ):
            return _snapshot(encoding, found, least)
        if js.client.loop.time() >= end:
            raise RequestTimeoutError(
                f'No replica of bucket "{encoding.name}" that answers had revision {least} '
                f"within {js.api.timeout:g} s."
            )


async def _has_none(js: JetStreamContext, encoding: BucketEncoding, subjects: list[str]) -> bool:
    """Whether the leader, too, has no entry of any: an empty answer names no sequence."""
    for subject in subjects:
        try:
            await js.get_msg(encoding.stream, last_by_subject=subject, direct=False)
        except MessageNotFoundError:
            continue
        return False
    return True


def _snapshot(encoding: BucketEncoding, found: LastMsgs, least: int) -> Snapshot:
    entries = {}
    for message in found.messages:
        key = encoding.key_of(message.subject.encode())
        entry = encoding.entry_of(message, key)
        if not entry.is_deleted:
            entries[key] = entry
    return Snapshot(entries, max(found.up_to_seq, least))


async def write_entry(
    js: JetStreamContext,
    encoding: BucketEncoding,
    key: str,
    value: Payload = b"",
    *,
    last: int | None = None,
    operation: Operation | None = None,
    ttl: TimeToLive | None = None,
    timeout: Seconds | None = None,
) -> int:
    """Write a key, if its last entry has the revision `last`; returns the new revision.

    Raises as `Bucket.put` and `Bucket.update`.
    """
    headers = None
    if operation is not None:
        headers = {OPERATION: str(operation)}
        if operation is Operation.PURGE:
            headers["Nats-Rollup"] = "sub"
    try:
        ack = await js.publish(
            encoding.write_subject(key),
            value if operation is not None else encoding.stored_value(value),
            headers=headers,
            expect_last_subject_seq=last,
            ttl=ttl,
            timeout=timeout,
        )
    except NoStreamResponseError:
        # The bucket does not exist any more, or has no leader at the moment.
        await _check_there(js, encoding)
        raise
    except APIError as error:
        if (why := _REFUSALS.get(error.err_code)) is None:
            raise
        text = f'Bucket "{encoding.name}" does not take this for key "{key}": {why}.'
        raise type(error)(error.code, error.err_code, error.description, text) from None
    return ack.seq


async def _check_there(js: JetStreamContext, encoding: BucketEncoding) -> None:
    """Raises BucketNotFoundError; passes when nobody answers that, either."""
    with suppress(RequestTimeoutError):
        await bucket_info(js, encoding)
