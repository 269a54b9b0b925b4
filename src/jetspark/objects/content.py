"""The content of objects: read from bytes, files and iterables, written to files.

Contract: files are read and written in threads, BLOCK bytes at a time. A given file object stays
open, at the position where reading or writing ended. A path is written under a temporary name and
renamed when it is complete, so that nobody finds half a file. Raises ConfigError for anything that
is not a source of bytes and for a path that cannot be opened, OSError while files are read or
written.
"""

from __future__ import annotations

import inspect
import os
import secrets
import stat
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, runtime_checkable

from jetspark.arguments import path_of
from jetspark.client.background import in_thread
from jetspark.errors import BadPayloadError, ConfigError
from jetspark.left_folders import beginning
from jetspark.payloads import Payload, byte_view, has_buffer

BLOCK = 1024 * 1024

Bytes: TypeAlias = Payload


@runtime_checkable
class Readable(Protocol):
    """A binary file object, or one that is read like it, such as asyncio.StreamReader."""

    def read(self, size: int, /) -> Any:
        """Up to `size` bytes; none at the end."""


class Writable(Protocol):
    """A binary file object open for writing."""

    def write(self, data: bytes, /) -> object:
        """Write all bytes."""


ObjectData: TypeAlias = Bytes | os.PathLike[str] | Readable | Iterable[Bytes] | AsyncIterable[Bytes]
ObjectTarget: TypeAlias = str | os.PathLike[str] | Writable


async def blocks(data: ObjectData) -> AsyncGenerator[bytes]:
    """The bytes of any source. Raises BadPayloadError, and what reading the source raises."""
    if isinstance(data, AsyncIterable) and not isinstance(data, Readable):
        async for piece in data:
            for block in pieces(piece):
                yield block
    elif isinstance(data, Readable) and inspect.iscoroutinefunction(data.read):
        while piece := await data.read(BLOCK):
            for block in pieces(piece):
                yield block
    else:
        source = sync_blocks(data)
        try:
            while (ready := await in_thread(_next, source)) is not None:
                yield ready
        finally:
            # After a cancellation a thread may still be reading; the generator ends with it.
            with suppress(ValueError):
                await in_thread(source.close)


def _next(source: Iterator[bytes]) -> bytes | None:
    return next(source, None)  # StopIteration cannot pass through a future


def sync_blocks(data: Any) -> Generator[bytes]:
    """`blocks` of a source that needs no event loop."""
    if not isinstance(data, Readable) and has_buffer(data):
        yield from pieces(data)
    elif isinstance(data, os.PathLike):
        with _opened(data) as file:
            yield from sync_blocks(file)
    elif isinstance(data, Readable):
        while block := data.read(BLOCK):
            yield from pieces(block)
    else:
        for piece in data:
            yield from pieces(piece)


def _opened(path: os.PathLike[str]) -> BinaryIO:
    try:
        return path_of("data", path).open("rb")
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror or error}.") from error


def check_data(data: object, *, awaitable: bool = True) -> None:
    """Raises ConfigError for anything that is not a source of bytes."""
    if isinstance(data, str):
        raise ConfigError("Give a path as a pathlib.Path, and text as bytes: text.encode().")
    if isinstance(data, Readable):
        fits = awaitable or not inspect.iscoroutinefunction(data.read)
    elif isinstance(data, AsyncIterable):
        fits = awaitable
    else:
        fits = has_buffer(data) or (
            isinstance(data, Iterable | os.PathLike) and not isinstance(data, Mapping)
        )
    if not fits:
        raise ConfigError(f"{type(data).__name__} is not a source of bytes for an object.")


def pieces(block: Bytes) -> Iterator[bytes]:
    """Bytes as they are; other buffers copied piece by piece, as they may change meanwhile.

    Raises BadPayloadError.
    """
    if type(block) is bytes:
        yield block
        return
    if isinstance(block, str):
        raise BadPayloadError(block, "open it in binary mode, or encode it")
    with byte_view(block) as view:
        for begin in range(0, len(view), BLOCK):
            yield bytes(view[begin : begin + BLOCK])


def check_writable(target: object) -> None:
    """Raises ConfigError for anything that is neither a path nor a writable file."""
    if not callable(getattr(target, "write", None)):
        raise ConfigError(f"{type(target).__name__} is neither a path nor a writable file.")


def write_all(file: Writable, lot: Iterable[bytes]) -> None:
    """Write them one after the other."""
    for chunk in lot:
        file.write(chunk)


class NewFile:
    """A file that gets its name when it is complete: `keep` or `drop` it.

    One that is there is replaced and keeps its mode; a symlink to it stays.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path_of("target", path)
        if not self._path.name or self._path.is_dir():
            raise ConfigError(f"target must be the path of a file, not {str(path)!r}.")
        try:
            self._path = Path(os.path.realpath(self._path))
            mode = self._path.stat().st_mode if self._path.exists() else None
            if not (mode is None or stat.S_ISREG(mode)):  # replaced, a FIFO or device would be lost
                raise ConfigError(
                    f"{path} is no regular file: open it, and give the open file as target."
                )
            name = f"{beginning(self._path.name)}.{secrets.token_hex(4)}.part"
            self._part = self._path.with_name(name)
            opener = partial(os.open, mode=0o666 if mode is None else 0o600)
            self._file = open(self._part, "xb", opener=opener)  # noqa: SIM115 - keep and drop
            if mode is not None:
                self._part.chmod(stat.S_IMODE(mode))
        except OSError as error:
            raise ConfigError(f"Cannot write {self._path}: {error.strerror or error}.") from error
        self.write = self._file.write

    def keep(self) -> None:
        """Give it its name, replacing an existing file."""
        self._file.close()
        self._part.replace(self._path)

    def drop(self) -> None:
        """Remove it."""
        self._file.close()
        self._part.unlink(missing_ok=True)
