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
    storage_type: str
    path_or_inline_dv: str


class _File(msgspec.Struct, rename="camel"):
    deletion_vector: _Vector | None = None


class _Sidecar(msgspec.Struct):
    path: str


class _Action(msgspec.Struct):
    add: _File | None = None
    remove: _File | None = None
    sidecar: _Sidecar | None = None


_paths_by_file_state: dict[tuple[str, str, int, int], frozenset[str]] = {}
"""Paths that a file of a log names, by the table's location and the file's path, size and time."""


def check_sidecars(folder: Path) -> None:
    """Raise ConfigError for a checkpoint that names files that are not the table's.

    To be called before deltalake loads a table on this machine.
    """
    location = str(folder)
    inside.check_no_links_in(location, f"{_LOG}/{_SIDECARS}")
    files = pyarrow.fs.SubTreeFileSystem(location, pyarrow.fs.LocalFileSystem())
    _check_named_files(location, files, checkpoints_only=True)


def check_log(location: str, files: pyarrow.fs.FileSystem) -> None:
    """Raise ConfigError for a log that names deletion vectors or sidecars that are not the table's.

    `files`: those below the location.
    """
    _check_named_files(location, files, checkpoints_only=False)


def _check_named_files(
    location: str, files: pyarrow.fs.FileSystem, *, checkpoints_only: bool
) -> None:
    """Raise ConfigError if a file of the log names a file that is not the table's."""
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
    """Paths of sidecars and deletion vectors that a commit names. Raises ConfigError."""
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
    """Paths of sidecars and deletion vectors that a checkpoint names. Raises ConfigError."""
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
    """The path of a sidecar below the location. Raises ConfigError for one elsewhere."""
    path = inside.relative_path(location, uri) or f"{_LOG}/{_SIDECARS}/{uri}"
    if path.rpartition("/")[0] != f"{_LOG}/{_SIDECARS}":
        raise inside.file_outside_table(location, uri)
    return path


def _vector_paths(location: str, storage_type: str, text: str) -> Iterator[str]:
    """The path of a deletion vector's file below the location; none for one in the log itself.
    Raises ConfigError for a file elsewhere. `text`: the protocol's pathOrInlineDv."""
    if storage_type == "i":  # inline
        return
    folder, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
    try:
        if storage_type != "u":  # an absolute path
            raise ValueError(storage_type)
        name = uuid.UUID(bytes=base64.b85decode(digits.encode("ascii").translate(_TO_B85)))
    except ValueError:
        raise inside.file_outside_table(location, text) from None
    file = f"deletion_vector_{name}.bin"
    yield f"{folder}/{file}" if folder else file
