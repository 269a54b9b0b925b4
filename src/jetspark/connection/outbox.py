"""Frames to be sent: one write for each turn of the loop, bounded, kept while there is no link.

Contract: frames are sent in order, each handed to the transport whole and once. What the transport
has accepted may be lost with the link (core NATS delivers at most once); everything else is kept.
Publishes survive the link. Control frames (SUB, UNSUB, PING, PONG) are dropped with it: the
supervisor replays subscriptions on the next link from its own table. `keep` drops publishes that
the next server would not accept, such as too large ones. It reads the first line of each frame, so
frames must not be joined here.

Everything but `put_here` is called in the event loop's thread, which `check_home` checks. Every
write holds the lock, so that one thread's frames stay in order.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Container
from math import inf

from jetspark.connection.locks import locked, new_rlock
from jetspark.connection.server_errors import Dropped, sendable
from jetspark.connection.waiting import Room
from jetspark.errors import ConfigError, ConnectionClosedError, JetsparkError, OutboundBufferError
from jetspark.wire.documents import ServerInfo
from jetspark.wire.frames import reply_of

logger = logging.getLogger("jetspark")

FLUSH_AT = 128 * 1024
"""Bytes after which frames are written without waiting for the end of the loop turn."""


_CLOSED = -1


class _Control(bytes):
    """A control frame. A type of its own costs nothing on the publish path."""


def report_unsent(size: int, on_error: Callable[[JetsparkError], None]) -> None:
    """Log bytes that were never sent, and report them to the error callback.

    They do not become last_error, which says why the client closed.
    """
    if size:
        lost = ConnectionClosedError(
            f"{size} bytes were never sent: the client was closed while there was no link."
        )
        logger.warning("%s", lost)
        on_error(lost)


class Outbox:
    """Closed at first and again at the end, when it refuses every publish.

    `limit`: bytes held while nothing can be written; the frame that exceeds it is refused.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        self._limit = limit
        self._loop = loop
        self._home = threading.get_ident()
        self._write: Callable[[bytes], None] | None = None
        self._write_here: Callable[[bytes], bool] | None = None
        # Reentrant: a signal handler may publish in the middle of `put_here`.
        self._writing = new_rlock()
        self._frames: list[bytes] = []
        self._size = 0
        self._mark = _CLOSED
        # True while a flush will come anyway: at the end of this turn, on attach or on resume.
        self._armed = True
        self._paused = False
        self._reason: JetsparkError | None = None
        self._room = Room(lambda: self.crowded)
        self.crowded = False
        """Whether publishers should `wait` before they add more."""
        self.bytes_out = 0
        """Bytes handed to transports."""
        self.published = 0
        """Messages taken by `put` and `put_now`."""
        self.never_sent: set[bytes] = set()
        """Reply subjects of the publishes that were left when it closed."""

    @property
    def size(self) -> int:
        """Bytes waiting here."""
        return self._size

    def open(self) -> None:
        """Accept publishes from now on."""
        self._mark = self._limit

    def close(self, reason: JetsparkError | None) -> None:
        """Refuse publishes from now on, and drop those that wait here."""
        self.detach()
        self.never_sent = {reply_of(frame) for frame in self._frames if type(frame) is bytes}
        self._frames.clear()
        self._size = 0
        self._mark = _CLOSED
        self._reason = reason

    def check_home(self) -> None:
        """Raises ConfigError in another event loop or thread than this one's."""
        try:
            at_home = asyncio.get_running_loop() is self._loop
        except RuntimeError:  # the loop is not running, or this is another thread
            at_home = threading.get_ident() == self._home
        if not at_home:
            raise ConfigError(
                "This client belongs to another event loop: use it where it was connected, or in "
                "other threads one of jetspark.blocking."
            )

    # -- filling -------------------------------------------------------------------------------

    def put(self, frame: bytes) -> None:
        """Add a publish. Raises OutboundBufferError or ConnectionClosedError, taking nothing."""
        size = self._size + len(frame)
        if size > self._mark:
            self._overflow([frame], len(frame))
            self.published += 1
            return
        self._frames.append(frame)
        self._size = size
        self.published += 1
        if not self._armed:
            self._arm()

    def put_all(self, frames: list[bytes], size: int) -> None:
        """`put` for several publishes of `size` bytes in all: accepts all or none.

        Does not count them: whoever accepted them did.
        """
        if self._size + size > self._mark:
            self._overflow(frames, size)
            return
        self._frames += frames
        self._size += size
        if not self._armed:
            self._arm()

    def put_now(self, frame: bytes) -> None:
        """`put` for a caller that only waits for the reply: written at once if possible.

        Saves the wait for the end of the loop's turn.
        """
        if self._frames or self._paused or self._write is None or len(frame) > self._mark:
            self.put(frame)
            return
        self.published += 1
        with self._writing:
            self.bytes_out += len(frame)
            self._write(frame)

    def put_here(self, frame: bytes) -> bool:
        """`put_now` from any thread, if it can be written at once; returns whether it was."""
        return locked(self._writing, self._write_if_idle, frame, missed=False)

    def _write_if_idle(self, frame: bytes) -> bool:
        write = self._write_here
        if write is None or self._frames or self._paused or not write(frame):
            return False
        self.bytes_out += len(frame)
        return True

    def put_control(self, frame: bytes) -> None:
        """Add a frame for the present link; dropped without one. Never refused."""
        if self._write is None:
            return
        self.check_home()
        self._frames.append(_Control(frame))
        self._size += len(frame)
        if not self._armed:
            self._arm()

    def _overflow(self, frames: list[bytes], size: int) -> None:
        if self._mark == _CLOSED:
            raise ConnectionClosedError from self._reason
        if self._write is None or self._paused:
            raise OutboundBufferError(
                f"{self._size} bytes are buffered and pending_size is {self._limit}: "
                f"this message of {size} bytes was not accepted."
            )
        self._frames += frames
        self._size += size
        # A loop of publishes must let the event loop read from time to time.
        self.crowded = True
        if not self._armed:
            self._arm()
        self.flush()

    def _arm(self) -> None:
        self._armed = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._write is not None and not self._paused:
            self._armed = False
            self.flush()
            self._relax()

    def keep(self, info: ServerInfo) -> list[Dropped]:
        """Drop and return the publishes that the next link's server would not accept."""
        self._frames, dropped = sendable(self._frames, info)
        self._size = sum(map(len, self._frames))
        return dropped

    def withdraw(self, replies: Container[bytes]) -> set[bytes]:
        """Drop the publishes with these reply subjects that still wait here; return them."""
        withdrawn: set[bytes] = set()
        remaining = []
        for frame in self._frames:
            if type(frame) is bytes and (reply := reply_of(frame)) in replies:
                withdrawn.add(reply)
            else:
                remaining.append(frame)
        if withdrawn:
            self._frames = remaining
            self._size = sum(map(len, remaining))
        return withdrawn

    # -- emptying ------------------------------------------------------------------------------

    def flush(self, *, anyway: bool = False) -> None:
        """Hand everything to the transport, unless it is paused. `anyway`: even then."""
        if self._write is None or not self._frames or (self._paused and not anyway):
            return
        with self._writing:
            data = b"".join(self._frames)
            self._frames = []
            self._size = 0
            self.bytes_out += len(data)
            self._write(data)

    def attach(
        self, write: Callable[[bytes], None], write_here: Callable[[bytes], bool] | None = None
    ) -> None:
        """A link is up: send the kept frames. `write_here`: see `Transport.write_here`."""
        self._write = write
        self._write_here = write_here
        self._mark = FLUSH_AT
        self._paused = False
        self._armed = False
        self.flush()

    def detach(self) -> None:
        """The link is gone: drop its control frames, keep publishes for the next one."""
        self._write = self._write_here = None
        self._mark = self._limit
        self._paused = False
        self._armed = True
        self._frames = [frame for frame in self._frames if type(frame) is bytes]
        self._size = sum(map(len, self._frames))
        self._relax()

    def pause(self) -> None:
        """The transport's buffer is full."""
        if self._write is not None:
            self._paused = self.crowded = self._armed = True
            self._mark = self._limit

    def resume(self) -> None:
        """The transport's buffer has room again."""
        if self._write is not None and self._paused:
            self._paused = False
            self._armed = False
            self._mark = FLUSH_AT
            self.flush()
            self._relax()

    def _relax(self) -> None:
        if self._paused:
            return
        self.crowded = False
        self._room.wake(inf)

    async def wait(self) -> None:
        """Wait for room, or for the link's end; who came first is first."""
        await self._room.wait()
