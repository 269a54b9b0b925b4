"""Finds snapshots, files and manifests of an Iceberg table that nobody needs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile

import pyarrow.fs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from jetspark.errors import ConfigError, TableError
from jetspark.tables import inside
from jetspark.tables.iceberg.storage import ConfinedFiles
from jetspark.tables.maintenance import prove_removable
from jetspark.tables.table import Vacuum

_SCHEME = re.compile(r"^[a-z0-9+.-]+:(?://)?(?=.)")


def old_snapshots(table: Table, before: datetime) -> list[int]:
    """Ids of the snapshots that may expire: those that have not been the current one since a time,
    and that no branch or tag keeps.

    What counts is when a snapshot was replaced, not when it was made: an old one may have been
    current until just now, so that readers may have begun with it.
    """
    metadata = table.metadata
    min_snapshots = int(metadata.properties.get("history.expire.min-snapshots-to-keep", 1))
    referenced: set[int] = set()
    for ref in metadata.refs.values():
        head = metadata.snapshot_by_id(ref.snapshot_id)
        count = max(ref.min_snapshots_to_keep or min_snapshots, 1)
        referenced.update(
            snapshot.snapshot_id for snapshot in islice(ancestors_of(head, metadata), count)
        )
    # (id, time at which another snapshot replaced it)
    replacements = [(each.parent_snapshot_id, each.timestamp_ms) for each in metadata.snapshots]
    # With rollbacks, which make an earlier snapshot the current one again.
    replacements += [
        (entry.snapshot_id, successor.timestamp_ms)
        for entry, successor in pairwise(metadata.snapshot_log)
    ]
    last_current = {each.snapshot_id: each.timestamp_ms for each in metadata.snapshots}
    for snapshot_id, replaced_at in replacements:
        if snapshot_id in last_current:
            last_current[snapshot_id] = max(last_current[snapshot_id], replaced_at)
    limit = int(before.timestamp() * 1000)
    return [
        snapshot_id
        for snapshot_id, time_ms in last_current.items()
        if time_ms < limit and snapshot_id not in referenced
    ]


def find_unneeded_files(table: Table, old: Container[int], retention: timedelta) -> Vacuum:
    """Find the files that a vacuum may remove together with old snapshots: those that only these
    refer to, and those to which nothing refers, if they are older than the retention. `old`: the
    ids of the snapshots. Raises ConfigError for a folder that has the metadata of another table."""
    metadata = table.metadata
    needed: set[str] = set()
    expired: set[str] = set()
    for snapshot in metadata.snapshots:
        paths = expired if snapshot.snapshot_id in old else needed
        paths.update(_referenced_files(snapshot, table))
    # Also those of old snapshots, some of which PyIceberg's expiry leaves in the metadata.
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        needed.add(_without_scheme(statistics.statistics_path))
    root = _without_scheme(table.location()) + "/"
    if inside.relative_path(table.location(), table.metadata_location) is None:
        raise ConfigError(
            f"The metadata of the table at {table.location()} is in another place "
            f"({table.metadata_location}), so its files may belong to another table. Nothing was "
            "removed."
        )
    before = datetime.now(UTC) - retention
    files = dict(_list_files(table))
    if needed and needed.isdisjoint(root + path for path in files):
        raise TableError(
            f"No file in {table.location()} is one that the table's metadata names: it names them "
            "in another way. Nothing was removed."
        )
    _check_no_other_table(table, files)
    # Metadata versions, which end in .json, are left to PyIceberg; others are not Iceberg's.
    unneeded = [
        path
        for path, modified in files.items()
        if modified < before
        and root + path not in needed
        and path.endswith((".parquet", ".avro", ".orc", ".puffin", ".stats"))
    ]
    expired_paths = {path.removeprefix(root) for path in expired - needed}
    return prove_removable(
        table.location(), unneeded=unneeded, expired=expired_paths, all_paths=files.keys()
    )


def find_unneeded_manifests(table: Table, old: Sequence[int]) -> list[str]:
    """Paths, below the table's location, of the manifests and manifest lists that only these old
    snapshots need.

    Empty unless each snapshot is the parent of the next one, and the old ones are the oldest:
    otherwise the manifests of all snapshots would have to be read.
    """
    metadata = table.metadata
    expired_ids = set(old)
    ancestors = list(ancestors_of(metadata.current_snapshot(), metadata))
    kept = list(takewhile(lambda each: each.snapshot_id not in expired_ids, ancestors))
    if not kept or not len(kept) + len(old) == len(ancestors) == len(metadata.snapshots):
        return []
    # A snapshot has manifests of the one before, and new ones.
    needed = {manifest.manifest_path for manifest in kept[-1].manifests(table.io)}
    expired: set[str] = set()
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in expired_ids:
            expired.add(snapshot.manifest_list)
            expired.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    return list(inside.files_inside(table.location(), expired - needed).values())


def _referenced_files(snapshot: Snapshot, table: Table) -> Iterator[str]:
    """Yield the paths of all files that a snapshot refers to (its manifest list, manifests, and
    data files), without their scheme. Raises ConfigError for manifests that are not below the
    table's location."""
    yield _without_scheme(snapshot.manifest_list)
    inside.check_files(table.location(), [snapshot.manifest_list])
    manifests = snapshot.manifests(table.io)
    inside.check_files(table.location(), [file.manifest_path for file in manifests])
    for manifest in manifests:
        yield _without_scheme(manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield _without_scheme(entry.data_file.file_path)


def _check_no_other_table(table: Table, files: Iterable[str]) -> None:
    """Raise ConfigError if there is metadata of another table among the files below this table's
    location: that table gives its files the same names, so nobody knows whose they are."""
    own_files = {_without_scheme(entry.metadata_file) for entry in table.metadata.metadata_log}
    own_files.add(_without_scheme(table.metadata_location))
    for path in files:
        uri = f"{table.location().rstrip('/')}/{path}"
        if (
            not path.endswith(".metadata.json")
            or path.count("/") > 1  # below the folder `metadata`, where no metadata is
            or _without_scheme(uri) in own_files
        ):
            continue
        metadata = FromInputFile.table_metadata(table.io.new_input(uri))
        # A failed creation leaves a table without files.
        if metadata.table_uuid != table.metadata.table_uuid and metadata.snapshots:
            raise ConfigError(
                f"{table.location()} has the metadata of another table, too ({path}), and which "
                "file is whose is not known. Nothing was removed. If that table is not used any "
                "more, remove this file and those like it."
            )


def _list_files(table: Table) -> Iterator[tuple[str, datetime]]:
    """List the files below a table's location: yields (path there, time of the last change). Raises
    TableError for a client of the storage that cannot list."""
    io = table.io.files if isinstance(table.io, ConfinedFiles) else table.io
    if not isinstance(io, PyArrowFileIO):
        raise TableError(
            "Files without a reference can be listed only through PyArrow: set the "
            "catalog's py-io-impl to pyiceberg.io.pyarrow.PyArrowFileIO."
        )
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location().rstrip("/"))
    files = io.fs_by_scheme(scheme, netloc)
    for folder in ("data", "metadata"):
        selector = pyarrow.fs.FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True)
        for info in files.get_file_info(selector):
            if info.type == pyarrow.fs.FileType.File and info.mtime is not None:
                yield info.path.removeprefix(f"{path}/"), info.mtime.astimezone(UTC)


def _without_scheme(uri: str) -> str:
    """The path without the scheme, which differs between writers (s3, s3a; file:, file://)."""
    return posixpath.normpath(_SCHEME.sub("", uri))
