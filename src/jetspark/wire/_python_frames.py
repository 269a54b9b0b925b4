"""The plain-Python kernel: bytes into frames."""

from __future__ import annotations

from typing import TypeAlias

from jetspark.errors import ProtocolError
from jetspark.wire._python_messages import MessageFrame
from jetspark.wire.control import OK, PING, PONG, ControlEvent, Err, Info

MAX_CONTROL_LINE = 1 << 20
"""Longest control line accepted, bytes. INFO carries lists of URLs and may be long."""

MAX_MESSAGE = 128 << 20
"""Largest message accepted, bytes of headers and payload. Servers stop at 64 MiB."""

FrameRun: TypeAlias = tuple[int, list[MessageFrame], int]
"""(sid, messages, payload bytes): consecutive messages of one subscription.

Either all of them have a reply subject or none has. The subscription is looked up once for a run.
"""
Event: TypeAlias = FrameRun | ControlEvent

_LONGEST_SID = 18  # digits


def split_frames(
    data: bytes, out: list[Event], pos: int = 0, *, one: bool = False
) -> tuple[int, int]:
    """Append the complete frames of `data` from `pos` on to `out`; with `one` only the first.

    Consecutive messages of one subscription are appended as one run, if either all or none have a
    reply subject. Returns (end, need): the position of the first byte not consumed, and the total
    size of the incomplete frame that begins there (0 while its control line is incomplete). Raises
    ProtocolError; the frames before the invalid one are in `out`.
    """
    find = data.find
    size = len(data)
    run_sid, run_replied, payload = -1, False, 0
    frames: list[MessageFrame] = []
    try:
        while True:
            eol = find(b"\r\n", pos)
            if eol < 0:
                if size - pos > MAX_CONTROL_LINE:
                    raise ProtocolError(f"a control line of over {MAX_CONTROL_LINE} bytes")
                return pos, 0
            parts = data[pos:eol].split()
            count = len(parts)
            op = parts[0] if parts else b""
            block = None
            if op == b"MSG" and 4 <= count <= 5:
                body = eol + 2
                end = body + _size(parts[-1], data, pos, eol)
                replied = count == 5
            elif op == b"HMSG" and 5 <= count <= 6:
                head = eol + 2
                body = head + _size(parts[-2], data, pos, eol)
                end = head + _size(parts[-1], data, pos, eol)
                if end < body:
                    raise ProtocolError(f"header longer than message in {_show(data[pos:eol])}")
                replied = count == 6
                block = data[head:body]
            else:
                if frames:
                    out.append((run_sid, frames, payload))
                    frames = []
                out.append(control_event(data[pos:eol]))
                pos = eol + 2
                if one:
                    return pos, 0
                continue
            sid = _sid(parts[2], data, pos, eol)
            if end + 2 > size:
                return pos, end + 2 - pos
            if data[end : end + 2] != b"\r\n":
                raise ProtocolError(f"no CRLF after the payload of {_show(data[pos:eol])}")
            if sid != run_sid or replied is not run_replied or not frames:
                if frames:
                    out.append((run_sid, frames, payload))
                frames, payload = [], 0
                run_sid, run_replied = sid, replied
            reply = parts[3] if replied else None
            frames.append(MessageFrame(sid, parts[1], reply, block, data[body:end]))
            payload += end - body
            pos = end + 2
            if one:
                return pos, 0
    finally:
        if frames:
            out.append((run_sid, frames, payload))


def _size(text: bytes, data: bytes, pos: int, eol: int) -> int:
    # int() also accepts signs, spaces and underscores.
    if not text.isdigit() or len(text) > 4000:
        raise _bad_line(data, pos, eol)
    value = int(text)
    if value > MAX_MESSAGE:
        raise ProtocolError(f"a message of {value} bytes; at most {MAX_MESSAGE} are accepted")
    return value


def _sid(text: bytes, data: bytes, pos: int, eol: int) -> int:
    if not text.isdigit() or len(text) > _LONGEST_SID:
        raise _bad_line(data, pos, eol)
    return int(text)


def _bad_line(data: bytes, pos: int, eol: int) -> ProtocolError:
    return ProtocolError(f"bad control line {_show(data[pos:eol])}")


def control_event(line: bytes) -> ControlEvent:
    """Parse a control line other than MSG and HMSG. Raises ProtocolError."""
    op, _, rest = line.partition(b" ")
    op = op.strip().upper()
    if op == b"PING":
        return PING
    if op == b"PONG":
        return PONG
    if op == b"+OK":
        return OK
    if op == b"INFO":
        return Info(rest.strip())
    if op == b"-ERR":
        return Err(rest.strip().strip(b"'").decode("utf-8", "replace"))
    raise ProtocolError(f"unknown operation {_show(line)}")


def refuse(data: bytes) -> None:
    """Raise the ProtocolError for the invalid frame at the start of `data`."""
    split_frames(data, [], one=True)


def _show(line: bytes) -> str:
    text = line[:80].decode("utf-8", "backslashreplace")
    return repr(text + "…" if len(line) > 80 else text)
