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

from jetspark.errors import CommitConflict, ConfigError, JetsparkError, TableError, shown
from jetspark.lakehouse.batches import gone
from jetspark.lakehouse.iceberg_configuration import check_configuration
from jetspark.lakehouse.inside import is_misread
from jetspark.lakehouse.new_files import Storage
from jetspark.lakehouse.partitions import PartitionBy, check_partitions
from jetspark.lakehouse.schemas import check_names
from jetspark.lakehouse.table import Table, TableName

if TYPE_CHECKING:
    from jetspark.lakehouse.delta import OpenDelta
    from jetspark.lakehouse.iceberg import OpenIceberg

# -------------------------------------------------------------------------------------------------
# How users name a table: a folder, a URI, or catalog:namespace.table.


_PART = r"(?:[\w-]|\{[^{}]*\})+"  # with values of a row in a template of tables
_IN_CATALOG = re.compile(rf"(?!file:)([\w-]+):({_PART}(?:\.{_PART})*)")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LEAST_SIZE = 64 * 1024
_SPAN = re.compile(r"(\d+)\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_CENTURY = 100 * 365 * 24
"""In hours: more than that keeps everything as well."""


def absolute(path: str) -> str:
    """The absolute path, since the driver and its workers may have different directories."""
    path = path.rstrip("/") or "/"
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.abspath(path)


def table_path(path: str) -> str:
    """The absolute path of a table. Raises ConfigError for one that the formats' libraries, which
    make a URI of it, take for another place."""
    found = absolute(path)
    if "://" not in found and (is_misread(found) or unquote(found) != found):
        raise ConfigError(
            f"The path {shown(path)} of a table has #, ?, a backslash or a control character, or a "
            "% before two digits, which the libraries of Delta and Iceberg read as parts of a URI, "
            "or leave out: take a folder of another name."
        )
    return found


def in_catalog(place: str) -> tuple[str, str] | None:
    """(catalog, namespace.table); None for a folder or a URI. Raises ConfigError."""
    match = _IN_CATALOG.fullmatch(place)
    if match is None:
        return None
    if "." not in re.sub(r"\{[^{}]*\}", "", match[2]):
        raise ConfigError(
            f"{place!r} has no namespace: write {match[1]}:namespace.{match[2]} for a table of the "
            f"catalog {match[1]}, or ./{place} for a folder."
        )
    return match[1], match[2]


def table_at(
    place: str, format_: str | None, options: Mapping[str, str]
) -> tuple[Format, TableName]:
    """The format and the table of a place. Raises ConfigError for an unknown format."""
    for name in options:
        if not name.startswith(STORAGE):
            raise ConfigError(f"Unknown option {name!r}; known: {STORAGE}… for the storage.")
    properties = {name.removeprefix(STORAGE): value for name, value in options.items()}
    if not place.strip():
        raise ConfigError(
            "The name of the table is empty: give a folder, a URI or catalog:namespace.table."
        )
    if (found := in_catalog(place)) is not None:
        catalog, identifier = found
        return Format.ICEBERG, TableName(
            catalog=catalog, identifier=identifier, properties=properties
        )
    path = table_path(place)
    if format_ is not None:
        return checked_format("--format", format_), TableName(path=path, properties=properties)
    there = format_of(Path(path)) if "://" not in path else None
    if there is None:
        raise ConfigError(
            f"There is no Delta or Iceberg table at {place!r}."
            if "://" not in path
            else f"{place}: name the format (--format delta)."
        )
    return there, TableName(path=path, properties=properties)


def checked_format(said: str, name: str) -> Format:
    """The format. Raises ConfigError with `said`, the name of the option or flag."""
    try:
        return Format(name.casefold())
    except ValueError:
        raise ConfigError(f"{said} must be {' or '.join(Format)}, not {name!r}.") from None


def file_size(said: str, value: str) -> int:
    """Bytes of a text such as "128m". Raises ConfigError; `said`: the option's or flag's name."""
    match = _SIZE.fullmatch(value.strip().casefold())
    found = int(match[1]) * _UNITS[match[2]] if match else 0
    if found < _LEAST_SIZE:
        raise ConfigError(f"{said} must be a size of at least 64k, such as 128m, not {value!r}.")
    return found


def span(said: str, value: str) -> timedelta:
    """The time in "7d". Raises ConfigError; `said`: the option's or flag's name."""
    match = _SPAN.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(
            f"{said} must be hours, days or weeks, such as 12h, 7d or 2w, not {value!r}."
        )
    return timedelta(hours=min(int(match[1]) * _HOURS[match[2]], _CENTURY))


STORAGE = "storage."
"""Prefix of the options for the library that accesses the storage and the catalog."""
_MARKS = {
    "delta": "_delta_log/*.json",
    "iceberg": "metadata/*.metadata.json*",
    "parquet": "_spark_metadata",
}
"""What shows the format of a folder."""
_BEGINNINGS = {
    # The last pattern searches the log's files up to the first checkpoint.
    "delta": (
        f"_delta_log/{0:020}.json",
        "_delta_log/_last_checkpoint",
        "_delta_log/*.checkpoint*",
    ),
    "iceberg": (_MARKS["iceberg"],),
}
"""Files of which a whole table has one."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"^ *0: |^(?:stack )?backtrace", re.MULTILINE | re.IGNORECASE)
"""Where the backtrace of a library in Rust begins, which RUST_BACKTRACE=1 asks for."""
_LONGEST = 300
_NOT_REACHED = re.compile(
    "connection (?:refused|reset|closed)|timed out|timeout|unreachable|dns error|failed to lookup|"
    "name or service not known|name resolution",
    re.IGNORECASE,
)


class Format(StrEnum):
    """An open table format."""

    DELTA = "delta"
    ICEBERG = "iceberg"


def format_of(folder: Path) -> Format | None:
    """The format of the table in a local folder; None if there is none."""
    if (folder / "_delta_log").is_dir():
        return Format.DELTA
    if next(folder.glob(_MARKS["iceberg"]), None) is not None:
        return Format.ICEBERG
    return None


def is_gone(format_: Format, name: TableName) -> bool:
    """Whether an existing table was removed; cheap, and only known for a local folder.

    A library that writes into a folder while it is removed leaves a log without a beginning.
    """
    folder = _folder(name)
    return folder is not None and not any(
        next(folder.glob(beginning), None) for beginning in _BEGINNINGS[format_]
    )


@contextmanager
def not_gone(format_: Format, name: TableName, batch: int) -> Iterator[None]:
    """Raises TableError for a table that is removed, or cannot be written, while the block uses it,
    in place of whatever its library says, or does not say."""
    try:
        yield
    except Exception as error:  # of too many kinds to name them
        if is_gone(format_, name):
            raise gone(name, batch) from error
        if isinstance(error, JetsparkError):
            raise
        raise TableError(
            f"{name} cannot be written: {_sentence(error)} When that is mended, run the same "
            "again, which goes on where it was."
        ) from error
    if is_gone(format_, name):
        raise gone(name, batch)


def check_library(format_: Format) -> None:
    """Raises ConfigError if the format's library is not installed."""
    _opener(format_)


def find_table(format_: Format, name: TableName) -> Table | None:
    """The table at its newest version; None if there is none. Raises ConfigError without the
    format's library, and TableError for a storage or a catalog out of reach."""
    opener = _opener(format_)
    _check_other_formats(format_, name)
    with in_a_sentence(name):
        return opener.find(name)


def open_table(format_: Format, name: TableName) -> Table:
    """The table at its newest version. Raises ConfigError if there is none."""
    found = find_table(format_, name)
    if found is None:
        raise ConfigError(f"There is no {format_.capitalize()} table at {name}.")
    return found


def make_table(
    format_: Format,
    name: TableName,
    schema: pa.Schema,
    partition_by: Sequence[PartitionBy],
    numbers: Mapping[str, int] | None = None,
) -> Table:
    """The table, created empty and with these numbers if it does not exist. Raises ConfigError for
    columns that the format does not support."""
    while (found := find_table(format_, name)) is None:
        check_names(schema)
        check_partitions(schema, partition_by)
        check_empty(format_, name)
        try:
            with in_a_sentence(name):
                return _opener(format_).create(name, schema, partition_by, numbers or {})
        except CommitConflict:
            continue  # created by another writer
    return found


def storage_of_folder(format_: Format, folder: TableName) -> Storage:
    """The storage of a folder that has tables in it, and is none itself."""
    return _opener(format_).storage_of(folder)


def check_empty(format_: Format, name: TableName) -> None:
    """For a place without a table. Raises ConfigError for a folder with other files, which a vacuum
    would remove."""
    folder = _folder(name)
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{name} is a file: name a folder.")
    own = ("data", "metadata") if format_ is Format.ICEBERG else ()  # of a creation that was killed
    others = sorted(one.name for one in folder.iterdir() if one.name[0] not in "._")
    if others and not set(others) <= set(own):
        raise ConfigError(
            f"{name} is no {format_.capitalize()} table and holds {others[0]}"
            f"{', …' if len(others) > 1 else ''}: name another folder (what is not of the table, "
            "such as a checkpoint, may lie in it under a name that begins with _)."
        )


@contextmanager
def in_a_sentence(name: TableName) -> Iterator[None]:
    """Turns errors of the libraries, and of what they stand on, into a TableError, or, where a
    package is missing, into a ConfigError."""
    try:
        yield
    except JetsparkError:
        raise
    except Exception as error:  # of too many kinds to name them
        # The second one is PyIceberg's, with the command for pip.
        if isinstance(error, ImportError) or type(error).__name__ == "NotInstalledError":
            raise ConfigError(f"{name} needs another package: {_sentence(error)}") from error
        said = _sentence(error)
        if _NOT_REACHED.search(said):
            raise TableError(
                f"{name} cannot be reached: {said} Check the {STORAGE}… options; if the store is "
                "down, run the same again when it is back, which goes on where it was."
            ) from error
        raise TableError(
            f"{name} cannot be read: {said} Check the name, the {STORAGE}… options and "
            "the credentials; if they are right, the table is damaged."
        ) from error


def _check_other_formats(format_: Format, name: TableName) -> None:
    """Raises ConfigError for a folder with a table of another format, whose files would look like
    nobody's."""
    folder = _folder(name)
    if folder is None:
        return
    for other, mark in _MARKS.items():
        if other != format_ and next(folder.glob(mark), None) is not None:
            raise ConfigError(
                f"{name} is a table in {other}, not in {format_}: take another folder, such as "
                f"{name}-2."
            )


def _folder(name: TableName) -> Path | None:
    """The table's folder; None unless it is on this machine."""
    return None if name.path is None or "://" in name.path else Path(name.path)


def _sentence(error: Exception) -> str:
    """The innermost message of a library's error, in one line."""
    text = _BACKTRACE.split(_ANSI.sub("", str(error)), maxsplit=1)[0]
    lines = [one.strip(" ↳╰▶─\t") for one in text.splitlines()]
    said = next((one for one in reversed(lines) if one), type(error).__name__)
    said = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
    return said if said.endswith((".", "…")) else f"{said}."


def _opener(format_: Format) -> type[OpenDelta] | type[OpenIceberg]:
    try:
        if format_ is Format.DELTA:
            from jetspark.lakehouse.delta import OpenDelta

            return OpenDelta
        check_configuration()
        from jetspark.lakehouse.iceberg import OpenIceberg

        return OpenIceberg
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{format_.capitalize()} tables need {library}: pip install 'jetspark[{format_}]'."
        ) from None
