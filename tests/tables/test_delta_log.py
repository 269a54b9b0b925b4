"""What the log of a Delta table names besides data files is the table's, or nothing is opened."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from jetspark.errors import ConfigError
from jetspark.tables.delta.table import OpenDelta
from jetspark.tables.table import TableName

UP = "0" * 20  # of a file "deletion_vector_….bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of three files; beside it is something that nobody may open."""
    folder = tmp_path / "table"
    for start in (0, 10, 20):
        write_deltalake(folder, pa.table({"n": range(start, start + 10)}), mode="append")
    (tmp_path / "outside").mkdir()
    os.mkfifo(tmp_path / "outside" / "pipe")
    os.mkfifo(tmp_path / "outside" / f"deletion_vector_{uuid.UUID(int=0)}.bin")
    return folder


def opened(folder: Path) -> OpenDelta:
    table = OpenDelta.find(TableName(path=str(folder)))
    assert table is not None
    return table


def vector(kind: str, path: str) -> dict[str, Any]:
    return {
        "storageType": kind, "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 36,
        "cardinality": 2,
    }  # fmt: skip


def add_vector(folder: Path, found: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    add = json.loads((log / f"{0:020}.json").read_text("utf-8").splitlines()[-1])["add"]
    (log / f"{3:020}.json").write_text(json.dumps({"add": {**add, "deletionVector": found}}))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("p", "file://{outside}/pipe"),
        ("p", "http://127.0.0.1:1/x"),
        ("u", f"../outside{UP}"),
        ("u", f"%2e%2e/outside{UP}"),
        ("u", f"linked{UP}"),
        ("u", "short"),
        ("x", UP),
    ],
)
def test_a_deletion_vector_elsewhere_is_not_opened(folder: Path, kind: str, path: str) -> None:
    outside = folder.parent / "outside"
    (folder / "linked").symlink_to(outside)
    found = vector(kind, path.format(outside=outside))
    add_vector(folder, found)
    with pytest.raises(ConfigError, match="not in its folder"):
        opened(folder).compact(1 << 30)
    log = folder / "_delta_log"
    (log / f"{3:020}.json").unlink()
    table = opened(folder)
    rows = [{"add": {"path": "a", "deletionVector": one}} for one in (None, found)]
    pq.write_table(pa.Table.from_pylist(rows), log / f"{2:020}.checkpoint.parquet")
    with pytest.raises(ConfigError, match="not in its folder"):
        table.compact(1 << 30)


def test_vectors_in_the_folder_and_in_the_log_are_the_tables(folder: Path) -> None:
    (folder / "ab").mkdir()
    table = opened(folder)
    for one in (vector("u", f"ab{UP}"), vector("u", UP), vector("i", "anything")):
        add_vector(folder, one)
        table._check_files_inside()


@pytest.mark.parametrize(
    "path", ["../../../outside/pipe", "file://{outside}/pipe", "%2e%2e/x", "a/b", "linked"]
)
@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_sidecar_elsewhere_is_not_opened(folder: Path, path: str, kind: str) -> None:
    log, outside = folder / "_delta_log", folder.parent / "outside"
    (log / "_sidecars").mkdir()
    (log / "_sidecars" / "linked").symlink_to(outside / "pipe")
    first = [json.loads(one) for one in (log / f"{0:020}.json").read_text().splitlines()]
    sidecar = {"path": path.format(outside=outside), "sizeInBytes": 1, "modificationTime": 1}
    rows = [one for one in first if "metaData" in one or "protocol" in one]
    rows += [{"checkpointMetadata": {"version": 2}}, {"sidecar": sidecar}]
    file = log / f"{2:020}.checkpoint.{uuid.uuid4()}.{kind}"
    if kind == "json":
        file.write_text("\n".join(map(json.dumps, rows)))
    else:
        pq.write_table(pa.Table.from_pylist([{"sidecar": sidecar}]), file)
    with pytest.raises(ConfigError, match="not in its folder"):
        opened(folder)
