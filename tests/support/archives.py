"""Archives and backups made by hand: frames of S2, lists of messages, message blocks, tars."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jetspark.wire import _kernel  # type: ignore[attr-defined]

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"

Message = tuple[bytes, int, int, bytes, bytes]
"""Subject, sequence, nanoseconds, headers, payload."""


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def varint(value: int) -> bytes:
    return uvarint(value << 1 ^ value >> 63 if value >= 0 else ~(value << 1))


def frame(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def block_frame(block: bytes, content: bytes) -> bytes:
    """A compressed frame; `block` is what is said of `content`, without its size."""
    return frame(0, _masked(content) + uvarint(len(content)) + block)


def plain_frame(content: bytes) -> bytes:
    return frame(1, _masked(content) + content)


def _masked(content: bytes) -> bytes:
    crc: int = _kernel.crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def stream_of(content: bytes, size: int = 1 << 16) -> bytes:
    """An S2 stream of uncompressed frames."""
    parts = (content[at : at + size] for at in range(0, len(content), size))
    return IDENTIFIER + b"".join(map(plain_frame, parts))


def entry(message: Message) -> bytes:
    name, sequence, ns, headers, payload = message
    sizes = uvarint(len(headers)) + uvarint(len(payload))
    return uvarint(len(name)) + varint(ns) + uvarint(sequence) + sizes + name + headers + payload


END = entry((b"", 0, 0, b"", b""))


def message_list(messages: Iterable[Message]) -> bytes:
    """The content of an archive of server 2.15."""
    state = entry((b"state.json", 0, 1, b"", b"{}"))
    return b"NATSARC1" + state + b"".join(map(entry, messages)) + END


def record(message: Message, key: bytes, marks: int = 0) -> bytes:
    """A record of a message block; `marks`: bits that are added to the sequence."""
    subject, sequence, ns, headers, payload = message
    numbers = (sequence | marks).to_bytes(8, "little") + ns.to_bytes(8, "little", signed=True)
    body = subject + headers + payload
    length = 22 + len(body) + 8 + (4 if headers else 0)
    head = (length | (1 << 31 if headers else 0)).to_bytes(4, "little")
    sized = len(headers).to_bytes(4, "little") if headers else b""
    hashed: int = _kernel.highway(key, numbers + body)
    checksum = hashed.to_bytes(8, "little")
    text = len(subject).to_bytes(2, "little") + subject
    return head + numbers + text + sized + headers + payload + checksum


def key_of(stream: str, block: int) -> bytes:
    return hashlib.sha256(f"{stream}-{block}".encode()).digest()


def tar_of(files: Sequence[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1.5  # so that it gets an extended header
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write_backup(
    folder: Path, content: bytes, first: int, last: int, messages: int, **config: Any
) -> Path:
    """A folder as `nats stream backup` writes it, of stream S."""
    folder.mkdir(parents=True, exist_ok=True)
    sequences = {"messages": messages, "bytes": 0, "first_seq": first, "last_seq": last}
    state = {**sequences, **dict.fromkeys(("first_ts", "last_ts"), "2026-01-01T00:00:00Z")}
    document = {"config": {"name": "S", "subjects": ["s.>"], **config}, "state": state}
    (folder / "backup.json").write_text(json.dumps(document))
    (folder / "stream.tar.s2").write_bytes(stream_of(content))
    return folder
