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
from jetspark.links.link import BlockingLink, has_no_responders
from jetspark.retries import TryAnotherLinkError
from jetspark.wire import frames, js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.snapshot_chunks import ChunkCounter
from jetspark.wire.status import END_OF_BATCH, status_of

MAX_UNREAD_BYTES: Final = 32 << 20
"""Bytes that may wait for the caller before the server has to wait."""
MAX_PENDING_BYTES: Final = 256 << 20
"""Bytes that may wait for the caller before the server must give up."""

_CHUNK_BYTES, _WINDOW_BYTES = 1 << 20, 16 << 20  # the server's limits are 1 and 32 MiB
_KEEPALIVE_SECONDS = 1.0
_POLL_SECONDS, _BUSY_POLL_SECONDS = 0.25, 0.01


class SnapshotTransfer:
    """Receives one snapshot of a stream, in a thread of its own, while the caller unpacks it.

    Call `begin`, then `next_chunk` until it is b"", and `stop` in any case.
    """

    def __init__(self, link: BlockingLink, stream: str, silence: float) -> None:
        """`silence`: seconds without a byte after which the transfer has failed."""
        self._link = link
        self._stream = stream
        self._silence = silence
        self._inbox = link.new_inbox()
        self._answer_sid = self._chunk_sid = 0  # subscriptions
        self._chunk_queue: deque[bytes] = deque()
        self._received = self._consumed = 0  # bytes; each is counted by one thread
        self._chunks = ChunkCounter()
        self._unacknowledged: deque[str] = deque()
        """Reply subjects of chunks that the server has sent, but may not count as arrived yet."""
        self._last_ack = 0.0
        self._last_received = 0.0
        self._incomplete_bytes = 0
        self._answer: dict[str, Any] | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._bell = Bell()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)

    def begin(self) -> dict[str, Any]:
        """Request the snapshot, and start to receive it.

        Returns the stream's state when the server began it, as in STREAM.INFO. Raises the typed
        error of the answer, NoRespondersError, MissedHeartbeatError, TryAnotherLinkError, and the
        errors of the link.
        """
        # The server looks for interest in the literal subject: with a wildcard it waits for 2 s.
        self._answer_sid = self._link.subscribe(f"{self._inbox}.answer")
        self._chunk_sid = self._link.subscribe(f"{self._inbox}.chunk")
        request = {
            "deliver_subject": f"{self._inbox}.chunk",
            "no_consumers": True,
            "chunk_size": min(_CHUNK_BYTES, self._link.info.max_payload),
            "window_size": _WINDOW_BYTES,
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
        """Wait for the next bytes of the snapshot's archive; b"" at its end.

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
        """End the thread, and unsubscribe: from now on the link is the caller's again.

        Its next reader drops chunks that are still in flight.
        """
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        if not self._link.closed:
            self._link.unsubscribe(self._answer_sid)
            self._link.unsubscribe(self._chunk_sid)

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        """Receive and acknowledge until the end, an error, or `stop`."""
        try:
            # A small snapshot may end before its answer arrives, since nothing orders the two.
            while not self._stopping and (self._answer is None or not self._ended):
                self._receive_once()
        except BaseException as error:  # otherwise the caller would wait for ever
            self._finish(error)

    def _receive_once(self) -> None:
        """Wait for frames once, handle them, and acknowledge chunks unless the caller is slow.

        Raises MissedHeartbeatError after silence, and the errors of `next_chunk`.
        """
        wait = _BUSY_POLL_SECONDS if self._unacknowledged else _POLL_SECONDS
        try:
            messages = self._link.messages(time.monotonic() + wait)
        except errors.RequestTimeoutError:
            messages = []
        now = time.monotonic()
        before, self._incomplete_bytes = self._incomplete_bytes, self._link.incomplete_bytes
        server_sends = bool(messages) or self._incomplete_bytes != before
        server_waits = bool(self._unacknowledged)  # for acks, so that silence is no failure
        if server_sends or server_waits:
            self._last_received = now
        elif now > self._last_received + self._silence:
            raise errors.MissedHeartbeatError(
                f"the server has sent nothing of the snapshot for {self._silence:g} s"
            )
        for frame in messages:
            if frame.sid == self._chunk_sid:
                self._on_chunk(frame)
            elif frame.sid == self._answer_sid:
                self._on_answer(frame)
        self._acknowledge(now)

    def _on_answer(self, frame: MessageFrame) -> None:
        """Keep the server's answer to the request, for which `begin` waits.

        Raises the error in it, and NoRespondersError.
        """
        if has_no_responders(frame):
            raise errors.NoRespondersError(f"STREAM.SNAPSHOT.{self._stream}")
        names = {"stream": self._stream}
        self._answer = js_api.parse_answer(js_api.STREAM_SNAPSHOT, frame.payload, names)
        self._bell.ring()

    def _on_chunk(self, frame: MessageFrame) -> None:
        """Queue a chunk of the snapshot for the caller; one without a payload is the end.

        Raises TryAnotherLinkError if a chunk is lost, or the server gave up.
        """
        chunk, status = frame.payload, status_of(frame.headers)
        if chunk:
            self._received += len(chunk)
            self._chunk_queue.append(chunk)
            self._bell.ring()
            if frame.reply is not None:
                reply = frame.reply.decode()
                if not self._chunks.is_next(reply, len(chunk)):
                    raise TryAnotherLinkError("a part of the snapshot did not arrive")
                self._unacknowledged.append(reply)
        elif status is None or status.code == END_OF_BATCH:
            self._finish(None)
        else:
            raise TryAnotherLinkError(
                f"the server ended the snapshot: {status.code} {status.description}"
            )

    def _acknowledge(self, now: float) -> None:
        """Acknowledge the chunks received; while the caller is slow, only one now and then.

        The acks make the server send more; without any for some seconds it gives up the snapshot.
        So with too many bytes waiting for the caller, none is sent.
        """
        unread_bytes = self._received - self._consumed
        acks = b""
        while self._unacknowledged and unread_bytes < MAX_UNREAD_BYTES:
            acks += frames.pub(self._unacknowledged.popleft(), b"")
        is_due = now > self._last_ack + _KEEPALIVE_SECONDS
        if self._unacknowledged and is_due and unread_bytes < MAX_PENDING_BYTES:
            acks += frames.pub(self._unacknowledged.popleft(), b"")
        if acks:
            self._link.send(acks)
            self._last_ack = now

    def _finish(self, error: BaseException | None) -> None:
        """Tell the caller that no more chunks come, and why."""
        self._error = error
        self._ended = True  # set last, since the caller waits for this
        self._bell.ring()
