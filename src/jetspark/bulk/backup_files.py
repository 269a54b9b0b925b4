"""Files of a backup: in a folder of this machine, or under a URI that pyarrow knows.

A URI (`s3://bucket/folder`, `gs://…`, `hdfs://…`, `abfss://…`, `file:///…`) is opened with
pyarrow's file systems, with the credentials that these find in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.fs as fs

from jetspark.archives.metadata import opened_file
from jetspark.arguments import path_of
from jetspark.errors import BackupError, ConfigError


def absolute(folder: str | os.PathLike[str]) -> str:
    """The same folder for any process: an absolute path, or the URI. Raises ConfigError."""
    text = os.fspath(folder)
    if not text.strip():
        raise ConfigError("The folder of the backup is empty: name one.")
    return text.rstrip("/") if "://" in text else os.path.abspath(path_of("folder", folder))


def opened(folder: str, name: str) -> BinaryIO:
    """A file of the folder, for reading at any position.

    Raises ConfigError for a folder without it, OSError when it cannot be read.
    """
    if "://" not in folder:
        return opened_file(Path(folder), name)
    try:
        system, path = fs.FileSystem.from_uri(folder)
        return cast(BinaryIO, system.open_input_file(f"{path.rstrip('/')}/{name}"))
    except (FileNotFoundError, NotADirectoryError):
        where = shown_folder(folder)
        raise ConfigError(f"{where} is no backup of a stream: there is no {name} in it.") from None
    except (pa.ArrowException, ValueError) as error:
        raise OSError(str(error)) from error


def shown_folder(folder: str) -> str:
    """The folder as messages have it: a URI without a password and options."""
    if "://" not in folder:
        return folder
    scheme, _, rest = folder.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def unreadable(folder: str, error: OSError) -> BackupError:
    """The error for a file that could not be read: the first line of the reason."""
    reason = error.strerror or str(error)
    reason = next(iter(reason.splitlines()), type(error).__name__)
    return BackupError(f"Cannot read the backup {shown_folder(folder)}: {reason.rstrip('.')}.")
