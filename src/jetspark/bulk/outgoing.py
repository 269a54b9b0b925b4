"""A message on its way to a stream, as bytes, and many of them as one payload.

Rows become `Outgoing` once, where Spark hands them over; from there on they are only moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from jetspark.wire.headers import Headers, encode_headers

Outgoing: TypeAlias = tuple[bytes, bytes | None, bytes]
"""Subject, header block (None without headers) and payload."""

_DECODER = msgspec.msgpack.Decoder(list[tuple[bytes, bytes | None, bytes]])


def size_of(message: Outgoing) -> int:
    """Bytes of subject, headers and payload."""
    subject, block, payload = message
    return len(subject) + (0 if block is None else len(block)) + len(payload)


def header_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The encoded header block, an empty one for no pairs. Raises BadHeaderError."""
    return encode_headers(Headers(pairs))


def pack(messages: list[Outgoing]) -> bytes:
    """Many messages as one payload (MessagePack)."""
    return msgspec.msgpack.encode(messages)


def unpack(packed: bytes) -> list[Outgoing]:
    """What `pack` made."""
    return _DECODER.decode(packed)


def in_packs(messages: Iterable[Outgoing], max_bytes: int) -> Iterator[list[Outgoing]]:
    """Cut into lists of at most about `max_bytes`, one message at least."""
    pack_now: list[Outgoing] = []
    size = 0
    for message in messages:
        more = size_of(message) + 16  # MessagePack's own bytes
        if pack_now and size + more > max_bytes:
            yield pack_now
            pack_now, size = [], 0
        pack_now.append(message)
        size += more
    if pack_now:
        yield pack_now
