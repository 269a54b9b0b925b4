"""Tables whose metadata is hostile.

Each run makes a Delta or Iceberg table and changes its metadata, or its folder, as somebody could
who may write there: properties that name code, names of files outside of the table in every form,
symbolic links. Then it reads the table, adds, merges, compacts, vacuums and expires. Beside the
table lies another one, with files that look like this one's, and whatever the commands do: no code
has run, nothing outside has changed or gone, and no row came from there.
"""

# mypy: disable-error-code="call-arg"

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestFile, write_manifest, write_manifest_list
from tests.support import campaign
from tests.support.numbers_table import SCHEMA, write

from jetspark.errors import JetsparkError
from jetspark.tables.batches import commit_files
from jetspark.tables.file_layout import NULL_FOLDER
from jetspark.tables.formats import Format, find_table, open_or_create_table, open_table
from jetspark.tables.iceberg import table as iceberg
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert

SECRET = 1_000_000
"""Rows of the other table begin with this number."""
CODE = "hostile_tables_code"
"""A module that says that it was imported."""
_OLD = 20 * 24 * 3600


@dataclass
class Place:
    """A table, and what is around it."""

    chosen: random.Random
    root: Path
    format: Format
    name: TableName
    changed: list[str] = field(default_factory=list)
    """What was done to the table."""

    @property
    def folder(self) -> Path:
        return self.root / "lake" / "table"

    @property
    def victim(self) -> Path:
        return self.root / "lake" / "victim"

    def file_outside(self) -> Path:
        files = sorted(one for one in self.victim.rglob("*.parquet") if one.is_file())
        return self.chosen.choice(files)

    def open(self) -> Table:
        return open_table(self.format, self.name)


def rows_from(start: int) -> pa.Table:
    return pa.table({"n": list(range(start, start + 4)), "kind": ["a", "b", None, "ü"]}, SCHEMA)


def add_rows(table: Table, start: int) -> None:
    commit_files(table, write(table, rows_from(start)))
    table.refresh()


def make(chosen: random.Random, root: Path) -> Place:
    """A table with some versions, and a victim of the same format beside it."""
    format_ = chosen.choice(list(Format))
    (root / "lake").mkdir()
    ran = f"Path({str(root / 'ran')!r}).touch()\n"
    code = f"from pathlib import Path\n{ran}def Code(*_, **__):\n    {ran}"
    (root / f"{CODE}.py").write_text(code)
    place = TableName(path=str(root / "lake" / "table"))
    if format_ is Format.ICEBERG and chosen.random() < 0.5:
        uri = f"sqlite:///{root}/catalog.db"
        properties = {"type": "sql", "uri": uri, "warehouse": f"file://{root}/lake"}
        catalog = load_catalog("mine", **properties)
        catalog.create_namespace("of")
        place = TableName(catalog="mine", identifier="of.table", properties=properties)
        catalog.create_table("of.table", SCHEMA, f"file://{root}/lake/table")
    victim = open_or_create_table(
        format_, TableName(path=str(root / "lake" / "victim")), SCHEMA, ()
    )
    for at in range(3):
        add_rows(victim, SECRET + 10 * at)
    partitions = [PartitionBy("kind")] if chosen.random() < 0.3 else []
    table = open_or_create_table(format_, place, SCHEMA, partitions)
    if format_ is Format.DELTA and chosen.random() < 0.3:
        table.set_property("delta.enableChangeDataFeed", "true")
        table.refresh()
    for at in range(chosen.randrange(2, 5)):
        add_rows(table, 10 * at)
    (root / "lake" / "other.txt").write_text("somebody's")
    (root / "lake" / "v9.metadata.json").write_text("{}")
    return Place(chosen, root, format_, place)


# -- what others do to the table -------------------------------------------------------------------


def links_of(place: Place, file: Path) -> list[str]:
    """Names of a file outside behind the links that are in the table's folder."""
    return [
        f"{link.relative_to(place.folder)}{'' if link.is_file() else f'/{file.name}'}"
        for link in place.folder.rglob("*")
        if link.is_symlink()
    ]


def forms_of(place: Place, file: Path) -> list[str]:
    """Names of a file outside, as metadata could say them."""
    relative = os.path.relpath(file, place.folder)
    base = str(place.folder)
    inside = [one for link in links_of(place, file) for one in (link, f"{link}?x", f"{link}#x")]
    for blank in "\t\n\r":
        steps = relative.replace("..", f".{blank}.")
        inside += [steps, f"data/{blank}..{blank}/{relative}", f"data/.{blank}./{steps}"]
    inside += [
        relative.replace("/", "\\"), relative.replace("..", "%252e%252e"), f"x?/../{relative}",
        *(f"{link[0]}\t{link[1:]}" for link in links_of(place, file)),
    ]  # fmt: skip
    misread = [
        f"{scheme}{one}"
        for one in inside
        for scheme in ("", f"{base}/", f"file:{base}/", f"file://{base}/", f"FILE://{base}/")
    ]
    encoded = [quote(one) for one in inside]  # as Delta's log has them
    return [
        *place.chosen.sample(misread, 8),
        *place.chosen.sample(encoded, 4),
        f"FILE://{file}",
        f"file:{str(file)[1:]}",
        f"\t{file}",
        f" file://{file}",
        relative,
        f"./{relative}",
        f"data/../{relative}",
        relative.replace("..", "%2e%2e"),
        relative.replace("../", "%2E%2E%2F"),
        str(file),
        f"file:{file}",
        f"file://{file}",
        f"file://localhost{file}",
        f"{base}/{relative}",
        f"file://{base}/{relative}",
        f"file://{base}/data/../{relative}",
        f"file://{base}//../victim/{os.path.relpath(file, place.victim)}",
    ]


def link_into(place: Place) -> None:
    """A link to the victim, or to its folder of files, within the table's folder."""
    target = place.chosen.choice([place.victim, place.victim / "data", place.victim / "metadata"])
    within = place.chosen.choice(["", "data", "data/deep", "metadata", "_delta_log", "_letters"])
    there = place.folder / within
    if there.is_symlink() or (there.exists() and not there.is_dir()):
        return
    there.mkdir(parents=True, exist_ok=True)
    (there / f"link{place.chosen.randrange(1000)}").symlink_to(target)


def links_to_files(place: Place) -> None:
    """Links with names like the table's own files."""
    for at, file in enumerate(sorted(place.victim.rglob("*.parquet"))):
        there = place.folder / place.chosen.choice(["", "data"])
        there.mkdir(exist_ok=True)
        name = f"part-00000-{place.chosen.getrandbits(64):016x}-{at}.parquet"
        (there / name).symlink_to(file)


def pipes_and_devices(place: Place) -> None:
    """What is opened in vain, or without an end, in place of a file of the table."""
    files = [one for one in place.folder.rglob("*") if one.is_file() and not one.is_symlink()]
    if place.name.path is None:  # PyIceberg's catalogs open the metadata before they name it
        files = [one for one in files if not one.name.endswith(".metadata.json")]
    for file in place.chosen.sample(files, min(2, len(files))):
        file.unlink()
        os.mkfifo(file)
    names = ["_delta_log/_last_checkpoint", "metadata/version-hint.text"]
    there = place.folder / names[place.format is Format.ICEBERG]
    if there.parent.is_dir() and not there.parent.is_symlink() and not there.exists():
        os.mkfifo(there)


def folders_that_are_misread(place: Place) -> None:
    """Folders whose names libraries take for a step out, or that they decode, with files that look
    like nobody's."""
    step = place.chosen.choice([".\t.", ".\n.", ".\r.", "%2e%2e", "..\\"])
    within = place.chosen.choice(["", "data", "metadata"])
    for file in place.victim.rglob("*.*"):
        steps = (step,) * (1 + bool(within))
        there = place.folder.joinpath(within, *steps, file.relative_to(place.root / "lake"))
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(b"")


def folder_is_a_link(place: Place) -> None:
    """The folder of the log, of the metadata or of the files leads to the victim's."""
    names = ["_delta_log"] if place.format is Format.DELTA else ["metadata", "data"]
    name = place.chosen.choice(names)
    if (place.folder / name).is_dir() and not (place.folder / name).is_symlink():
        (place.folder / name).rename(place.folder / f"_old{place.chosen.randrange(1000)}")
        (place.folder / name).symlink_to(place.victim / name)


def links_to_write_behind(place: Place) -> None:
    """Links where a merge or a compaction will write."""
    names = ["kind=a", "kind=b", "kind=%C3%BC", "_change_data", f"kind={NULL_FOLDER}"]
    for name in place.chosen.sample(names, 3):
        there = place.folder / name
        if there.is_dir() and not there.is_symlink():
            there.rename(place.folder / f"_old{place.chosen.randrange(10**6)}")
        if not there.is_symlink():
            there.symlink_to(place.victim)


def newest(log: Path) -> int:
    """The last version of Delta's log."""
    return max(int(one.stem) for one in log.glob("*.json") if one.stem.isdecimal())


def links_in_the_log(place: Place) -> None:
    """Versions of the log that are the other table's."""
    log = place.folder / "_delta_log"
    for file in (place.victim / "_delta_log").glob("*.json"):
        (log / f"{newest(log) + 1:020}.json").symlink_to(file)


def delta_action(place: Place) -> None:
    """A file that was added or removed, outside, in one form or another."""
    log = place.folder / "_delta_log"
    links = [one for one in place.folder.glob("link*") if one.is_symlink()]
    file = place.file_outside()
    path = place.chosen.choice(forms_of(place, file))
    if links and place.chosen.random() < 0.5:
        path = f"{links[0].name}/{file.name}"
    action: dict[str, Any] = {"path": path, "partitionValues": {}, "dataChange": True}
    size = file.stat().st_size
    kind = place.chosen.choice(["add", "remove"])
    if kind == "add":
        action |= {"size": size, "modificationTime": 1}
        if place.chosen.random() < 0.2:
            action["deletionVector"] = {
                **place.chosen.choice([
                    {"storageType": "p", "pathOrInlineDv": f"file://{file}"},
                    {"storageType": "u", "pathOrInlineDv": f"../{place.victim.name}{'0' * 20}"},
                ]),
                "offset": 1, "sizeInBytes": 10, "cardinality": 1,
            }  # fmt: skip
    else:
        action |= {"size": size, "deletionTimestamp": 1, "extendedFileMetadata": True}
    (log / f"{newest(log) + 1:020}.json").write_text(json.dumps({kind: action}))


def sidecar(place: Place) -> None:
    """A checkpoint whose files are outside."""
    log = place.folder / "_delta_log"
    path = place.chosen.choice(forms_of(place, place.file_outside()))
    action = {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}
    (log / f"{newest(log):020}.checkpoint.{uuid.uuid4()}.json").write_text(json.dumps(action))


def metadata_of(place: Place) -> Path | None:
    """The newest metadata of an Iceberg table."""
    if place.name.path is None:
        table = load_catalog("mine", **place.name.properties).load_table("of.table")
        return Path(table.metadata_location.removeprefix("file://"))
    files = (place.folder / "metadata").glob("v*.metadata.json")
    numbered = {int(one.name[1:].split(".")[0]): one for one in files}
    return numbered[max(numbered)] if numbered else None


def change_metadata(place: Place, change: Callable[[dict[str, Any]], None]) -> None:
    file = metadata_of(place)
    if file is None or file.is_symlink() or not file.is_file():
        return
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def iceberg_property(place: Place) -> None:
    """A property that names code, a folder, or how storage is reached."""
    outside = f"file://{place.victim}"
    properties = {
        "py-io-impl": f"{CODE}.Code",
        "write.py-location-provider.impl": f"{CODE}.Code",
        "py-catalog-impl": f"{CODE}.Code",
        "s3.retry-strategy-impl": f"{CODE}.Code",
        "auth": f"{CODE}.Code",
        "write.metadata.path": f"{outside}/metadata",
        "write.data.path": f"{outside}/data",
        "s3.endpoint": "http://127.0.0.1:4",
        "write.object-storage.enabled": "true",
    }
    name = place.chosen.choice(list(properties))
    change_metadata(place, lambda one: one["properties"].update({name: properties[name]}))


def iceberg_location(place: Place) -> None:
    """The table says that it is somewhere else, or says where it is in another way."""
    lake, folder = place.root / "lake", place.folder
    outside = [lake, place.victim, place.root]
    inside = [
        f"{folder}/.\t.", f"{folder.parent}/\t{folder.name}", f"{folder}?x", f"{folder}#",
        f"{folder}/data/..", f"{folder}/link",
    ]  # fmt: skip
    link = folder / "link"
    if not link.is_symlink():
        link.symlink_to(place.chosen.choice([lake, folder, place.victim]))
    path = place.chosen.choice([*outside, *inside, folder])
    scheme = place.chosen.choice(["", "file:", "file://", "FILE://", "File:", "file://localhost"])

    def change(content: dict[str, Any]) -> None:
        content["location"] = f"{scheme}{path}"

    change_metadata(place, change)


def iceberg_log(place: Place) -> None:
    """Earlier versions of the metadata that are other files."""
    files = [
        *place.victim.rglob("*.parquet"), *place.victim.rglob("*.json"),
        place.root / "lake" / "other.txt", place.root / "lake" / "v9.metadata.json",
    ]  # fmt: skip

    def change(content: dict[str, Any]) -> None:
        named = [place.chosen.choice(forms_of(place, one)) for one in files]
        content["metadata-log"] = [{"metadata-file": one, "timestamp-ms": 1} for one in named]
        content["properties"] |= {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        }

    change_metadata(place, change)


def iceberg_manifests(place: Place) -> None:
    """An old snapshot whose list, and whose manifests, are files outside."""
    listed = list(place.victim.rglob("*.avro"))

    def change(content: dict[str, Any]) -> None:
        for snapshot in content.get("snapshots", ())[:-1]:
            file = place.chosen.choice(listed)
            snapshot["manifest-list"] = place.chosen.choice(forms_of(place, file)[5:])
        content["properties"]["history.expire.max-snapshot-age-ms"] = "1"
        if content.get("snapshots"):
            content["snapshots"][-1]["sequence-number"] = 99
            content["last-sequence-number"] = 99

    change_metadata(place, change)


def iceberg_files(place: Place) -> None:
    """A snapshot whose manifests name data files outside."""
    table = find_table(place.format, place.name)
    assert isinstance(table, iceberg.OpenIceberg)
    inner = table._table
    current = inner.current_snapshot()
    if current is None:
        return
    file = place.file_outside()
    named = place.chosen.choice(forms_of(place, file))
    manifests: list[ManifestFile] = []
    for at, manifest in enumerate(current.manifests(inner.io)):
        output = inner.io.new_output(f"{manifest.manifest_path}-{at}.avro")
        version = inner.metadata.format_version
        with write_manifest(
            version, inner.spec(), inner.schema(), output, current.snapshot_id, "null"
        ) as writer:
            for entry in manifest.fetch_manifest_entry(inner.io):
                entry.data_file[1] = named  # its path
                writer.existing(entry)
        manifests.append(writer.to_manifest_file())
    path = current.manifest_list
    shutil.move(path.removeprefix("file://"), path.removeprefix("file://") + ".old")
    with write_manifest_list(
        inner.metadata.format_version, inner.io.new_output(path), current.snapshot_id,
        current.parent_snapshot_id, current.sequence_number, "null",
    ) as lists:  # fmt: skip
        lists.add_manifests(manifests)


OF_BOTH = (
    link_into, links_to_files, folder_is_a_link, folders_that_are_misread, pipes_and_devices,
)  # fmt: skip
OF_DELTA = (delta_action, delta_action, sidecar, links_to_write_behind, links_in_the_log)
OF_ICEBERG = (
    iceberg_property, iceberg_location, iceberg_log, iceberg_manifests, iceberg_files,
    iceberg_files,
)  # fmt: skip

# -- what we do with it ----------------------------------------------------------------------------


def read(place: Place) -> None:
    table = place.open()
    seen = [
        number
        for piece in table.scan_tasks(SCHEMA.names, None, 1)
        for batch in piece.batches()
        for number in batch.column("n").to_pylist()
    ]
    assert max(seen, default=0) < SECRET, "rows of the other table were read"


def look(place: Place) -> None:
    place.open().facts()


def add(place: Place) -> None:
    table = place.open()
    commit_files(table, write(table, rows_from(place.chosen.randrange(1000, 900_000))))


def merge(place: Place) -> None:
    table = place.open()
    files = write(table, rows_from(place.chosen.choice([0, 10, 700])), apart=True)
    commit_files(table, files, Upsert(("n",), None, None, None))


def compact(place: Place) -> None:
    place.open().compact(10**8)


def vacuum(place: Place) -> None:
    place.open().vacuum(timedelta(hours=2), dry_run=False)


def change_columns(place: Place) -> None:
    """As --evolve does, and --keep-versions."""
    table = place.open()
    table.keep_versions(timedelta(hours=place.chosen.randrange(2, 99)))
    table.refresh()
    table.add_columns([pa.field(f"c{place.chosen.randrange(10**6)}", pa.int64())])


DONE = (read, look, add, merge, compact, vacuum, change_columns)


def state_outside(place: Place) -> dict[str, str]:
    """The names and contents of all files that are not the table's."""
    found = {}
    for folder, names, files in os.walk(place.root):
        if Path(folder) == place.root / "lake":
            names[:] = [one for one in names if one != "table"]
        names[:] = [one for one in names if one != "__pycache__"]
        for name in files:
            file = Path(folder, name)
            if not name.startswith("catalog.db"):
                found[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def made_old(root: Path) -> None:
    """All files are older than any retention."""
    then = time.time() - _OLD
    for folder, _, files in os.walk(root):
        for name in files:
            os.utime(Path(folder, name), (then, then), follow_symlinks=False)


@dataclass
class Figures(campaign.Figures):
    changes: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """Ended by an error of a library; it did no harm."""


def run_one(seed: str, figures: Figures) -> None:
    """One table, its changes, and some commands."""
    chosen = random.Random(seed)
    root = Path(tempfile.mkdtemp(prefix="jetspark-hostile-"))
    sys.path.insert(0, str(root))
    sys.modules.pop(CODE, None)
    try:
        place = make(chosen, root)
        special = OF_DELTA if place.format is Format.DELTA else OF_ICEBERG
        for change in chosen.sample([*OF_BOTH, *special, *special], chosen.randrange(1, 4)):
            try:
                change(place)
                figures.changes[change.__name__] += 1
                place.changed.append(change.__name__)
            except Exception:  # an earlier change has made this one impossible
                continue
        before = state_outside(place)
        for action in chosen.choices(DONE, k=6):
            made_old(root)
            try:
                # What a name without a beginning leads to is seen there.
                with chdir(root), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    action(place)
                figures.done[action.__name__] += 1
            except AssertionError as error:
                figures.wrong.append(f"{seed} {place.changed} {action.__name__}: {error}")
            except JetsparkError:
                figures.refused[action.__name__] += 1
            except Exception:
                figures.failed[action.__name__] += 1
            after = state_outside(place)
            if after != before:
                named = sorted(before.keys() ^ after.keys()) or ["contents"]
                figures.wrong.append(f"{seed} {place.changed} {action.__name__}: {named}")
                break
        figures.count_run()
    finally:
        sys.path.remove(str(root))
        shutil.rmtree(root, ignore_errors=True)


def run(runs: int = 1000, seed: int = 1) -> Figures:
    """A run is a table."""
    figures = Figures()
    for number in range(runs):
        run_one(f"{seed}-{number}", figures)
    return figures
