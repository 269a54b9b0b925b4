"""Compaction of small files into large ones, and removal of files that no version needs.

Both may run while a query writes: a compaction replaces files with files of the same rows in one
commit, which does not conflict with commits that only add; and files younger than the retention are
kept, since a batch may be about to commit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from jetspark.errors import ConfigError

LEAST_RETENTION = timedelta(hours=1)
"""A batch may be about to commit younger files."""


class TableFacts(msgspec.Struct, frozen=True):
    """A table at its newest version."""

    format: str
    location: str
    version: int
    """Delta: its version; Iceberg: how many snapshots are kept."""
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
    """Small files that were replaced; older versions refer to them until they are vacuumed."""
    added: int


class Maintained(Protocol):
    """Maintenance that both formats support."""

    def facts(self) -> TableFacts:
        """The newest version."""
        ...

    def compact(self, target_bytes: int) -> Compaction:
        """Merge small files into files of about this size."""
        ...

    def vacuum(self, retention: timedelta, *, dry_run: bool) -> Sequence[str]:
        """Remove the files that no version younger than the retention refers to, and expire older
        versions. Returns the paths; `dry_run`: only returns them."""
        ...


def check_retention(retention: timedelta) -> None:
    """Raises ConfigError for less than LEAST_RETENTION."""
    if retention < LEAST_RETENTION:
        raise ConfigError(
            "Files younger than an hour may belong to a batch that is about to be committed: keep "
            "at least 1h."
        )


def groups_of(files: Sequence[Any], sizes: Sequence[int], target: int) -> list[list[Any]]:
    """Small files, in order, in groups of about the target size; no group has only one file."""
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
