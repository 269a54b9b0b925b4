"""The note in a table's folder about the query that writes it: `<table>/_jetspark/note-….json`.

Spark's file sink only knows batch numbers. It skips a number that the table has, whichever query
wrote it, so a table and a checkpoint that do not belong together silently lose rows. The note has
the query, its streams and its columns, and the last entries of the query's checkpoint, from which a
lost checkpoint can be rebuilt exactly.

The newest note counts. Each is a new file, created atomically, so a kill leaves the previous one.
"""

from __future__ import annotations

import re

import msgspec

from jetspark.errors import ConfigError
from jetspark.spark.table_files import Files, HadoopFiles

FOLDER = "_jetspark"
"""Spark and others ignore names that begin with an underscore."""

_VERSION = 1
_NAME = re.compile(r"note-(\d+)\.json")


class Progress(msgspec.Struct, frozen=True):
    """The position of the query's checkpoint."""

    batch: int
    """The last batch that is committed in the checkpoint."""
    offsets: dict[int, str] = {}
    """Exact copies of Spark's offsets of this batch and the one before. Empty for a query with
    more than offsets in its checkpoint (state, other sources), which cannot be rebuilt."""
    commit: str = ""
    """Exact copy of Spark's commit of the batch."""


class Note(msgspec.Struct, frozen=True):
    """The query that the table belongs to."""

    query: str
    """Spark's id of the query, which is also in its checkpoint."""
    streams: list[str]
    """Its streams, one string for each source."""
    format: str
    columns: list[tuple[str, str]]
    partition_by: list[str]
    progress: Progress | None = None
    version: int = _VERSION


class Notes:
    """The notes of one table."""

    def __init__(self, files: Files, table: str) -> None:
        self._files = files
        self._folder = f"{table}/{FOLDER}"
        self._number = -1

    def newest(self) -> Note | None:
        """The valid note. Raises ConfigError for one of a later version."""
        for number in sorted(self._numbers(), reverse=True):
            text = self._files.read(self._path(number))
            try:
                note = msgspec.json.decode(text or "", type=Note, strict=False)
            except msgspec.DecodeError:
                continue
            if note.version != _VERSION:
                raise ConfigError(
                    f"{self._path(number)} was written by a later jetspark: use that version."
                )
            self._number = max(self._number, number)
            return note
        return None

    def write(self, files: HadoopFiles, note: Note) -> None:
        """Write a note, which replaces the previous one."""
        numbers = self._numbers()
        self._number = max([self._number, *numbers]) + 1
        files.write(self._path(self._number), msgspec.json.encode(note).decode())
        for number in numbers:
            files.remove(self._path(number))

    def _path(self, number: int) -> str:
        return f"{self._folder}/note-{number:06}.json"

    def _numbers(self) -> list[int]:
        found = map(_NAME.fullmatch, self._files.names(self._folder) or ())
        return [int(match[1]) for match in found if match]
