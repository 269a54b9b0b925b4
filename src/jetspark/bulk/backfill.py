"""A range read through a snapshot of its stream, step by step.

From server 2.15 on the snapshot is a list of messages, unpacked while it comes. Before, it is a tar
whose index comes last: it is written to a temporary file first, and read as a backup is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from functools import partial

from jetspark.archives.content import Content
from jetspark.archives.messages import LIST_MAGIC, block_steps, is_list, list_steps
from jetspark.archives.tar import files_of
from jetspark.bulk import links
from jetspark.bulk.link import BlockingLink
from jetspark.bulk.proof import proven
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.snapshot_transfer import SnapshotTransfer
from jetspark.bulk.stream_api import StoredMessage, StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import (
    APIError,
    BackupError,
    StreamNotFoundError,
    UnsupportedByServerError,
)
from jetspark.timestamps import parse_isotime
from jetspark.transient import TryAnotherLinkError
from jetspark.wire.kernel import Deliveries, require_archives

_SILENCE_SECONDS = 10.0  # the server gives up after five
_SILENCE_PART = 1 / 4  # of the reader's time: some snapshots may fail, and a consumer still fits


def snapshot_steps(
    link: BlockingLink,
    options: ConnectOptions,
    wanted: SequenceRange,
    rows: Deliveries,
    timeout: float,
) -> Generator[int, None, None]:
    """Append the messages of the range to `rows`; `timeout`: the reader's, without progress.

    Yields after each step the sequence up to which everything was appended that the snapshot has;
    the last one is at or after the range's end, or the end of the stream as the server knew it.
    After an error, rows that were appended since the last step are removed. Nothing is yielded
    before the snapshot was proven to be of the stream that the leader has.

    Raises TryAnotherLinkError when the server refuses the snapshot, or it breaks off or is
    damaged: another consumer may continue. ConfigError without the C kernel;
    UnsupportedByServerError; and as `SnapshotTransfer`.
    """
    require_archives()
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
    except BackupError as error:
        rows.truncate(had)
        raise TryAnotherLinkError(f"the snapshot is not whole: {error}") from error
    except BaseException:
        rows.truncate(had)
        raise
    finally:
        transfer.stop()


def require_list(link: BlockingLink) -> None:
    """Raises UnsupportedByServerError for a server that blocks deletes while it sends."""
    if not link.info.at_least(2, 15):
        raise UnsupportedByServerError(
            "A snapshot without blocking deletes", "2.15", link.info.version
        )


def _begun(transfer: SnapshotTransfer) -> dict[str, int]:
    try:
        return transfer.begin()
    except StreamNotFoundError:
        raise
    except APIError as error:
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

    content = Content(more)
    listed, keeping = is_list(content), False
    if listed:
        first.clear()
        content.drop(len(LIST_MAGIC))
        yield from list_steps(content, wanted.start, end, rows)
        return
    if not wanted.blocking:
        require_list(link)
        raise TryAnotherLinkError("the leader's server is older than 2.15")
    with tempfile.TemporaryFile() as file:
        file.writelines(first)
        first.clear()
        while piece := transfer.more():
            file.write(piece)
        blocks = files_of(file).blocks
        if any(block.state is None for block in blocks):
            raise BackupError("It has no index.")
        yield from block_steps(file, wanted.stream, blocks, wanted.start, end, rows)


def _compare(options: ConnectOptions, stream: str, rows: Deliveries, had: int) -> None:
    """Raise TryAnotherLinkError unless the leader has one of these rows.

    A server that does not know yet that the stream was recreated would send the old one.
    """
    sequences, times = rows.sequences(had), rows.times(had)
    with links.borrowed(options) as link:
        api = StreamAPI(link)
        if api.of_one_server:
            return
        for row in sorted({0, len(sequences) // 2, len(sequences) - 1}):
            sequence = sequences[row]
            found = proven(api, [stream], partial(_stored, stream, sequence))
            if found is not None:
                if parse_isotime(found.time) == times[row]:
                    return
                break
    raise TryAnotherLinkError("the snapshot is not of the stream that the leader has")


def _stored(stream: str, sequence: int, api: StreamAPI) -> StoredMessage | None:
    return api.message(stream, seq=sequence)
