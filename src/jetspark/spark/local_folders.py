"""Folders of tables and checkpoints on this machine: canonical paths, and checks before use."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jetspark.errors import ConfigError

_TABLES = ("_delta_log", "_spark_metadata")

# -- folders -----------------------------------------------------------------------------------


def local_path(uri: str) -> str | None:
    """The path of a local file or folder, as far as that is known without Spark; else None."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    # Hadoop's configuration may give paths without a scheme another file system.
    return uri if not parts.scheme and "HADOOP_CONF_DIR" not in os.environ else None


def place(folder: str) -> str:
    """A canonical form, so that a folder has only one text, as far as possible."""
    path = folder.removeprefix("file://").removeprefix("file:")
    return path if "://" in path else os.path.abspath(path)


def check_way(what: str, name: str) -> None:
    """Raise ConfigError if a folder of this machine cannot be created or written."""
    here = local_path(name)
    if here is None:
        return
    there = next(part for part in (Path(here), *Path(here).absolute().parents) if part.exists())
    if there.is_file():
        which = "" if there == Path(here) else f"{name} cannot be made: "
        shown = there if which else name
        raise ConfigError(f"{which}{shown} is a file: name a folder for the {what}.")
    if not os.access(there, os.W_OK | os.X_OK):
        reason = "is not writable for this user"
        if os.name == "posix" and os.statvfs(there).f_flag & os.ST_RDONLY:
            reason = "is on a read-only file system"
        raise ConfigError(
            f"{name} cannot be written: {there} {reason}; name another folder for the {what}."
        )


def held_in(folder: str) -> str | None:
    """The nearest parent folder on this machine that is a table or a checkpoint."""
    for above in Path(place(folder)).parents:
        if (
            any((above / log).is_dir() for log in _TABLES)
            or next(above.glob("metadata/*.metadata.json*"), None) is not None
            or ((above / "metadata").is_file() and (above / "offsets").is_dir())
        ):
            return str(above)
    return None
