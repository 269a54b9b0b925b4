"""A bucket's stream: reads and writes of its keys, with errors in a bucket's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import jetspark.errors as errors
from jetspark.documents.document import exact_ns
from jetspark.documents.streams import StreamInfo
from jetspark.err_codes import MESSAGE_TTL_DISABLED, STREAM_MESSAGE_EXCEEDS_MAXIMUM
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.publish import acknowledged
from jetspark.jetstream.publish_request import (
    EXPECTED_LAST_SUBJECT_SEQ,
    TimeToLive,
    merged,
    publish_headers,
)
from jetspark.jetstream.stored import TOGETHER, DirectLastGets
from jetspark.kv.codecs import BucketEncoding, Entry, Snapshot
from jetspark.kv_rules import OPERATION, Operation
from jetspark.payload_bytes import Payload
from jetspark.timestamps import Seconds
from jetspark.validation import MAX_SEQUENCE, check_whole

_TOO_MANY = 413
_UNAVAILABLE = 503

_REFUSALS: Final = {
    MESSAGE_TTL_DISABLED: "it has no limit_marker_ttl, which a ttl needs",
    STREAM_MESSAGE_EXCEEDS_MAXIMUM: "with its headers it is larger than max_value_size",
}
"""Reasons of a refusal in terms of a bucket's options."""


@contextmanager
def about_bucket(name: str) -> Iterator[None]:
    """Raise BucketNotFoundError for a missing stream."""
    try:
        yield
    except errors.StreamNotFoundError:
        raise errors.BucketNotFoundError(name) from None


class BucketStream:
    """The stream of one bucket. Its calls raise the errors of `Bucket`."""

    def __init__(self, js: JetStreamContext, encoding: BucketEncoding) -> None:
        self.js = js
        self.encoding = encoding
        self.stream = js.stream(encoding.stream)
        self._direct_last = DirectLastGets(js.api, encoding.stream)

    async def info(self) -> StreamInfo:
        with about_bucket(self.encoding.name):
            return await self.stream.info()

    async def read(self, key: str, revision: int | None = None, *, leader: bool) -> Entry:
        """See `Bucket.get`."""
        encoding = self.encoding
        subject = encoding.subject(key)
        direct = encoding.direct and not leader
        try:
            if direct and revision is None:
                stored_subject, parts = await self._direct_last.get(subject)
            else:
                last = subject if revision is None else None
                stored = await self.stream.get(revision, last_by_subject=last, direct=direct)
                parts = stored.data, stored.seq, exact_ns(stored.time), stored.hdrs
                stored_subject = stored.subject
        except errors.StreamNotFoundError:
            raise errors.BucketNotFoundError(encoding.name) from None
        except errors.MessageNotFoundError:
            raise errors.KeyNotFoundError(encoding.name, key, revision=revision) from None
        except errors.RequestTimeoutError:
            server = self.js.client.server_info
            if direct and server is not None and not server.at_least(2, 10):
                await self._check_exists()  # servers that do not answer 503
            raise
        except errors.DirectGetError as error:
            raise self._explained(error) from None
        if stored_subject != subject:
            raise errors.KeyNotFoundError(encoding.name, key, revision=revision)
        entry = encoding.entry(key, *parts)
        if entry.operation is not Operation.PUT:
            raise errors.KeyNotFoundError(
                encoding.name, key, revision=entry.revision, operation=entry.operation
            )
        return entry

    async def read_together(self, subjects: list[str], *, leader: bool) -> Snapshot:
        """See `Bucket.get_many`."""
        js, encoding = self.js, self.encoding
        min_revision = (await self.info()).state.last_seq if leader else 0
        end = js.client.loop.time() + js.api.timeout
        while True:
            try:
                with about_bucket(encoding.name):
                    last_msgs = await self.stream.get_last_together(subjects)
            except errors.DirectGetError as error:
                raise self._explained(error) from None
            if last_msgs.up_to_seq >= min_revision or (
                not last_msgs.messages and await self._has_none(subjects)
            ):
                break
            if js.client.loop.time() >= end:
                raise errors.RequestTimeoutError(
                    f'No replica of bucket "{encoding.name}" that answers had revision '
                    f"{min_revision} within {js.api.timeout:g} s."
                )
        entries = {}
        for message in last_msgs.messages:
            entry = encoding.entry_of(message, encoding.key_of(message.subject.encode()))
            if not entry.is_deleted:
                entries[entry.key] = entry
        return Snapshot(entries, max(last_msgs.up_to_seq, min_revision))

    async def _has_none(self, subjects: list[str]) -> bool:
        """Whether the leader has no entry of any key, since an empty answer names no sequence."""
        for subject in subjects:
            with suppress(errors.MessageNotFoundError):
                await self.stream.get(last_by_subject=subject, direct=False)
                return False
        return True

    async def write(
        self,
        key: str,
        value: Payload = b"",
        *,
        last: int | None = None,
        operation: Operation | None = None,
        ttl: TimeToLive | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Write a key, if its last entry has the revision `last`; returns the new revision."""
        js, encoding = self.js, self.encoding
        pairs: list[tuple[str, str | None]] = []
        if operation is not None:
            pairs.append((OPERATION, operation.value))
        if operation is Operation.PURGE:
            pairs.append(("Nats-Rollup", "sub"))
        if last is not None:
            revision = check_whole("revision", last, 0, MAX_SEQUENCE)
            pairs.append((EXPECTED_LAST_SUBJECT_SEQ, str(revision)))
        subject = encoding.write_subject(key)
        payload = value if operation is not None else encoding.stored_value(value)
        headers = merged(None, pairs)
        if ttl is not None:
            headers = publish_headers(js.api.server, headers, ttl=ttl)
        try:
            ack = await acknowledged(js.api, subject, payload, headers, timeout)
        except errors.NoStreamResponseError:
            await self._check_exists()
            raise  # it has no leader at the moment
        except errors.APIError as error:
            if (reason := _REFUSALS.get(error.err_code)) is None:
                raise
            text = f'Bucket "{self.encoding.name}" refuses the value of key "{key}": {reason}.'
            raise type(error)(error.code, error.err_code, error.description, text) from None
        return ack.seq

    async def _check_exists(self) -> None:
        with suppress(errors.RequestTimeoutError):
            await self.info()

    def _explained(self, error: errors.DirectGetError) -> errors.DirectGetError:
        name = self.encoding.name
        if error.status == _TOO_MANY:
            text = (
                f'More than {TOGETHER:,} keys of bucket "{name}" were requested, but a server '
                "answers for as many at most: ask for fewer at once."
            )
        elif error.status != _UNAVAILABLE:
            return error
        elif self.encoding.direct:
            text = f'Bucket "{name}" is unavailable: no server with it answered.'
        else:
            text = f'Bucket "{name}" does not allow direct gets, which this call needs.'
        return errors.DirectGetError(error.status, error.description, text)
