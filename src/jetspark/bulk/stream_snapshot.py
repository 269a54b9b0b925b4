"""A range read through a snapshot of its stream, step by step.

From server 2.15 on the snapshot is a list of messages, unpacked while it arrives. Before, it is a
tar whose index comes last: it goes to a temporary file first, and is read like a backup.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from functools import partial

import jetspark.errors as errors
from jetspark.backup import archive
from jetspark.bulk._snapshot_transfer import SnapshotTransfer
from jetspark.bulk.leaders import linearizable_read
from jetspark.bulk.link_pool import pool
from jetspark.bulk.links import BlockingLink
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.retries import TryAnotherLinkError
from jetspark.timestamps import parse_isotime
from jetspark.wire.kernel import Deliveries

_SILENCE_SECONDS = 10.0  # the server gives up after five seconds
_SILENCE_PART = 1 / 4  # of the reader's time: after some failed snapshots a consumer reads


def snapshot_steps(
    link: BlockingLink,
    options: ConnectOptions,
    wanted: SequenceRange,
    rows: Deliveries,
    timeout: float,
) -> Generator[int, None, None]:
    """Append the messages of the range to `rows`; `timeout`: the reader's, without progress.

    Yields after each step the sequence up to which everything in the snapshot was appended; the
    last one is at or after the range's end, or the server's end of the stream. An error removes the
    rows appended since the last step. Yields nothing before the snapshot is proven to be of the
    leader's stream.

    Raises TryAnotherLinkError when the server refuses the snapshot, or it breaks off or is damaged:
    another consumer may continue. Also UnsupportedByServerError, and the errors of
    `SnapshotTransfer`.
    """
    if not wanted.blocking:
        require_list(link)
    silence = min(_SILENCE_SECONDS, _SILENCE_PART * timeout)
    transfer = SnapshotTransfer(link, wanted.stream, silence)
    had = len(rows)
    compared = False
    try:
        last = int(_begun(transfer)["last_seq"])
        end = min(wanted.end, last + 1)
        for seen in _steps(transfer, link, wanted, end, rows) if wanted.start < end else ():
            if not compared and len(rows) > had:
                _compare(options, wanted.stream, rows, had)
                compared = True
            yield seen
            had = len(rows)
        had = len(rows)
        yield last
    except errors.BackupError as error:
        rows.truncate(had)
        raise TryAnotherLinkError(f"the snapshot is incomplete: {error}") from error
    except BaseException:
        rows.truncate(had)
        raise
    finally:
        transfer.stop()


def require_list(link: BlockingLink) -> None:
    """Raise UnsupportedByServerError for a server that blocks deletes while it sends."""
    if not link.info.at_least(2, 15):
        raise errors.UnsupportedByServerError(
            "A snapshot without blocking deletes", "2.15", link.info.version
        )


def _begun(transfer: SnapshotTransfer) -> dict[str, int]:
    try:
        return transfer.begin()
    except errors.StreamNotFoundError:
        raise
    except errors.APIError as error:
        raise TryAnotherLinkError(f"the server refuses a snapshot: {error}") from error


def _steps(
    transfer: SnapshotTransfer,
    link: BlockingLink,
    wanted: SequenceRange,
    end: int,
    rows: Deliveries,
) -> Iterator[int]:
    first: list[bytes] = []
    keeping = True

    def more() -> bytes:
        piece = transfer.more()
        if keeping:
            first.append(piece)
        return piece

    content = archive.Content(more)
    listed, keeping = archive.is_list(content), False
    if listed:
        first.clear()
        content.drop(len(archive.LIST_MAGIC))
        yield from archive.list_steps(content, wanted.start, end, rows)
        return
    if not wanted.blocking:
        require_list(link)
        raise TryAnotherLinkError("the leader's server is older than 2.15")
    with tempfile.TemporaryFile() as file:
        file.writelines(first)
        first.clear()
        while piece := transfer.more():
            file.write(piece)
        blocks = archive.files_of(file).blocks
        yield from archive.block_steps(file, wanted.stream, blocks, wanted.start, end, rows)


def _compare(options: ConnectOptions, stream: str, rows: Deliveries, had: int) -> None:
    """Raise TryAnotherLinkError unless the leader has one of these rows.

    A server that has not learnt of the stream's recreation would send the old one.
    """
    sequences, times = rows.sequences(had), rows.times(had)
    with pool.link(options) as link:
        api = StreamAPI(link)
        if api.of_one_server:
            return
        for row in sorted({0, len(sequences) // 2, len(sequences) - 1}):
            stored = partial(StreamAPI.message, stream=stream, seq=sequences[row])
            found = linearizable_read(api, [stream], stored)
            if found is not None:
                if parse_isotime(found.time) == times[row]:
                    return
                break
    raise TryAnotherLinkError("the snapshot is not of the stream that the leader has")
