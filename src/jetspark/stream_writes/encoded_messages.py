"""A message as the bytes that are published, and many of them packed into one payload.

A row is encoded once, in the task that gets it from Spark. For exactly-once the task also packs
it; the pack stays unchanged until the copier unpacks it and publishes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from jetspark.wire.documents import decode_msgpack
from jetspark.wire.headers import encode_headers, forwarded

EncodedMessage: TypeAlias = tuple[bytes, bytes | None, bytes]
"""Subject, header block (None without headers) and payload."""

_PACKING_BYTES = 16
"""Bytes that MessagePack may add to a message."""


def size_of(message: EncodedMessage) -> int:
    """The bytes of a message: subject, headers and payload."""
    subject, block, payload = message
    return len(subject) + len(block or b"") + len(payload)


def packed_size_of(message: EncodedMessage) -> int:
    """Bytes that a message takes in a pack, at most."""
    return size_of(message) + _PACKING_BYTES


FIRST_OF_SUBJECT = ("Nats-Expected-Last-Subject-Sequence", "0")
"""The header of a message that is stored only while its subject has none."""


def header_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The encoded header block, an empty one for no pairs. Raises BadHeaderError."""
    return encode_headers(forwarded(pairs))


def pack_messages(messages: list[EncodedMessage]) -> bytes:
    """Many messages as one payload (MessagePack)."""
    return msgspec.msgpack.encode(messages)


def unpack_messages(packed: bytes) -> list[EncodedMessage]:
    """The messages of a pack. Raises DocumentError for anything else."""
    return decode_msgpack(packed, list[EncodedMessage], "pack of rows")


def split_into_packs(
    messages: Iterable[EncodedMessage], max_bytes: int
) -> Iterator[list[EncodedMessage]]:
    """Split messages into lists, each of which fits into one payload of about `max_bytes`.

    A list has at least one message, however large that is.
    """
    pack: list[EncodedMessage] = []
    pack_size = 0
    for message in messages:
        size = packed_size_of(message)
        if pack and pack_size + size > max_bytes:
            yield pack
            pack, pack_size = [], 0
        pack.append(message)
        pack_size += size
    if pack:
        yield pack
