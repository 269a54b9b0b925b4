"""Maintenance of tables of many origins.

Each run makes a table as one of ORIGINS would, and gives a few commands of `jetspark table`, hours
later by the clocks of the files. After each one DuckDB and, for Iceberg, PyIceberg find the same
rows as before, also at each tag and in tables that lie within; and a command that did not do its
work said why, in a sentence.
"""

# mypy: disable-error-code="call-arg"
# PyIceberg's models take names with hyphens in the eyes of its types, and both when they run.

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import struct
import tempfile
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as PyTable
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64
from tests.support import campaign
from tests.support.numbers_table import SCHEMA, write
from tests.support.table_readers import by_duckdb, duckdb_of

from jetspark.errors import JetsparkError
from jetspark.tables.batches import commit_batch, commit_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.iceberg import maintenance as iceberg_maintenance
from jetspark.tables.iceberg import table as iceberg
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import TableName
from jetspark.tables.upserts import Upsert

HOURS = 30
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Rows = Counter[tuple[Any, ...]]


@dataclass
class Made:
    """A table, and what has to be the same after each command."""

    format: Format
    name: TableName
    folder: Path
    """The table's location."""
    others: list[Callable[[], _Rows]] = field(default_factory=list)
    """Readers of what else has to stay as it is."""
    files: list[Path] = field(default_factory=list)
    """Nobody's, which have to stay."""

    def rows(self) -> _Rows:
        """By readers that are not ours, which agree."""
        if self.format is Format.DELTA:
            return Counter(by_duckdb("delta", self.folder, "SELECT n, kind FROM t"))
        catalog, identifier = catalog_and_name(self.name)
        table = catalog.load_table(identifier)
        found = rows_of(table)
        scanned = by_duckdb("iceberg", Path(table.metadata_location), "SELECT n, kind FROM t")
        assert Counter(scanned) == found
        for one in table.metadata.refs.values():
            found += rows_of(table, one.snapshot_id)
        for kind in (table.metadata.statistics, table.metadata.partition_statistics):
            for statistics in kind:
                assert Path(statistics.statistics_path.removeprefix("file://")).exists()
        return found


def rows_of(table: PyTable, snapshot: int | None = None) -> _Rows:
    found = table.scan(snapshot_id=snapshot).select("n", "kind").to_arrow()
    return Counter((one["n"], one["kind"]) for one in found.to_pylist())


def catalog_and_name(name: TableName) -> tuple[Catalog, str]:
    """As PyIceberg opens it."""
    if name.path is None:
        return load_catalog("mine", **name.properties), str(name.identifier)
    from jetspark.tables.iceberg.folder import FolderCatalog

    return FolderCatalog(Path(name.path)), "folder.table"


def numbers(chosen: random.Random, start: int) -> pa.Table:
    return pa.table(
        {
            "n": list(range(start, start + 10)),
            "kind": [chosen.choice(["a", "b c", "ü", None]) for _ in range(10)],
        },
        schema=SCHEMA,
    )


# -- origins: Delta ------------------------------------------------------------------------------


def delta(folder: Path) -> Made:
    return Made(Format.DELTA, TableName(path=str(folder)), folder)


def by_deltalake(chosen: random.Random, folder: Path) -> Made:
    partition = chosen.choice([None, ["kind"]])
    for start in range(0, 40, 10):
        mode: Any = chosen.choice(["append", "append", "append", "overwrite"])
        write_deltalake(folder, numbers(chosen, start), mode=mode, partition_by=partition)
    if chosen.random() < 0.5:
        DeltaTable(folder).delete("n % 3 = 0")
    if chosen.random() < 0.3:
        DeltaTable(folder).optimize.compact()
    if chosen.random() < 0.3:
        DeltaTable(folder).create_checkpoint()
    return delta(folder)


def by_deltalake_with_features(chosen: random.Random, folder: Path) -> Made:
    write_deltalake(folder, numbers(chosen, 0))
    table = DeltaTable(folder)
    if chosen.random() < 0.5:
        table.alter.add_constraint({"positive": "n >= 0"})
    properties = {
        name: "true"
        for name in ("delta.enableChangeDataFeed", "delta.appendOnly")
        if chosen.random() < 0.5
    }
    if properties:
        table.alter.set_table_properties(properties)
    for start in (10, 20):
        write_deltalake(folder, numbers(chosen, start), mode="append")
    if properties == {"delta.enableChangeDataFeed": "true"}:
        table = DeltaTable(folder)
        table.update(predicate="n = 1", new_values={"kind": "'changed'"})
    return delta(folder)


def by_duckdb_in_delta(chosen: random.Random, folder: Path) -> Made:
    write_deltalake(folder, numbers(chosen, 0))
    connection = duckdb_of("delta")
    connection.execute(f"ATTACH '{folder}' AS t (TYPE delta)")
    for start in (10, 20, 30):
        connection.execute(f"INSERT INTO t SELECT i, 'd' FROM range({start}, {start + 5}) r(i)")
    connection.close()
    return delta(folder)


def with_deletion_vectors(chosen: random.Random, folder: Path) -> Made:
    """As Spark makes them: the vector of a file is replaced by a longer one."""
    for start in (0, 10, 20):
        write_deltalake(folder, numbers(chosen, start), mode="append")
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": features,
    }  # fmt: skip
    log = folder / "_delta_log"
    (log / f"{3:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n", "utf-8")
    add = json.loads((log / f"{0:020}.json").read_text("utf-8").splitlines()[-1])["add"]
    assert add["path"].endswith(".parquet")
    before: dict[str, Any] | None = None
    for version, deleted in ((4, [1]), (5, [1, 4, 7])):
        vector = _vector(folder, deleted)
        old = {
            "path": add["path"], "dataChange": True, "extendedFileMetadata": True,
            "deletionTimestamp": int(time.time() * 1000),
            "partitionValues": {}, "size": add["size"],
        }  # fmt: skip
        if before is not None:
            old["deletionVector"] = before
        actions = [{"remove": old}, {"add": {**add, "deletionVector": vector}}]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)), "utf-8")
        before = vector
    return delta(folder)


def _vector(folder: Path, deleted: list[int]) -> dict[str, Any]:
    name = uuid.uuid4()
    data = struct.pack("<i", 1681511377) + BitMap64(deleted).serialize()
    content = b"\x01" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (folder / f"deletion_vector_{name}.bin").write_bytes(content)
    short = base64.b85encode(name.bytes).translate(bytes.maketrans(_B85, _Z85)).decode()
    return {
        "storageType": "u", "pathOrInlineDv": short, "offset": 1,
        "sizeInBytes": len(data), "cardinality": len(deleted),
    }  # fmt: skip


def with_mapped_columns(chosen: random.Random, folder: Path) -> Made:
    """Columns have other names in the files, and these no prefix."""
    (log := folder / "_delta_log").mkdir(parents=True)
    mapped = {"n": "col-1", "kind": "col-2"}
    fields = [
        {
            "name": name, "type": kind, "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number + 1,
                "delta.columnMapping.physicalName": mapped[name],
            },
        }
        for number, (name, kind) in enumerate([("n", "long"), ("kind", "string")])
    ]  # fmt: skip
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"],
            }
        },
        {
            "metaData": {
                "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [], "createdTime": 0,
                "configuration": {
                    "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2",
                },
            }
        },
    ]  # fmt: skip
    for start in (0, 10):
        path = folder / f"{uuid.uuid4()}.parquet"
        pq.write_table(numbers(chosen, start).rename_columns(list(mapped.values())), path)
        add = {
            "path": path.name, "partitionValues": {}, "size": path.stat().st_size,
            "modificationTime": 0, "dataChange": True,
        }  # fmt: skip
        actions.append({"add": add})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)), "utf-8")
    return delta(folder)


def with_others_within(chosen: random.Random, folder: Path) -> Made:
    """Tables of both formats, written by us, and files of nobody in the folder of a Delta table."""
    made = own(chosen, folder, Format.DELTA)
    for number, format_ in enumerate(Format):
        inner = own(chosen, folder / f"inner {number}" / "lake", format_)
        made.others.append(inner.rows)
        if format_ is Format.DELTA and chosen.random() < 0.5:
            DeltaTable(inner.folder).create_checkpoint()
    made.files = [folder / one for one in ("mine.parquet", "notes/readme.txt", "notes/x.bin")]
    for one in made.files:
        one.parent.mkdir(exist_ok=True)
        one.write_bytes(b"x")
    return made


# -- origins: both and Iceberg -------------------------------------------------------------------


def own(chosen: random.Random, folder: Path, format_: Format) -> Made:
    """Ours, with files of tasks that failed, upserts and a compaction."""
    name = TableName(path=str(folder))
    partition = chosen.choice([(), (PartitionBy("kind"),)])
    table = open_or_create_table(format_, name, SCHEMA, partition)
    batch = 0
    for turn in range(4):
        rows = numbers(chosen, chosen.choice([0, 10 * turn]))
        if chosen.random() < 0.5 or turn == 0:
            files = write(table, rows, apart=True)
            commit_batch(table, "q", batch, files, change=Upsert(("n",)))
            batch += 1
        else:
            commit_files(table, write(table, numbers(chosen, 100 * (turn + 1))))
        table.refresh()
        write(table, rows)
    if chosen.random() < 0.3:
        open_table(format_, name).compact(10**8)
    return Made(format_, name, folder)


def in_catalog(folder: Path, identifier: str = "lake.t") -> tuple[Catalog, TableName]:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder.parent}/catalog.db",
        "warehouse": f"file://{folder.parent}",
    }
    catalog = load_catalog("mine", **properties)
    catalog.create_namespace_if_not_exists("lake")
    return catalog, TableName(catalog="mine", identifier=identifier, properties=properties)


_COLUMNS = Schema(NestedField(1, "n", LongType()), NestedField(2, "kind", StringType()))


def by_pyiceberg(chosen: random.Random, folder: Path) -> Made:
    """Of both versions of the format, also with partitions that change, last by a transform."""
    catalog, name = in_catalog(folder)
    fields = [PartitionField(2, 1000, IdentityTransform(), "kind")]
    table = catalog.create_table(
        "lake.t", _COLUMNS, f"file://{folder}",
        PartitionSpec(*fields[: chosen.choice([0, 1])]),
        properties={"format-version": chosen.choice(["1", "2"])},
    )  # fmt: skip
    for start in range(0, 40, 10):
        table.append(numbers(chosen, start))
        if start == 20 and chosen.random() < 0.5 and table.spec().fields:
            with table.update_spec() as changing:
                changing.remove_field("kind")
    if chosen.random() < 0.7:
        table.delete("n >= 5 and n < 12")
    if chosen.random() < 0.3:
        table.overwrite(numbers(chosen, 50))
    if chosen.random() < 0.3:
        with table.update_spec() as changing:  # for which PyIceberg cannot write by itself
            changing.add_field("n", BucketTransform(3), "n_bucket")
    return Made(Format.ICEBERG, name, folder)


def with_tags_and_statistics(chosen: random.Random, folder: Path) -> Made:
    made = by_pyiceberg(chosen, folder)
    catalog, identifier = catalog_and_name(made.name)
    table = catalog.load_table(identifier)
    snapshots = [one.snapshot_id for one in table.metadata.snapshots]
    with table.manage_snapshots() as changing:
        changing.create_tag(chosen.choice(snapshots), "kept")
        changing.create_branch(chosen.choice(snapshots), "other")
    with table.transaction() as making:
        last = snapshots[-1]
        place = f"file://{folder}/metadata/{uuid.uuid4()}"
        for end in (".stats", ".parquet"):
            Path((place + end).removeprefix("file://")).write_bytes(b"PFA1")
        common: dict[str, Any] = {"snapshot-id": last, "file-size-in-bytes": 4}
        footer: dict[str, Any] = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
        stats = StatisticsFile.model_validate(
            {**common, **footer, "statistics-path": place + ".stats"}
        )
        of_partitions = PartitionStatisticsFile.model_validate(
            {**common, "statistics-path": place + ".parquet"}
        )
        setting = SetPartitionStatisticsUpdate(partition_statistics=of_partitions)
        making._apply((SetStatisticsUpdate(statistics=stats), setting))
    if chosen.random() < 0.5:
        table = catalog.load_table(identifier)
        with table.transaction() as making:
            making.set_properties({"history.expire.min-snapshots-to-keep": "3"})
    return made


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def with_position_deletes(chosen: random.Random, folder: Path) -> Made:
    """As engines make them that do not write data files anew."""
    catalog, name = in_catalog(folder)
    table = catalog.create_table("lake.t", _COLUMNS, f"file://{folder}")
    for start in (0, 10, 20):
        table.append(numbers(chosen, start))
    target = next(iter(table.scan().plan_files())).file.file_path
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {b"PARQUET:field_id": b"2147483546"}),
            pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"2147483545"}),
        ]
    )
    place = f"file://{folder}/data/{uuid.uuid4()}-deletes.parquet"
    local = Path(place.removeprefix("file://"))
    pq.write_table(pa.table([[target] * 3, [1, 4, 7]], schema=schema), local)
    metadata = table.metadata
    number = metadata.new_snapshot_id()
    sequence = metadata.next_sequence_number()
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=place, file_format=FileFormat.PARQUET,
        partition=Record(), record_count=3, file_size_in_bytes=local.stat().st_size,
        column_sizes={}, value_counts={}, null_value_counts={}, nan_value_counts={},
        lower_bounds={}, upper_bounds={}, key_metadata=None, split_offsets=None,
        equality_ids=None, sort_order_id=None, spec_id=0,
    )  # fmt: skip
    output = table.io.new_output(f"file://{folder}/metadata/{uuid.uuid4()}-m0.avro")
    with _Deletes(metadata.spec(), metadata.schema(), output, number, "null") as writer:
        writer.add(ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=deletes,
            sequence_number=None, file_sequence_number=None,
        ))  # fmt: skip
    current = table.current_snapshot()
    assert current is not None
    listed = f"file://{folder}/metadata/snap-{number}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(
        2, table.io.new_output(listed), number, current.snapshot_id, sequence, "null"
    ) as lists:
        lists.add_manifests([writer.to_manifest_file(), *current.manifests(table.io)])
    snapshot = Snapshot(
        snapshot_id=number, parent_snapshot_id=current.snapshot_id, manifest_list=listed,
        sequence_number=sequence, summary=Summary(operation=Operation.DELETE), schema_id=0,
    )  # fmt: skip
    head: dict[str, Any] = {"snapshot-id": number, "ref-name": "main", "type": "branch"}
    with table.transaction() as making:
        main = SetSnapshotRefUpdate.model_validate(head)
        making._apply((AddSnapshotUpdate(snapshot=snapshot), main))
    return Made(Format.ICEBERG, name, folder)


def with_files_of_another(chosen: random.Random, folder: Path) -> Made:
    """A table over the files of another one, as a snapshot of it is, without a garbage collector;
    or that shares its folder."""
    made = own(chosen, folder, Format.ICEBERG)
    catalog, name = in_catalog(folder, "lake.second")
    source, identifier = catalog_and_name(made.name)
    files = [one.file.file_path for one in source.load_table(identifier).scan().plan_files()]
    shared = chosen.random() < 0.5
    table = catalog.create_table(
        "lake.second", _COLUMNS, f"file://{folder if shared else folder.parent / 'second'}",
        properties={} if shared else {"gc.enabled": "false"},
    )  # fmt: skip
    if shared:
        second = open_table(Format.ICEBERG, name)
        commit_files(second, write(second, numbers(chosen, 900)))
    else:
        table.add_files([one for one in files if "kind=" not in one])
    other = Made(Format.ICEBERG, name, folder)
    first, then = (made, other) if chosen.random() < 0.5 and shared else (other, made)
    first.others.append(then.rows)
    return first


ORIGINS: dict[str, Callable[[random.Random, Path], Made]] = {
    f"own_{format_}": partial(own, format_=format_) for format_ in Format
}
ORIGINS |= {
    one.__name__: one
    for one in (
        by_deltalake, by_deltalake_with_features, by_duckdb_in_delta, with_deletion_vectors,
        with_mapped_columns, with_others_within, by_pyiceberg, with_tags_and_statistics,
        with_position_deletes, with_files_of_another,
    )
}  # fmt: skip

# -- runs ----------------------------------------------------------------------------------------


@dataclass
class Figures(campaign.Figures):
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    removed: int = 0


def grow_old(root: Path) -> None:
    """Every file was written HOURS ago, and Delta's log says so, too."""
    then = time.time() - HOURS * 3600
    for log in root.rglob("_delta_log/*.json"):
        text = log.read_text("utf-8")
        time_of_deletion = f'"deletionTimestamp":{int(then * 1000)}'
        log.write_text(re.sub(r'"deletionTimestamp": ?\d{13}', time_of_deletion, text), "utf-8")
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


@contextmanager
def later() -> Iterator[None]:
    """The clock of Iceberg's snapshots is HOURS ahead, and files seem as much older."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Later:
            return cls.fromtimestamp(time.time() + HOURS * 3600, tz)

    with (
        mock.patch.object(iceberg, "datetime", Later),
        mock.patch.object(iceberg_maintenance, "datetime", Later),
    ):
        yield


def run_one(seed: str, figures: Figures, origin: str, commands: Sequence[str] = ()) -> None:
    """One table and its commands; without any they are chosen, too."""
    chosen = random.Random(seed)
    root = Path(tempfile.mkdtemp(prefix="jetspark-origins-"))
    steps: list[str] = [origin]
    try:
        made = ORIGINS[origin](chosen, root / "table")
        before = [made.rows(), *(one() for one in made.others)]
        kinds = ["compact", "vacuum", "vacuum", "dry", "info"]
        for command in commands or chosen.choices(kinds, k=chosen.randint(1, 4)):
            grow_old(root)
            steps.append(command)
            _command(made, command, figures, steps)
            after = [made.rows(), *(one() for one in made.others)]
            assert after == before, "rows are not the same"
            assert all(one.exists() for one in made.files), "a file of nobody is gone"
    except Exception as error:
        figures.wrong.append(f"{seed}:{' '.join(steps)}: {type(error).__name__} {error}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _command(made: Made, command: str, figures: Figures, steps: list[str]) -> None:
    try:
        with later():
            table = open_table(made.format, made.name)
            if command == "compact":
                table.compact(10**8)
            elif command == "info":
                facts = table.facts()
                main = made.rows() if made.format is Format.DELTA else _main(made)
                assert facts.rows in (main.total(), None), f"info: {facts.rows}, not {main.total()}"
            else:
                found = table.vacuum(timedelta(hours=1), dry_run=command == "dry")
                figures.removed += len(found.removed) if command == "vacuum" else 0
        figures.done[f"{steps[0]} {command}"] += 1
    except JetsparkError as error:
        said = re.sub(r"/tmp/[^ )]*", "…", str(error))
        figures.refused[f"{steps[0]} {command}: {said}"] += 1
        if "\n" in said or not said.endswith("."):
            raise ValueError(f"no sentence: {said}") from error


def _main(made: Made) -> _Rows:
    catalog, identifier = catalog_and_name(made.name)
    return rows_of(catalog.load_table(identifier))


def run(runs: int = 300, seed: int = 1, only: str = "") -> Figures:
    """Origins take turns, unless there is one that is wanted."""
    figures = Figures()
    names = sorted(campaign.those_named(only, ORIGINS))
    for number in range(runs):
        run_one(f"{seed}-{number}", figures, names[number % len(names)])
        figures.count_run()
    return figures
