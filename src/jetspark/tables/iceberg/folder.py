"""Iceberg tables in a folder, without a catalog service.

The folder is the table: `metadata/v7.metadata.json` is its seventh version, and
`metadata/version-hint.text` has that number. That is the layout of the Iceberg specification
("File System Tables"), which Spark and DuckDB read. A commit creates the file of the next version
and fails if the file exists, so the folder must be on a local or mounted file system.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from jetspark.errors import ConfigError
from jetspark.tables.iceberg.storage import ConfinedFiles, confined_files
from jetspark.tables.iceberg.trust import check_table
from jetspark.tables.inside import check_path, local_folder_of
from jetspark.tables.table import TableName

_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_HINT = "version-hint.text"
_MAX_VERSION_DIGITS = 18
"""Digits of a version that are read."""
IDENTIFIER = ("folder", "table")
"""The name of the only table."""


def local_folder(uri: str) -> Path:
    """The local folder of an Iceberg table without a catalog, given as a path or a file: URI.
    Raises ConfigError for a URI of another storage, where such a table cannot be."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"An Iceberg table at {uri} needs a catalog, which decides between concurrent commits: "
            "write catalog:namespace.table, or the options catalog and table."
        )
    return Path(unquote(parts.path) if parts.scheme else uri).absolute()


class FolderCatalog(MetastoreCatalog, NoopCatalog):
    """A catalog of PyIceberg for one table, which is in a local folder: the file of each version of
    its metadata has the version's number, and whoever creates the next file has committed."""

    def __init__(self, folder: Path, **properties: str) -> None:
        """Take a folder, which may have no table yet. `properties`: PyIceberg's, for the
        storage."""
        super().__init__("folder", **properties)
        self._folder = folder
        self._metadata = folder / "metadata"

    @property
    def location(self) -> str:
        """The table's location as a URI."""
        # Not percent-encoded: the library uses the part after the scheme unchanged.
        return f"file://{self._folder}"

    def load_table(self, identifier: str | Identifier) -> Table:
        """The folder's table at its newest version. Raises NoSuchTableError if there is none, and
        ConfigError for metadata that names another folder, or properties that are refused."""
        check_path(self.location, "metadata")
        version = self._newest_version()
        if version is None:
            self._check_no_other_metadata()
            raise NoSuchTableError(f"There is no Iceberg table in {self._folder}.")
        metadata_file = f"{self.location}/metadata/v{version}.metadata.json"
        files = confined_files(self.properties, self.location)
        metadata = FromInputFile.table_metadata(files.new_input(metadata_file))
        if not self._is_at(metadata.location):
            raise ConfigError(
                f"{self._folder} was moved or copied from {metadata.location}, which an Iceberg "
                "table cannot be: its metadata names the files there. Move it back, or write its "
                "rows to a new table."
            )
        check_table(f"in {self._folder}", metadata.properties, self.properties)
        return Table(
            identifier=IDENTIFIER,
            metadata=metadata,
            metadata_location=metadata_file,
            io=ConfinedFiles(files.files, metadata.location),
            catalog=self,
        )

    def _is_at(self, location: str) -> bool:
        """Whether a location, as a table's metadata names it, is this folder; not if it leads out
        of the folder and back through a link in it."""
        folder, named = self._folder.resolve(), local_folder_of(location)
        return (
            named is not None
            and named.resolve() == folder
            and all(parent.resolve() != folder for parent in named.parents)
        )

    def _check_no_other_metadata(self) -> None:
        """Raise ConfigError if the folder, in which no version was found, has metadata all the
        same: of a table in a catalog, or compressed."""
        if (file := next(self._metadata.glob("*.metadata.json*"), None)) is None:
            return
        problem = f"{self._folder} has an Iceberg table whose metadata is {file.name}: "
        if file.name.startswith("v") and ".gz" in file.suffixes:
            raise ConfigError(
                f"{problem}compressed metadata is not supported; set its property "
                "write.metadata.compression-codec to none, and change the table once."
            )
        raise ConfigError(
            f"{problem}it belongs to a catalog, which alone knows its newest version. Name the "
            "table as the catalog has it: catalog:namespace.table, or in Spark the options catalog "
            "and table."
        )

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Write the table's next version, or its first one. Raises CommitFailedException if another
        commit came first."""
        before: Table | None = None
        with suppress(NoSuchTableError):
            before = self.load_table(IDENTIFIER)
        # PyIceberg checks the requirements here, and raises CommitFailedException.
        after = self._update_and_stage_table(before, IDENTIFIER, requirements, updates).metadata
        version = 1 if before is None else _version(Path(before.metadata_location).name) + 1
        metadata_file = f"{self.location}/metadata/v{version}.metadata.json"
        self._create_version_file(after, version)
        self._write_hint(version)
        return CommitTableResponse.model_validate(
            {"metadata": after, "metadata-location": metadata_file}
        )

    def _create_version_file(self, metadata: Any, version: int) -> None:
        """Write the metadata of a version, which appears complete or not at all. Raises
        CommitFailedException if its file exists, since another commit came first."""
        self._metadata.mkdir(parents=True, exist_ok=True)
        temporary = self._metadata / f".v{version}-{secrets.token_hex(8)}.tmp"
        target = self._metadata / f"v{version}.metadata.json"
        check_path(self.location, f"metadata/{target.name}")  # not even a link that leads nowhere
        try:
            uri = f"file://{temporary}"
            io = load_file_io(self.properties, uri)
            ToOutputFile.table_metadata(metadata, io.new_output(uri))
            os.link(temporary, target)  # fails if the target exists, unlike a rename
        except FileExistsError:
            raise CommitFailedException(f"Version {version} is there already.") from None
        finally:
            temporary.unlink(missing_ok=True)

    def repair_version_hint(self) -> None:
        """Write the newest version into `version-hint.text`, by which readers find it, if a writer
        was killed between its commit and that."""
        newest = self._newest_version()
        if newest is not None and self._hinted_version() != newest:
            self._write_hint(newest)

    def _write_hint(self, version: int) -> None:
        """Write the newest version into `version-hint.text`. Writers may overtake each other, so
        each one writes again until no newer version exists."""
        hinted = 0
        while hinted < version:
            temporary = self._metadata / f".{_HINT}-{secrets.token_hex(8)}"
            temporary.write_text(str(version), "utf-8")
            temporary.replace(self._metadata / _HINT)
            hinted, version = version, self._newest_version() or version

    def _newest_version(self) -> int | None:
        """The number of the table's newest version; None if there is none. The hint may be older,
        or missing, if a writer was killed during a commit: so the versions after it are looked
        for."""
        version = self._hinted_version()
        if not (self._metadata / f"v{version}.metadata.json").exists():
            names = os.listdir(self._metadata) if self._metadata.is_dir() else []
            version = max(map(_version, names), default=0)
        while (self._metadata / f"v{version + 1}.metadata.json").exists():
            version += 1
        return version or None

    def _hinted_version(self) -> int:
        """The version that `version-hint.text` names; 0 if it is missing or names none."""
        check_path(self.location, f"metadata/{_HINT}")
        with suppress(OSError, ValueError), (self._metadata / _HINT).open("rb") as hint:
            return int(hint.read(_MAX_VERSION_DIGITS).decode())
        return 0


def _version(name: str) -> int:
    """The version in the name of a metadata file; 0 for another file."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else 0


def catalog_of(name: TableName) -> tuple[Catalog, tuple[str, ...], str | None]:
    """(catalog, the table's name in it, location for a new table) of an Iceberg table. The location
    is None if the catalog decides it. Raises ConfigError for a catalog without a configuration."""
    if name.path is not None:
        folder = FolderCatalog(local_folder(name.path), **name.properties)
        return folder, IDENTIFIER, folder.location
    from jetspark.tables.iceberg.catalogs import load_trusted  # not for tables in folders

    assert name.catalog is not None  # noqa: S101
    try:
        catalog = load_trusted(name.catalog, name.properties)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(
            f"PyIceberg has no configuration of a catalog {name.catalog!r}: describe it in "
            "~/.pyiceberg.yaml, or give its options (storage.uri, storage.type, …)."
        ) from error
    return catalog, tuple(str(name.identifier).split(".")), None
