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
    """How far the query's checkpoint was."""

    batch: int
    """The last batch that the checkpoint counts as done."""
    offsets: dict[int, str] = {}
    """Spark's offsets of this batch and the one before, word for word. Empty for a query with
    more than offsets in its checkpoint (state, other sources), which cannot be made again."""
    commit: str = ""
    """Spark's note that the batch is done, word for word."""


class Note(msgspec.Struct, frozen=True):
    """Whose table it is."""

    query: str
    """Spark's id of the query, which stands in its checkpoint too."""
    streams: list[str]
    """What it reads, a text for each source."""
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
        """The note that counts. Raises ConfigError for one of a later version."""
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
        """From now on this one counts."""
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
