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

from jetspark.errors import BackupError, ConfigError

METADATA, ARCHIVE = "backup.json", "stream.tar.s2"


def absolute(folder: str | os.PathLike[str]) -> str:
    """The same folder for any process: an absolute path, or the URI. Raises ConfigError."""
    text = os.fspath(folder)
    if not text.strip():
        raise ConfigError("The folder of the backup is empty: name one.")
    return text.rstrip("/") if "://" in text else os.path.abspath(text)


def opened(folder: str, name: str) -> BinaryIO:
    """A file of the folder, for reading at any position.

    Raises ConfigError for a folder without it, BackupError when it cannot be read.
    """
    try:
        if "://" not in folder:
            return (Path(folder) / name).open("rb")
        system, path = fs.FileSystem.from_uri(f"{folder}/{name}")
        return cast(BinaryIO, system.open_input_file(path))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{folder} is no backup of a stream: there is no {name} in it.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(folder, error) from error


def unreadable(folder: str, error: Exception) -> BackupError:
    """The error for a file that could not be read."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BackupError(f"Cannot read the backup {folder}: {reason.rstrip('.')}.")
