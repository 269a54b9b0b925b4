"""Compaction and vacuum of Iceberg tables, for which pyiceberg has only the primitives."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction

from jetspark.errors import CommitConflict, TableError
from jetspark.lakehouse.maintenance import Compaction, groups_of
from jetspark.lakehouse.new_files import FileWriter, Layout, NewFile, Storage

_CONFLICT_SECONDS = 120.0


def compact(
    table: Callable[[], Table],
    transaction: Callable[[], Transaction],
    data_file: Callable[[NewFile], DataFile],
    commit: Callable[[Transaction], None],
    layout: Layout,
    storage: Storage,
) -> Compaction:
    """Merge the small files of each partition. After `commit` has raised CommitConflict, `table`
    and `transaction` return the newest version.

    Files with rows that were deleted by another program are left as they are.
    """
    removed = added = 0
    for group in _groups(table(), layout.target_bytes):
        new = _rewritten(table(), group, layout, storage)
        old = {task.file.file_path for task in group}
        deadline = time.monotonic() + _CONFLICT_SECONDS
        while True:
            live = {
                one.file.file_path: one
                for one in table().scan().plan_files()
                if not one.delete_files
            }
            if not old <= live.keys():
                break  # they were replaced, or rows were deleted: discard the new files
            making = transaction()
            stage(making, [live[path].file for path in old], list(map(data_file, new)))
            try:
                commit(making)
            except CommitConflict:
                if time.monotonic() >= deadline:
                    raise TableError(
                        "Other writers committed without a break: compact the table later."
                    ) from None
                continue
            removed += len(old)
            added += len(new)
            break
    return Compaction(removed, added)


def stage(making: Transaction, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Replace files by others, in one snapshot."""
    snapshot = making.update_snapshot()
    # Also without files: a commit that only sets properties would not notice another one.
    with snapshot.overwrite() if old else snapshot.merge_append() as changing:
        for one in old:
            changing.delete_data_file(one)
        for one in new:
            changing.append_data_file(one)


def old_snapshots(table: Table, before: datetime) -> list[int]:
    """Snapshots that are older and not the head of a branch or tag."""
    kept = {one.snapshot_id for one in table.metadata.refs.values()}
    limit = int(before.timestamp() * 1000)
    return [
        one.snapshot_id
        for one in table.metadata.snapshots
        if one.timestamp_ms < limit and one.snapshot_id not in kept
    ]


def unnamed_files(table: Table, kept: Sequence[int], retention: timedelta) -> list[str]:
    """URIs of data files, manifests and manifest lists in the table's folders that are older than
    the retention and that none of these snapshots refers to."""
    named = set()
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id not in kept:
            continue
        named.add(_path(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            named.add(_path(manifest.manifest_path))
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                named.add(_path(entry.data_file.file_path))
    before = datetime.now(UTC) - retention
    return [
        uri
        for uri, modified in _files(table)
        if uri.endswith((".parquet", ".avro")) and modified < before and _path(uri) not in named
    ]


def _groups(table: Table, target: int) -> Iterator[list[FileScanTask]]:
    by_partition: dict[Any, list[FileScanTask]] = defaultdict(list)
    spec = table.metadata.default_spec_id
    for task in table.scan().plan_files():
        if not task.delete_files and task.file.spec_id == spec:
            by_partition[task.file.partition].append(task)
    for tasks in by_partition.values():
        yield from groups_of(tasks, [task.file.file_size_in_bytes for task in tasks], target)


def _rewritten(
    table: Table, tasks: Sequence[FileScanTask], layout: Layout, storage: Storage
) -> list[NewFile]:
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    writer = FileWriter(layout, storage, "compacted")
    try:
        for batch in scan.to_record_batches(tasks):
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.discard()
        raise


def _files(table: Table) -> Iterator[tuple[str, datetime]]:
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        raise TableError(
            "Files without a reference can be listed only through PyArrow: set the "
            "catalog's py-io-impl to pyiceberg.io.pyarrow.PyArrowFileIO."
        )
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location().rstrip("/"))
    files = io.fs_by_scheme(scheme, netloc)
    for folder in ("data", "metadata"):
        selector = pyarrow.fs.FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True)
        for one in files.get_file_info(selector):
            if one.type == pyarrow.fs.FileType.File and one.mtime is not None:
                prefix = table.location().rstrip("/").removesuffix(path.lstrip("/"))
                yield prefix + one.path.lstrip("/"), one.mtime.astimezone(UTC)


def _path(uri: str) -> str:
    """Without the scheme, which differs between writers of one table (s3, s3a)."""
    parts = urlsplit(uri)
    return f"{parts.netloc}{parts.path}"
