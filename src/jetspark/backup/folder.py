"""A backup on disk: a folder with `backup.json` and `stream.tar.s2`, as the `nats` tool makes it.

A folder with the final name is complete: its archive was read again, the checksums verified and the
messages counted. It is written under a hidden name, `backup.json` last, synced to disk and then
renamed. Only a killed process leaves the hidden folder behind, until the next backup to the same
name.

Readers also take the URI of a store. Its password and options do not belong in messages: use
`redact_folder`. `file:` URIs are folders of this machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

import msgspec

from jetspark.backup.archive import count_messages
from jetspark.backup.archive_content import ArchiveScan
from jetspark.backup.metadata import MAX_METADATA, METADATA, parse_metadata
from jetspark.connection.locks import new_lock
from jetspark.documents.document import from_wire
from jetspark.documents.streams import StreamConfig, StreamState
from jetspark.errors import BackupError, ConfigError, JetStreamError
from jetspark.files import Hold, beginning, remove_left
from jetspark.validation import path_of
from jetspark.wire.kernel import require_archives

ARCHIVE: Final = "stream.tar.s2"

# One slash is enough, since a Path loses the other one. A scheme of one letter is a drive of
# Windows.
_URI: Final = re.compile(r"((?i:file)(?=:)|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):(.*)", re.DOTALL)
_PARTS: Final = re.compile(r"/{1,2}([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_STORES: Final = ("s3", "gs", "gcs", "hdfs", "viewfs")
_AZURE: Final = ("abfs", "abfss")
HIDDEN: Final = "…"
"""Placeholder in messages for an address that may have a part of a password in it."""


def location_of(folder: str | os.PathLike[str]) -> str:
    """Resolve the folder to an absolute path, or the URI of a store. Raises ConfigError."""
    text = os.fspath(folder)
    if not text.strip():
        raise ConfigError("The folder of the backup is empty: name one.")
    if (uri := _URI.fullmatch(text)) is None or uri[1].lower() == "file":
        return os.path.abspath(local_folder(folder))
    scheme, rest = uri[1].lower(), uri[2]
    if scheme in _STORES and rest.startswith("//") and rest.strip("/"):
        return f"{scheme}:{rest.rstrip('/')}"
    reason = (
        "it must be a folder, or a text such as s3://bucket/folder (gs://, hdfs://, file:///path)"
    )
    if scheme in _AZURE:
        reason = "PyArrow ends the whole process when Azure refuses; copy the backup to a folder"
    raise ConfigError(f"Cannot open the backup {redact_folder(text)}: {reason}.")


def local_folder(folder: str | os.PathLike[str]) -> Path:
    """The path of a backup on this machine. Raises ConfigError for the URI of a store."""
    text = os.fspath(folder)
    if (uri := _URI.fullmatch(text)) is None:
        return path_of("folder", folder)
    path = uri[2].removeprefix("//")
    if uri[1].lower() != "file":
        raise ConfigError(
            f"{redact_folder(text)} is not a folder of this machine: use the commands `jetspark "
            "stream backup` and `restore`, which copy it, or copy it yourself."
        )
    if not path.startswith("/") or "?" in path or "#" in path:
        raise ConfigError(
            f"Cannot open the backup {redact_folder(text)}: a file URI is file:///path, without a "
            "host and options."
        )
    return path_of("folder", unquote(path))


def redact_folder(folder: str | os.PathLike[str]) -> str:
    """Format the folder for messages: a URI without user, password and options."""
    text = os.fspath(folder)
    uri = _URI.fullmatch(text)
    parts = None if uri is None else _PARTS.fullmatch(uri[2])
    if uri is None or parts is None:
        return text
    login, path, more = parts.groups()
    host = login.rpartition("@")[2]
    port = host.partition(":")[2]
    # A password with / ? # or @ in it that was not percent-encoded.
    if (port and not port.isdigit()) or (":" in login and "@" in path + more):
        return f"{uri[1]}://{HIDDEN}"
    return f"{uri[1]}://{host}{path}"


def open_backup_file(folder: Path, name: str) -> BinaryIO:
    """A file of the folder. Raises ConfigError unless the folder is a backup, and OSError."""
    if not (folder / name).is_file():  # a FIFO would block
        reason = "there is no such folder"
        if folder.is_dir():
            reason = f"there is no file {name} in it"
        elif folder.exists():
            reason = "it is a file, and a backup is a folder"
        raise ConfigError(f"{folder} is not a backup of a stream: {reason}.")
    return (folder / name).open("rb")


def removed_sentence(stream: str, expected: int, stored: int) -> str:
    """The sentence about messages that were removed while the server sent the stream."""
    return (
        f"The backup of stream {stream!r} lacks {expected - stored:,} of {expected:,} messages: "
        "they were removed from the stream while it was backed up."
    )


_ARCHIVE_KEY: Final = "archive"  # an entry of backup.json beside config and state
_READ: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """The progress of a backup or restore: `done` of `total` bytes; equal at the end."""

    done: int
    total: int
    transferred: int
    """Bytes sent over the network, compressed."""


@dataclass(frozen=True, slots=True)
class StreamBackup:
    """A complete backup on disk."""

    folder: Path
    config: StreamConfig
    state: StreamState
    """The stream's state when the server started to send it."""
    size: int
    """The archive's size in bytes."""
    content: int
    """Bytes after unpacking."""
    is_message_list: bool
    """Whether the archive has the format of server 2.15, which older servers cannot restore."""
    messages: int
    """Messages in the archive up to the last sequence of `state`."""
    document: dict[str, Any]
    """The content of `backup.json`."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name or ""

    @property
    def removed(self) -> int:
        """Messages of `state` that are not in the archive.

        They were deleted, purged, or removed by limits while the stream was sent.
        """
        return max(0, self.state.messages - self.messages)

    @property
    def archive(self) -> Path:
        """The path of the archive."""
        return self.folder / ARCHIVE


class BackupWriter:
    """Writes one backup. After `discard`, all input is dropped.

    `discard` waits for `write`, `finish` and `complete`, which may run in other threads. Raises
    ConfigError for a folder in use and without the C kernel; BackupError when the disk fails.
    """

    def __init__(self, folder: str | os.PathLike[str], stream: str) -> None:
        require_archives()
        self._stream = stream
        self.folder = local_folder(folder)
        if self.folder.is_symlink():  # a symlink stays; its target is renamed
            self.folder = self.folder.resolve()
        if self.folder.exists() and not (self.folder.is_dir() and not any(self.folder.iterdir())):
            raise self._in_use
        self.scan = ArchiveScan()
        self._hidden = f".{beginning(self.folder.name)}."
        self._part_folder = self.folder.with_name(f"{self._hidden}{secrets.token_hex(4)}.part")
        self._lock = new_lock()
        with self._disk_errors():
            self._part_folder.mkdir(parents=True, mode=0o700)
            self._hold = Hold(self._part_folder)
            try:
                self._file = (self._part_folder / ARCHIVE).open("xb")
            except OSError:
                self._remove()
                raise

    @property
    def _in_use(self) -> ConfigError:
        return ConfigError(f"{self.folder} exists already: name a new folder for the backup.")

    def remove_leftovers(self) -> None:
        """Remove what killed processes left of backups to this folder."""
        hidden = re.compile(rf"{re.escape(self._hidden)}[0-9a-f]{{8}}\.part")
        with contextlib.suppress(OSError):
            remove_left(self.folder.parent, hidden)

    def write(self, pieces: Iterable[bytes]) -> None:
        """Write the next bytes of the archive."""
        with self._lock, self._disk_errors(), self._archive_errors():
            if not self._file.closed:
                for piece in pieces:
                    self.scan.feed(piece)
                    self._file.write(piece)

    def finish(self, document: dict[str, Any]) -> int:
        """Read the complete archive again; returns how many messages of the state it has."""
        metadata, _ = parse_metadata(msgspec.json.encode(document))
        with self._lock, self._disk_errors(), self._archive_errors():
            self.scan.finish()
            _sync_and_close(self._file)
            with (self._part_folder / ARCHIVE).open("rb") as file:
                return count_messages(file, metadata)

    def complete(self, document: dict[str, Any], messages: int) -> StreamBackup:
        """Write `backup.json` and rename the folder, after `finish`."""
        digest = {"bytes": self.scan.size, "sha256": self.scan.sha256, "messages": messages}
        document = document | {_ARCHIVE_KEY: digest}
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        with self._lock, self._disk_errors():
            with (self._part_folder / METADATA).open("xb") as file:
                file.write(text)
                _sync_and_close(file)
            self._hold.release()
            _sync_folder(self._part_folder)
            with contextlib.suppress(FileNotFoundError):
                self.folder.rmdir()  # an empty folder, over which not every system renames
            self._part_folder = self._part_folder.rename(self.folder)
            _sync_folder(self.folder.parent)
        return _backup(self.folder, document, self.scan, messages)

    def discard(self) -> None:
        """Remove everything, even a backup that was complete already."""
        with self._lock:
            with contextlib.suppress(OSError):  # it writes what it still has, to a full disk
                self._file.close()
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._part_folder, ignore_errors=True)
        self._hold.release()

    @contextlib.contextmanager
    def _archive_errors(self) -> Iterator[None]:
        try:
            yield
        except BackupError as error:
            reason = str(error).removeprefix("The archive is damaged: ").rstrip(".")
            raise BackupError(
                f'The archive that came of stream "{self._stream}" cannot be restored ({reason}): '
                "back it up again; if that fails too, check the server's disk."
            ) from None

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another backup was faster
                raise self._in_use from error
            raise BackupError(
                f"Cannot write the backup {self.folder}: {error.strerror or error}."
            ) from error


def verify_backup(folder: str | os.PathLike[str]) -> StreamBackup:
    """Verify that a backup on disk is complete and unchanged, by reading all of it.

    Compares the archive with `backup.json`: its SHA-256 (which the `nats` tool does not write), the
    stream's name or state, and the last message. Counts the messages: see `StreamBackup.removed`.
    Raises ConfigError when the folder is not a backup, BackupError when it is damaged.
    """
    folder = local_folder(folder)
    scan = ArchiveScan()
    try:
        with open_backup_file(folder, METADATA) as file:
            metadata, document = parse_metadata(file.read(MAX_METADATA))
        with open_backup_file(folder, ARCHIVE) as file:
            metadata.check_size(file.seek(0, os.SEEK_END))  # with the reason of `open_backup`
            file.seek(0)
            while piece := file.read(_READ):
                scan.feed(piece)
            scan.finish()
            if metadata.archive is not None and metadata.archive.sha256 != scan.sha256:
                raise BackupError("The archive is damaged: its SHA-256 does not match.")
            messages = count_messages(file, metadata)
        counted = None if metadata.archive is None else metadata.archive.messages
        if counted not in (None, messages):
            raise BackupError(f"The archive has {messages} messages; {METADATA} says {counted}.")
    except OSError as error:
        raise BackupError(f"Cannot read the backup {folder}: {error.strerror or error}.") from error
    except BackupError as error:
        raise BackupError(f"{folder}: {error}") from None
    return _backup(folder, document, scan, messages)


def _backup(
    folder: Path, document: dict[str, Any], scan: ArchiveScan, messages: int
) -> StreamBackup:
    try:
        config = from_wire(StreamConfig, document["config"])
        state = from_wire(StreamState, document["state"])
    except JetStreamError as error:
        raise BackupError(f"{folder}: {METADATA} is damaged: {error}") from None
    return StreamBackup(
        folder=folder,
        config=config,
        state=state,
        size=scan.size,
        content=scan.content,
        is_message_list=scan.is_message_list,
        messages=messages,
        document=document,
    )


def _sync_and_close(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _sync_folder(folder: Path) -> None:
    # Windows cannot open folders, and does not need it.
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
