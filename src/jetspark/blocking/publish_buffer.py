"""The buffer between threads that publish and the event loop.

Contract: a thread-safe `FrameOutbox`. Frames keep the order of `put` and are not joined. One
wake-up of the loop hands the whole buffer to the connection's outbox. `crowded` and `wait` are the
back-pressure; `put` raises what the outbox would raise in the present state of the link. While the
link is down and the outbox full, accepted frames stay here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from math import inf

from jetspark.blocking.loop_thread import LoopThread, Suspended, forked
from jetspark.connection.events import ConnectionStatus
from jetspark.connection.locks import Bell, locked, new_rlock
from jetspark.connection.outbox import report_unsent
from jetspark.connection.server_errors import Dropped, sendable
from jetspark.connection.supervisor import Supervisor
from jetspark.errors import ConnectionClosedError, OutboundBufferError
from jetspark.wire.frames import reply_of

CROWDED = 512 * 1024
"""Bytes above which publishers wait; enough to keep the loop writing."""

_CONNECTED = ConnectionStatus.CONNECTED  # looking up an enum member is slow
_LINKED = (ConnectionStatus.CONNECTED, ConnectionStatus.DRAINING)


class PublishBuffer:
    """The buffer of one client. `limit`: its `pending_size`, bytes."""

    def __init__(self, thread: LoopThread, link: Supervisor, limit: int) -> None:
        self._thread = thread
        self._link = link
        self._outbox = link.outbox
        self._limit = limit
        # Reentrant: a signal handler may publish while its thread is in `put`.
        self._lock = new_rlock()
        self._room = Bell()
        self._frames: list[bytes] = []
        self._size = 0
        self._armed = False
        self._waiting: asyncio.Task[None] | None = None
        self.crowded = False
        """Whether publishers must `wait` before they put more."""
        self.published = 0
        """Messages accepted so far."""

    # -- any thread ------------------------------------------------------------------------------

    def put(self, frame: bytes) -> None:
        """Add a publish, or raise OutboundBufferError or ConnectionClosedError and add nothing."""
        if self._thread.forked:
            raise forked()  # before taking the lock, which may have been held during the fork
        with self._lock:
            size = self._size + len(frame)
            if size > CROWDED or self._link.status is not _CONNECTED:
                self._check_limits(size, len(frame))
            self._frames.append(frame)
            self._size = size
            self.published += 1
            if not self._armed:
                # In this order an interrupt in between costs only a second wake-up.
                self._thread.post(self._hand_over)
                self._armed = True

    def put_here(self, frame: bytes) -> bool:
        """Write a publish in this thread, if nothing waits before it; returns whether it did."""
        return locked(self._lock, self._put_if_idle, frame, missed=False)

    def _put_if_idle(self, frame: bytes) -> bool:
        if self._frames or not self._outbox.put_here(frame):
            return False
        self.published += 1
        return True

    def _check_limits(self, size: int, added: int) -> None:
        """Handle the rare cases: much is buffered, or there is no link."""
        self._thread.sleep_in_daemons()
        self._link.require_open()
        if self._link.status not in _LINKED:
            size += self._outbox.size
        elif size <= max(CROWDED, self._limit):
            self.crowded = size > CROWDED
            return
        if size > self._limit:
            raise OutboundBufferError(
                f"{size - added} bytes are buffered and pending_size is {self._limit}: "
                f"this message of {added} bytes was not accepted."
            )

    async def wait(self) -> None:
        """Wait for room, or the end of the link.

        Blocks the thread that `drive`s it; in the loop's thread it suspends.
        """
        if self._thread.is_current:
            await self.emptied()
            return
        self._room.wait(lambda: not self.crowded)

    def block(self, timeout: float = inf) -> bool:
        """`wait` as a plain function; returns whether there is room before so many seconds end.

        Raises Suspended in the loop's thread.
        """
        if self._thread.forked:
            raise forked()
        if self._thread.is_current:
            raise Suspended
        return self._room.wait(lambda: not self.crowded, timeout)

    # -- the loop's thread -----------------------------------------------------------------------

    def _hand_over(self) -> None:
        # While draining, the link may end before the outbox has room: hand over at once.
        if self._outbox.crowded and self._link.status is _CONNECTED:
            self._waiting = self._thread.loop.create_task(self.emptied())
        else:
            self.give()

    async def emptied(self) -> None:
        """Hand over the buffer as soon as the outbox is not crowded."""
        if self._outbox.crowded:
            await self._outbox.wait()
        self.give()

    def give(self) -> None:
        """Hand over the buffer; keep the frames if the outbox is full and there is no link."""
        dropped: Sequence[Dropped] = ()
        unsent = 0
        with self._lock:
            frames, size = self._frames, self._size
            self._frames, self._size, self._armed = [], 0, False
            if frames:
                try:
                    frames, size, dropped = self._sendable(frames, size)
                    self._outbox.put_all(frames, size)
                except OutboundBufferError:
                    # Until link_changed; stays armed, since waking the loop earlier would be
                    # useless.
                    self._frames, self._size, self._armed = frames, size, True
                except ConnectionClosedError:
                    unsent = size
            self.crowded = False
        self._room.ring()
        for publish in dropped:  # after releasing the lock: an error callback may publish
            self._link.routes.drop(publish)
        report_unsent(unsent, self._link.on_error)

    def _sendable(
        self, frames: list[bytes], size: int
    ) -> tuple[list[bytes], int, Sequence[Dropped]]:
        """The frames that the present server accepts, which another server's check may not know."""
        link, info = self._link, self._link.info
        # Without a link, the outbox checks them when there is one.
        if link.present is None or info is None:
            return frames, size, ()
        if size <= info.max_payload and info.headers:
            return frames, size, ()
        frames, dropped = sendable(frames, info)
        return frames, sum(map(len, frames)), dropped

    def withdraw(self, replies: Container[bytes]) -> None:
        """Drop the publishes with these reply subjects that are not written yet."""
        with self._lock:
            self._frames = [frame for frame in self._frames if reply_of(frame) not in replies]
            self._size = sum(map(len, self._frames))
        self._outbox.withdraw(replies)

    def link_changed(self) -> None:
        """The link came or went: hand over the buffer and wake waiting publishers."""
        self.give()
