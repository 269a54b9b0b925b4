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
from jetspark.lakehouse.table import Table

logger = logging.getLogger("jetspark.lakehouse")

_PART = 16
"""The part of the full size, and how often it is the full one."""
_MOST_BYTES = 1024 * 1024 * 1024
"""What is written anew between two batches at most, in each table."""
_SECONDS = 10.0
"""No compaction begins later than this after the first one: a batch may have many tables."""


def size_due(table: Table, every: int, full: int) -> int | None:
    """The size of the files to make after a commit on top of this version; None if it is not due.

    Every so many commits it is due, at different ones for different tables.
    """
    turn, left = divmod(table.commits + zlib.crc32(str(table.name).encode()), every)
    if left:
        return None
    return full if turn % _PART == 0 else full // _PART


def merge_small_files(due: Sequence[tuple[Table, int]]) -> None:
    """Compact tables, to these sizes, as far as time allows. Raises TableError for a compaction of
    which it is not known whether it is right."""
    until = time.monotonic() + _SECONDS
    for table, size in random.sample(due, len(due)):
        if time.monotonic() < until:
            _merge(table, size)


def _merge(table: Table, size: int) -> None:
    try:
        table.refresh()
        if 0 < table.bytes_to_merge(size) <= _MOST_BYTES:
            table.compact(size)
    except (CommitConflict, ConfigError) as error:  # another's turn, or it is only written
        logger.info("Not compacted: %s", error)
    except TableError:
        raise
    except Exception:  # of the storage, of too many kinds to name them; the next turn tries again
        logger.warning("%s was not compacted", table.name, exc_info=True)
