"""Notes of batches beside tables, changed by somebody who may write there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jetspark.errors import TableError
from jetspark.spark.table_sink.batch_commits import BatchCommits
from jetspark.spark.table_sink.ledger import Location, PendingBatch, PendingDeadLetters
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.batches import commit_files
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.new_files import encode_new_file
from jetspark.tables.table import TableName

pytestmark = pytest.mark.tables
SCHEMA = pa.schema([("n", pa.int64())])
QUERY = "5b2c4d0e-0000-4000-8000-000000000000"


def written(path: Path, rows: int) -> Any:
    """A table, and new files for it."""
    table = open_or_create_table(Format.DELTA, TableName(path=str(path)), SCHEMA, ())
    batches = pa.table({"n": list(range(rows))}, SCHEMA).to_batches()
    layout = table.layout(10**6, "zstd")
    return table, write_files(layout, table.storage, "part-00000", batches)


def of_letters(batch: PendingBatch, victim: Path, files: Any) -> None:
    batch.dead_letters = PendingDeadLetters(
        "stream:X",
        Location.of(Format.DELTA, TableName(path=str(victim))),
        list(map(encode_new_file, files)),
        stored=True,
    )


def of_replacement(batch: PendingBatch, victim: Path, files: Any) -> None:
    batch.tables[0].replaces = True


@pytest.mark.parametrize("forge", [of_letters, of_replacement])
def test_a_note_decides_nothing_about_other_places(tmp_path: Path, forge: Any) -> None:
    victim, files = written(tmp_path / "victim", 3)
    commit_files(victim, files)
    given = {"path": str(tmp_path / "lake" / "{kind}"), "checkpointLocation": "s3://far/away"}
    options = parse_lakehouse_options(Format.DELTA, given).for_streaming()
    names = [str(tmp_path / "lake" / name) for name in ("a", "b")]
    new = []
    for name in names:
        _, made = written(Path(name), 2)
        new += [replace(one, table=name) for one in made]
    BatchCommits(options, QUERY, 0).commit(new)
    (note,) = (tmp_path / "lake" / "_jetspark").iterdir()
    content = pq.read_table(note, partitioning=None)["batch"][0].as_py()
    batch = msgspec.msgpack.decode(content, type=PendingBatch)
    batch.batch = 1
    forge(batch, tmp_path / "victim", files)
    pq.write_table(pa.table({"batch": [msgspec.msgpack.encode(batch)]}), note)
    with pytest.raises(TableError, match="is not one that this query has written"):
        BatchCommits(options, QUERY, 1).complete()
    assert all((tmp_path / "victim" / one.path).exists() for one in files)
    for name in names:
        facts = open_table(Format.DELTA, TableName(path=name)).facts()
        assert facts.rows == 2
