"""A proxy in the test's event loop that knows frames, and spoils exactly one of a server's.

It stands between a client and its server, or between a leaf node and its hub. Frames are counted
from `arm` on; the one at the given position is dropped, held back while others pass ("late"), held
back with all that follow ("stalled"), sent twice ("twice"), or swallowed by a connection that ends
a moment later ("cut").
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

Kind: TypeAlias = Literal["drop", "late", "stalled", "twice", "cut"]

KINDS: Final[tuple[Kind, ...]] = ("drop", "late", "stalled", "twice", "cut")

_WITH_PAYLOAD: Final = (b"MSG", b"HMSG", b"LMSG", b"RMSG")
_CHUNK: Final = 1 << 16
_SWALLOWED: Final = 0.3  # seconds from a frame that a dying connection has swallowed to its end


@dataclass
class Fault:
    """What happens to which frame; `hit` is that one, once it came."""

    position: int
    kind: Kind = "drop"
    delay: float = 1.2
    """Seconds, for what is held back."""
    wanted: Callable[[bytes], bool] = field(default=lambda _: True)
    """Which messages count, among those with a payload or headers."""
    seen: int = 0
    hit: bytes | None = None

    def strikes(self, frame: bytes) -> bool:
        """Whether this is the frame."""
        if not frame.startswith(_WITH_PAYLOAD) or not self.wanted(frame):
            return False
        self.seen += 1
        if self.seen != self.position:
            return False
        self.hit = frame
        return True


class Frames:
    """Cuts a stream of bytes into whole frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now."""
        rest = self._rest
        rest += data
        frames, at = [], 0
        while (end := rest.find(b"\r\n", at) + 2) > 1:
            line = bytes(rest[at:end])
            if line.split(b" ", 1)[0] in _WITH_PAYLOAD:
                end += int(line.split()[-1]) + 2
                if len(rest) < end:
                    break
            frames.append(bytes(rest[at:end]))
            at = end
        del rest[:at]
        return frames


class FrameProxy:
    """In front of 127.0.0.1:`target`; clients connect to `url`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.fault: Fault | None = None
        self.also: list[FrameProxy] = []
        """Others whose faults happen here, to their own frames of a link that many share."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def arm(self, position: int, kind: Kind = "drop", **options: object) -> Fault:
        """Count from here on, and spoil the frame at `position`, which begins at 1."""
        self.fault = Fault(position, kind, **options)  # type: ignore[arg-type]
        return self.fault

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, client)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            client.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_connection("127.0.0.1", self.target)
        ways = [
            asyncio.create_task(self._up(reader, server)),
            asyncio.create_task(self._down(from_server, client)),
        ]
        try:
            # A connection whose one half ends, ends.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await reader.read(_CHUNK):
            for frame in frames.feed(data):
                faults = [one.fault for one in (self, *self.also) if one.fault is not None]
                fault = next((one for one in faults if one.strikes(frame)), None)
                if fault is None:
                    writer.write(frame)
                    continue
                match fault.kind:
                    case "late":
                        asyncio.get_running_loop().call_later(fault.delay, writer.write, frame)
                    case "stalled":
                        await asyncio.sleep(fault.delay)
                        writer.write(frame)
                    case "twice":
                        writer.write(frame + frame)
                    case "cut":
                        await asyncio.sleep(_SWALLOWED)
                        return
            await writer.drain()
