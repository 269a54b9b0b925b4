"""Messages become rows and files of tables as in Spark's tasks; no Spark is started."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from jetspark.spark.pipelines.table_rows import RowSpec, build_rows
from jetspark.spark.source.options import parse_options
from jetspark.spark.table_sink.data_sources import written_schemas
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.spark.table_sink.table_preparation import prepare, prepare_for_query
from jetspark.spark.table_sink.task_files import TaskFiles
from jetspark.spark.table_sink.writers import LakehouseBatchWriter


class Task:
    """The only task of a batch."""

    def __init__(self, options: LakehouseOptions, **decode: str) -> None:
        """`decode`: options of the source, how payloads become columns."""
        source = parse_options({"stream": "S", **decode})
        spec = RowSpec("json", decode.get("schema")).for_table(options, source)
        self._options, self._columns = options, spec.schemas(source)
        self._builders = spec.builders(source)
        self.prepare()

    def prepare(self) -> None:
        """Begin with the next batch of the query."""
        self.target = prepare_for_query(self._options, self._columns)
        self.files = TaskFiles(self.target)

    def write(self, messages: pa.RecordBatch) -> None:
        """Write their rows."""
        for table_index, rows in build_rows(self._builders, self._options.tables, messages):
            self.files.write(rows, table_index)


def batch_writer(options: LakehouseOptions, schema: StructType) -> LakehouseBatchWriter:
    """What Spark gets for `df.write` of rows with this schema."""
    target = prepare(options, written_schemas(options, schema))
    return LakehouseBatchWriter(options, target, replace=False)
