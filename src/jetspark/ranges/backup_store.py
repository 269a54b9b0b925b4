"""Puts a backup into a store under a URI, and fetches it from there.

A backup in a store is complete when it has its `backup.json`, which is written last: without it no
reader takes the files for a backup. Nothing in the store is replaced or removed; what a killed
upload leaves is an archive without `backup.json`, under a name that is refused from then on.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as fs

from jetspark.backup.folder import ARCHIVE, location_of, redact_folder
from jetspark.backup.metadata import METADATA
from jetspark.errors import BackupError, ConfigError
from jetspark.ranges._backup_files import errors_name_folder, open_file

_FILES: Final = (ARCHIVE, METADATA)
_COPY_BYTES: Final = 8 << 20


def is_in_store(folder: str | os.PathLike[str]) -> bool:
    """Whether a backup's name is the URI of a store, not a folder of this machine. Raises
    ConfigError for a URI of another kind."""
    return "://" in location_of(folder)


def check_free(uri: str) -> None:
    """Raise ConfigError if there is anything under the URI, in which a new backup is to be, and
    BackupError if the store cannot be reached."""
    with errors_name_folder(uri):
        system, path = _open_store(uri)
        try:
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except pa.ArrowException as error:
            raise OSError(str(error)) from None
    if found:
        raise ConfigError(
            f"{redact_folder(uri)} exists already: name a new folder for the backup. (An archive "
            f"without {METADATA} is of a backup that was interrupted.)"
        )


def upload(folder: Path, uri: str) -> None:
    """Copy a complete backup into a store, where it is complete when this returns.

    Raises ConfigError if something is there, BackupError if the store does not take it.
    """
    check_free(uri)
    with errors_name_folder(uri):
        system, path = _open_store(uri)
        for name in _FILES:
            target, size = f"{path}/{name}", (folder / name).stat().st_size
            try:
                with (folder / name).open("rb") as file, system.open_output_stream(target) as out:
                    shutil.copyfileobj(file, out, _COPY_BYTES)
                stored = system.get_file_info(target).size
            except pa.ArrowException as error:
                raise OSError(str(error)) from None
            if stored != size:
                raise BackupError(f"The store has {stored} of {size} bytes of {name}.")


def download(uri: str, folder: Path) -> None:
    """Copy a backup from a store into an existing folder, which is then to be verified.

    Raises ConfigError if it is not a backup, BackupError if it cannot be read.
    """
    location = location_of(uri)
    with errors_name_folder(location):
        for name in reversed(_FILES):
            with open_file(location, name) as source, (folder / name).open("xb") as file:
                shutil.copyfileobj(source, file, _COPY_BYTES)


def _open_store(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it. Raises OSError."""
    try:
        system, path = fs.FileSystem.from_uri(location_of(uri))
    except (pa.ArrowException, ValueError) as error:
        raise OSError(str(error)) from None
    return system, path.rstrip("/")
