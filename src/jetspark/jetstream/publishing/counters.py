"""Counters: a subject whose stream adds up what is published to it (ADR-49).

Contract: the stream (`allow_msg_counter`, 2.12) does the arithmetic, in whole numbers of any
size; `increment` returns the sum that it made. An ack that does not come leaves open whether it
was counted; with `msg_id` it can be done again without counting twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from jetspark.arguments import checked_but
from jetspark.errors import ConfigError, DocumentError, JetStreamError
from jetspark.jetstream.documents import StoredMsg
from jetspark.jetstream.publishing.calls import acknowledged
from jetspark.jetstream.publishing.headers import merged, publish_headers
from jetspark.jetstream.requirements import check_feature
from jetspark.jetstream.stored.calls import StoredCalls
from jetspark.kinds import is_whole
from jetspark.subjects import check_publish_subject
from jetspark.timestamps import Seconds
from jetspark.wire.documents import decode_document, decode_json
from jetspark.wire.headers import HeadersLike

INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter as it was stored last."""

    subject: str
    value: int
    increment: int
    """What was added last."""
    sources: Mapping[str, Mapping[str, int]]
    """What other streams contributed: stream, subject there, value there."""
    seq: int
    """The stream's sequence of this value."""


@checked_but("increment")
class CounterCalls(StoredCalls):
    """The part of JetStream that is about counters."""

    async def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, a negative number too, and return its new value.

        It begins at 0. `msg_id`: counted once; when it was counted before, the value is that of
        now. `timeout`: as in `publish`.

        Raises NotEnabledOnStreamError when the stream's `allow_msg_counter` is off, ConfigError,
        UnsupportedByServerError, and what `publish` raises.
        """
        check_feature("increment", (2, 12), self._api.server)
        try:
            if not is_whole(by):
                raise TypeError
            text = f"{index(by):+d}"
        except (TypeError, ValueError):
            raise ConfigError("by is a whole number of at most 4300 digits.") from None
        with_id = publish_headers(self._api.server, headers, msg_id=msg_id)
        ack = await acknowledged(
            self._api, subject, b"", merged(with_id, [(INCREMENT, text)]), timeout
        )
        if ack.duplicate:
            return (await self.get_counter(ack.stream, subject)).value
        if ack.val is None:
            raise JetStreamError(
                f"Stream {ack.stream!r} does not count: it stored an ordinary message at "
                f"sequence {ack.seq}."
            )
        return _number(ack.val)

    async def get_counter(self, stream: str, subject: str) -> Counter:
        """A counter's value, from the stream's leader.

        Raises MessageNotFoundError when nothing was counted yet, JetStreamError for a message
        that is no counter.
        """
        check_publish_subject(subject)
        return _counter(await self.get_msg(stream, last_by_subject=subject, direct=False))

    async def get_counters(self, stream: str, subjects: str | Sequence[str]) -> list[Counter]:
        """The counters of all matching subjects, as of one moment.

        A message that is no counter is reported and left out. See `get_last_msgs` for what it
        needs, raises, and may lag behind.
        """
        counters = []
        async for message in self.get_last_msgs(stream, subjects):
            try:
                counters.append(_counter(message))
            except JetStreamError as error:
                self._api.client.report(error)
        return counters


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
            value=_number(body["val"]),
            increment=_number(headers[INCREMENT]),
            sources={
                stream: {subject: _number(value) for subject, value in values.items()}
                for stream, values in sources.items()
            },
            seq=message.seq,
        )
    except (DocumentError, KeyError):
        raise JetStreamError(
            f"The last message on {message.subject!r}, at sequence {message.seq}, is no counter."
        ) from None


def _number(text: Any) -> int:
    """Raises JetStreamError for anything but a number that Python can read."""
    try:
        return int(text)
    except (TypeError, ValueError):
        raise JetStreamError(f"A counter has the value {str(text)[:40]!r}.") from None
