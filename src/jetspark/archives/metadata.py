"""The two files of a backup's folder, and what `backup.json` says.

`backup.json` has the stream's configuration and state from the server's answer. The `nats` tool
writes no more; jetspark adds the archive's size, its SHA-256 and the number of its messages.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeAlias

import msgspec

from jetspark.errors import BackupError, ConfigError, DocumentError
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document, decode_json

METADATA: Final = "backup.json"
ARCHIVE: Final = "stream.tar.s2"

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class State(msgspec.Struct, frozen=True):
    """The stream's state when the server began to send it."""

    messages: _Count
    bytes: _Count
    first_seq: _Count
    last_seq: _Count
    first_ts: str | None = None
    last_ts: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a time that is none."""
        for text in (self.first_ts, self.last_ts):
            if text is not None:
                parse_isotime(text)


class Digest(msgspec.Struct, frozen=True):
    """The archive, as jetspark wrote it."""

    bytes: _Count
    sha256: str
    messages: _Count | None = None
    """Those of the state that it has."""


class _Config(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class Metadata(msgspec.Struct, frozen=True):
    """The checked part of `backup.json`."""

    config: _Config
    state: State
    archive: Digest | None = None

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name

    def check_size(self, size: int) -> None:
        """Raise BackupError when the archive has not the size that was written."""
        if self.archive is not None and self.archive.bytes != size:
            raise BackupError(
                f"The archive has {size} bytes and not {self.archive.bytes}, as {METADATA} says."
            )


def metadata_from(data: bytes) -> tuple[Metadata, dict[str, Any]]:
    """What `backup.json` says, and all of it. Raises BackupError."""
    try:
        return (
            decode_json(data, Metadata, METADATA),
            decode_document(data, METADATA),
        )
    except DocumentError as error:
        raise BackupError(f"{METADATA} is damaged: {error.why}.") from None


def opened_file(folder: Path, name: str) -> BinaryIO:
    """A file of the folder. Raises ConfigError when it is not a backup's folder, and OSError."""
    try:
        mode = (folder / name).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if not folder.exists():
            raise ConfigError(f"{folder} is no backup of a stream: it does not exist.") from None
        what = f"there is no {name} in it" if folder.is_dir() else "it is a file, and no folder"
        raise ConfigError(f"{folder} is no backup of a stream: {what}.") from None
    if not stat.S_ISREG(mode):  # a FIFO would block
        raise ConfigError(f"{folder} is no backup of a stream: {name} in it is no regular file.")
    return (folder / name).open("rb")


def lacking(stream: str, said: int, found: int) -> str:
    """The sentence about messages that were removed while the server sent the stream."""
    return (
        f"The backup of stream {stream!r} lacks {said - found:,} of {said:,} messages: "
        "they were removed from the stream while it was backed up."
    )
