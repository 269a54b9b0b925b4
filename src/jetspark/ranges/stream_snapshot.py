"""A range read through a snapshot of its stream, step by step.

From server 2.15 on the snapshot is a list of messages, unpacked while it arrives. Before, it is a
tar whose index comes last: it goes to a temporary file first, and is read like a backup.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from functools import partial

import jetspark.errors as errors
from jetspark.backup.archive_content import LIST_MAGIC, ArchiveContent
from jetspark.backup.message_blocks import find_files, read_blocks
from jetspark.backup.message_list import is_message_list, read_message_list
from jetspark.connection.options import ConnectOptions
from jetspark.links.leaders import linearizable_read
from jetspark.links.link import BlockingLink
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import StreamAPI
from jetspark.ranges._snapshot_transfer import SnapshotTransfer
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.retries import TryAnotherLinkError
from jetspark.timestamps import parse_isotime
from jetspark.wire.kernel import Deliveries

_MAX_SILENCE_SECONDS = 10.0  # the server gives up after five seconds
_SILENCE_SHARE = 1 / 4  # of the reader's timeout: after some failed snapshots a consumer reads


def snapshot_steps(
    link: BlockingLink,
    options: ConnectOptions,
    sequence_range: SequenceRange,
    rows: Deliveries,
    timeout: float,
) -> Generator[int, None, None]:
    """Request a snapshot of the range's stream, and append its messages to `rows`, step by step.

    `link`: used for the snapshot only; `options`: for other links; `timeout`: the reader's, in
    seconds. Yields after each step the sequence up to which everything in the snapshot was
    appended; the last one is at or after the range's end, or the server's end of the stream. An
    error removes the rows appended since the last step. Yields no rows before the snapshot is
    proven to be of the leader's stream.

    Raises TryAnotherLinkError when the server refuses the snapshot, or it breaks off or is damaged:
    another consumer may continue. Also UnsupportedByServerError, and the errors of
    `SnapshotTransfer`.
    """
    if not sequence_range.blocking:
        _require_list(link)
    silence = min(_MAX_SILENCE_SECONDS, _SILENCE_SHARE * timeout)
    transfer = SnapshotTransfer(link, sequence_range.stream, silence)
    first_row = len(rows)
    is_compared = False
    try:
        last_stored = _begin_transfer(transfer)
        end = min(sequence_range.end, last_stored + 1)
        if sequence_range.start < end:
            for last_appended in _append_rows(transfer, link, sequence_range, end, rows):
                # Before the first rows are handed out, compare them with the leader's messages.
                if not is_compared and len(rows) > first_row:
                    _check_same_stream(options, sequence_range.stream, rows, first_row)
                    is_compared = True
                yield last_appended
                first_row = len(rows)
        first_row = len(rows)
        yield last_stored
    except errors.BackupError as error:
        rows.truncate(first_row)
        raise TryAnotherLinkError(f"the snapshot is incomplete: {error}") from error
    except BaseException:
        rows.truncate(first_row)
        raise
    finally:
        transfer.stop()


def _require_list(link: BlockingLink) -> None:
    """Raise UnsupportedByServerError for a server that blocks deletes while it sends a snapshot.

    Servers from 2.15 on do not: they send a list of messages.
    """
    if not link.info.at_least(2, 15):
        raise errors.UnsupportedByServerError(
            "A snapshot without blocking deletes", "2.15", link.info.version
        )


def _begin_transfer(transfer: SnapshotTransfer) -> int:
    """Request the snapshot; returns the stream's last sequence when the server began it.

    Raises TryAnotherLinkError for a refusal, and the errors of `SnapshotTransfer.begin`.
    """
    try:
        return int(transfer.begin()["last_seq"])
    except errors.StreamNotFoundError:
        raise
    except errors.APIError as error:
        raise TryAnotherLinkError(f"the server refuses a snapshot: {error}") from error


def _append_rows(
    transfer: SnapshotTransfer,
    link: BlockingLink,
    sequence_range: SequenceRange,
    end: int,
    rows: Deliveries,
) -> Iterator[int]:
    """Unpack the snapshot, and append its messages from the range's start to before `end`.

    After each step, yields the sequence up to which messages were appended. Raises the errors of
    `snapshot_steps`.
    """
    # A list of messages is unpacked while it arrives; an older server's tar goes to a file first,
    # with the chunks in which its form was recognized.
    first_chunks: list[bytes] = []
    is_recognized = False

    def next_chunk() -> bytes:
        """Receive a chunk; keep it, too, until the form of the archive is recognized."""
        chunk = transfer.next_chunk()
        if not is_recognized:
            first_chunks.append(chunk)
        return chunk

    content = ArchiveContent(next_chunk)
    is_list, is_recognized = is_message_list(content), True
    if is_list:
        first_chunks.clear()
        content.drop(len(LIST_MAGIC))
        yield from read_message_list(content, sequence_range.start, end, rows)
        return
    if not sequence_range.blocking:
        _require_list(link)
        raise TryAnotherLinkError("the leader's server is older than 2.15")
    with tempfile.TemporaryFile() as file:
        file.writelines(first_chunks)
        first_chunks.clear()
        while chunk := transfer.next_chunk():
            file.write(chunk)
        blocks = find_files(file).blocks
        yield from read_blocks(file, sequence_range.stream, blocks, sequence_range.start, end, rows)


def _check_same_stream(
    options: ConnectOptions, stream: str, rows: Deliveries, first_row: int
) -> None:
    """Raise TryAnotherLinkError unless a proven leader has one of the snapshot's messages.

    These are the rows from `first_row` on. A server that has not learnt of the stream's recreation
    would send the old one.
    """
    sequences, times = rows.sequences(first_row), rows.times(first_row)
    with pool.link(options) as link:
        api = StreamAPI(link)
        if api.is_outside_cluster:  # no other server can lead the stream
            return
        # Each of these may have been removed in the meantime, but hardly all of them.
        for row in sorted({0, len(sequences) // 2, len(sequences) - 1}):
            request = partial(StreamAPI.message, stream=stream, seq=sequences[row])
            message = linearizable_read(api, [stream], request)
            if message is not None:
                if parse_isotime(message.time) == times[row]:
                    return
                break
    raise TryAnotherLinkError("the snapshot is not of the stream that the leader has")
