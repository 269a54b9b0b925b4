"""Where a backup is: a folder of this machine, or a URI of a store; and how messages name it.

A URI may have a password in it, and options. Messages have neither: use `shown_folder`. `file:`
URIs are folders of this machine.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, TypeAlias
from urllib.parse import unquote

import msgspec

from jetspark.errors import BackupError, ConfigError, DocumentError
from jetspark.subjects import nearest_name
from jetspark.timestamps import parse_isotime
from jetspark.validation import path_of
from jetspark.wire.documents import decode_document, decode_json

# -------------------------------------------------------------------------------------------------
# The two files of a backup's folder, and what `backup.json` says.
#
# `backup.json` has the stream's configuration and state from the server's answer. The `nats` tool
# writes no more; jetspark adds the archive's size, its SHA-256 and the number of its messages.


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


# Also with one slash: a Path of a URI has lost the other. One letter is a drive of Windows.
_URI: Final = re.compile(r"((?i:file)(?=:)|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):(.*)", re.DOTALL)
_PARTS: Final = re.compile(r"/{1,2}([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_STORES: Final = ("s3", "gs", "gcs", "hdfs", "viewfs")
HIDDEN: Final = "…"
"""In place of an address that may have a part of a password in it."""
_AZURE: Final = ("abfs", "abfss")


def place_of(folder: str | os.PathLike[str]) -> str:
    """The same folder for any process: an absolute path, or the URI. Raises ConfigError."""
    text = os.fspath(folder)
    if not text.strip():
        raise ConfigError("The folder of the backup is empty: name one.")
    if (found := _URI.fullmatch(text)) is None:
        return os.path.abspath(path_of("folder", folder))
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file":
        return os.path.abspath(_path_of_uri(text, rest))
    if scheme in _AZURE:
        why = "PyArrow ends the whole process if Azure refuses it; copy the backup to a folder"
    elif scheme not in _STORES:
        near = nearest_name(scheme, _STORES)
        known = "it must be a folder, or begin with s3://, gs://, hdfs:// or file:///"
        why = f"write {near}:// in place of {scheme}://" if near else known
    elif not rest.strip("/"):
        why = f"it names no folder: write {scheme}://bucket/folder"
    elif not rest.startswith("//"):
        why = f"write {scheme}:// with two slashes, in a text and not in a Path"
    else:
        return f"{scheme}:{rest.rstrip('/')}"
    raise ConfigError(f"Cannot open the backup {shown_folder(text)}: {why}.")


def folder_to_read(folder: str | os.PathLike[str]) -> Path:
    """The path of a backup on this machine. Raises ConfigError for a URI of a store."""
    return _local(folder, "copy the backup into one first")


def folder_to_write(folder: str | os.PathLike[str]) -> Path:
    """The path of a new folder on this machine. Raises ConfigError for a URI of a store."""
    return _local(folder, "back up into one, and copy it there")


def _local(folder: str | os.PathLike[str], advice: str) -> Path:
    text = os.fspath(folder)
    if (found := _URI.fullmatch(text)) is None:
        return path_of("folder", folder)
    if found[1].lower() == "file":
        return _path_of_uri(text, found[2])
    raise ConfigError(f"{shown_folder(text)} is no folder of this machine: {advice}.")


def _path_of_uri(uri: str, rest: str) -> Path:
    path = rest.removeprefix("//")
    if not path.startswith("/") or "?" in path or "#" in path:
        raise ConfigError(
            f"Cannot open the backup {shown_folder(uri)}: a file URI is file:///path, without a "
            "host and options."
        )
    return path_of("folder", unquote(path))


def shown_folder(folder: str | os.PathLike[str]) -> str:
    """The folder as messages have it: a URI without user, password and options."""
    text = os.fspath(folder)
    uri = _URI.fullmatch(text)
    parts = None if uri is None else _PARTS.fullmatch(uri[2])
    if uri is None or parts is None:
        return text
    login, path, more = parts.groups()
    host = login.rpartition("@")[2]
    port = host.partition(":")[2]
    # A password with / ? # or @ in it, which was not written as %2F and the like.
    if (port and not port.isdigit()) or (":" in login and "@" in path + more):
        return f"{uri[1]}://{HIDDEN}"
    return f"{uri[1]}://{host}{path}"
