"""Replies to direct gets (ADR-31): the stored message, with the server's headers appended.

The server appends its headers to those that were published, so a message may hold another
`Nats-Sequence` of its publisher's: the last one counts, and what stood before is the message's.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from jetspark.errors import JetStreamError

_APPENDED: Final = b"\r\nNats-Stream: "
"""Where the server's part begins; it writes nothing of the publisher's behind it."""
_BLANK: Final = b"\r\n\r\n"
_PARTS: Final = re.compile(
    rb"\r\nNats-Stream: [^\r]*\r\nNats-Subject: ([^\r]*)\r\nNats-Sequence: (\d+)"
    rb"\r\nNats-Time-Stamp: ([^\r]*)(?:\r\nNats-Num-Pending: (\d+)\r\nNats-Last-Sequence: (\d+))?"
    rb"\r\n\r\n"
)
"""Every server since 2.9 writes them in this order."""


class DirectReply(NamedTuple):
    """What the server says of one stored message."""

    subject: str
    seq: int
    time: str
    """RFC 3339."""
    hdrs: bytes | None
    """The header block as it was published."""
    pending: int | None
    """In a batch: messages behind this one that match. None for a single get."""
    before: int | None
    """In a batch: the sequence of the message sent before this one, 0 for the first."""


class EndOfBatch(NamedTuple):
    """What stands behind a batch."""

    pending: int
    """Messages that match and are still to come; before 2.12 one less for last messages."""
    last_seq: int
    up_to_seq: int | None
    """The snapshot that a batch of last messages belongs to."""


def parse_direct_reply(block: bytes | None) -> DirectReply | None:
    """None for a block that the server did not append to: a status line, say.

    Raises JetStreamError when something is missing in what it appended.
    """
    at = -1 if block is None else block.rfind(_APPENDED)
    if block is None or at < 0:
        return None
    parts = _PARTS.fullmatch(block, at)
    if parts is None:
        raise JetStreamError(f"Unreadable answer to a direct get: {block[at:]!r}.")
    subject, seq, time, pending, before = parts.groups()
    return DirectReply(
        subject.decode("utf-8", "replace"),
        int(seq),
        time.decode("ascii", "replace"),
        # "NATS/1.0" alone: the message had no headers.
        block[:at] + _BLANK if b"\r\n" in block[:at] else None,
        None if pending is None else int(pending),
        None if before is None else int(before),
    )


def parse_end_of_batch(block: bytes) -> EndOfBatch:
    """The headers behind `NATS/1.0 204 EOB`. Raises JetStreamError."""
    lines = _lines(block)
    try:
        up_to = lines.get(b"Nats-UpTo-Sequence")
        return EndOfBatch(
            int(lines[b"Nats-Num-Pending"]),
            int(lines[b"Nats-Last-Sequence"]),
            None if up_to is None else int(up_to),
        )
    except (KeyError, ValueError):
        raise JetStreamError(f"Unreadable end of a batch: {block!r}.") from None


def _lines(block: bytes) -> dict[bytes, bytes]:
    """Names and values; lines without a colon are left out."""
    pairs = (line.partition(b":") for line in block.split(b"\r\n"))
    return {name: value.strip() for name, colon, value in pairs if colon}
