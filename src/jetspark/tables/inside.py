"""Confines a table to its folder: its files are those below it, without a step out of it or a link.

Whoever may write a table's metadata decides which files it names. A name that leaves the table's
folder (`../`, another place, a symbolic link on the way) could be anybody's file, so jetspark does
not read, write or remove it. The folder itself may be a link: its user has named it.

What counts is the file that a library opens, not the text. Libraries take a name for a URI: they
leave out tabs, ends of lines and blanks at its ends, cut it at `?` or `#`, read a backslash as a
slash and a scheme in capitals as in small letters. So what some library would change is no name of
a file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from jetspark.errors import ConfigError, safe_repr

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://)?(?=.)")
_MISREAD = re.compile(r"[\x00-\x1f\x7f?#\\]")
"""Characters that libraries leave out of a name, take for its end, or for a slash."""
_STEPS = frozenset({".", ".."})
_LOCAL = "file"
"""The storage of this machine, which is also the scheme of its URIs."""
_STORES: Final = {
    "s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs",
}  # fmt: skip
"""Schemes of the same storage, which differ between writers."""


def is_misread(name: str) -> bool:
    """Whether the libraries of Delta and Iceberg would take a file's name for another one, since
    they read it as a URI."""
    return _MISREAD.search(name) is not None


def _storage_and_path(name: str) -> tuple[str, str] | None:
    """(storage, path there) of an absolute path or URI, such as ("s3", "bucket/table"); None for
    one that is not absolute, or that libraries would take for another one."""
    match = _SCHEME.match(name)
    scheme = _LOCAL if match is None else match[1].casefold()
    path = name if match is None else name[match.end() :]
    if is_misread(name) or (scheme == _LOCAL and not path.startswith("/")):
        return None
    return _STORES.get(scheme, scheme), path


def relative_path(location: str, uri: str) -> str | None:
    """The path, below a table's location, of a file that the table's metadata names; None for a
    file elsewhere. Only the names are compared: links are not looked at."""
    table, file = _storage_and_path(location), _storage_and_path(uri)
    if table is None or file is None:
        return None
    (table_storage, table_path), (file_storage, file_path) = table, file
    path = file_path.removeprefix(table_path.rstrip("/") + "/")
    is_below = table_storage == file_storage and path != file_path and is_plain_path(path)
    return path if is_below else None


def is_plain_path(path: str) -> bool:
    """Whether a relative path only leads down (no `..`), and libraries of table formats open just
    this path, and not another one that they make of it."""
    parts = path.split("/")
    # Libraries leave out blanks at the ends.
    is_downward = bool(parts[0]) and _STEPS.isdisjoint(parts)
    return is_downward and not is_misread(path) and path == path.strip(" ")


def local_folder_of(location: str) -> Path | None:
    """The folder of a table's location if it is on this machine, as it is written; None for one
    elsewhere. Raises ConfigError for a location that libraries would take for another one."""
    parsed = _storage_and_path(location)
    if parsed is None:
        raise ConfigError(
            f"The location {safe_repr(location)} of a table is not absolute, or has characters "
            "that the libraries of Delta and Iceberg read as parts of a URI, or leave out: take a "
            "folder of another name."
        )
    storage, path = parsed
    return Path("/" + path.lstrip("/")) if storage == _LOCAL else None


def paths_behind_links(location: str, paths: Iterable[str]) -> set[str]:
    """Select the paths below a table's location that are symbolic links or are reached through one,
    so that the file could be anybody's; none for a location on another machine.

    A pipe or a device counts as a link: opening it could wait for ever.
    """
    root = local_folder_of(location)
    if root is None:
        return set()
    links: dict[str, bool] = {"": False}  # the table's folder itself may be a link

    def is_link(path: str) -> bool:
        """Whether the path, or a folder above it, is a link; looks at each folder once."""
        if (links_to := links.get(path)) is None:
            above = path.rpartition("/")[0]
            links_to = links[path] = is_link(above) or not _is_ordinary(root / path)
        return links_to

    return {path for path in paths if is_link(path)}


def _is_ordinary(path: Path) -> bool:
    """Whether a path is a file, a folder, or nothing at all: not a link, a pipe or a device."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True  # whoever opens it sees the error
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def files_inside(location: str, uris: Iterable[str]) -> dict[str, str]:
    """Select the URIs that are below a table's location and behind no link, and map each to its
    path there."""
    paths = {uri: relative_path(location, uri) for uri in uris}
    inside = {uri: path for uri, path in paths.items() if path is not None}
    linked = paths_behind_links(location, inside.values())
    return {uri: path for uri, path in inside.items() if path not in linked}


def check_path(location: str, path: str) -> None:
    """Raise ConfigError for a path, relative to a table's location, that leaves its folder: by
    `..`, through a link, or as libraries read it."""
    if not is_plain_path(path) or paths_behind_links(location, [path]):
        raise file_outside_table(location, path)


def check_files(location: str, uris: Iterable[str]) -> None:
    """Raise ConfigError if one of the files that a table's metadata names is not in the table's
    folder, or is behind a link there."""
    named = set(uris)
    if elsewhere := named - files_inside(location, named).keys():
        raise file_outside_table(location, min(elsewhere))


def check_no_folder_links(
    location: str, *, is_foreign: Callable[[str], bool] = lambda _: False
) -> None:
    """Raise ConfigError for a link to a folder anywhere below a table's local location: a library
    could write files behind it. `is_foreign`: whether a folder directly in the table's belongs to
    somebody else, by its name; those are left out."""
    root = local_folder_of(location)
    if root is None:
        return
    for folder, names, _ in os.walk(root):
        if folder == str(root):
            names[:] = [name for name in names if not is_foreign(name)]
        for name in names:
            if os.path.islink(path := os.path.join(folder, name)):
                raise file_outside_table(location, os.path.relpath(path, root))


def check_no_links_in(location: str, folder: str) -> None:
    """Raise ConfigError if a folder below a table's location is a link, or has a link, a pipe or a
    device directly in it."""
    check_path(location, folder)
    root = local_folder_of(location)
    if root is None or not (root / folder).is_dir():
        return
    with os.scandir(root / folder) as entries:
        for entry in entries:
            if not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                raise file_outside_table(location, f"{folder}/{entry.name}")


def check_relative_paths(location: str, paths: Iterable[str]) -> None:
    """Raise ConfigError if one of these relative paths leaves a table's folder. Each is also judged
    as a library could read it: with its percent-encoding decoded (`%2e`), or as a URI, if it begins
    like one."""
    named = set(paths)
    named.update(map(unquote, paths))
    # The slash lets a name such as `s3:` count as the beginning of a URI.
    elsewhere = {path for path in named if not is_plain_path(path) or _SCHEME.match(f"{path}/")}
    elsewhere |= paths_behind_links(location, named - elsewhere)
    if elsewhere:
        raise file_outside_table(location, min(elsewhere))


def remove_local_file(location: str, path: str) -> bool:
    """Remove a file below a table's location if that is on this machine; returns False if not, so
    that a library has to remove it. Follows no link, not even one that was made after the check.
    Raises ConfigError for a path that leaves the table's folder."""
    check_path(location, path)
    root = local_folder_of(location)
    if root is None or os.unlink not in os.supports_dir_fd:
        return False
    *folders, name = filter(None, path.split("/"))
    # Each folder is opened from the one above it, so that nobody can replace one by a link.
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder_name in folders:
            parent, flags = folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            folder = os.open(folder_name, flags, dir_fd=parent)
            os.close(parent)
        os.unlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise file_outside_table(location, path) from error
        raise
    finally:
        os.close(folder)
    return True


def file_outside_table(location: str, path: str) -> ConfigError:
    """The error for a file that is not below the table's location."""
    return ConfigError(
        f"The table at {location} names a file that is not in its folder ({safe_repr(path)}), is "
        "behind a symbolic link, or is a pipe or a device. jetspark reads, writes and removes only "
        "files in the folder: copy the rows into a table of their own with another program."
    )
