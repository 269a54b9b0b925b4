"""Builders of the frames that a client sends. The arguments must have been checked."""

from __future__ import annotations

PING = b"PING\r\n"
PONG = b"PONG\r\n"


def connect(document: bytes) -> bytes:
    """CONNECT with a JSON document."""
    return b"CONNECT %b\r\n" % document


def message(target: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB, or HPUB when the header block is not empty. `target`: see `target_of`."""
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)
    sizes = len(headers), len(headers) + len(payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, *sizes, headers, payload)


def target_of(subject: str, reply: str | None) -> bytes:
    """The subject and reply subject (for SUB, the queue group) of a control line."""
    # Not an f-string: it would write the name of a str Enum instead of its value.
    return subject.encode() if reply is None else b"%b %b" % (subject.encode(), reply.encode())


def pub(subject: str, payload: bytes, reply: str | None = None) -> bytes:
    """PUB, without headers."""
    return message(target_of(subject, reply), b"", payload)


def hpub(subject: str, headers: bytes, payload: bytes, reply: str | None = None) -> bytes:
    """HPUB with an encoded header block."""
    return message(target_of(subject, reply), headers, payload)


def replying(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB, or HPUB when the header block is not empty, with encoded subjects."""
    if headers:
        return message(b"%b %b" % (subject, reply), headers, payload)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def reply_of(frame: bytes) -> bytes:
    """The reply subject of a PUB or HPUB; b"" without one."""
    words = frame[: frame.index(b"\r\n")].split()
    return words[2] if len(words) == (5 if words[0] == b"HPUB" else 4) else b""


def sub(subject: str, sid: int, queue: str | None = None) -> bytes:
    """SUB, with a queue group if given."""
    return b"SUB %b %d\r\n" % (target_of(subject, queue or None), sid)


def unsub(sid: int, max_msgs: int = 0) -> bytes:
    """UNSUB, at once or after a total of `max_msgs` messages."""
    return b"UNSUB %d %d\r\n" % (sid, max_msgs) if max_msgs else b"UNSUB %d\r\n" % sid
