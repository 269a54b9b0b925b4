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
from jetspark.connection.locks import Bell
from jetspark.links.link import BlockingLink
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
    """One snapshot. Call `begin`, then `next_chunk` until it is b"", and `stop` in any case."""

    def __init__(self, link: BlockingLink, stream: str, silence: float) -> None:
        """`silence`: seconds without a byte after which the transfer has failed."""
        self._link = link
        self._stream = stream
        self._silence = silence
        self._inbox = link.new_inbox()
        self._answer_sid = self._chunk_sid = 0  # subscriptions
        self._chunk_queue: deque[bytes] = deque()
        self._received = self._consumed = 0  # bytes; each is counted by one thread
        self._unacknowledged: deque[str] = deque()
        self._chunk_number = 0
        self._last_ack = 0.0
        self._last_received = 0.0
        self._partial = 0
        self._answer: dict[str, Any] | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._bell = Bell()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)

    def begin(self) -> dict[str, Any]:
        """Request the snapshot; returns the stream's state when the server began.

        Raises the typed error of the answer, NoRespondersError, MissedHeartbeatError,
        TryAnotherLinkError, and the errors of the link.
        """
        # The server looks for interest in the literal subject: with a wildcard it waits for 2 s.
        self._answer_sid = self._link.subscribe(f"{self._inbox}.answer")
        self._chunk_sid = self._link.subscribe(f"{self._inbox}.chunk")
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
        self._last_received = self._last_ack = time.monotonic()
        self._thread.start()
        self._bell.wait(lambda: self._answer is not None or self._error is not None)
        if self._answer is None:
            assert self._error is not None  # noqa: S101 - the condition waited for
            raise self._error
        state: dict[str, Any] = self._answer["state"]
        return state

    def next_chunk(self) -> bytes:
        """The next bytes of the archive; b"" at its end.

        Raises MissedHeartbeatError when the server fell silent, TryAnotherLinkError when it gave up
        or a chunk was lost, and the errors of the link.
        """
        self._bell.wait(lambda: bool(self._chunk_queue) or self._ended)
        if self._chunk_queue:
            chunk = self._chunk_queue.popleft()
            self._consumed += len(chunk)
            return chunk
        if self._error is not None:
            raise self._error
        return b""

    def stop(self) -> None:
        """Return the link; its next reader drops what is in flight."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        if not self._link.closed:
            self._link.unsubscribe(self._answer_sid)
            self._link.unsubscribe(self._chunk_sid)

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # A small snapshot may end before its answer arrives, since nothing orders the two.
            while not self._stopping and (self._answer is None or not self._ended):
                self._step()
        except BaseException as error:  # otherwise the caller would wait for ever
            self._finish(error)

    def _step(self) -> None:
        soon = _BUSY_POLL_SECONDS if self._unacknowledged else _POLL_SECONDS
        try:
            frames_ = self._link.messages(time.monotonic() + soon)
        except errors.RequestTimeoutError:
            frames_ = []
        now = time.monotonic()
        part, self._partial = self._partial, self._link.incomplete_bytes
        if (
            frames_ or self._unacknowledged or self._partial != part
        ):  # the server sends, or waits for us
            self._last_received = now
        elif now > self._last_received + self._silence:
            raise errors.MissedHeartbeatError(
                f"the server has sent nothing of the snapshot for {self._silence:g} s"
            )
        for frame in frames_:
            if frame.sid == self._chunk_sid:
                self._on_chunk(frame)
            elif frame.sid == self._answer_sid:
                self._on_answer(frame)
        self._acknowledge(now)

    def _on_answer(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers)
        if status is not None and status.code == NO_RESPONDERS:
            raise errors.NoRespondersError(f"STREAM.SNAPSHOT.{self._stream}")
        answer = js_api.parse_answer(
            js_api.STREAM_SNAPSHOT, frame.payload, {"stream": self._stream}
        )
        self._answer = answer
        self._bell.ring()

    def _on_chunk(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers)
        if frame.payload:
            self._add_chunk(frame.payload, frame.reply)
        elif status is None or status.code == END_OF_BATCH:
            self._finish(None)
        else:
            raise TryAnotherLinkError(
                f"the server ended the snapshot: {status.code} {status.description}"
            )

    def _add_chunk(self, chunk: bytes, reply: bytes | None) -> None:
        self._received += len(chunk)
        self._chunk_queue.append(chunk)
        self._bell.ring()
        if reply is None:  # the last one
            return
        subject = reply.decode()
        # The reply subject ends with the chunk's size and number, unless an import mapped it.
        *_, size, number = subject.split(".")
        self._chunk_number += 1
        announced = (int(size), int(number)) if size.isdigit() and number.isdigit() else None
        if announced not in (None, (len(chunk), self._chunk_number)):
            raise TryAnotherLinkError("a part of the snapshot did not arrive")
        self._unacknowledged.append(subject)

    def _acknowledge(self, now: float) -> None:
        acks = b""
        while self._unacknowledged and self._received - self._consumed < MAX_UNREAD_BYTES:
            acks += frames.pub(self._unacknowledged.popleft(), b"")
        few = self._received - self._consumed < MAX_PENDING_BYTES
        if self._unacknowledged and few and now > self._last_ack + _KEEPALIVE_SECONDS:
            acks += frames.pub(self._unacknowledged.popleft(), b"")
        if acks:
            self._link.send(acks)
            self._last_ack = now

    def _finish(self, error: BaseException | None) -> None:
        self._error = error
        self._ended = True  # the caller looks at this first
        self._bell.ring()
