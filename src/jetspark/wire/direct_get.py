"""Replies to direct gets (ADR-31): the stored message, with the server's headers appended.

A publisher may set a header such as `Nats-Sequence` itself, so only those at the end, which the
server appended, count; earlier ones belong to the message.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from jetspark.errors import JetStreamError
from jetspark.timestamps import parse_isotime

_APPENDED: Final = b"Nats-Stream: "
"""The start of the server's headers, which are the last in the block. They begin a line, unless the
publisher's block does not end in a blank line: the server cuts two bytes of it in any case."""
_BLANK: Final = b"\r\n\r\n"
_PARTS: Final = re.compile(
    rb"Nats-Stream: [^\r]*\r\nNats-Subject: ([^\r]*)\r\nNats-Sequence: (\d{1,20})"
    rb"\r\nNats-Time-Stamp: ([^\r]*)"
    rb"(?:\r\nNats-Num-Pending: (\d{1,20})\r\nNats-Last-Sequence: (\d{1,20}))?\r\n\r\n"
)
"""All servers since 2.9 write the headers in this order."""


class DirectReply(NamedTuple):
    """One stored message, without its payload."""

    subject: str
    seq: int
    time_ns: int
    """Nanoseconds since the epoch."""
    hdrs: bytes | None
    """The published header block; None for a message without headers."""
    pending: int | None
    """Matching messages after this one in a batch; None for a single get."""
    before: int | None
    """Sequence of the message sent before this one in a batch, 0 for the first."""


class EndOfBatch(NamedTuple):
    """The headers of the status message that ends a batch."""

    pending: int
    """Matching messages after this batch; one less before 2.12 in a batch of last messages."""
    last_seq: int
    up_to_seq: int | None
    """The last sequence that counts for a batch of last messages."""


def parse_direct_reply(block: bytes | None) -> DirectReply | None:
    """None for a block without the server's headers, such as a status line.

    Raises JetStreamError when one of these headers is missing or unreadable.
    """
    at = -1 if block is None else block.rfind(_APPENDED)
    if block is None or at < 0:
        return None
    parts = _PARTS.fullmatch(block, at)
    if parts is None:
        raise _unreadable(block[at:])
    subject, seq, time, pending, before = parts.groups()
    try:
        time_ns = parse_isotime(time.decode())
    except ValueError:
        raise _unreadable(block[at:]) from None
    published = block[:at].removesuffix(b"\r\n")
    return DirectReply(
        subject.decode("utf-8", "replace"),
        int(seq),
        time_ns,
        # "NATS/1.0" alone: the message had no headers.
        published + _BLANK if b"\r\n" in published else None,
        None if pending is None else int(pending),
        None if before is None else int(before),
    )


def _unreadable(headers: bytes) -> JetStreamError:
    return JetStreamError(f"Unreadable answer to a direct get: {headers[:200]!r}.")


def parse_end_of_batch(block: bytes) -> EndOfBatch:
    """Parse the headers after `NATS/1.0 204 EOB`. Raises JetStreamError."""
    lines = _lines(block)
    try:
        up_to = lines.get(b"Nats-UpTo-Sequence")
        return EndOfBatch(
            _number(lines[b"Nats-Num-Pending"]),
            _number(lines[b"Nats-Last-Sequence"]),
            None if up_to is None else _number(up_to),
        )
    except (KeyError, ValueError):
        raise JetStreamError(f"Unreadable end of a batch: {block[:200]!r}.") from None


def _number(text: bytes) -> int:
    if not text.isdigit():  # int() reads more, such as 1_0
        raise ValueError
    return int(text)


def _lines(block: bytes) -> dict[bytes, bytes]:
    """Names and values; skips lines without a colon."""
    pairs = (line.partition(b":") for line in block.split(b"\r\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}
