"""Few large files in place of many small ones, and files that no version needs removed.

Both may run while a query writes: a compaction replaces files by files with the same rows in one
commit and conflicts with nothing that only adds, and files younger than the retention stay, since
they may be those of a batch that is about to be committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from jetspark.errors import ConfigError

LEAST_RETENTION = timedelta(hours=1)
"""A batch may be about to commit files that are younger."""


class TableFacts(msgspec.Struct, frozen=True):
    """A table at its newest version."""

    format: str
    location: str
    version: int
    """Of Delta; of Iceberg the number of snapshots that are kept."""
    rows: int
    files: int
    bytes: int
    columns: list[tuple[str, str]]
    partition_by: list[str]
    properties: dict[str, str]


@dataclass(frozen=True)
class Compaction:
    """What a compaction did."""

    removed: int
    """Small files, which former versions still name until they are vacuumed."""
    added: int


class Maintained(Protocol):
    """What both formats offer."""

    def facts(self) -> TableFacts:
        """The newest version."""
        ...

    def compact(self, target_bytes: int) -> Compaction:
        """Put small files together into files of about this size."""
        ...

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Sequence[str]:
        """Remove files that no version younger than the retention names, and forget the older
        versions; the paths. `dry_run`: only say which."""
        ...


def check_retention(retention: timedelta) -> None:
    """Raises ConfigError for less than LEAST_RETENTION."""
    if retention < LEAST_RETENTION:
        raise ConfigError(
            "Files younger than an hour may belong to a batch that is about to be committed: keep "
            "at least 1h."
        )


def groups_of(files: Sequence[Any], sizes: Sequence[int], target: int) -> list[list[Any]]:
    """Small files in groups of about the target size, in their order; none of a single file."""
    groups: list[list[Any]] = [[]]
    filled = 0
    for one, size in zip(files, sizes, strict=True):
        if size >= target * 3 // 4:
            continue
        if groups[-1] and filled + size > target:
            groups.append([])
            filled = 0
        groups[-1].append(one)
        filled += size
    return [group for group in groups if len(group) > 1]
