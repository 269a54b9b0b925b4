"""Folders of tables and checkpoints on this machine: canonical paths, and checks before use."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jetspark.errors import ConfigError

_TABLE_LOGS = ("_delta_log", "_spark_metadata")


def local_path(uri: str | None) -> str | None:
    """The local path of a file or folder that a user names by path or URI.

    None if it is on another file system, or may be.
    """
    if uri is None:
        return None
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    # Hadoop's configuration may give paths without a scheme another file system.
    return uri if not parts.scheme and "HADOOP_CONF_DIR" not in os.environ else None


def canonical_path(folder: str) -> str:
    """One text for each folder, however a user writes it, as far as possible: its absolute path, or
    its URI if it is not on this machine."""
    path = folder.removeprefix("file://").removeprefix("file:")
    return path if "://" in path else os.path.abspath(path)


def check_writable(purpose: str, name: str, option: str | None = None) -> None:
    """Raise ConfigError if a folder of this machine cannot be created or written.

    `purpose`: what the folder is for, in the message, such as "checkpoint"; `name`: its path or
    URI; `option`: the option in which the user gave it. A folder elsewhere is not checked.
    """
    path = local_path(name)
    if path is None:
        return
    # Whether the folder can be created depends on the nearest folder that exists.
    existing = next(part for part in (Path(path), *Path(path).absolute().parents) if part.exists())
    if existing.is_file():
        prefix = "" if existing == Path(path) else f"{name} cannot be made: "
        shown_path = existing if prefix else name
        problem = f"{prefix}{shown_path} is a file: name a folder for the {purpose}."
        raise ConfigError(problem, about=option)
    if not os.access(existing, os.W_OK | os.X_OK):
        reason = "is not writable for this user"
        if os.name == "posix" and os.statvfs(existing).f_flag & os.ST_RDONLY:
            reason = "is on a read-only file system"
        problem = f"{name} cannot be written: {existing} {reason}"
        raise ConfigError(f"{problem}; name another folder for the {purpose}.", about=option)


def enclosing_table_or_checkpoint(folder: str) -> str | None:
    """The nearest folder around this one that is itself a table or a checkpoint; None without one.

    Such a folder must not have a table or checkpoint inside. Iceberg tables are known by their
    metadata files.
    """
    for above in Path(canonical_path(folder)).parents:
        if (
            any((above / log).is_dir() for log in _TABLE_LOGS)
            or next(above.glob("metadata/*.metadata.json*"), None) is not None
            # A checkpoint's file `metadata`; an Iceberg table has a folder of that name.
            or ((above / "metadata").is_file() and (above / "offsets").is_dir())
        ):
            return str(above)
    return None
