"""Reads an archive of a server from 2.15 on: a list of messages, which ends with its end mark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jetspark.backup.archive_content import LIST_MAGIC, ArchiveContent
from jetspark.errors import BackupError
from jetspark.wire.kernel import (
    MAX_MESSAGE,
    Deliveries,
    EntryDecoder,
)

_MAX_NAME_BYTES = 1 << 20


def is_message_list(content: ArchiveContent) -> bool:
    """Whether the content is a list of messages, not a tar. Raises BackupError when it is empty."""
    while len(content.data) < len(LIST_MAGIC):
        content.require()
    return content.data.startswith(LIST_MAGIC)


def read_message_list(
    content: ArchiveContent, start: int, end: int, rows: Deliveries, *, to_end: bool = False
) -> Iterator[int]:
    """Append the messages from `start` to before `end` of a list, which begins with an entry.

    Reads on to the end mark if `to_end`. Yields the sequence of the last message read.
    """
    decoder = EntryDecoder(start, end)
    while True:
        position, has_other_entry = decoder.decode(content.data, 0, rows)
        while has_other_entry:
            entry = parse_entry(content.data, position)
            assert entry is not None  # noqa: S101 - the decoder has seen it whole
            position = entry.end
            if not entry.name:
                if len(content.data) > position or content.fill():
                    raise BackupError("The archive is damaged: something comes after its end mark.")
                yield decoder.last_sequence
                return
            position, has_other_entry = decoder.decode(content.data, position, rows)
        content.drop(position)
        yield decoder.last_sequence
        if decoder.last_sequence >= end - 1 and not to_end:
            return
        content.require()


class ArchiveEntry(NamedTuple):
    """An entry of a list of messages that is not a message, such as the stream's state."""

    name: bytes
    sequence: int
    """0: not a message."""
    payload: bytes
    end: int
    """The position after it."""


def parse_entry(content: bytes | bytearray, pos: int) -> ArchiveEntry | None:
    """The entry at `pos`; None while its bytes are incomplete. Raises BackupError."""
    fields = []
    for _ in range(5):
        value = shift = 0
        while True:
            if pos >= len(content):
                return None
            byte = content[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                raise _entry_error()
        fields.append(value)
    name, _, sequence, headers, payload = fields
    if name > _MAX_NAME_BYTES or headers + payload > MAX_MESSAGE:
        raise _entry_error()
    end = pos + name + headers + payload
    if end > len(content):
        return None
    return ArchiveEntry(
        bytes(content[pos : pos + name]), sequence, bytes(content[end - payload : end]), end
    )


def _entry_error() -> BackupError:
    return BackupError("The archive is damaged: an entry in it has no valid sizes.")
