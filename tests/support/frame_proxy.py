"""A proxy in the test's event loop that knows frames, and spoils exactly one of a server's.

It stands between a client and its server, or between a leaf node and its hub. Frames are counted
from `arm` on; the one at the given position is dropped, held back while others pass ("late"), held
back with all that follow ("stalled"), sent twice ("twice"), swallowed by a connection that ends a
moment later ("cut"), or torn: a half of it comes, and the end of the connection at once.

For the calls of a server there are three more. A question does not reach it and nothing comes back
("unsent"), or it is told that nobody listens ("unheard"); or the server does what it was asked, and
an error comes in place of its answer ("failed": 503, which passes; "broken": 500, which does not).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Self, TypeAlias

from tests.support.relay import CHUNK, Relay, Way

Kind: TypeAlias = Literal[
    "drop", "late", "stalled", "twice", "cut", "torn", "unsent", "unheard", "failed", "broken"
]

KINDS: Final[tuple[Kind, ...]] = ("drop", "late", "stalled", "twice", "cut", "torn")
OF_QUESTIONS: Final[tuple[Kind, ...]] = ("unsent", "unheard")
OF_ANSWERS: Final[tuple[Kind, ...]] = ("failed", "broken")

_WITH_PAYLOAD: Final = (b"MSG", b"HMSG", b"LMSG", b"RMSG")
_PUBLISHED: Final = (b"PUB", b"HPUB")
_ERRORS: Final = {
    "failed": b'{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}',
    "broken": b'{"error":{"code":500,"err_code":10000,"description":"broken"}}',
}
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
        kinds = _PUBLISHED if self.kind in OF_QUESTIONS else _WITH_PAYLOAD
        if not frame.startswith(kinds) or not self.wanted(frame):
            return False
        if self.kind in OF_ANSWERS and b"\r\n{" not in frame[:300]:
            return False  # a delivery, or a status
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
            if line.split(b" ", 1)[0] in (*_WITH_PAYLOAD, *_PUBLISHED):
                end += int(line.split()[-1]) + 2
                if len(rest) < end:
                    break
            frames.append(bytes(rest[at:end]))
            at = end
        del rest[:at]
        return frames


class FrameProxy(Relay):
    """Arm it, and what is next at that position is spoiled."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.fault: Fault | None = None
        self.also: list[FrameProxy] = []
        """Others whose faults happen here, to their own frames of a link that many share."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._server: asyncio.Server | None = None

    def arm(self, position: int, kind: Kind = "drop", **options: object) -> Fault:
        """Count from here on, and spoil the frame at `position`, which begins at 1."""
        self.fault = Fault(position, kind, **options)  # type: ignore[arg-type]
        return self.fault

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._end_all()

    def _ways(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> tuple[Way, Way]:
        return self._up, self._down

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await reader.read(CHUNK):
            for frame in frames.feed(data):
                fault = self.fault
                if fault is None or fault.kind not in OF_QUESTIONS or not fault.strikes(frame):
                    writer.write(frame)
                elif fault.kind == "unheard":
                    operation, _, rest = frame.split(b" ", 2)
                    writer.write(b"%b nobody.listens %b" % (operation, rest))
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = Frames()
        while data := await reader.read(CHUNK):
            for frame in frames.feed(data):
                faults = [one.fault for one in (self, *self.also) if one.fault is not None]
                faults = [one for one in faults if one.kind not in OF_QUESTIONS]
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
                    case "failed" | "broken":
                        writer.write(_with_payload(frame, _ERRORS[fault.kind]))
                    case "twice":
                        writer.write(frame + frame)
                    case "cut":
                        await asyncio.sleep(_SWALLOWED)
                        return
                    case "torn":
                        writer.write(frame[: len(frame) // 2])
                        writer.close()  # with what was written
                        await writer.wait_closed()
                        return
            await writer.drain()


def _with_payload(frame: bytes, payload: bytes) -> bytes:
    """The message without headers, and with another payload."""
    fields = frame.partition(b"\r\n")[0].split()
    head = fields[1:-2] if fields[0] == b"HMSG" else fields[1:-1]
    return b"MSG %b %d\r\n%b\r\n" % (b" ".join(head), len(payload), payload)
