"""A range read through a snapshot of its stream, step by step.

From server 2.15 on the snapshot is a list of messages, unpacked while it arrives. Before, it is a
tar whose index comes last: it goes to a temporary file first, and is read like a backup.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any, Final

import jetspark.errors as errors
from jetspark.backup import archive
from jetspark.bulk import links
from jetspark.bulk.leaders import linearizable_read
from jetspark.bulk.links import BlockingLink
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.stream_api import StreamAPI
from jetspark.connection.locks import Bell
from jetspark.connection.options import ConnectOptions
from jetspark.retries import TryAnotherLinkError
from jetspark.timestamps import parse_isotime
from jetspark.wire import frames, js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import Deliveries, MessageFrame
from jetspark.wire.status import END_OF_BATCH, NO_RESPONDERS, status_of

# -------------------------------------------------------------------------------------------------
# The archive of a stream's snapshot while the server sends it (STREAM.SNAPSHOT).
#
# The server sends chunks and waits for acks when its window is full; after some seconds without an
# ack it gives up. So a thread receives and acknowledges, while the caller unpacks: the link is the
# thread's from `begin` to `stop`. When the caller is slow (Spark writes a file), more than `AHEAD`
# bytes wait and one chunk in `_ALIVE_SECONDS` is acknowledged, which keeps the snapshot alive
# until `MOST` bytes wait. Then the server ends it, and the reader continues with a consumer.


AHEAD: Final = 32 << 20
"""Bytes that may wait for the caller before the server has to wait."""
MOST: Final = 256 << 20
"""Most bytes that may wait."""

_CHUNK, _WINDOW = 1 << 20, 16 << 20  # the server's limits are 1 and 32 MiB
_ALIVE_SECONDS = 1.0
_LOOK_SECONDS, _LOOK_SOON_SECONDS = 0.25, 0.01


class SnapshotTransfer:
    """One snapshot. Call `begin`, then `more` until it is b"", and `stop` in any case."""

    def __init__(self, link: BlockingLink, stream: str, silence: float) -> None:
        """`silence`: seconds without a byte after which the transfer has failed."""
        self._link = link
        self._stream = stream
        self._silence = silence
        self._inbox = link.new_inbox()
        self._answers = self._chunks = 0  # subscriptions
        self._pieces: deque[bytes] = deque()
        self._received = self._taken = 0  # bytes; each is counted by one thread
        self._unanswered: deque[str] = deque()
        self._count = 0
        self._answered = 0.0
        self._heard = 0.0
        self._part = 0
        self._answer: dict[str, Any] | None = None
        self._over = False
        self._error: BaseException | None = None
        self._news = Bell()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)

    def begin(self) -> dict[str, Any]:
        """Request the snapshot; returns the stream's state when the server began.

        Raises the typed error of the answer, NoRespondersError, MissedHeartbeatError,
        TryAnotherLinkError, and the errors of the link.
        """
        # The server looks for interest in the literal subject: with a wildcard it waits for 2 s.
        self._answers = self._link.subscribe(f"{self._inbox}.answer")
        self._chunks = self._link.subscribe(f"{self._inbox}.chunk")
        request = {
            "deliver_subject": f"{self._inbox}.chunk",
            "no_consumers": True,
            "chunk_size": min(_CHUNK, self._link.info.max_payload),
            "window_size": _WINDOW,
        }
        subject = js_api.subject_of(
            self._link.api_prefix, js_api.STREAM_SNAPSHOT, {"stream": self._stream}
        )
        self._link.send(frames.pub(subject, encode_document(request), f"{self._inbox}.answer"))
        self._heard = self._answered = time.monotonic()
        self._thread.start()
        self._news.wait(lambda: self._answer is not None or self._error is not None)
        if self._answer is None:
            assert self._error is not None  # noqa: S101 - the condition waited for
            raise self._error
        state: dict[str, Any] = self._answer["state"]
        return state

    def more(self) -> bytes:
        """The next bytes of the archive; b"" at its end.

        Raises MissedHeartbeatError when the server fell silent, TryAnotherLinkError when it gave up
        or a chunk was lost, and the errors of the link.
        """
        self._news.wait(lambda: bool(self._pieces) or self._over)
        if self._pieces:
            piece = self._pieces.popleft()
            self._taken += len(piece)
            return piece
        if self._error is not None:
            raise self._error
        return b""

    def stop(self) -> None:
        """Return the link; its next reader drops what is in flight."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        if not self._link.closed:
            self._link.unsubscribe(self._answers)
            self._link.unsubscribe(self._chunks)

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # A small snapshot may end before its answer arrives, since nothing orders the two.
            while not self._stopping and (self._answer is None or not self._over):
                self._step()
        except BaseException as error:  # otherwise the caller would wait for ever
            self._finish(error)

    def _step(self) -> None:
        soon = _LOOK_SOON_SECONDS if self._unanswered else _LOOK_SECONDS
        try:
            frames_ = self._link.messages(time.monotonic() + soon)
        except errors.RequestTimeoutError:
            frames_ = []
        now = time.monotonic()
        part, self._part = self._part, self._link.receiving
        if frames_ or self._unanswered or self._part != part:  # the server sends, or waits for us
            self._heard = now
        elif now > self._heard + self._silence:
            raise errors.MissedHeartbeatError(
                f"the server has sent nothing of the snapshot for {self._silence:g} s"
            )
        for frame in frames_:
            if frame.sid == self._chunks:
                self._take(frame)
            elif frame.sid == self._answers:
                self._begun(frame)
        self._acknowledge(now)

    def _begun(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers)
        if status is not None and status.code == NO_RESPONDERS:
            raise errors.NoRespondersError(f"STREAM.SNAPSHOT.{self._stream}")
        answer = js_api.parse_answer(
            js_api.STREAM_SNAPSHOT, frame.payload, {"stream": self._stream}
        )
        self._answer = answer
        self._news.ring()

    def _take(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers)
        if frame.payload:
            self._chunk(frame.payload, frame.reply)
        elif status is None or status.code == END_OF_BATCH:
            self._finish(None)
        else:
            raise TryAnotherLinkError(
                f"the server ended the snapshot: {status.code} {status.description}"
            )

    def _chunk(self, piece: bytes, reply: bytes | None) -> None:
        self._received += len(piece)
        self._pieces.append(piece)
        self._news.ring()
        if reply is None:  # the last one
            return
        subject = reply.decode()
        # The reply subject ends with the chunk's size and number, unless an import mapped it.
        *_, size, number = subject.split(".")
        self._count += 1
        told = (int(size), int(number)) if size.isdigit() and number.isdigit() else None
        if told not in (None, (len(piece), self._count)):
            raise TryAnotherLinkError("a part of the snapshot did not arrive")
        self._unanswered.append(subject)

    def _acknowledge(self, now: float) -> None:
        acks = b""
        while self._unanswered and self._received - self._taken < AHEAD:
            acks += frames.pub(self._unanswered.popleft(), b"")
        few = self._received - self._taken < MOST
        if self._unanswered and few and now > self._answered + _ALIVE_SECONDS:
            acks += frames.pub(self._unanswered.popleft(), b"")
        if acks:
            self._link.send(acks)
            self._answered = now

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._over = True  # the caller looks at this first
        self._news.ring()


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
    with links.pool.link(options) as link:
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
