"""The driver that dies: a streaming query for each table, all at once. See `table_kills`."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.spark.checkpoints import with_quick_checkpoint
from jetspark.spark.session import local_session
from jetspark.spark.source import register_formats
from jetspark.spark.starting import begun


def main(settings: dict[str, Any]) -> None:
    folder = Path(settings["folder"])
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = local_session(
        "table-kills", master="local[2]", log_file=folder / "spark.log", conf=conf
    )
    register_formats(spark)
    gateway: Any = spark.sparkContext._gateway
    (folder / "pids").write_text(json.dumps([os.getpid(), gateway.proc.pid]))
    queries = [start(spark, settings, number) for number in range(settings["tables"])]
    failures = []
    for query in queries:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            failures.append(str(error))
    print(*failures, sep="\n")
    os._exit(1 if failures else 0)  # the JVM goes with its standard input


def start(spark: SparkSession, settings: dict[str, Any], number: int) -> StreamingQuery:
    """In the main thread: elsewhere Spark does not find Python's sinks."""
    folder = Path(settings["folder"])
    rows = (
        spark.readStream.format("jetstream")
        .option("servers", settings["server"])
        .option("stream", f"T{number}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings["per_batch"]))
        .load()
    )
    checkpoint = str(folder / f"checkpoint{number}")
    writer = (
        rows.select("data", "seq")
        .writeStream.format(f"jetspark-{settings['format']}")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    start = partial(writer.start, str(folder / f"table{number}"))
    return begun(with_quick_checkpoint(spark, checkpoint, start))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
