"""Builders of what a client sends. Arguments are already checked; sizes count bytes."""

from __future__ import annotations

PING = b"PING\r\n"
PONG = b"PONG\r\n"


def connect(document: bytes) -> bytes:
    """CONNECT with its JSON text."""
    return b"CONNECT %b\r\n" % document


def pub(subject: str, payload: bytes, reply: str | None = None) -> bytes:
    """PUB, without headers. Raises TypeError for a payload that is not bytes."""
    target = subject if reply is None else f"{subject} {reply}"
    try:
        return b"PUB %b %d\r\n%b\r\n" % (target.encode(), len(payload), payload)
    except TypeError:
        raise no_bytes(payload) from None


def hpub(subject: str, headers: bytes, payload: bytes, reply: str | None = None) -> bytes:
    """HPUB with an encoded header block. Raises TypeError for a payload that is not bytes."""
    target = subject if reply is None else f"{subject} {reply}"
    try:
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (
            target.encode(),
            len(headers),
            len(headers) + len(payload),
            headers,
            payload,
        )
    except TypeError:
        raise no_bytes(payload) from None


def replying(subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> bytes:
    """PUB or, when the header block is not empty, HPUB, with encoded subjects."""
    size = len(payload)
    try:
        if not headers:
            return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, size, payload)
        sizes = len(headers), len(headers) + size
        return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
            subject,
            reply,
            *sizes,
            headers,
            payload,
        )
    except TypeError:
        raise no_bytes(payload) from None


def no_bytes(payload: object) -> TypeError:
    """For a payload that cannot be sent."""
    return TypeError(f"A payload is bytes, not {type(payload).__name__}: encode it first.")


def sub(subject: str, sid: int, queue: str | None = None) -> bytes:
    """SUB, with a queue group if given."""
    target = f"{subject} {queue}" if queue else subject
    return b"SUB %b %d\r\n" % (target.encode(), sid)


def unsub(sid: int, max_msgs: int = 0) -> bytes:
    """UNSUB now, or after `max_msgs` messages in all."""
    return b"UNSUB %d %d\r\n" % (sid, max_msgs) if max_msgs else b"UNSUB %d\r\n" % sid
