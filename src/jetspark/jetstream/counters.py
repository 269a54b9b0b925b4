"""Counters: a subject whose stream adds up the published numbers (ADR-49).

Contract: the stream (`allow_msg_counter`, 2.12) does the arithmetic, in whole numbers of any size;
`JetStream.increment` returns the sum. A missing ack leaves open whether it was counted; with
`msg_id` it can be repeated without counting twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jetspark.errors as errors
from jetspark.client.listing import Listing
from jetspark.documents.streams import StoredMsg
from jetspark.jetstream.api import Api
from jetspark.jetstream.stored import StoredCalls, StoredMsgs, leader_get
from jetspark.subjects import check_publish_subject
from jetspark.wire.documents import decode_document, decode_json

INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter as stored last."""

    subject: str
    value: int
    increment: int
    """The number added last."""
    sources: Mapping[str, Mapping[str, int]]
    """The parts of other streams: stream, subject there, value there."""
    seq: int
    """The stream's sequence of this value."""


def _counter(message: StoredMsg) -> Counter:
    try:
        headers = message.headers
        if headers is None:
            raise KeyError(INCREMENT)
        sources: dict[str, dict[str, str]] = {}
        if text := headers.get(SOURCES):
            sources = decode_json(text, dict[str, dict[str, str]], "sources")
        body = decode_document(message.data, "counter")
        return Counter(
            subject=message.subject,
            value=parse_number(body["val"]),
            increment=parse_number(headers[INCREMENT]),
            sources={
                stream: {subject: parse_number(value) for subject, value in values.items()}
                for stream, values in sources.items()
            },
            seq=message.seq,
        )
    except (errors.DocumentError, KeyError):
        raise errors.JetStreamError(
            f"The last message on {message.subject!r}, at sequence {message.seq}, is not a counter."
        ) from None


async def read_counter(api: Api, stream: str, subject: str) -> Counter:
    """A counter's value, for `CounterCalls.get_counter`."""
    return _counter(await leader_get(api, stream, {"last_by_subj": subject}))


def parse_number(text: Any) -> int:
    """A counter's number. Raises JetStreamError for anything but a number that Python can read."""
    try:
        return int(text)
    except (TypeError, ValueError):
        raise errors.JetStreamError(f"A counter has the value {str(text)[:40]!r}.") from None


class CounterCalls(StoredCalls):
    """The calls of a stream that read its counters."""

    async def get_counter(self, subject: str) -> Counter:
        """A counter's value, from the stream's leader.

        Raises MessageNotFoundError when nothing was counted yet, JetStreamError for a message that
        is not a counter.

        Example:
            ```python
            await js.increment("hits.home", 10)
            print((await js.stream("HITS").get_counter("hits.home")).value)  # 10
            ```
        """
        check_publish_subject(subject)
        return await read_counter(self._api, self.name, subject)

    def get_counters(self, subjects: str | Sequence[str]) -> Listing[Counter]:
        """The counters of all matching subjects, as of one moment.

        A message that is not a counter is reported and left out. See `get_last` for its
        conditions, errors and lag.
        """
        return Listing(partial(self._read_counters, self.get_last(subjects)))

    async def _read_counters(self, messages: StoredMsgs) -> AsyncIterator[Counter]:
        async for message in messages:
            try:
                yield _counter(message)
            except errors.JetStreamError as error:
                self._api.client.report(error)
