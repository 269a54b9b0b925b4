"""Checks the files that a Delta table's log names besides data files: they have to be the table's.

deltalake follows the sidecars of a checkpoint when it loads a table. It opens the file of a
deletion vector in a merge and in a compaction, wherever it is, and also where the table does not
declare the feature; and it tells nobody these names. So the log is looked through: the documents of
its commits, and the columns of its checkpoints, each file once.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from jetspark.errors import ConfigError, DocumentError
from jetspark.tables import inside
from jetspark.wire.documents import decode_json

_LOG: Final = "_delta_log"
_SIDECARS: Final = "_sidecars"
_TO_B85: Final = bytes.maketrans(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
)
"""Translates the log's base 85 (Z85) to that of Python's `base64.b85decode`."""
_UUID_DIGITS: Final = 20
"""Length of an encoded UUID in a deletion vector's path; a folder may stand before it."""
_MAX_CACHED_FILES: Final = 100_000


# The parts of the log's actions (Delta protocol) that name files.


class _Vector(msgspec.Struct, rename="camel"):
    """A deletion vector: which rows of a data file are deleted."""

    storage_type: str
    path_or_inline_dv: str


class _File(msgspec.Struct, rename="camel"):
    """A data file, of which only its deletion vector is looked at."""

    deletion_vector: _Vector | None = None


class _Sidecar(msgspec.Struct):
    """A file that holds a part of a checkpoint."""

    path: str


class _Action(msgspec.Struct):
    """One line of a commit, as far as it can name files."""

    add: _File | None = None
    remove: _File | None = None
    sidecar: _Sidecar | None = None


_paths_by_file_state: dict[tuple[str, str, int, int], frozenset[str]] = {}
"""Paths that a file of a log names, by the table's location and the file's path, size and time."""


def check_sidecars(folder: Path) -> None:
    """Raise ConfigError for a checkpoint of a Delta table whose sidecars, the files that hold parts
    of it, are not in the table's folder.

    To be called before deltalake loads a table on this machine, since loading opens the sidecars.
    """
    location = str(folder)
    inside.check_no_links_in(location, f"{_LOG}/{_SIDECARS}")
    files = pyarrow.fs.SubTreeFileSystem(location, pyarrow.fs.LocalFileSystem())
    _check_named_files(location, files, checkpoints_only=True)


def check_log(location: str, files: pyarrow.fs.FileSystem) -> None:
    """Raise ConfigError for a Delta log that names a deletion vector or a sidecar (a part of a
    checkpoint) that is not in the table's folder.

    `files`: the file system whose root is the location.
    """
    _check_named_files(location, files, checkpoints_only=False)


def _check_named_files(
    location: str, files: pyarrow.fs.FileSystem, *, checkpoints_only: bool
) -> None:
    """Raise ConfigError if a file of the Delta log names a deletion vector or a sidecar that is not
    in the table's folder. `checkpoints_only`: leave out the commits. A file of the log is read
    once, and its names are remembered as long as its size and time are the same."""
    log = pyarrow.fs.FileSelector(_LOG, recursive=True, allow_not_found=True)
    named: set[str] = set()
    for info in files.get_file_info(log):
        path = info.path
        if not info.is_file or not path.endswith((".json", ".parquet")):
            continue
        if checkpoints_only and ".checkpoint." not in path:
            continue
        state = location, path, info.size, info.mtime_ns
        if state not in _paths_by_file_state:
            if len(_paths_by_file_state) >= _MAX_CACHED_FILES:
                _paths_by_file_state.clear()
            read_paths = _paths_in_commit if path.endswith(".json") else _paths_in_checkpoint
            with files.open_input_file(path) as file:
                _paths_by_file_state[state] = frozenset(read_paths(location, file))
        named |= _paths_by_file_state[state]
    inside.check_relative_paths(location, named)


def _paths_in_commit(location: str, file: pa.NativeFile) -> Iterator[str]:
    """Paths of the sidecars and deletion vectors that a commit, a file with an action in JSON in
    each line, names. Raises ConfigError."""
    for line in file.read().splitlines():
        if not line.strip():
            continue
        try:
            action = decode_json(line, _Action, "document in the log")
        except DocumentError as error:
            raise ConfigError(f"The log of the table at {location}: {error}") from None
        if action.sidecar is not None:
            yield _sidecar_path(location, action.sidecar.path)
        for file_action in (action.add, action.remove):
            if file_action is not None and (vector := file_action.deletion_vector) is not None:
                yield from _vector_paths(location, vector.storage_type, vector.path_or_inline_dv)


def _paths_in_checkpoint(location: str, file: pa.NativeFile) -> Iterator[str]:
    """Paths of the sidecars and deletion vectors that a checkpoint, a Parquet file with an action
    in each row, names. Raises ConfigError."""
    vector_fields = [
        f"{action}.deletionVector.{field}"
        for action in ("add", "remove")
        for field in ("storageType", "pathOrInlineDv")
    ]
    try:
        table = pyarrow.parquet.ParquetFile(file).read(["sidecar.path", *vector_fields])
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"The log of the table at {location} is damaged: {error}") from None
    for name in table.column_names:
        for row in table[name].drop_null().to_pylist():
            if name == "sidecar":
                yield _sidecar_path(location, row["path"])
            elif (vector := row["deletionVector"]) is not None:
                yield from _vector_paths(location, vector["storageType"], vector["pathOrInlineDv"])


def _sidecar_path(location: str, uri: str) -> str:
    """The path of a sidecar (a part of a checkpoint) below the table's location. Raises ConfigError
    for one elsewhere. `uri`: an absolute URI, or the name of a file in the log's folder for them,
    as the protocol allows."""
    path = inside.relative_path(location, uri) or f"{_LOG}/{_SIDECARS}/{uri}"
    if path.rpartition("/")[0] != f"{_LOG}/{_SIDECARS}":
        raise inside.file_outside_table(location, uri)
    return path


def _vector_paths(location: str, storage_type: str, text: str) -> Iterator[str]:
    """Yield the path below the table's location of a deletion vector's file, or nothing for a
    vector that is in the log itself. Raises ConfigError for a file elsewhere. `storage_type`,
    `text`: the protocol's storageType and pathOrInlineDv."""
    if storage_type == "i":  # inline
        return
    # With the type "u", the text is a folder, which may be empty, and an encoded UUID.
    folder, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    try:
        if storage_type != "u":  # an absolute path
            raise ValueError(storage_type)
        name = uuid.UUID(bytes=base64.b85decode(digits.encode("ascii").translate(_TO_B85)))
    except ValueError:
        raise inside.file_outside_table(location, text) from None
    file = f"deletion_vector_{name}.bin"
    yield f"{folder}/{file}" if folder else file
