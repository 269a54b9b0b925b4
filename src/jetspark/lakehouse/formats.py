"""The formats by name. Their libraries are imported when a table of that format is opened."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from jetspark.errors import CommitConflict, ConfigError
from jetspark.lakehouse.schemas import check_names, check_partitions
from jetspark.lakehouse.table import Table, TableName

if TYPE_CHECKING:
    from jetspark.lakehouse.delta import OpenDelta
    from jetspark.lakehouse.iceberg import OpenIceberg


class Format(StrEnum):
    """An open table format."""

    DELTA = "delta"
    ICEBERG = "iceberg"


def format_of(folder: Path) -> Format | None:
    """The format of the table in a local folder; None if there is none."""
    if (folder / "_delta_log").is_dir():
        return Format.DELTA
    if (folder / "metadata" / "version-hint.text").is_file():
        return Format.ICEBERG
    return None


def check_library(format_: Format) -> None:
    """Raises ConfigError if the format's library is not installed."""
    _opener(format_)


def find_table(format_: Format, name: TableName) -> Table | None:
    """The table at its newest version; None if there is none. Raises ConfigError without the
    format's library, and the library's own errors for a storage or catalog out of reach."""
    return _opener(format_).find(name)


def open_table(format_: Format, name: TableName) -> Table:
    """The table at its newest version. Raises ConfigError if there is none."""
    found = find_table(format_, name)
    if found is None:
        raise ConfigError(f"There is no {format_.capitalize()} table at {name}.")
    return found


def make_table(
    format_: Format, name: TableName, schema: pa.Schema, partition_by: Sequence[str]
) -> Table:
    """The table, created empty if it does not exist. Raises ConfigError for columns that the
    format does not support."""
    while (found := find_table(format_, name)) is None:
        check_names(schema)
        check_partitions(schema, partition_by)
        try:
            return _opener(format_).create(name, schema, partition_by)
        except CommitConflict:
            continue  # created by another writer
    return found


def _opener(format_: Format) -> type[OpenDelta] | type[OpenIceberg]:
    try:
        if format_ is Format.DELTA:
            from jetspark.lakehouse.delta import OpenDelta

            return OpenDelta
        from jetspark.lakehouse.iceberg import OpenIceberg

        return OpenIceberg
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{format_.capitalize()} tables need {library}: pip install 'jetspark[{format_}]'."
        ) from None
