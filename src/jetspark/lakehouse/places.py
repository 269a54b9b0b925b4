"""How users name a table: a folder, a URI, or catalog:namespace.table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from jetspark.errors import ConfigError
from jetspark.lakehouse.formats import STORAGE, Format, format_of
from jetspark.lakehouse.table import TableName

_IN_CATALOG = re.compile(r"(?!file:)([\w-]+):([\w-]+(?:\.[\w-]+)*)")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?")
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LEAST_SIZE = 64 * 1024
_SPAN = re.compile(r"(\d+)\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_CENTURY = 100 * 365 * 24
"""In hours: more than that keeps everything as well."""


def absolute(path: str) -> str:
    """Absolute, since the driver and its workers may have different working directories."""
    path = path.rstrip("/") or "/"
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.abspath(path)


def in_catalog(place: str) -> tuple[str, str] | None:
    """(catalog, namespace.table); None for a folder or a URI. Raises ConfigError."""
    match = _IN_CATALOG.fullmatch(place)
    if match is None:
        return None
    if "." not in match[2]:
        raise ConfigError(
            f"{place!r} has no namespace: write {match[1]}:namespace.{match[2]} for a table of the "
            f"catalog {match[1]}, or ./{place} for a folder."
        )
    return match[1], match[2]


def table_at(
    place: str, format_: str | None, options: Mapping[str, str]
) -> tuple[Format, TableName]:
    """The format and the table of a place. Raises ConfigError if the format is not known."""
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
    path = absolute(place)
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
    """Raises ConfigError; `said`: the name of the option or flag, for the message."""
    try:
        return Format(name.casefold())
    except ValueError:
        raise ConfigError(f"{said} must be {' or '.join(Format)}, not {name!r}.") from None


def file_size(said: str, value: str) -> int:
    """Bytes of "128m". Raises ConfigError; `said`: the name of the option or flag."""
    match = _SIZE.fullmatch(value.strip().casefold())
    found = int(match[1]) * _UNITS[match[2]] if match else 0
    if found < _LEAST_SIZE:
        raise ConfigError(f"{said} must be a size of at least 64k, such as 128m, not {value!r}.")
    return found


def span(said: str, value: str) -> timedelta:
    """The time of "7d". Raises ConfigError; `said`: the name of the option or flag."""
    match = _SPAN.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(
            f"{said} must be hours, days or weeks, such as 12h, 7d or 2w, not {value!r}."
        )
    return timedelta(hours=min(int(match[1]) * _HOURS[match[2]], _CENTURY))
