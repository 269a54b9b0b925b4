"""Values of partition columns as strings and as folder names."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from jetspark.errors import ConfigError, shown

_LONGEST = 255
"""Bytes of a file's name on most file systems."""
_OF_PATHS = re.compile(r"[/=#?]")
"""What has a meaning in a path or a URI. The rest of a column's name stays as it is, since Polars
compares it with the folder's undecoded; a value it decodes."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_value(value: Any) -> str | None:
    """A value as it is written to Delta's log (Delta protocol, "Partition Value Serialization")."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            instant = value.astimezone(UTC) if value.tzinfo is not None else value
            # Not strftime, which does not pad years before 1000 on Linux.
            return instant.replace(tzinfo=None).isoformat(" ", "microseconds")
        case date():
            return value.isoformat()
        case float():
            return repr(value)
        case _:
            return str(value)


def value_of(name: str, found: pa.Scalar) -> Any:
    """The value in Python. Raises ConfigError for a date that Python does not have."""
    try:
        return found.as_py()
    except (OverflowError, ValueError):
        raise ConfigError(
            f"partitionBy: {name!r} has a value outside the years 1 to 9999: partition by another "
            "column, or leave such rows out."
        ) from None


def folders(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """The folders of a partition in Hive's naming, since some readers take the values from it.

    Raises ConfigError for a value that is too long for a folder's name.
    """
    found = ""
    for name, text in zip(names, map(partition_value, values), strict=True):
        folder = f"{_OF_PATHS.sub(_quoted, name)}={_NULL if text is None else quote(text, safe='')}"
        if len(folder.encode()) > _LONGEST:
            raise ConfigError(
                f"partitionBy: {name!r} has a value of {len(text or '')} characters, too long for "
                f"the name of a folder ({shown(text)}): partition by less of it, such as "
                f"{name}_begin=left({name}, 20)."
            )
        found += f"{folder}/"
    return found


def _quoted(found: re.Match[str]) -> str:
    return quote(found[0], safe="")
