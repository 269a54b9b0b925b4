"""The last batch after a kill: its files are listed in the table, but it is not committed.

Because of its number Spark considers it the batch that the checkpoint has planned, and does not
write that again. A plain PySpark query, which has no note, may have used the number in the
meantime; then the planned batch would count as read without being written. So the batch's files are
checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetspark.bulk.ranges import SequenceRange
from jetspark.errors import ConfigError
from jetspark.spark.offsets import StreamOffset, from_json
from jetspark.spark.planning import batch_ranges
from jetspark.spark.table_files import Files
from jetspark.spark.table_rules import Wanted
from jetspark.spark.table_state import SINK_LOG, offsets_of

_WITH_SCHEMA = ("parquet", "orc")


def check_open_batch(files: Files, rows: DataFrame, wanted: Wanted, batch: int) -> None:
    """Raises ConfigError if the files of this batch cannot be those of the planned one."""
    paths = _files_of(files, wanted.table, batch)
    if not paths or wanted.format not in _WITH_SCHEMA:
        return
    found = rows.sparkSession.read.format(wanted.format).load(paths)
    columns = {field.name: field.dataType.simpleString() for field in found.schema}
    expected = {
        name: kind for name, kind in wanted.columns or () if name not in wanted.partition_by
    }
    same = columns == expected
    if same and wanted.is_messages and {"stream", "seq"} <= columns.keys():
        ranges = {
            one.stream: one
            for source in _planned(files, wanted.checkpoint, batch)
            for one in source
        }
        ends = found.groupBy("stream").agg(F.min("seq"), F.max("seq")).collect()
        same = all(
            stream in ranges and ranges[stream].start <= first and last < ranges[stream].end
            for stream, first, last in ends
        )
    if not same:
        raise ConfigError(
            f"Another query has written into {wanted.table} after a run was stopped, in place of "
            f"the batch that {wanted.checkpoint} has planned: {wanted.start_again}."
        )


def _files_of(files: Files, table: str, batch: int) -> list[str]:
    """The files that only this batch has listed; a summary also lists those of earlier ones."""
    listed: dict[int, set[str]] = {}
    for name in files.names(f"{table}/{SINK_LOG}") or ():
        number = name.removesuffix(".compact")
        if number.isdigit() and int(number) <= batch:
            listed[int(number)] = set(_paths(files.read(f"{table}/{SINK_LOG}/{name}") or ""))
    new = listed.pop(batch, set())
    return sorted(new.difference(*listed.values()))


def _paths(log: str) -> Iterator[str]:
    for line in log.split("\n")[1:]:
        if line and (entry := json.loads(line)).get("action") == "add":
            yield entry["path"]


def _planned(files: Files, checkpoint: str, batch: int) -> list[list[SequenceRange]]:
    starts = _sources(files, checkpoint, batch - 1)
    ends = _sources(files, checkpoint, batch)
    return [
        batch_ranges(starts[index] if index < len(starts) else {}, end)
        for index, end in enumerate(ends)
    ]


def _sources(files: Files, checkpoint: str, batch: int) -> list[Mapping[str, StreamOffset]]:
    return [from_json(json.loads(line)) for line in offsets_of(files, checkpoint, batch)]
