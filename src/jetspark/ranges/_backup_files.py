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

from jetspark.backup.folder import HIDDEN, open_backup_file, redact_folder
from jetspark.errors import BackupError, ConfigError

# Options of a URI that say where a store is, and are not secret.
_PUBLIC_OPTIONS: Final = ("endpoint_override", "region", "scheme")
_MIN_SECRET_LENGTH: Final = 6


def open_file(location: str, name: str) -> BinaryIO:
    """Open the file `name` of a backup's folder, for reading at any position.

    `location`: the folder's path, or its URI. Raises ConfigError for a folder without it, OSError
    when it cannot be read.
    """
    if "://" not in location:
        return open_backup_file(Path(location), name)
    try:
        system, path = fs.FileSystem.from_uri(location)
        return cast(BinaryIO, system.open_input_file(f"{path.rstrip('/')}/{name}"))
    except (FileNotFoundError, NotADirectoryError):
        folder = redact_folder(location)
        raise ConfigError(
            f"{folder} is not a backup of a stream: there is no {name} in it."
        ) from None
    except (pa.ArrowException, ValueError) as error:
        raise OSError(str(error)) from None


def read_error(location: str, error: OSError) -> BackupError:
    """Make the error for a backup's file that could not be read, with the first line of the reason.

    pyarrow's reason is left out where it may repeat the URI with its secrets. Raise this error
    `from None`, so that a traceback does not show it either.
    """
    reason = error.strerror or str(error)
    reason = next(iter(reason.splitlines()), type(error).__name__)
    folder = redact_folder(location)
    if folder.endswith(HIDDEN) or any(secret in str(error) for secret in _secrets(location)):
        reason = "check its URI, where special characters are written as %XX (a / in a key as %2F)"
    return BackupError(f"Cannot read the backup {folder}: {reason.rstrip('.')}.")


def _secrets(location: str) -> set[str]:
    """The texts in a backup's URI that may be secret, so that no message may show them.

    These are the URI itself, its user, password and options; short texts are left out, since they
    are in any message by chance.
    """
    _, separator, rest = location.partition("://")
    if not separator or redact_folder(location) == location:
        return set()
    address, _, options = rest.partition("?")
    pairs = [option.partition("=") for option in options.split("&")]
    values = [value for name, _, value in pairs if name not in _PUBLIC_OPTIONS]
    texts = [rest, *address.rpartition("@")[0].split(":"), *values]
    return {
        text for raw in texts for text in (raw, unquote(raw)) if len(text) >= _MIN_SECRET_LENGTH
    }


@contextmanager
def errors_name_folder(location: str) -> Iterator[None]:
    """Turn the block's OSErrors and BackupErrors into BackupErrors that name the backup's folder.

    The folder is shown without the secrets of its URI.
    """
    try:
        yield
    except OSError as error:
        raise read_error(location, error) from None
    except BackupError as error:
        raise BackupError(f"{redact_folder(location)}: {error}") from None
