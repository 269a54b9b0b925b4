"""One program for every deployment: counts a stream, copies it exactly once, counts the copy, and
makes a table of it while a listener follows.

Arguments: where Spark is (sc://…), the server's URL, two streams, a folder.
Prints its findings as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

from jetspark.spark.pipelines.ingest import Ingest
from jetspark.spark.queries.progress import LagListener
from jetspark.spark.queries.start import source_options, start_writing

COUNT = 1000
"""Messages."""
RIGHT = dict.fromkeys(("counted", "copied", "different", "ingested", "told"), COUNT)


def main(spark_at: str, *arguments: str) -> None:
    spark = SparkSession.builder.appName("program").remote(spark_at).getOrCreate()
    print(json.dumps(findings(spark, *arguments)))
    spark.stop()


def findings(
    spark: SparkSession, servers: str, source: str, target: str, folder: str
) -> dict[str, int]:
    stream = {"servers": servers, "stream": source}
    rows = spark.read.format("jetstream").options(**stream, minPartitions="2").load()
    counted = rows.count()
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "600", "minPartitions": "2"}
    given = source_options(stream | limited, follow=False)
    changes = spark.readStream.format("jetstream").options(**given).load()
    writer = changes.selectExpr(f"concat('{target}.', seq % 3) subject", "data").writeStream
    writer = writer.format("jetstream").options(servers=servers, stream=target)
    writer = writer.options(guarantee="exactly-once", prepareStream="true")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    start_writing(spark, writer, f"{folder}/checkpoint", None).awaitTermination(300)
    copy = spark.read.format("jetstream").options(servers=servers, stream=target)
    copied = copy.option("subjects", f"{target}.>").load()
    found = copied.selectExpr("count(*) n", "count(distinct data) different").collect()[0]
    told: list[int] = []
    listener = LagListener(lambda one: told.append(one.rows))
    spark.streams.addListener(listener)
    lake = f"{folder}/lake"
    start = {"startingOffsets": "earliest", "minPartitions": "2"}
    Ingest(options=stream | start, to=lake).start(spark).awaitTermination(300)
    deadline = time.monotonic() + 60
    # Spark tells listeners afterwards, at last the query's end. Before, a listener must not be
    # removed: PySpark's client of Spark Connect may wait for ever then.
    while (sum(told) < counted or listener.latest) and time.monotonic() < deadline:
        time.sleep(0.05)
    spark.streams.removeListener(listener)
    ingested = spark.read.format("jetspark-delta").load(lake).count()
    return {
        "counted": counted,
        "copied": found.n,
        "different": found.different,
        "ingested": ingested,
        "told": sum(told),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
