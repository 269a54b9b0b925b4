"""The files of an Iceberg table, through PyIceberg's clients of storage, and no others.

PyIceberg opens whatever a table's metadata, its lists of manifests and its manifests name. Here
each name is judged when its file is opened, so no use of one is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io

from jetspark.tables import inside, new_files


class ConfinedFiles(FileIO):
    """A client of the storage, for PyIceberg, that reads, writes and removes only files below a
    table's location. Raises ConfigError for others, which metadata may name."""

    def __init__(self, files: FileIO, location: str) -> None:
        """Confine PyIceberg's client `files` to a table's location."""
        super().__init__(files.properties)
        self.files = files
        """PyIceberg's own client, without the check."""
        self.location = location

    def new_input(self, location: str) -> InputFile:
        inside.check_files(self.location, [location])
        return self.files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        inside.check_files(self.location, [location])
        return self.files.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file below the location. A local one may be behind no link, which is checked
        while it is removed."""
        name = location if isinstance(location, str) else location.location
        if (path := inside.relative_path(self.location, name)) is None:
            raise inside.file_outside_table(self.location, name)
        if not inside.remove_local_file(self.location, path):
            self.files.delete(name)


def confined_files(properties: Mapping[str, str], location: str) -> ConfinedFiles:
    """A client of the storage that reads, writes and removes only files below a table's location.
    `properties`: how the storage is reached."""
    return ConfinedFiles(load_file_io(dict(properties), location), location)


@dataclass(frozen=True)
class IcebergStorage(new_files.Storage):
    """The files below an Iceberg table's location, written, read and removed through PyIceberg's
    clients of the storage. Raises ConfigError for a path that leaves the location."""

    location: str
    properties: Mapping[str, str] = field(repr=False)

    def create(self, path: str) -> Any:
        return self._files().new_output(f"{self.location}/{path}").create()

    def open(self, path: str) -> Any:
        return self._files().new_input(f"{self.location}/{path}").open()

    def remove(self, path: str) -> None:
        self._files().delete(f"{self.location}/{path}")

    def _files(self) -> ConfinedFiles:
        """The table's files, through a new client."""
        return confined_files(self.properties, self.location)
