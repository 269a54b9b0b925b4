"""Compaction of small files into large ones, and removal of files that no version needs.

It only removes files that are proven to be the table's: an older version of it referred to them, or
a writer of ours gave them their name and no version has them. Other programs write files of other
kinds (deletion vectors, statistics), and other tables may lie in the folder: those are reported.

Both may run while a query writes: a compaction replaces files by files of the same rows, in one
commit, which does not conflict with commits that only add; and files younger than the retention
stay, since a batch may be about to commit them.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from jetspark.errors import ConfigError
from jetspark.tables.new_files import Storage, has_written_name

_OF_A_TABLE = re.compile(
    r"(.+?/)(?:_delta_log/.*|metadata/(?:version-hint\.text|[^/]*\.metadata\.json[^/]*))"
)
"""A file by which a folder below another is known as a table's."""
MIN_RETENTION = timedelta(hours=1)
"""Minimum age of removed files, since a batch may be about to commit younger ones."""


class TableFacts(msgspec.Struct, frozen=True):
    """A table at its newest version."""

    format: str
    location: str
    version: int
    """Delta: its version; Iceberg: how many snapshots are kept."""
    rows: int | None
    """None if only reading the table would show it."""
    files: int
    bytes: int
    columns: list[tuple[str, str]]
    partition_by: list[str]
    properties: dict[str, str]


@dataclass(frozen=True)
class Compaction:
    removed: int
    """Small files that were replaced; older versions refer to them until a vacuum."""
    added: int


@dataclass(frozen=True)
class Vacuum:
    """Paths below the table's location of files that no version needs."""

    removed: Sequence[str]
    unproven: Sequence[str]
    """Files that may not be this table's; a folder with another table ends with a slash."""


def prove_removable(
    unnamed: Sequence[str], expired: Container[str], all_paths: Iterable[str]
) -> Vacuum:
    """Divide the files that no version needs into those that may be removed and others. `expired`:
    files that an older version referred to; `all_paths`: all files in the folder, to find other
    tables by."""
    tables = {
        match[1]
        for path in (*unnamed, *all_paths)
        if (match := _OF_A_TABLE.fullmatch(path)) is not None
    }
    removed: list[str] = []
    unproven: dict[str, None] = {}
    for path in unnamed:
        other_table = next((folder for folder in tables if path.startswith(folder)), None)
        if other_table is not None:
            unproven[other_table] = None
        elif path in expired or has_written_name(path):
            removed.append(path)
        else:
            unproven[path] = None
    return Vacuum(sorted(removed), sorted(unproven))


def remove_files(storage: Storage, paths: Sequence[str]) -> None:
    """Remove files, several at a time, since an object store takes long for each."""

    def remove(path: str) -> None:
        with suppress(FileNotFoundError):  # another vacuum was faster
            storage.remove(path)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(remove, paths))


def check_retention(retention: timedelta) -> None:
    if retention < MIN_RETENTION:
        raise ConfigError(
            "Files younger than an hour may belong to a batch that is about to be committed: keep "
            "at least 1h."
        )


def group_small_files(files: Sequence[Any], sizes: Sequence[int], target: int) -> list[list[Any]]:
    """Small files, in order, in groups of about the target size; no group has only one file."""
    groups: list[list[Any]] = [[]]
    filled = 0
    for file, size in zip(files, sizes, strict=True):
        if size >= target * 3 // 4:
            continue
        if groups[-1] and filled + size > target:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += size
    return [group for group in groups if len(group) > 1]
