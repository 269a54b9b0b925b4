"""The formats by name. Their libraries are imported when a table of that format is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from jetspark.errors import ConfigError, JetsparkError, TableError, safe_repr
from jetspark.tables.batches import commit_with_retries, table_missing
from jetspark.tables.inside import is_misread
from jetspark.tables.new_files import Storage
from jetspark.tables.partitions import PartitionBy, check_partitions
from jetspark.tables.schemas import check_names
from jetspark.tables.table import Table, TableName

if TYPE_CHECKING:
    from jetspark.tables.delta.table import OpenDelta
    from jetspark.tables.iceberg.table import OpenIceberg

# -------------------------------------------------------------------------------------------------
# How users name a table: a folder, a URI, or catalog:namespace.table.


_PART = r"(?:[\w-]|\{[^{}]*\})+"  # with values of a row in a template of tables
_IN_CATALOG = re.compile(rf"(?!file:)([\w-]+):({_PART}(?:\.{_PART})*)")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_MIN_FILE_SIZE = 64 * 1024
_DURATION = re.compile(r"(\d+)\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_MAX_DURATION_HOURS = 100 * 365 * 24
"""Longest retention, in hours (a century): more than that keeps everything as well."""


def absolute_path(path: str) -> str:
    """The absolute path, since the driver and its workers may have different directories."""
    path = path.rstrip("/") or "/"
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.abspath(path)


def table_path(path: str) -> str:
    """The absolute path of a table. Raises ConfigError for one that the formats' libraries, which
    make a URI of it, take for another place."""
    resolved = absolute_path(path)
    if "://" not in resolved and (is_misread(resolved) or unquote(resolved) != resolved):
        raise ConfigError(
            f"The path {safe_repr(path)} of a table has #, ?, a backslash or a control character, "
            "or a % before two digits, which the libraries of Delta and Iceberg read as parts of a "
            "URI, or leave out: take a folder of another name."
        )
    return resolved


def parse_catalog_name(text: str) -> tuple[str, str] | None:
    """(catalog, namespace.table); None for a folder or a URI. Raises ConfigError."""
    match = _IN_CATALOG.fullmatch(text)
    if match is None:
        return None
    if "." not in re.sub(r"\{[^{}]*\}", "", match[2]):
        raise ConfigError(
            f"{text!r} has no namespace: write {match[1]}:namespace.{match[2]} for a table of the "
            f"catalog {match[1]}, or ./{text} for a folder."
        )
    return match[1], match[2]


def resolve_table(
    text: str, format_: str | None, options: Mapping[str, str]
) -> tuple[Format, TableName]:
    """The format and the table of a place. Raises ConfigError for an unknown format."""
    for name in options:
        if not name.startswith(STORAGE):
            raise ConfigError(f"Unknown option {name!r}; known: {STORAGE}… for the storage.")
    properties = {name.removeprefix(STORAGE): value for name, value in options.items()}
    if not text.strip():
        raise ConfigError(
            "The name of the table is empty: give a folder, a URI or catalog:namespace.table."
        )
    if (catalog_name := parse_catalog_name(text)) is not None:
        catalog, identifier = catalog_name
        return Format.ICEBERG, TableName(
            catalog=catalog, identifier=identifier, properties=properties
        )
    path = table_path(text)
    if format_ is not None:
        return parse_format("--format", format_), TableName(path=path, properties=properties)
    detected = format_of(Path(path)) if "://" not in path else None
    if detected is None:
        raise ConfigError(
            f"There is no Delta or Iceberg table at {text!r}."
            if "://" not in path
            else f"{text}: name the format (--format delta)."
        )
    return detected, TableName(path=path, properties=properties)


def parse_format(option: str, name: str) -> Format:
    """The format. Raises ConfigError with `said`, the name of the option or flag."""
    try:
        return Format(name.casefold())
    except ValueError:
        raise ConfigError(f"{option} must be {' or '.join(Format)}, not {name!r}.") from None


def parse_file_size(option: str, value: str) -> int:
    """Bytes of a text such as "128m". Raises ConfigError; `option`: its name, or the flag's."""
    match = _SIZE.fullmatch(value.strip().casefold())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if size < _MIN_FILE_SIZE:
        raise ConfigError(f"{option} must be a size of at least 64k, such as 128m, not {value!r}.")
    return size


def parse_duration(option: str, value: str) -> timedelta:
    """The time in "7d". Raises ConfigError; `option`: its name, or the flag's."""
    match = _DURATION.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(
            f"{option} must be hours, days or weeks, such as 12h, 7d or 2w, not {value!r}."
        )
    return timedelta(hours=min(int(match[1]) * _HOURS[match[2]], _MAX_DURATION_HOURS))


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
_UNREACHABLE = re.compile(
    "connection (?:refused|reset|closed)|timed out|timeout|unreachable|dns error|failed to lookup|"
    "name or service not known|name resolution",
    re.IGNORECASE,
)


_PYICEBERG_FILE = ".pyiceberg.yaml"


class Format(StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"


def format_of(folder: Path) -> Format | None:
    """The format of the table in a local folder; None if there is none."""
    if (folder / "_delta_log").is_dir():
        return Format.DELTA
    if next(folder.glob(_FORMAT_MARKERS["iceberg"]), None) is not None:
        return Format.ICEBERG
    return None


def is_missing(format_: Format, name: TableName) -> bool:
    """Whether an existing table was removed; cheap, and only known for a local folder.

    A library that writes into a folder while it is removed leaves a log without a beginning.
    """
    folder = _local_folder(name)
    return folder is not None and not any(
        next(folder.glob(beginning), None) for beginning in _TABLE_MARKERS[format_]
    )


@contextmanager
def reporting_missing_table(format_: Format, name: TableName, batch: int) -> Iterator[None]:
    """Runs the block, and raises TableError for a table that is removed, or cannot be written,
    meanwhile, in place of whatever its library says, or does not say."""
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
    if is_missing(format_, name):
        raise table_missing(name, batch)


def check_library(format_: Format) -> None:
    """Raises ConfigError if the format's library is not installed."""
    _table_class(format_)


def find_table(format_: Format, name: TableName) -> Table | None:
    """The table at its newest version; None if there is none. Raises ConfigError without the
    format's library, and TableError for a storage or a catalog out of reach."""
    opener = _table_class(format_)
    _check_other_formats(format_, name)
    with reporting_library_errors(name):
        return opener.find(name)


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
    """The table, which is created empty, with these transaction versions, if it does not exist.
    Raises ConfigError for columns that the format does not support."""

    def attempt() -> Table:
        if (table := find_table(format_, name)) is not None:
            return table
        check_names(schema)
        check_partitions(schema, partition_by)
        check_empty(format_, name)
        with reporting_library_errors(name):
            return _table_class(format_).create(name, schema, partition_by, txn_versions or {})

    return commit_with_retries(name, attempt)


def folder_storage(format_: Format, folder: TableName) -> Storage:
    """The storage of a folder that has tables in it, and is none itself."""
    return _table_class(format_).storage_of(folder)


def check_empty(format_: Format, name: TableName) -> None:
    """Check the place of a new table. Raises ConfigError for a folder with other files, which a
    vacuum would remove."""
    folder = _local_folder(name)
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{name} is a file: name a folder.")
    own = ("data", "metadata") if format_ is Format.ICEBERG else ()  # of a creation that was killed
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0] not in "._")
    if names and not set(names) <= set(own):
        raise ConfigError(
            f"{name} is no {format_.capitalize()} table and holds {names[0]}"
            f"{', …' if len(names) > 1 else ''}: name another folder (what is not of the table, "
            "such as a checkpoint, may lie in it under a name that begins with _)."
        )


@contextmanager
def reporting_library_errors(name: TableName) -> Iterator[None]:
    """Turns errors of the formats' libraries, and of what they stand on, into a TableError, or,
    where a package is missing, into a ConfigError."""
    try:
        yield
    except JetsparkError:
        raise
    except Exception as error:  # of too many kinds to name them
        # The second one is PyIceberg's, with the command for pip.
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


def _check_other_formats(format_: Format, name: TableName) -> None:
    """Raises ConfigError for a folder with a table of another format, whose files would look like
    nobody's."""
    folder = _local_folder(name)
    if folder is None:
        return
    for marked, mark in _FORMAT_MARKERS.items():
        if marked != format_ and next(folder.glob(mark), None) is not None:
            raise ConfigError(
                f"{name} is a table in {marked}, not in {format_}: take another folder, such as "
                f"{name}-2."
            )


def _local_folder(name: TableName) -> Path | None:
    """The table's folder; None unless it is on this machine."""
    return None if name.path is None or "://" in name.path else Path(name.path)


def _error_message(error: Exception) -> str:
    """The innermost message of a library's error, in one line."""
    text = _BACKTRACE.split(_ANSI.sub("", str(error)), maxsplit=1)[0]
    lines = [line.strip(" ↳╰▶─\t") for line in text.splitlines()]
    message = next((line for line in reversed(lines) if line), type(error).__name__)
    message = (
        message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[: _MAX_MESSAGE_LENGTH - 1]}…"
    )
    return message if message.endswith((".", "…")) else f"{message}."


def _table_class(format_: Format) -> type[OpenDelta] | type[OpenIceberg]:
    try:
        if format_ is Format.DELTA:
            from jetspark.tables.delta.table import OpenDelta

            return OpenDelta
        _check_pyiceberg_configuration()
        from jetspark.tables.iceberg.table import OpenIceberg

        return OpenIceberg
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{format_.capitalize()} tables need {library}: pip install 'jetspark[{format_}]'."
        ) from None


def _check_pyiceberg_configuration() -> None:
    """Raise ConfigError for a configuration that PyIceberg would take from the current folder,
    which is wherever somebody happened to run a command: it names programs that PyIceberg calls.

    PyIceberg reads it as soon as it is imported.
    """
    folders = (os.environ.get("PYICEBERG_HOME"), Path.home())
    own = [Path(folder, _PYICEBERG_FILE) for folder in folders if folder]
    local = Path(_PYICEBERG_FILE).absolute()
    if local.is_file() and local not in own:
        raise ConfigError(
            f"There is a {_PYICEBERG_FILE} in the current folder, which PyIceberg would take for "
            f"your configuration: {local}. If it is yours, set PYICEBERG_HOME={local.parent}; "
            "otherwise run this in another folder."
        )
