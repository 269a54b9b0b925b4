"""Builders of what a client sends, of arguments that are checked: bytes are bytes, no objects."""

from __future__ import annotations

PING = b"PING\r\n"
PONG = b"PONG\r\n"


def connect(document: bytes) -> bytes:
    """CONNECT with its JSON text."""
    return b"CONNECT %b\r\n" % document


def message(target: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB or, when the header block is not empty, HPUB. `target`: what `target_of` makes."""
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)
    sizes = len(headers), len(headers) + len(payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, *sizes, headers, payload)


def target_of(subject: str, reply: str | None) -> bytes:
    """The subjects of a message, as they stand in its first line."""
    # Not by an f-string: a str that is an Enum too formats as another text than it encodes.
    return subject.encode() if reply is None else b"%b %b" % (subject.encode(), reply.encode())


def pub(subject: str, payload: bytes, reply: str | None = None) -> bytes:
    """PUB, without headers."""
    return message(target_of(subject, reply), b"", payload)


def hpub(subject: str, headers: bytes, payload: bytes, reply: str | None = None) -> bytes:
    """HPUB with an encoded header block."""
    return message(target_of(subject, reply), headers, payload)


def replying(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB or, when the header block is not empty, HPUB, with encoded subjects."""
    if headers:
        return message(b"%b %b" % (subject, reply), headers, payload)
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def sub(subject: str, sid: int, queue: str | None = None) -> bytes:
    """SUB, with a queue group if given."""
    return b"SUB %b %d\r\n" % (target_of(subject, queue or None), sid)


def unsub(sid: int, max_msgs: int = 0) -> bytes:
    """UNSUB now, or after `max_msgs` messages in all."""
    return b"UNSUB %d %d\r\n" % (sid, max_msgs) if max_msgs else b"UNSUB %d\r\n" % sid
