"""Small files of a query that follows a stream: merged by the query itself, between two batches.

Now and then a commit is followed by a compaction (`Table.compact`), a commit of its own. It
gives way to every other one, and leaves large work, and tables that others compact, to these. Most
times it makes files of a part of their full size, and only sometimes full ones from those: so a row
is not written anew each time.
"""

from __future__ import annotations

import logging
import random
import time
import zlib
from collections.abc import Sequence

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.tables.table import Table

logger = logging.getLogger("jetspark.tables")

_FULL_SIZE_TURNS = 16
"""Turns until a compaction makes files of the full size; the others make files of this part of
it."""
_MAX_BYTES = 1024 * 1024 * 1024
"""Bytes that are rewritten between two batches at most, in each table."""
_MAX_SECONDS = 10.0
"""No compaction begins later than this after the first one: a batch may have many tables."""


def due_file_size(table: Table, every: int, full: int) -> int | None:
    """Target size of a compaction after a commit on top of this version; None if none is due.

    Every so many commits it is due, at different ones for different tables.
    """
    turn, left = divmod(table.commits + zlib.crc32(str(table.name).encode()), every)
    if left:
        return None
    return full if turn % _FULL_SIZE_TURNS == 0 else full // _FULL_SIZE_TURNS


def merge_small_files(due: Sequence[tuple[Table, int]]) -> None:
    """Compact tables, to these sizes, as far as time allows. Raises TableError for a compaction of
    which it is not known whether it is right."""
    until = time.monotonic() + _MAX_SECONDS
    for table, size in random.sample(due, len(due)):
        if time.monotonic() < until:
            _compact_small_files(table, size)


def _compact_small_files(table: Table, size: int) -> None:
    try:
        table.refresh()
        if 0 < table.bytes_to_merge(size) <= _MAX_BYTES:
            table.compact(size)
    except (CommitConflict, ConfigError) as error:  # another's turn, or it is only written
        logger.info("Not compacted: %s", error)
    except TableError:
        raise
    except Exception:  # of the storage, of too many kinds to name them; the next turn tries again
        logger.warning("%s was not compacted", table.name, exc_info=True)
