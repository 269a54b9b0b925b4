"""The thread that digests and writes the parts of an object."""

from __future__ import annotations

import asyncio
import hashlib
from io import BytesIO

import pytest

from jetspark.objects.content_digest import ContentDigest

PARTS = [bytes([number]) * 100_000 for number in range(20)]


async def test_parts_are_digested_and_written_in_their_order() -> None:
    digest, file = ContentDigest(), BytesIO()
    for part in PARTS:
        await digest.add([part[:10], part[10:]], file)
    assert await digest.value() == hashlib.sha256(b"".join(PARTS)).digest()
    assert file.getvalue() == b"".join(PARTS)
    digest.close()


async def test_nothing_is_written_after_an_error() -> None:
    class Full(BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if data[0] == 3:
                raise OSError(28, "No space left on device")
            return super().write(data)

    digest, file = ContentDigest(), Full()
    with pytest.raises(OSError, match="No space"):
        for part in PARTS:
            await digest.add([part], file)
    with pytest.raises(OSError, match="No space"):
        await digest.value()
    digest.close()
    assert file.getvalue() == b"".join(PARTS[:3])


async def test_the_part_after_an_error_raises_it() -> None:
    class Full(BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            raise OSError(28, "No space left on device")

    digest, file = ContentDigest(), Full()
    await digest.add([PARTS[0]], file)
    await asyncio.wait(digest._under_way)
    with pytest.raises(OSError, match="No space"):
        await digest.add([PARTS[1]], file)
    digest.close()


async def test_a_function_that_stops_an_iteration_is_an_error() -> None:
    class Odd(BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            raise StopIteration

    digest = ContentDigest()
    await digest.add([PARTS[0]], Odd())
    with pytest.raises(RuntimeError):
        await digest.value()
    digest.close()
