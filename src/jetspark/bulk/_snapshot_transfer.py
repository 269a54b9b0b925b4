"""Receives the archive of a stream's snapshot while the server sends it (STREAM.SNAPSHOT).

The server sends chunks and waits for acks when its window is full; after some seconds without an
ack it gives up. So a thread receives and acknowledges, while the caller unpacks: the link is the
thread's from `begin` to `stop`. When the caller is slow (Spark writes a file), more than
`MAX_UNREAD_BYTES` wait and one chunk in `_KEEPALIVE_SECONDS` is acknowledged, which keeps the
snapshot alive until `MAX_PENDING_BYTES` wait. Then the server ends it, and the reader continues
with a consumer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

import jetspark.errors as errors
from jetspark.bulk.links import BlockingLink
from jetspark.connection.locks import Bell
from jetspark.retries import TryAnotherLinkError
from jetspark.wire import frames, js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import END_OF_BATCH, NO_RESPONDERS, status_of

MAX_UNREAD_BYTES: Final = 32 << 20
"""Bytes that may wait for the caller before the server has to wait."""
MAX_PENDING_BYTES: Final = 256 << 20
"""Most bytes that may wait."""

_CHUNK, _WINDOW = 1 << 20, 16 << 20  # the server's limits are 1 and 32 MiB
_KEEPALIVE_SECONDS = 1.0
_POLL_SECONDS, _BUSY_POLL_SECONDS = 0.25, 0.01


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
        soon = _BUSY_POLL_SECONDS if self._unanswered else _POLL_SECONDS
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
        while self._unanswered and self._received - self._taken < MAX_UNREAD_BYTES:
            acks += frames.pub(self._unanswered.popleft(), b"")
        few = self._received - self._taken < MAX_PENDING_BYTES
        if self._unanswered and few and now > self._answered + _KEEPALIVE_SECONDS:
            acks += frames.pub(self._unanswered.popleft(), b"")
        if acks:
            self._link.send(acks)
            self._answered = now

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._over = True  # the caller looks at this first
        self._news.ring()
