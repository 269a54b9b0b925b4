"""Checks what Iceberg tables and REST catalogs may not decide: code, and how storage is reached.

PyIceberg imports and calls classes that properties name, and takes these properties from the user's
configuration, from a REST catalog's answers, and from the table's metadata alike. Whoever may write
a table would run code with the rights of everybody who opens it, or send their tokens to another
host. Here only the user's own configuration is trusted with that:

| property | from the user | from a REST catalog | from a table |
|---|---|---|---|
| code (`CODE_PROPERTIES`) | yes | refused, but for PyIceberg's own classes for files | refused |
| storage and its credentials (`s3.…`, `gcs.…`, …) | yes | yes | refused |

What a table says as the user says it is no harm, and is not refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.catalog import PY_CATALOG_IMPL, URI
from pyiceberg.io import ARROW_FILE_IO, FSSPEC_FILE_IO, PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL
from pyiceberg.table import TableProperties

from jetspark.errors import ConfigError, safe_repr
from jetspark.tables.inside import files_inside

CODE_PROPERTIES: Final = frozenset(
    {
        PY_IO_IMPL,
        PY_CATALOG_IMPL,
        S3_RETRY_STRATEGY_IMPL,
        "auth",  # with the class of an AuthManager in it
        TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL,
    }
)
"""Properties by which PyIceberg imports something."""
_OWN_CLASSES: Final = frozenset({ARROW_FILE_IO, FSSPEC_FILE_IO})
"""PyIceberg's classes for files, which some catalogs ask for."""
METADATA_FILE: Final = re.compile(r"metadata/[^/]+\.metadata\.json(?:\.gz)?")
"""A version of a table's metadata, below its location."""
_STORAGE_PREFIXES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "oss.", "py-")
_SERVICE_PROPERTIES: Final = frozenset(
    {URI, "token", "credential", "oauth2-server-uri", "ssl", "warehouse"}
)


def check_table(table: str, properties: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ConfigError for properties in an Iceberg table's metadata that name code to load, or
    how storage is reached: whoever may write the table could run code at its readers.

    `own`: the properties that the user, or the catalog, sets; the same value in the table is no
    harm.
    """
    for name, value in properties.items():
        if own.get(name) == value:
            continue
        if name in CODE_PROPERTIES or name.startswith("py-"):
            raise _names_code(f"The table {table}", name, value)
        if name.startswith(_STORAGE_PREFIXES) or name in _SERVICE_PROPERTIES:
            raise ConfigError(
                f"The table {table} has the property {name}, which says how storage is reached. "
                "jetspark takes that from your configuration of the catalog only: set it there, or "
                "remove it from the table."
            )


def check_metadata_location(table: str, location: str, metadata_file: str) -> None:
    """Raise ConfigError unless a table's metadata file is in the folder `metadata` of the location
    that it names for the table.

    Metadata may name any location. Without this check that could be the folder of another table,
    or of all, whose files jetspark would then write and remove.
    """
    path = files_inside(location, [metadata_file]).get(metadata_file, "")
    if METADATA_FILE.fullmatch(path) is None:
        raise ConfigError(
            f"The metadata of the table {table} is not in the folder metadata of its location "
            f"{location} ({safe_repr(metadata_file)}), so the files there may belong to another "
            "table. jetspark reads, writes and removes only a table's own files: copy the rows "
            "into a table of their own with another program."
        )


def check_answer(catalog: str, properties: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ConfigError for properties that a REST catalog answers and that name code to load,
    except PyIceberg's own classes for files.

    `own`: the properties that the user sets; the same value in an answer is no harm.
    """
    for name in CODE_PROPERTIES & properties.keys():
        value = properties[name]
        if own.get(name) != value and not (name == PY_IO_IMPL and value in _OWN_CLASSES):
            raise _names_code(catalog, name, value)


def _names_code(source: str, name: str, value: Any) -> ConfigError:
    """The error for a property that names code to load. `source`: the table or catalog that has it,
    as the beginning of a sentence."""
    return ConfigError(
        f"{source} names code to load ({name}: {safe_repr(str(value))}). jetspark loads no code "
        "that a table or a catalog names: remove the property there, or set it in your own "
        "configuration of the catalog if you trust it."
    )
