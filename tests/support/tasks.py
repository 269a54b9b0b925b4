"""Messages become rows and files of tables as in Spark's tasks; no Spark is started."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from jetspark.spark.lakehouse.options import LakehouseOptions
from jetspark.spark.lakehouse.target import (
    LakehouseBatchWriter,
    TaskFiles,
    prepare,
    prepare_for_query,
    rows_given,
)
from jetspark.spark.options import parse_options
from jetspark.spark.table_rows import RowsOf, rows_by_table


class Task:
    """The only task of a batch."""

    def __init__(self, options: LakehouseOptions, **decode: str) -> None:
        """`decode`: options of the source, how payloads become columns."""
        source = parse_options({"stream": "S", **decode})
        how = RowsOf(("json", decode.get("schema")), {}).into(options, source)
        source = how.decoded_in(source)
        self._options, self._columns = options, how.schemas(source)
        self._makers = how.makers(source)
        self.prepare()

    def prepare(self) -> None:
        """Begin with the next batch of the query."""
        self.target = prepare_for_query(self._options, self._columns)
        self.files = TaskFiles(self.target)

    def write(self, messages: pa.RecordBatch) -> None:
        """Write their rows."""
        for number, rows in rows_by_table(self._makers, self._options.tables, messages):
            self.files.write(rows, number)


def batch_writer(options: LakehouseOptions, schema: StructType) -> LakehouseBatchWriter:
    """What Spark gets for `df.write` of rows with this schema."""
    target = prepare(options, rows_given(options, schema))
    return LakehouseBatchWriter(options, target, replace=False)
