"""A backup on disk: a folder with `backup.json` and `stream.tar.s2`, as the `nats` tool makes it.

`backup.json` holds the stream's configuration and state as the server answered them, and what the
`nats` tool does not write but reads past: size and SHA-256 of the archive. Contract: a folder that
has the name asked for is complete. It is written under a hidden name beside it, synced to disk,
`backup.json` last, and then renamed; whatever goes wrong before leaves at most the hidden folder,
and only when the process itself is killed. All calls block; none knows of a network.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from jetspark.arguments import checked, path_of
from jetspark.errors import BackupError, ConfigError, JetStreamError
from jetspark.jetstream.backup.archive import ArchiveScan
from jetspark.jetstream.documents import StreamConfig, StreamState
from jetspark.jetstream.documents.document import from_wire

METADATA: Final = "backup.json"
ARCHIVE: Final = "stream.tar.s2"
_OURS: Final = "archive"  # in backup.json, beside the config and state of the nats tool
_READ: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a backup or restore is. `done` of `total`, in bytes, reaches it at the end."""

    done: int
    total: int
    transferred: int
    """Bytes that went over the network, which are compressed."""


@dataclass(frozen=True, slots=True)
class StreamBackup:
    """A complete backup on disk."""

    folder: Path
    config: StreamConfig
    state: StreamState
    """What the stream held when the server began to send it."""
    size: int
    """Bytes of the archive."""
    content: int
    """Bytes that it unpacks to."""
    is_message_list: bool
    """Whether the archive has the format of server 2.15, which older servers cannot restore."""
    document: dict[str, Any]
    """`backup.json` as it is."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name or ""

    @property
    def archive(self) -> Path:
        """The archive."""
        return self.folder / ARCHIVE


class BackupWriter:
    """Writes one backup. Raises ConfigError for a folder that is in use, BackupError for disks.

    `write` and `complete` may run in other threads than `discard`, which waits for them.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = path_of("folder", folder)
        if self.folder.exists() and not _is_empty_folder(self.folder):
            raise ConfigError(f"{self.folder} exists already: name a new folder for the backup.")
        self.scan = ArchiveScan()
        self._hidden = self.folder.with_name(f".{self.folder.name}.{secrets.token_hex(4)}.part")
        self._lock = threading.Lock()
        with self._disk():
            self._hidden.mkdir(parents=True, mode=0o700)
            self._file = (self._hidden / ARCHIVE).open("xb")

    def write(self, pieces: Iterable[bytes]) -> None:
        """The next bytes of the archive; dropped after `discard`."""
        with self._lock, self._disk():
            if not self._file.closed:
                for piece in pieces:
                    self.scan.feed(piece)
                    self._file.write(piece)

    def complete(self, document: dict[str, Any]) -> StreamBackup:
        """The archive is whole: write `backup.json`, and give the folder its name."""
        self.scan.finish()
        ours = {"bytes": self.scan.size, "sha256": self.scan.sha256}
        text = msgspec.json.format(msgspec.json.encode(document | {_OURS: ours}), indent=2)
        with self._lock, self._disk():
            _sync_and_close(self._file)
            with (self._hidden / METADATA).open("xb") as file:
                file.write(text)
                _sync_and_close(file)
            _sync_folder(self._hidden)
            with contextlib.suppress(FileNotFoundError):
                self.folder.rmdir()  # an empty one; not every system renames over it
            self._hidden.rename(self.folder)
            _sync_folder(self.folder.parent)
        return _backup(self.folder, msgspec.json.decode(text), self.scan)

    def discard(self) -> None:
        """Leave nothing behind, unless it is complete."""
        with self._lock:
            self._file.close()
            shutil.rmtree(self._hidden, ignore_errors=True)

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackupError(
                f"Cannot write the backup {self.folder}: {error.strerror or error}."
            ) from error


@checked
def verify_backup(folder: str | os.PathLike[str]) -> StreamBackup:
    """Look at a backup on disk: is it complete and unchanged? Reads all of it.

    The SHA-256 in `backup.json` is compared; for a backup of the `nats` tool, which has none, only
    the frames of the archive are. Raises ConfigError for a folder that is no backup, BackupError
    for a damaged one.
    """
    folder = path_of("folder", folder)
    document = _read_metadata(folder)
    scan = ArchiveScan()
    try:
        with (folder / ARCHIVE).open("rb") as file:
            while piece := file.read(_READ):
                scan.feed(piece)
        scan.finish()
    except OSError as error:
        raise BackupError(f"Cannot read {folder / ARCHIVE}: {error.strerror or error}.") from error
    except BackupError as error:
        raise BackupError(f"{folder}: {error}") from None
    ours = document.get(_OURS)
    if isinstance(ours, dict) and ours.get("sha256") != scan.sha256:
        raise BackupError(f"{folder}: The archive is damaged: it is not what was written.")
    return _backup(folder, document, scan)


def _read_metadata(folder: Path) -> dict[str, Any]:
    try:
        document = msgspec.json.decode((folder / METADATA).read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(
            f"{folder} is no backup of a stream: cannot read {METADATA} in it "
            f"({error.strerror or error})."
        ) from None
    except msgspec.MsgspecError as error:
        raise BackupError(f"{folder / METADATA} is damaged: {error}.") from None
    parts = (document.get("config"), document.get("state"))
    if not all(isinstance(part, dict) for part in parts):
        raise BackupError(f"{folder / METADATA} is damaged: it has no config or no state.")
    return document


def _backup(folder: Path, document: dict[str, Any], scan: ArchiveScan) -> StreamBackup:
    try:
        config = from_wire(StreamConfig, document["config"])
        state = from_wire(StreamState, document["state"])
    except JetStreamError as error:
        raise BackupError(f"{folder / METADATA} is damaged: {error}") from None
    return StreamBackup(
        folder=folder,
        config=config,
        state=state,
        size=scan.size,
        content=scan.content,
        is_message_list=scan.is_message_list,
        document=document,
    )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _sync_and_close(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _sync_folder(folder: Path) -> None:
    # Windows opens no folders, and needs it not.
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
