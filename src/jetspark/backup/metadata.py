"""Reads `backup.json`: a stream's configuration and state from the server's answer.

The `nats` tool writes no more; jetspark adds the archive's size, its SHA-256 and the number of its
messages.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from jetspark.errors import BackupError, DocumentError
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document, decode_json

METADATA: Final = "backup.json"
MAX_METADATA: Final = 64 << 20

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
        for text in (self.first_ts, self.last_ts):
            if text is not None:
                parse_isotime(text)  # raises ValueError unless it is a time


class Digest(msgspec.Struct, frozen=True):
    """The archive, as jetspark wrote it."""

    bytes: _Count
    sha256: str
    messages: _Count | None = None
    """Messages in the archive, up to the last sequence of the state."""


class NamedConfig(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]


class BackupMetadata(msgspec.Struct, frozen=True):
    """The checked part of `backup.json`."""

    config: NamedConfig
    state: State
    archive: Digest | None = None

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name

    def check_size(self, size: int) -> None:
        """Raise BackupError unless the archive has the size that `backup.json` says."""
        if self.archive is not None and self.archive.bytes != size:
            raise BackupError(
                f"The archive has {size} bytes; {METADATA} says {self.archive.bytes}."
            )


def parse_metadata(data: bytes) -> tuple[BackupMetadata, dict[str, Any]]:
    """The content of `backup.json`, of which at most `MAX_METADATA` bytes need to be read: what is
    checked, and everything. Raises BackupError."""
    if len(data) >= MAX_METADATA:
        raise BackupError(f"{METADATA} is damaged: it is larger than {MAX_METADATA >> 20} MiB.")
    try:
        return decode_json(data, BackupMetadata, METADATA), decode_document(data, METADATA)
    except DocumentError as error:
        raise BackupError(f"{METADATA} is damaged: {error.reason}.") from None
