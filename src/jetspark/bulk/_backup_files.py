"""Opens the files of a backup: in a folder of this machine, or under a URI that pyarrow knows.

A URI (`s3://bucket/folder`, `gs://…`, `hdfs://…`) is opened with pyarrow's file systems, with
the credentials that these find in the environment. Azure's is refused (`backup.folder`): with
wrong credentials it ends the process, which may be a Spark worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs

from jetspark.backup.folder import (
    HIDDEN,
    opened_file,
    shown_folder,
)
from jetspark.errors import BackupError, ConfigError

# Options of a URI that say where a store is, and are not secret.
_NO_SECRETS: Final = ("endpoint_override", "region", "scheme")
_SHORTEST_SECRET: Final = 6


def open_file(place: str, name: str) -> BinaryIO:
    """A file of the folder, for reading at any position.

    Raises ConfigError for a folder without it, OSError when it cannot be read.
    """
    if "://" not in place:
        return opened_file(Path(place), name)
    try:
        system, path = fs.FileSystem.from_uri(place)
        return cast(BinaryIO, system.open_input_file(f"{path.rstrip('/')}/{name}"))
    except (FileNotFoundError, NotADirectoryError):
        where = shown_folder(place)
        raise ConfigError(
            f"{where} is not a backup of a stream: there is no {name} in it."
        ) from None
    except (pa.ArrowException, ValueError) as error:
        raise OSError(str(error)) from None


def read_error(place: str, error: OSError) -> BackupError:
    """The error for a file that could not be read: the first line of the reason.

    pyarrow's reason is left out if it has the URI, with its secrets. Raise this error `from None`.
    """
    reason = error.strerror or str(error)
    reason = next(iter(reason.splitlines()), type(error).__name__)
    shown = shown_folder(place)
    if shown.endswith(HIDDEN) or any(secret in str(error) for secret in _secrets(place)):
        reason = "check its URI, where special characters are written as %XX (a / in a key as %2F)"
    return BackupError(f"Cannot read the backup {shown}: {reason.rstrip('.')}.")


def _secrets(place: str) -> set[str]:
    _, found, rest = place.partition("://")
    if not found or shown_folder(place) == place:
        return set()
    address, _, options = rest.partition("?")
    pairs = [option.partition("=") for option in options.split("&")]
    values = [value for name, _, value in pairs if name not in _NO_SECRETS]
    said = [rest, *address.rpartition("@")[0].split(":"), *values]
    return {one for raw in said for one in (raw, unquote(raw)) if len(one) >= _SHORTEST_SECRET}


@contextmanager
def errors_name_folder(place: str) -> Iterator[None]:
    """Errors name the folder, without its secrets."""
    try:
        yield
    except OSError as error:
        raise read_error(place, error) from None
    except BackupError as error:
        raise BackupError(f"{shown_folder(place)}: {error}") from None
