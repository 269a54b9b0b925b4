"""The files of an Iceberg table, through PyIceberg's clients of storage, and no others.

PyIceberg opens whatever a table's metadata, its lists of manifests and its manifests name. Here
each name is judged when its file is opened, so no use of one is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io

from jetspark.lakehouse.inside import (
    check_files,
    file_outside_table,
    relative_path,
    remove_local_file,
)


class ConfinedFiles(FileIO):
    """Reads, writes and removes files below a location. Raises ConfigError for others."""

    def __init__(self, files: FileIO, location: str) -> None:
        super().__init__(files.properties)
        self.files = files
        """Those of all of the storage."""
        self.location = location

    def new_input(self, location: str) -> InputFile:
        """A file to be read."""
        check_files(self.location, [location])
        return self.files.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to be written."""
        check_files(self.location, [location])
        return self.files.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file."""
        name = location if isinstance(location, str) else location.location
        if (path := relative_path(self.location, name)) is None:
            raise file_outside_table(self.location, name)
        if not remove_local_file(self.location, path):
            self.files.delete(name)


def confined_files(properties: Mapping[str, str], location: str) -> ConfinedFiles:
    """The files below a location, reached as the properties say."""
    return ConfinedFiles(load_file_io(dict(properties), location), location)
