"""Compaction of Delta tables beside other programs, and the files that no version needs.

deltalake (1.6) lets two compactions of the same files both commit, and an overwrite beside a
compaction, which duplicates each row. It does detect conflicts between transaction versions, so one
of these says until when a rewriter *claims* the table. The claim is renewed during the work, and
expires after a kill.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from jetspark.errors import CommitConflict, TableError
from jetspark.tables.maintenance import group_small_files
from jetspark.tables.table import Table

REWRITE_CLAIM = "jetspark.rewriting"
"""Transaction version with the end of the claim, in seconds since 1970; 0: nobody has it."""
CLAIM_SECONDS = 180
_RENEW_INTERVAL_SECONDS = 60.0
COMPACTION_MARK = "jetspark"
"""Key in a commit's metadata that marks jetspark's own compactions."""
_MAX_COMMITS_SEARCHED = 200
"""Newest commits that are searched for compactions of other programs."""


# -- claims ---------------------------------------------------------------------------------------


@contextmanager
def claim_table(table: Table, renewing_table: Table) -> Iterator[None]:
    """Keep other compactions and overwrites from the table while the block runs: a transaction
    version says until when this program claims the table, and a thread renews the claim.
    `renewing_table`: the same table, opened a second time for that thread.

    Raises CommitConflict if another program claims the table, and TableError if the claim was lost
    on the way.
    """
    table.refresh()
    claimed_until = table.txn_version(REWRITE_CLAIM) or 0
    if claimed_until > time.time():
        moment = datetime.fromtimestamp(claimed_until, UTC)
        raise CommitConflict(
            f"{table.name} is being compacted or overwritten by another program; if that was "
            f"killed, try again after {moment:%H:%M:%S} UTC."
        )
    renewal = _ClaimRenewal(renewing_table)
    # Of two programs that claim it at once, one gets a CommitConflict here.
    table.append((), {REWRITE_CLAIM: renewal.until})
    table.refresh()
    renewal.start()
    try:
        yield
    finally:
        renewal.end()
        table.refresh()
        if table.txn_version(REWRITE_CLAIM) != renewal.until:  # somebody else has set it
            raise TableError(
                f"{table.name}: this took longer than its claim on the table, which another "
                "program has taken: compare the number of rows before and after."
            )
        table.append((), {REWRITE_CLAIM: 0})  # the table is free again
        table.refresh()


class _ClaimRenewal(threading.Thread):
    """Thread that renews a claim on a table, which would expire during long work, until it is told
    to end, or another program has taken the claim."""

    def __init__(self, table: Table) -> None:
        """Prepare to renew the claim; `table` is used by this thread only."""
        super().__init__(daemon=True)
        self._table = table
        self._ending = threading.Event()
        self.until = int(time.time()) + CLAIM_SECONDS
        """End of the claim that was last committed."""

    def run(self) -> None:
        """Renew the claim now and then; returns when it is lost, which `claim_table` notices by
        `until`."""
        while not self._ending.wait(_RENEW_INTERVAL_SECONDS):
            until = int(time.time()) + CLAIM_SECONDS
            try:
                self._table.refresh()
                if self._table.txn_version(REWRITE_CLAIM) != self.until:
                    return
                self._table.append((), {REWRITE_CLAIM: until})
            except CommitConflict:
                return
            self.until = until

    def end(self) -> None:
        """Stop renewing, and wait for a renewal in progress."""
        self._ending.set()
        self.join()


# -- compaction -----------------------------------------------------------------------------------


class LoggedFile(NamedTuple):
    """A data file that the log names in the table's version."""

    path: str
    bytes: int
    partition: tuple[Any, ...]
    """Values of the table's partition columns."""


def bytes_to_merge(table: DeltaTable, target_bytes: int) -> int:
    """Bytes of the small files that a compaction to this target size would rewrite; 0 if another
    program has compacted the table lately, to which the work is left then."""
    if any(
        commit.get("operation") == "OPTIMIZE" and COMPACTION_MARK not in commit
        for commit in table.history(limit=_MAX_COMMITS_SEARCHED)
    ):
        return 0
    names, files = table.metadata().partition_columns, list_files(table)
    excluded = uncompactable_values(names, files)
    sizes_by_partition: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for file in files:
        # The filter that leaves out some values of a column leaves out null, too.
        if not any(
            name in excluded and (value is None or value in excluded[name])
            for name, value in zip(names, file.partition, strict=True)
        ):
            sizes_by_partition[file.partition].append(file.bytes)
    return sum(
        sum(group)
        for sizes in sizes_by_partition.values()
        for group in group_small_files(sizes, int, target_bytes)
    )


def uncompactable_values(
    partition_columns: Sequence[str], files: Iterable[LoggedFile]
) -> dict[str, list[str]]:
    """Partition values, by column, that a compaction of these files has to leave out, since
    deltalake does not find their files: it writes a ~ into their paths as it is, and looks for it
    as %7E. `files`: all of the table's."""
    values_by_column: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if "~" in file.path:
            for name, value in zip(partition_columns, file.partition, strict=True):
                if isinstance(value, str) and "~" in value:
                    values_by_column[name].add(value)
    return {name: sorted(values) for name, values in values_by_column.items()}


def list_files(table: DeltaTable) -> list[LoggedFile]:
    """The data files that the log names in the table's version, with the values of their
    partition."""
    files = pa.table(table.get_add_actions(flatten=True))
    if not files.num_rows:
        return []
    partitions = [f"partition.{name}" for name in table.metadata().partition_columns]
    columns = [files[name].to_pylist() for name in ("path", "size_bytes", *partitions)]
    return [
        LoggedFile(path, size, tuple(values)) for path, size, *values in zip(*columns, strict=True)
    ]


def check_compacted_once(name: object, table: DeltaTable, before: int) -> None:
    """Raise TableError if a table was compacted twice since the version `before`: deltalake lets
    two compactions of the same files both commit, which repeats each row. `name`: the table's."""
    commits_since = table.history(limit=max(table.version() - before, 1))
    compacted = [
        commit["version"]
        for commit in commits_since
        if commit["version"] > before and commit.get("operation") == "OPTIMIZE"
    ]
    if len(compacted) > 1:
        raise TableError(
            f"{name} was compacted by another program at the same moment, so its rows may "
            f"be there twice: compare their number with version {before}, and if they are, "
            f"restore version {min(compacted)} with DeltaTable.restore."
        )


# -- vacuum ---------------------------------------------------------------------------------------


def list_unneeded(
    table: DeltaTable, retention: timedelta, *, unlogged: bool, enforce_property: bool = False
) -> Sequence[str]:
    """Paths of the files below a Delta table's location that no version within the retention has,
    for a vacuum; removes nothing.

    `unlogged`: include files that the log does not name. `enforce_property`: raise DeltaError if
    the table's own retention (delta.deletedFileRetentionDuration) is longer.
    """
    return table.vacuum(
        retention_hours=math.ceil(retention / timedelta(hours=1)),
        dry_run=True,
        enforce_retention_duration=enforce_property,
        full=unlogged,
    )
