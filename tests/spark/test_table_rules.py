"""What may go on, and what is refused, by the numbers of batches and by what notes say."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from jetspark.errors import ConfigError
from jetspark.spark.table_files import LocalFiles, local_path
from jetspark.spark.table_note import Note, Notes, Progress
from jetspark.spark.table_rules import LIKE, Step, Wanted, next_step
from jetspark.spark.table_state import (
    CheckpointState,
    TableState,
    partitions_of,
    read_checkpoint,
    read_table,
)

if TYPE_CHECKING:
    from pathlib import Path

WANTED = Wanted("lake", "chk", "parquet", ["day"], ["A"], [("seq", "bigint"), ("day", "date")])
NOTE = Note("q", ["A"], "parquet", [("seq", "bigint"), ("day", "date")], ["day"])
KNOWN = msgspec.structs.replace(NOTE, progress=Progress(7, {6: "x", 7: "y"}, "c"))
EMPTY, NEW = TableState(), CheckpointState()
ROWS = TableState(batch=7, note=NOTE)


def offsets(*streams: str) -> str:
    sources = [msgspec.json.encode({"streams": {one: {} for one in streams}}).decode()]
    return "\n".join(["v1", "{}", *sources])


@pytest.mark.parametrize(
    ("table", "checkpoint", "wanted", "expected"),
    [
        (EMPTY, NEW, WANTED, Step.BEGIN),
        (EMPTY, CheckpointState("q", planned=0), WANTED, Step.BEGIN),
        # A first batch that was killed left a note, and perhaps another query's.
        (TableState(note=NOTE), CheckpointState("r", 0), WANTED, Step.BEGIN),
        (ROWS, CheckpointState("q", 7, 7), WANTED, Step.GO_ON),
        (ROWS, CheckpointState("q", 8, 7), WANTED, Step.GO_ON),
        (ROWS, CheckpointState("q", 7, 6), WANTED, Step.GO_ON),
        (TableState(batch=0, note=NOTE), CheckpointState("q", 0), WANTED, Step.GO_ON),
        (replace(ROWS, note=KNOWN), CheckpointState("q", 7, 6, "y"), WANTED, Step.GO_ON),
        (replace(ROWS, note=KNOWN), NEW, WANTED, Step.REBUILD),
        (replace(ROWS, note=KNOWN), CheckpointState("q"), WANTED, Step.REBUILD),
        (replace(ROWS, note=KNOWN), CheckpointState(None, 6), WANTED, Step.REBUILD),
        (replace(ROWS, note=KNOWN), CheckpointState(None, 7, lost=6), WANTED, Step.REBUILD),
        (
            TableState(batch=7),
            CheckpointState("q", 7, 7),
            replace(WANTED, adopt=True),
            Step.ADOPT,
        ),
        # Before Spark is there, columns are not known, and of a pipeline's sink not the streams.
        (ROWS, CheckpointState("q", 7, 7), replace(WANTED, columns=None, streams=None), Step.GO_ON),
        # Other streams may have come since then.
        (
            EMPTY,
            CheckpointState("q", 0, None, offsets("A1", "A2")),
            replace(WANTED, streams=[LIKE + "A."]),
            Step.BEGIN,
        ),
    ],
)
def test_what_belongs_together_goes_on(
    table: TableState, checkpoint: CheckpointState, wanted: Wanted, expected: Step
) -> None:
    assert next_step(table, checkpoint, wanted) is expected


AGAIN = "where it is rebuilt from the table's note"
START = "read from its start"


@pytest.mark.parametrize(
    ("table", "checkpoint", "wanted", "says"),
    [
        (TableState(is_file=True), NEW, WANTED, "lake is a file"),
        (EMPTY, NEW, replace(WANTED, checkpoint="lake"), "lake is the folder of the table itself"),
        (EMPTY, NEW, replace(WANTED, checkpoint="./lake/"), "such as lake/_checkpoint"),
        (EMPTY, NEW, replace(WANTED, adopt=True), "lake has no table to adopt"),
        (TableState(others=("a",)), NEW, replace(WANTED, adopt=True), "no streaming query"),
        (TableState(others=("a", "b")), NEW, WANTED, r"no streaming query.*\(a, …\).*another"),
        (EMPTY, CheckpointState("q", 3, 3), WANTED, "chk counts 4 batches.*another table"),
        (EMPTY, CheckpointState("q", 0, 0), WANTED, "chk counts 1 batch as"),
        (EMPTY, CheckpointState(None, 4, lost=3), WANTED, "chk has lost its batch 3 and"),
        (TableState(batch=7), CheckpointState(None, 7, lost=6), WANTED, "remove it and lake, or"),
        (ROWS, CheckpointState("q", 7, 7, lost=6), WANTED, "chk has lost its batch 6"),
        (EMPTY, CheckpointState("q", 0, None, offsets("B")), WANTED, "a query on B, not on A"),
        (TableState(note=KNOWN), NEW, WANTED, "has lost Spark's list"),
        (TableState(batch=7), NEW, WANTED, "knows nothing of, and chk is not its checkpoint"),
        (TableState(batch=7), CheckpointState("q", 7, 7), WANTED, "adopt=True"),
        (TableState(batch=7), CheckpointState("q", 5, 5), replace(WANTED, adopt=True), "older"),
        (ROWS, NEW, WANTED, f"cannot be made again.*knows none.*{START}"),
        (replace(ROWS, batch=8, note=KNOWN), NEW, WANTED, "9 batches.*knows only 8 batches"),
        (ROWS, CheckpointState("r", 7, 7), WANTED, f"chk is not the checkpoint of lake.*{START}"),
        (replace(ROWS, note=KNOWN), CheckpointState("r", 7, 7), WANTED, f"not the check.*{AGAIN}"),
        (ROWS, CheckpointState("q", 8, 8), WANTED, "chk counts 9 batches.*only 8 batches"),
        (ROWS, CheckpointState("q", 5, 5), WANTED, f"chk is older than lake.*{START}"),
        (ROWS, CheckpointState("q", 6, 6), WANTED, "chk is older than lake"),
        (replace(ROWS, note=KNOWN), CheckpointState("q", 5, 5), WANTED, f"is older.*{AGAIN}"),
        (replace(ROWS, note=KNOWN), CheckpointState("q", 7, 6, "z"), WANTED, "is older"),
        (ROWS, CheckpointState("q", 7, 7), replace(WANTED, streams=["B"]), "of A, not of B"),
        (ROWS, CheckpointState("q", 7, 7), replace(WANTED, streams=["A", "B"]), "not of A and B"),
        (ROWS, CheckpointState("q", 7, 7), replace(WANTED, format="json"), "in parquet, not"),
        (ROWS, CheckpointState("q", 7, 7), replace(WANTED, partition_by=[]), "by day, not by no"),
        (
            ROWS,
            CheckpointState("q", 7, 7),
            replace(WANTED, columns=[("seq", "int"), ("x", "int")]),
            r"\(new: x int; missing: day; seq: int in place of bigint\)",
        ),
        (
            ROWS,
            CheckpointState("q", 7, 7),
            replace(WANTED, columns=None, names={"seq": "", "x": ""}),
            r"\(new: x; missing: day\)",
        ),
        (
            ROWS,
            CheckpointState("q", 7, 7),
            replace(WANTED, columns=None, names={"seq": "string", "day": ""}),
            r"\(seq: string in place of bigint\)",
        ),
        (EMPTY, CheckpointState(others=("a",)), WANTED, r"chk holds other things.*\(a\): take"),
        (EMPTY, CheckpointState(within="/x"), WANTED, "chk would lie in /x, another table or che"),
        (TableState(within="/x"), NEW, WANTED, "lake would lie in /x, another table or a checkpo"),
        (EMPTY, NEW, replace(WANTED, table="chk/lake"), "chk/lake would lie in its checkpoint chk"),
    ],
)
def test_what_does_not_is_refused_with_what_to_do(
    table: TableState, checkpoint: CheckpointState, wanted: Wanted, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        next_step(table, checkpoint, wanted)
    assert str(raised.value).endswith(".")


def test_the_order_of_columns_counts_where_readers_go_by_it() -> None:
    turned = replace(WANTED, columns=list(reversed(WANTED.columns or ())))
    state = CheckpointState("q", 7, 7)
    assert next_step(ROWS, state, turned) is Step.GO_ON
    csv = replace(ROWS, note=msgspec.structs.replace(NOTE, format="csv"))
    with pytest.raises(ConfigError, match="in the order day, seq"):
        next_step(csv, state, replace(turned, format="csv"))


def test_states_are_read_from_folders(tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "t", tmp_path / "t" / "chk"
    for file, text in {
        "_spark_metadata/8": "v1",
        "_spark_metadata/9.compact": 'v1\n{"path":"file:///t/day=1/part-0.parquet"}',
        "_spark_metadata/.10.tmp": "",
        "part-0.parquet": "",
        "chk/metadata": '{"id":"q"}',
        "chk/offsets/8": "v1",
        "chk/offsets/9": offsets("B", "A"),
        "chk/offsets/.10.crc": "",
        "chk/commits/9": "v1",
    }.items():
        path = table / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = LocalFiles()
    assert read_table(files, str(table), str(checkpoint)) == TableState(batch=9)
    assert partitions_of(files, str(table), 9) == ["day"]
    state = read_checkpoint(files, str(checkpoint))
    assert state == CheckpointState("q", 9, 9, offsets("B", "A"))
    assert state.streams == ["A, B"]
    (table / "_spark_metadata" / "8").unlink()
    (table / "_spark_metadata" / "9.compact").unlink()
    assert read_table(files, str(table), str(checkpoint)).others == ("part-0.parquet",)
    assert read_table(files, str(table / "part-0.parquet"), "").is_file
    assert read_checkpoint(files, str(tmp_path / "nowhere")) == NEW


def test_the_newest_note_that_is_whole_counts(tmp_path: Path) -> None:
    folder = tmp_path / "_jetspark"
    folder.mkdir()
    notes = Notes(LocalFiles(), str(tmp_path))
    assert notes.newest() is None
    (folder / "note-000001.json").write_bytes(msgspec.json.encode(NOTE))
    (folder / "note-000002.json").write_bytes(msgspec.json.encode(KNOWN))
    (folder / "note-000003.json").write_text('{"query": "x", "str')
    assert notes.newest() == KNOWN
    later = msgspec.structs.replace(NOTE, version=2)
    (folder / "note-000010.json").write_bytes(msgspec.json.encode(later))
    with pytest.raises(ConfigError, match="later jetspark"):
        notes.newest()


def test_only_local_paths_are_checked_before_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert local_path("lake/x") == "lake/x"
    assert local_path("file:///lake/a%20b") == "/lake/a b"
    assert local_path("s3a://bucket/lake") is None
    assert local_path("file://host/lake") is None
    monkeypatch.setitem(os.environ, "HADOOP_CONF_DIR", "/etc/hadoop")
    assert local_path("lake/x") is None
