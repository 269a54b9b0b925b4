"""Catalogs of PyIceberg's configuration, with the checks of `trust` in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import PY_CATALOG_IMPL, TYPE, URI, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from pyiceberg.utils.config import Config

from jetspark.tables.iceberg.storage import ConfinedFiles
from jetspark.tables.iceberg.trust import check_answer, check_metadata_location, check_table


def load_trusted(name: str, properties: Mapping[str, str]) -> Catalog:
    """A catalog of PyIceberg's configuration that is checked while it is used: PyIceberg would load
    code that a table, or the answer of a REST catalog, names; this one raises ConfigError instead.

    `properties`: the user's options, before those of the configuration. Raises ValueError if
    nothing configures this catalog.
    """
    own: dict[str, Any] = {**(Config().get_catalog_config(name) or {}), **properties}
    kind = str(own.get(TYPE) or "").casefold()
    # As in PyIceberg, a catalog without a type whose URI is of HTTP is a REST catalog.
    if PY_CATALOG_IMPL not in properties and (
        kind == CatalogType.REST.value or (not kind and str(own.get(URI, "")).startswith("http"))
    ):
        return _TrustedRest(name, **own)
    catalog = load_catalog(name, **properties)
    # PyIceberg has made the object, so only its class can be replaced by one with the checks.
    catalog.__class__ = _checking_class(type(catalog), own)
    return catalog


def _checking_class(kind: type[Catalog], own: Mapping[str, Any]) -> type[Catalog]:
    """A subclass of a catalog's class that checks the properties of each table that it loads.
    `own`: the properties that come from the user, which are trusted."""

    class Trusted(kind):  # type: ignore[misc,valid-type]
        """The catalog, whose tables may not name code, or how storage is reached."""

        def load_table(self, identifier: str | Identifier) -> Table:
            return _check_loaded_table(super().load_table(identifier), own)

        def _load_file_io(
            self, properties: Mapping[str, Any] | None = None, location: str | None = None
        ) -> FileIO:
            """The client of a table's storage. Raises ConfigError as `check_table`."""
            check_table(f"at {location}", properties or {}, own)
            io: FileIO = super()._load_file_io(properties or {}, location)
            return io

    return Trusted


class _TrustedRest(RestCatalog):
    """A REST catalog whose answers are checked before PyIceberg uses them: they could name code to
    load."""

    def __init__(self, name: str, **properties: Any) -> None:
        self._own = dict(properties)
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        super()._fetch_config()
        check_answer(f"The catalog {self.name}", self.properties, self._own)

    def _load_file_io(
        self, properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        """The client of a table's storage, for properties that the catalog answered. Raises
        ConfigError as `check_answer`."""
        check_answer(f"The catalog {self.name}", properties or {}, self._own)
        return super()._load_file_io(dict(properties or {}), location)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table, as RestCatalog does. Raises ConfigError as `check_table`."""
        table = super().load_table(identifier)
        # The catalog, unlike the table itself, may say how storage is reached: `table.config`.
        return _check_loaded_table(table, {**self.properties, **table.config})


def _check_loaded_table(table: Table, own: Mapping[str, Any]) -> Table:
    """The table that a catalog has loaded, with a client that opens only files below the table's
    location. Raises ConfigError as `check_table`, and for metadata in another place. `own`: the
    properties that the user, and the catalog, set."""
    name = ".".join(table.name())
    check_table(name, table.metadata.properties, own)
    check_metadata_location(name, table.location(), table.metadata_location)
    table.io = ConfinedFiles(table.io, table.location())
    return table
