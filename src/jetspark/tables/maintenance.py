"""Compaction of small files into large ones, and removal of files that no version needs.

It only removes files that are proven to be the table's: an older version of it referred to them, or
a writer of ours gave them their name and no version has them. Other programs write files of other
kinds (deletion vectors, statistics), and other tables may lie in the folder: those are reported.

Both may run while a query writes: a compaction replaces files by files of the same rows, in one
commit, which does not conflict with commits that only add; and files younger than the retention
stay, since a batch may be about to commit them.

A query that follows a stream merges its own small files between two batches: every so many commits
to a table it compacts it. This gives way to every other commit, and leaves large work, and tables
that others compact, to these. Most compactions make files of a part of the full size, and only some
make full ones from those, so that a row is not rewritten each time.
"""

from __future__ import annotations

import logging
import random
import re
import time
import zlib
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from jetspark.errors import CommitConflict, ConfigError, TableError
from jetspark.tables.inside import is_plain_path, paths_behind_links
from jetspark.tables.new_files import Storage, has_written_name
from jetspark.tables.table import Table, Vacuum

logger = logging.getLogger("jetspark.tables")

MIN_RETENTION = timedelta(hours=1)
"""Minimum age of removed files, since a batch may be about to commit younger ones."""
_TABLE_METADATA = re.compile(
    r"(.+?/)(?:_delta_log/.*|metadata/(?:version-hint\.text|[^/]*\.metadata\.json[^/]*))"
)
"""Path of a file that shows that its folder, the first group, is a table's."""
_COMPACTIONS_PER_FULL_SIZE = 16
"""Every so many compactions one makes files of the full size; the others make files of this
fraction of it."""
_MAX_BYTES = 1024 * 1024 * 1024
"""Bytes that are rewritten between two batches at most, in each table."""
_MAX_SECONDS = 10.0
"""No compaction begins later than this after the first one: a batch may have many tables."""
_T = TypeVar("_T")


# -- vacuum ---------------------------------------------------------------------------------------


def check_retention(retention: timedelta) -> None:
    """Raise ConfigError for a retention, the age below which a vacuum removes no file, that is so
    short that it endangers files of batches in progress."""
    if retention < MIN_RETENTION:
        raise ConfigError(
            "Files younger than an hour may belong to a batch that is about to be committed: keep "
            "at least 1h."
        )


def prove_removable(
    location: str, unneeded: Iterable[str], expired: Container[str], all_paths: Iterable[str]
) -> Vacuum:
    """Divide the files that no version of a table needs into those that are proven to be its own,
    which a vacuum may remove, and others; leaves out what is reached through a link.

    A file is proven if an older version referred to it (`expired`), or if its name is one that
    jetspark gives. In the folder of another table, which `all_paths` (all files) show, none is.
    """
    plain = {path for path in unneeded if is_plain_path(path)}
    plain -= paths_behind_links(location, plain)
    other_tables = {
        match[1]
        for path in (*plain, *all_paths)
        if (match := _TABLE_METADATA.fullmatch(path)) is not None
    }
    removed: list[str] = []
    unproven: set[str] = set()
    for path in plain:
        other_table = next((folder for folder in other_tables if path.startswith(folder)), None)
        if other_table is not None:
            unproven.add(other_table)  # one entry for all of its files
        elif path in expired or has_written_name(path):
            removed.append(path)
        else:
            unproven.add(path)
    return Vacuum(removed=sorted(removed), unproven=sorted(unproven))


def remove_files(storage: Storage, paths: Sequence[str]) -> None:
    """Remove files below a table's location, several at a time, since an object store takes long
    for each. Files that do not exist are passed over."""

    def remove(path: str) -> None:
        """Remove a file, if it is still there."""
        with suppress(FileNotFoundError):  # another vacuum was faster
            storage.remove(path)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(remove, paths))  # the list raises an error of any of them


# -- compaction -----------------------------------------------------------------------------------


def group_small_files(
    files: Iterable[_T], size: Callable[[_T], int], target_bytes: int
) -> list[list[_T]]:
    """Group small files, in order, for a compaction that makes one file of each group: a group has
    at most the target size, and at least two files. Files of three quarters of that size or more
    are large enough, and left out."""
    groups: list[list[_T]] = [[]]
    group_bytes = 0
    for file in files:
        if size(file) >= target_bytes * 3 // 4:
            continue
        if groups[-1] and group_bytes + size(file) > target_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(file)
        group_bytes += size(file)
    return [group for group in groups if len(group) > 1]


def due_file_size(table: Table, every: int, full: int) -> int | None:
    """The size, in bytes, of the files that a compaction of a table should make now; None if no
    compaction is due.

    One is due after each `every` commits. `full`: the size of the files that the table should have
    in the end; most compactions make smaller ones, so that a row is not rewritten each time.
    """
    # A checksum of the name spreads the compactions of several tables over different commits.
    compactions, commits_since = divmod(table.commits + zlib.crc32(str(table.name).encode()), every)
    if commits_since:
        return None
    if compactions % _COMPACTIONS_PER_FULL_SIZE == 0:
        return full
    return full // _COMPACTIONS_PER_FULL_SIZE


def merge_small_files(due: Sequence[tuple[Table, int]]) -> None:
    """Compact tables, each to its target size in bytes, as far as time allows. They are taken in
    random order, so that each one has its turn at some time. Raises TableError if a compaction may
    have repeated rows."""
    deadline = time.monotonic() + _MAX_SECONDS
    for table, target_bytes in random.sample(due, len(due)):
        if time.monotonic() < deadline:
            _compact_if_small(table, target_bytes)


def _compact_if_small(table: Table, target_bytes: int) -> None:
    """Compact a table, unless there is nothing to do or too much between two batches. Errors are
    logged, since the query does not need it; only TableError is raised: rows may be repeated."""
    try:
        table.refresh()
        if 0 < table.bytes_to_merge(target_bytes) <= _MAX_BYTES:
            table.compact(target_bytes)
    except (CommitConflict, ConfigError) as error:  # another writer commits, or cannot be compacted
        logger.info("Not compacted: %s", error)
    except TableError:
        raise
    except Exception:  # of the storage, of too many kinds to name them; tried again when next due
        logger.warning("%s was not compacted", table.name, exc_info=True)
