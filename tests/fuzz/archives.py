"""Spoiled archives, given to the kernel and to Backup.

The kernel: equal content and errors however it comes in pieces, nothing but BackupError, and
content within what one call may unpack. Backup: rows, a BackupError or a DataLossError. With
`--sanitize` the C kernel is first built with sanitizers.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.sanitized import c_kernel
from tests.support import campaign


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """The same with something wrong about it, most of the time."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randint(0, len(out))
        to = min(len(out), at + rng.choice((1, 1, 2, 8, 40)))
        kind = rng.random()
        if kind < 0.5:
            out[at:to] = rng.randbytes(to - at)
        elif kind < 0.65:
            del out[at:to]
        elif kind < 0.8:
            out[at:at] = rng.choice((b"\0", b"\xff" * 9, b"\x01\x00", b"\x80" * 11 + b"\1"))
        elif kind < 0.95:
            out[at:at] = out[at:to]
        else:
            del out[at:]
    return bytes(out)


_MOST_AT_ONCE = 1 << 20
"""Bytes of content after which the decoder returns; one frame may exceed it."""


def unpacked(kernel: Any, data: bytes, step: int) -> tuple[bytes, str | None]:
    """The content of a stream that comes in pieces, and the error."""
    from jetspark.errors import BackupError

    decoder, content, raw = kernel.S2Decoder(), bytearray(), b""
    sent = 0
    try:
        while True:
            had = len(content)
            end, need = decoder.decode(raw, 0, content)
            assert len(content) - had < _MOST_AT_ONCE + (4 << 20)
            raw = raw[end:]
            if not need:
                continue
            if sent >= len(data):
                return bytes(content), None
            more = max(step, need - len(raw))
            raw += data[sent : sent + more]
            sent += more
    except BackupError as error:
        return bytes(content), str(error)


def archives(rng: random.Random) -> tuple[bytes, int]:
    """An archive of either form, unpacked, and the number of its messages."""
    from tests.support import archives as make

    count = rng.randint(1, 30)
    messages = [
        (
            b"s.%d" % rng.randint(0, 5),
            sequence,
            10**18 + sequence,
            rng.choice((b"", b"NATS/1.0\r\nk: v\r\n\r\n")),
            rng.randbytes(rng.choice((0, 1, 30, 300))),
        )
        for sequence in range(1, count + 1)
    ]
    if rng.random() < 0.5:
        return make.message_list(messages), count
    key = make.key_of("S", 1)
    block = b"".join(make.record(message, key) for message in messages)
    files = [("meta.inf", b"{}"), ("msgs/1.blk", block)]
    if rng.random() < 0.9:
        numbers = [count, len(block), 1, 0, count]
        index = b"\x0b\x01" + b"".join(map(make.uvarint, numbers))
        index += make.varint(1_767_225_600 * 10**9)  # the time of the last one in backup.json
        index += make.uvarint(0) + make.uvarint(1)
        index += b"".join(map(make.uvarint, [1, len(block), 1, 0, count, 0, 0]))
        files.append(("msgs/index.db", index + make.uvarint(1) + bytes(8)))
    return make.tar_of(files), count


@dataclass
class Figures(campaign.Figures):
    ended: Counter[str] = field(default_factory=Counter)


def run(runs: int = 100_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is an archive. Raises AssertionError."""
    kernel = c_kernel(sanitize=sanitize)
    from tests.support import archives as make

    from jetspark.errors import BackupError, DataLossError
    from jetspark.ranges.backup import open_backup

    rng = random.Random(seed)
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            content, messages = archives(rng)
            inside = rng.random() < 0.5  # behind right checksums of frames
            sent = make.stream_of(spoiled(content, rng) if inside else content, 500)
            sent = sent if inside else spoiled(sent, rng)
            step = rng.choice((1, 7, 100, 10_000))
            assert unpacked(kernel, sent, step) == unpacked(kernel, sent, len(sent)), sent
            place = make.write_backup(Path(folder), b"", 1, messages, messages)
            (place / "stream.tar.s2").write_bytes(sent)
            try:
                rows = sum(batch.num_rows for batch in open_backup(place).read())
                assert rows <= messages
                figures.ended["read"] += 1
            except (BackupError, DataLossError):
                figures.ended["refused"] += 1
            figures.count_run()
    return figures
