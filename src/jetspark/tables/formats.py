"""Opens and creates tables of both formats, and turns errors of their libraries into sentences.

A library is imported when a table of its format is opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from jetspark.errors import ConfigError, JetsparkError, TableError
from jetspark.tables.batches import commit_with_retries, table_missing
from jetspark.tables.new_files import Storage
from jetspark.tables.partitions import PartitionBy, check_partitions
from jetspark.tables.schemas import check_names
from jetspark.tables.table import Table, TableName

if TYPE_CHECKING:
    from jetspark.tables.delta.table import OpenDelta
    from jetspark.tables.iceberg.table import OpenIceberg

STORAGE = "storage."
"""Prefix of the options for the library that accesses the storage and the catalog."""
_FORMAT_MARKERS = {
    "delta": "_delta_log/*.json",
    "iceberg": "metadata/*.metadata.json*",
    "parquet": "_spark_metadata",
}
"""Pattern of a file, by format, that shows the format of a folder."""
_TABLE_MARKERS = {
    # The last pattern searches the log's files up to the first checkpoint.
    "delta": (
        f"_delta_log/{0:020}.json",
        "_delta_log/_last_checkpoint",
        "_delta_log/*.checkpoint*",
    ),
    "iceberg": (_FORMAT_MARKERS["iceberg"],),
}
"""Patterns, by format, of which a complete table has at least one match."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"^ *0: |^(?:stack )?backtrace", re.MULTILINE | re.IGNORECASE)
"""Beginning of a Rust library's backtrace, which RUST_BACKTRACE=1 asks for."""
_MAX_MESSAGE_LENGTH = 300
"""Characters of a library's message in an error of ours."""
_UNREACHABLE = re.compile(
    "connection (?:refused|reset|closed)|timed out|timeout|unreachable|dns error|failed to lookup|"
    "name or service not known|name resolution",
    re.IGNORECASE,
)
_PYICEBERG_FILE = ".pyiceberg.yaml"


class Format(StrEnum):
    """The formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


def format_of(folder: Path) -> Format | None:
    """The format of the table in a local folder, by the files that it has; None if there is no
    table."""
    if (folder / "_delta_log").is_dir():
        return Format.DELTA
    if next(folder.glob(_FORMAT_MARKERS["iceberg"]), None) is not None:
        return Format.ICEBERG
    return None


def is_missing(format_: Format, name: TableName) -> bool:
    """Whether a table that existed was removed; False also for one that is not in a local folder,
    where only its library could tell.

    The first files of the table are looked for: a library that writes into a folder while it is
    removed leaves a log without a beginning.
    """
    folder = _local_folder(name)
    return folder is not None and not any(
        next(folder.glob(beginning), None) for beginning in _TABLE_MARKERS[format_]
    )


@contextmanager
def reporting_missing_table(format_: Format, name: TableName, batch: int) -> Iterator[None]:
    """Run a block that writes a table, and raise TableError if the table is removed meanwhile or
    cannot be written, in place of whatever its library raises. `batch`: the number of the query's
    batch that the block writes."""
    try:
        yield
    except Exception as error:  # of too many kinds to name them
        if is_missing(format_, name):
            raise table_missing(name, batch) from error
        if isinstance(error, JetsparkError):
            raise
        raise TableError(
            f"{name} cannot be written: {_error_message(error)} When that is mended, run the same "
            "again, which goes on where it was."
        ) from error
    if is_missing(format_, name):  # a library may write into a folder that is being removed
        raise table_missing(name, batch)


def check_library(format_: Format) -> None:
    """Raise ConfigError if the format's library is not installed."""
    _table_class(format_)


def find_table(format_: Format, name: TableName) -> Table | None:
    """The table at its newest version; None if there is none. Raises ConfigError without the
    format's library, and TableError for a storage or a catalog out of reach."""
    table_class = _table_class(format_)
    _check_not_another_format(format_, name)
    with reporting_library_errors(name):
        return table_class.find(name)


def open_table(format_: Format, name: TableName) -> Table:
    """The table at its newest version. Raises ConfigError if there is none."""
    table = find_table(format_, name)
    if table is None:
        raise ConfigError(f"There is no {format_.capitalize()} table at {name}.")
    return table


def open_or_create_table(
    format_: Format,
    name: TableName,
    schema: pa.Schema,
    partition_by: Sequence[PartitionBy],
    txn_versions: Mapping[str, int] | None = None,
) -> Table:
    """The table at its newest version, which is created empty if it does not exist. `schema`,
    `partition_by`, `txn_versions`: what a new table has. Raises ConfigError for columns that the
    format does not support."""

    def attempt() -> Table:
        """Open or create the table. Raises CommitConflict if another writer creates it first."""
        if (table := find_table(format_, name)) is not None:
            return table
        check_names(schema)
        check_partitions(schema, partition_by)
        check_empty(format_, name)
        with reporting_library_errors(name):
            return _table_class(format_).create(name, schema, partition_by, txn_versions or {})

    return commit_with_retries(name, attempt)


def folder_storage(format_: Format, folder: TableName) -> Storage:
    """The storage of a folder that contains tables."""
    return _table_class(format_).storage_of(folder)


def check_empty(format_: Format, name: TableName) -> None:
    """Raise ConfigError if the folder for a new table has files, which a vacuum of the table would
    remove; names that begin with _ or . are left alone."""
    folder = _local_folder(name)
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{name} is a file: name a folder.", about="path")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0] not in "._")
    left_by_killed_creation = {"data", "metadata"} if format_ is Format.ICEBERG else set()
    if not left_by_killed_creation.issuperset(names):
        raise ConfigError(
            f"{name} is no {format_.capitalize()} table and holds {names[0]}"
            f"{', …' if len(names) > 1 else ''}: name another folder (what is not of the table, "
            "such as a checkpoint, may lie in it under a name that begins with _).",
            about="path",
        )


@contextmanager
def reporting_library_errors(name: TableName) -> Iterator[None]:
    """Run a block that opens or creates a table, and turn errors of the format's library into
    TableError with advice, or, where a package is missing, into ConfigError."""
    try:
        yield
    except JetsparkError:
        raise
    except Exception as error:  # of too many kinds to name them
        # PyIceberg's NotInstalledError has the command for pip.
        if isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError":
            raise ConfigError(f"{name} needs another package: {_error_message(error)}") from error
        message = _error_message(error)
        if _UNREACHABLE.search(message):
            raise TableError(
                f"{name} cannot be reached: {message} Check the {STORAGE}… options; if the store "
                "is down, run the same again when it is back, which goes on where it was."
            ) from error
        raise TableError(
            f"{name} cannot be read: {message} Check the name, the {STORAGE}… options and "
            "the credentials; if they are right, the table is damaged."
        ) from error


def _check_not_another_format(format_: Format, name: TableName) -> None:
    """Raise ConfigError for a local folder with a table of another format: a vacuum would remove
    that table's files, since nothing in this format refers to them."""
    folder = _local_folder(name)
    if folder is None:
        return
    for other, marker in _FORMAT_MARKERS.items():
        if other != format_ and next(folder.glob(marker), None) is not None:
            raise ConfigError(
                f"{name} is a table in {other}, not in {format_}: take another folder, such as "
                f"{name}-2."
            )


def _local_folder(name: TableName) -> Path | None:
    """The table's folder; None unless it is on this machine."""
    return None if name.path is None or "://" in name.path else Path(name.path)


def _error_message(error: Exception) -> str:
    """The innermost message of a library's error, as one line that ends with a full stop. Rust
    libraries write the messages below each other, the innermost last, and then a backtrace."""
    text = _BACKTRACE.split(_ANSI.sub("", str(error)), maxsplit=1)[0]
    lines = [line.strip(" ↳╰▶─\t") for line in text.splitlines()]
    message = next((line for line in reversed(lines) if line), type(error).__name__)
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = f"{message[: _MAX_MESSAGE_LENGTH - 1]}…"
    return message if message.endswith((".", "…")) else f"{message}."


def _table_class(format_: Format) -> type[OpenDelta] | type[OpenIceberg]:
    """The class of a format's tables. Raises ConfigError if its library is not installed."""
    try:
        if format_ is Format.DELTA:
            from jetspark.tables.delta.table import OpenDelta

            return OpenDelta
        _check_pyiceberg_configuration()  # before the import, which reads it
        from jetspark.tables.iceberg.table import OpenIceberg

        return OpenIceberg
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{format_.capitalize()} tables need {library}: pip install 'jetspark[{format_}]'."
        ) from None


def _check_pyiceberg_configuration() -> None:
    """Raise ConfigError for a `.pyiceberg.yaml` in the current folder, unless it is the user's own.
    PyIceberg would read it as soon as it is imported, and it names programs that PyIceberg calls;
    but a command may be run in anybody's folder.
    """
    home_folders = (os.environ.get("PYICEBERG_HOME"), Path.home())
    home_files = [Path(folder, _PYICEBERG_FILE) for folder in home_folders if folder]
    local = Path(_PYICEBERG_FILE).absolute()
    if local.is_file() and local not in home_files:
        raise ConfigError(
            f"There is a {_PYICEBERG_FILE} in the current folder, which PyIceberg would take for "
            f"your configuration: {local}. If it is yours, set PYICEBERG_HOME={local.parent}; "
            "otherwise run this in another folder."
        )
