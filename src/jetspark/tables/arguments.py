"""What users write about a table: where it is, its format, sizes and times.

A table is in a folder, at a URI, or in a catalog: `catalog:namespace.table`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

from jetspark.errors import ConfigError, named, safe_repr
from jetspark.tables.formats import STORAGE, Format, format_of
from jetspark.tables.inside import is_misread
from jetspark.tables.table import TableName

_NAME = r"(?:[\w-]|\{[^{}]*\})+"  # with values of a row in a template of tables
_IN_CATALOG = re.compile(rf"(?!file:)(?P<catalog>[\w-]+):(?P<identifier>{_NAME}(?:\.{_NAME})*)")
_SIZE = re.compile(r"(\d{1,18})\s*([kmg]?)b?")
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_MIN_FILE_SIZE = 64 * 1024
_DURATION = re.compile(r"(\d{1,18})\s*([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_MAX_DURATION_HOURS = 100 * 365 * 24
"""Longest retention, in hours (a century): more than that keeps everything as well."""


def absolute_path(path: str) -> str:
    """The absolute path of a local folder, since Spark's driver and its workers may have different
    current folders. A URI of another storage stays as it is."""
    path = path.rstrip("/") or "/"
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else os.path.abspath(path)


def table_path(path: str) -> str:
    """The absolute path of a table's folder, or its URI. Raises ConfigError for a folder whose name
    the libraries of Delta and Iceberg, which make a URI of it, would take for another one."""
    resolved = absolute_path(path)
    if "://" not in resolved and (is_misread(resolved) or unquote(resolved) != resolved):
        raise ConfigError(
            f"The path {safe_repr(path)} of a table has #, ?, a backslash or a control character, "
            "or a % before two digits, which the libraries of Delta and Iceberg read as parts of a "
            "URI, or leave out: take a folder of another name."
        )
    return resolved


def parse_catalog_name(text: str) -> tuple[str, str] | None:
    """(catalog, namespace.table) of a text such as `prod:sales.orders`; None for a folder or a URI.
    Raises ConfigError for a table without a namespace."""
    match = _IN_CATALOG.fullmatch(text)
    if match is None:
        return None
    catalog, identifier = match["catalog"], match["identifier"]
    # A dot in braces is part of a value that names the table, and divides no namespace.
    if "." not in re.sub(r"\{[^{}]*\}", "", identifier):
        raise ConfigError(
            f"{text!r} has no namespace: write {catalog}:namespace.{identifier} for a table of the "
            f"catalog {catalog}, or ./{text} for a folder."
        )
    return catalog, identifier


def resolve_table(
    text: str, format_name: str | None, options: Mapping[str, str]
) -> tuple[Format, TableName]:
    """The format and the name of an existing table that a user names by a text. `format_name`:
    None: look into the folder for it; `options`: `storage.…` options for the formats' libraries.
    Raises ConfigError."""
    for option in options:
        if not option.startswith(STORAGE):
            raise ConfigError(f"Unknown option {option!r}; known: {STORAGE}… for the storage.")
    properties = {option.removeprefix(STORAGE): value for option, value in options.items()}
    if not text.strip():
        raise ConfigError(
            "The name of the table is empty: give a folder, a URI or catalog:namespace.table."
        )
    if (catalog_name := parse_catalog_name(text)) is not None:
        catalog, identifier = catalog_name
        return Format.ICEBERG, TableName(
            catalog=catalog, identifier=identifier, properties=properties
        )
    name = TableName(path=table_path(text), properties=properties)
    if format_name is not None:
        return parse_format("--format", format_name), name
    if "://" in str(name):
        raise ConfigError(f"{text}: name the {named('format')}, such as delta.")
    if (detected := format_of(Path(str(name)))) is None:
        raise ConfigError(f"There is no Delta or Iceberg table at {text!r}.")
    return detected, name


def parse_format(option: str, name: str) -> Format:
    """The table format that a user names. Raises ConfigError; `option`: the name of the option or
    flag that has this value, for the error."""
    try:
        return Format(name.casefold())
    except ValueError:
        raise ConfigError(f"{option} must be {' or '.join(Format)}, not {name!r}.") from None


def parse_file_size(option: str, value: str) -> int:
    """The number of bytes in a text such as "128m". Raises ConfigError; `option`: the name of the
    option or flag that has this value, for the error."""
    match = _SIZE.fullmatch(value.strip().casefold())
    size = int(match[1]) * _BYTES[match[2]] if match else 0  # 0: too small, so refused below
    if size < _MIN_FILE_SIZE:
        raise ConfigError(f"{option} must be a size of at least 64k, such as 128m, not {value!r}.")
    return size


def parse_duration(option: str, value: str) -> timedelta:
    """The duration in a text such as "7d", at most a century, since a timedelta has an end. Raises
    ConfigError; `option`: the name of the option or flag that has this value, for the error."""
    match = _DURATION.fullmatch(value.strip().casefold())
    if match is None:
        raise ConfigError(
            f"{option} must be hours, days or weeks, such as 12h, 7d or 2w, not {value!r}."
        )
    return timedelta(hours=min(int(match[1]) * _HOURS[match[2]], _MAX_DURATION_HOURS))
