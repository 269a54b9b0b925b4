"""Compares an archive with what `backup.json` says about the stream, and counts its messages.

An archive is what the server sends for a snapshot: an S2 stream (framed like Snappy's) of a list of
messages or, before server 2.15, of a tar of message blocks. A list begins with the state of the
server's answer. It has the messages that a walk through the live stream finds, so those removed
before the walk reaches them are missing. A tar has the stream's configuration and index; only
limits remove messages while it is made. So an archive may have fewer messages than the state, never
more.

Missing or damaged content raises BackupError; unpacking verifies every checksum. The only I/O is on
the archive's file.
"""

from __future__ import annotations

from typing import BinaryIO

from jetspark.backup.archive_content import LIST_MAGIC, ArchiveContent, open_content
from jetspark.backup.message_blocks import Block, find_files
from jetspark.backup.message_list import is_message_list, parse_entry, read_message_list
from jetspark.backup.metadata import METADATA, BackupMetadata, State
from jetspark.errors import BackupError, DocumentError
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document
from jetspark.wire.kernel import (
    Deliveries,
)

_STATE = b"state.json"


def find_blocks(file: BinaryIO, metadata: BackupMetadata) -> list[Block] | None:
    """The message blocks of an archive, each with its state; None for a list of messages.

    Raises BackupError for a damaged archive, and for one of another stream than `metadata`.
    """
    content = open_content(file)
    state = metadata.state
    if is_message_list(content):
        content.drop(len(LIST_MAGIC))
        _check_state(_read_state(content), state)
        return None
    files = find_files(file)
    if files.stream not in (None, metadata.stream):
        raise BackupError(
            f"The archive is of stream {files.stream!r}, but {METADATA} of {metadata.stream!r}."
        )
    if files.index is None:
        return []
    last, last_ns = files.index.last, files.index.last_ns
    if last < state.last_seq:
        raise _mismatch("last_seq", last, state.last_seq)
    if last == state.last_seq and state.messages and last_ns not in (None, _to_ns(state.last_ts)):
        raise _mismatch("last_ts", last_ns, _to_ns(state.last_ts))
    count = sum(block.state.count(0, state.last_seq) for block in files.blocks)
    if count > state.messages and last_ns is not None:  # the count of 2.9 may be one too low
        raise _mismatch("messages", count, state.messages)
    return files.blocks


def count_messages(file: BinaryIO, metadata: BackupMetadata) -> int:
    """Count the messages in an archive, up to the last sequence of the state.

    Unpacks a list of messages, but reads only the index of blocks. Raises the errors of
    `find_blocks`.
    """
    blocks = find_blocks(file, metadata)
    last = metadata.state.last_seq
    if blocks is not None:
        return sum(block.state.count(0, last) for block in blocks)
    content = open_content(file, 0, len(LIST_MAGIC))
    rows, count = Deliveries(), 0
    for _ in read_message_list(content, 0, last + 1, rows, to_end=True):
        count += len(rows)
        rows.truncate(0)
    return count


def _read_state(content: ArchiveContent) -> dict[str, object]:
    while (entry := parse_entry(content.data, 0)) is None:
        content.require()
    if entry.name != _STATE or entry.sequence:
        raise BackupError("The archive is damaged: it does not begin with the stream's state.")
    try:
        return decode_document(entry.payload, "state")
    except DocumentError as error:
        raise BackupError(
            f"The archive is damaged: its state cannot be read ({error.reason})."
        ) from None


def _check_state(archive_state: dict[str, object], state: State) -> None:
    for name in State.__struct_fields__:
        value = getattr(state, name)
        if value is not None and archive_state.get(name, value) != value:
            raise _mismatch(name, archive_state[name], value)


def _mismatch(name: str, in_archive: object, in_metadata: object) -> BackupError:
    return BackupError(
        f"The archive and {METADATA} are not of the same backup: {name} is {in_archive} in the "
        f"archive, and {in_metadata} in {METADATA}."
    )


def _to_ns(text: str | None) -> int | None:
    return None if text is None else parse_isotime(text)
