"""While a query runs: updates the table's note with its checkpoint, and holds the claim.

Each query has a thread, which also releases the table when the query ends by itself.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError
from jetspark.spark.table_claim import Claim
from jetspark.spark.table_files import HadoopFiles
from jetspark.spark.table_note import FOLDER, Note, Notes
from jetspark.spark.table_rules import Wanted
from jetspark.spark.table_state import read_progress

logger = logging.getLogger("jetspark.spark")

_LOOK_SECONDS = 1
_STARTING_SECONDS = 0.2
_JOIN_SECONDS = 30.0


class Keeper:
    """Follows a query until it ends. `query` is set when it has started."""

    def __init__(
        self, files: HadoopFiles, place: str, wanted: Wanted, note: Note, claim: Claim
    ) -> None:
        self.query: StreamingQuery | None = None
        self.place = place
        self._files = files
        self._table = wanted.table
        self._notes = Notes(files, wanted.table)
        self._note = note
        self._checkpoint = wanted.checkpoint
        self._claim = claim
        self._ending = threading.Event()
        self._remember()
        self._thread = threading.Thread(target=self._keep, name="jetspark-table", daemon=True)
        _keepers.add(self)
        self._thread.start()

    @property
    def is_needed(self) -> bool:
        """Whether the query runs, or is about to."""
        return self.query is None or self.query.isActive

    def end(self) -> None:
        """Update the note a last time, and release the table."""
        self._ending.set()
        self._thread.join(_JOIN_SECONDS)

    def _keep(self) -> None:
        seen = None
        try:
            while not self._ended():
                self._claim.renew()
                report = None if self.query is None else self.query.lastProgress
                if report is not None and report["batchId"] != seen:
                    seen = report["batchId"]
                    self._remember()
            self._remember()
        except (PySparkException, Py4JError, OSError, ConfigError) as error:
            # The session may have ended with the query. Without the note a lost checkpoint cannot
            # be rebuilt; nothing else depends on it.
            logger.debug("The note of %s was not brought up to date: %s", self.place, error)
        finally:
            with suppress(PySparkException, Py4JError, OSError):
                self._claim.release()
            _keepers.discard(self)

    def _ended(self) -> bool:
        """Wait a moment; returns whether the query has ended."""
        if self.query is None:
            return self._ending.wait(_STARTING_SECONDS)
        with suppress(StreamingQueryException):  # reported to the caller that waits for the query
            return bool(self.query.awaitTermination(_LOOK_SECONDS)) or self._ending.is_set()
        return True

    def _remember(self) -> None:
        progress = read_progress(self._files, self._checkpoint)
        if progress is None or progress == self._note.progress:
            return
        if self._files.names(f"{self._table}/{FOLDER}") is not None:  # the table was not removed
            self._note = msgspec.structs.replace(self._note, progress=progress)
            self._notes.write(self._files, self._note)


_keepers: set[Keeper] = set()


def check_own(table: str, place: str) -> None:
    """Raises ConfigError if a query of this process writes the table. One that has just ended
    releases it."""
    for keeper in list(_keepers):
        if keeper.place == place:
            if keeper.is_needed:
                raise ConfigError(f"Another query of this process writes {table}: stop it first.")
            keeper.end()


def settle() -> None:
    """Update the notes and release the tables, before a session ends."""
    for keeper in list(_keepers):
        keeper.end()
