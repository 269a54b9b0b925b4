"""What an archive holds, compared with what `backup.json` says of the stream.

An archive of server 2.15 begins with the state that the server's answer has, too; its messages are
those that a walk through the live stream finds: what is removed before the walk comes there is not
in it. An archive of older servers has the stream's configuration and index; only limits remove
messages while it is made. So an archive may have fewer messages than the state, and never more.
"""

from __future__ import annotations

from typing import BinaryIO

from jetspark.archives.content import Content, content_from
from jetspark.archives.messages import (
    LIST_MAGIC,
    block_steps,
    by_marks,
    entry_at,
    is_list,
    list_steps,
)
from jetspark.archives.metadata import METADATA, Metadata, State
from jetspark.archives.tar import Block, files_of
from jetspark.errors import BackupError, DocumentError
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document
from jetspark.wire.kernel import Deliveries

_STATE = b"state.json"


def blocks_in(file: BinaryIO, metadata: Metadata) -> list[Block] | None:
    """The message blocks of an archive, each with its state; None for a list of messages.

    Raises BackupError for an archive that is damaged, or that `metadata` is not about.
    """
    content = content_from(file)
    state = metadata.state
    if is_list(content):
        content.drop(len(LIST_MAGIC))
        _compare(_state_in(content), state)
        return None
    files = files_of(file)
    if files.stream not in (None, metadata.stream):
        raise BackupError(
            f"The archive is of stream {files.stream!r}, and {METADATA} of {metadata.stream!r}."
        )
    if files.index is None:
        return by_marks(file, metadata.stream, files.blocks, state.first_seq, state.last_seq)
    last, last_ns = files.index.last, files.index.last_ns
    if last < state.last_seq:
        raise _another("last_seq", last, state.last_seq)
    if last == state.last_seq and state.messages and last_ns not in (None, _ns(state.last_ts)):
        raise _another("last_ts", last_ns, _ns(state.last_ts))
    found = sum(block.state.count(0, state.last_seq) for block in files.blocks if block.state)
    if found > state.messages and last_ns is not None:  # 2.9 may count one too few
        raise _another("messages", found, state.messages)
    return files.blocks


def messages_in(file: BinaryIO, metadata: Metadata) -> int:
    """How many messages of the state an archive has.

    A list of messages is unpacked; of blocks only the index is read. Raises BackupError as
    `blocks_in`.
    """
    blocks = blocks_in(file, metadata)
    state = metadata.state
    if blocks is None:
        content = content_from(file, 0, len(LIST_MAGIC))
        rows, count = Deliveries(), 0
        for _ in list_steps(content, 0, state.last_seq + 1, rows, whole=True):
            count += len(rows)
            rows.truncate(0)
        return count
    count = 0
    for block in blocks:
        assert block.state is not None  # noqa: S101 - see `blocks_in`
        if block.state.exact:
            count += block.state.count(0, state.last_seq)
            continue
        rows = Deliveries()
        for _ in block_steps(file, metadata.stream, [block], 0, state.last_seq + 1, rows):
            count += len(rows)
            rows.truncate(0)
    return count


def _state_in(content: Content) -> dict[str, object]:
    while (entry := entry_at(content.data, 0)) is None:
        content.require()
    if entry.name != _STATE or entry.sequence:
        raise BackupError("The archive is damaged: it does not begin with the stream's state.")
    try:
        return decode_document(entry.payload, "state")
    except DocumentError as error:
        raise BackupError(
            f"The archive is damaged: its state cannot be read ({error.why})."
        ) from None


def _compare(found: dict[str, object], state: State) -> None:
    for name in State.__struct_fields__:
        said = getattr(state, name)
        if said is not None and found.get(name, said) != said:
            raise _another(name, found[name], said)


def _another(name: str, found: object, said: object) -> BackupError:
    return BackupError(
        f"The archive and {METADATA} are not of the same backup: {name} is {found} in the archive, "
        f"and {said} in {METADATA}."
    )


def _ns(text: str | None) -> int | None:
    return None if text is None else parse_isotime(text)
