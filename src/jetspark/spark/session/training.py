"""A run of Spark that loads the classes of a typical job, for the class archive.

`python -m jetspark.spark.session.training FILE`: the JVM writes FILE when it ends. It needs no
NATS server: a small Python source replaces JetStream.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.functions import col, from_json

from jetspark.spark.session import jvm, session

_ROWS = 1000
_EXIT_SECONDS = 300.0


class _Reader(DataSourceReader, DataSourceStreamReader):
    """Yields made-up rows in two partitions, for a batch read or the only batch of a stream."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {"at": _ROWS}

    def partitions(self, *_: Any) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for number in range(_ROWS):
            yield (number, f"orders.{partition.value}", b'{"id": "a", "amount": 1.5}')


class _Source(DataSource):
    """A data source in Python with made-up rows, which replaces JetStream's in the training."""

    @classmethod
    def name(cls) -> str:
        return "jetspark_training"

    def schema(self) -> str:
        return "seq BIGINT, subject STRING, payload BINARY"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader()


def train(spark: SparkSession, folder: Path) -> None:
    """Run a typical job, so that the JVM loads the classes for the class archive: write a stream
    to a table in the folder, and query the table."""
    spark.dataSource.register(_Source)
    table = str(folder / "table")
    payload = from_json(col("payload").cast("string"), "id STRING, amount DOUBLE")
    stream = spark.readStream.format("jetspark_training").load()
    query = (
        stream.select("seq", "subject", payload.alias("json"))
        .select("seq", "subject", "json.*")
        .writeStream.partitionBy("subject")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    rows = spark.read.parquet(table)
    rows.groupBy("subject").sum("amount").orderBy("subject").toPandas()
    spark.read.format("jetspark_training").load().count()
    rows.createOrReplaceTempView("rows")
    spark.sql("SELECT count(*), max(seq) FROM rows WHERE amount > 1").collect()
    spark.createDataFrame([(1, "a")], "id INT, name STRING").write.json(str(folder / "json"))


def end_with_parent(file: Path, folder: Path) -> None:
    """Wait, in a thread, until the process that has started this one ends; then kill the JVM,
    remove `file` and `folder`, and end, since nobody needs the class archive any more.

    A JVM that is not killed would still write the archive when it sees its Python end.
    """
    os.read(0, 1)  # the parent's pipe; not by sys.stdin, whose lock would stop an orderly end
    if jvm.last_jvm is not None:
        jvm.kill_jvm(jvm.last_jvm)
    file.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main(file: Path) -> None:
    """Run a typical job in a session whose JVM writes the class archive `file` at its end."""
    with TemporaryDirectory(prefix="jetspark-training-") as name:
        folder = Path(name)
        threading.Thread(target=end_with_parent, args=(file, folder), daemon=True).start()
        spark = session.local_session(
            "jetspark class archive",
            master="local[2]",
            log_file=folder / "log",
            conf={"spark.local.dir": str(folder)},
            jvm_options=[f"-XX:ArchiveClassesAtExit={file}", "-Xlog:cds*=off"],
        )
        try:
            train(spark, folder)
        finally:
            session.close_session(spark, exit_seconds=_EXIT_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
