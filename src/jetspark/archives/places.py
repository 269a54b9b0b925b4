"""Where a backup is: a folder of this machine, or a URI of a store; and how messages name it.

A URI may have a password in it, and options. Messages have neither: use `shown_folder`. `file:`
URIs are folders of this machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from jetspark.arguments import path_of
from jetspark.errors import ConfigError
from jetspark.subjects import nearest_name

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
