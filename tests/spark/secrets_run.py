"""Reads and writes with secrets in a Spark of its own that shows as much as it can.

Arguments: a folder, options as JSON, for a stream "S", and the secret of a query into a table. What
the UI showed is left in the folder, beside Spark's log and event log.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.ingest_job import ingest_job

from jetspark.spark.pipelines import task_writes
from jetspark.spark.queries.start import start_query
from jetspark.spark.session.session import close_session, local_session

S3_SECRET = "a hidden=\\ of\n \té😀#!:"

ENDPOINTS = (
    "environment", "jobs", "stages", "executors", "allexecutors", "sql?details=true",
    "storage/rdd", "logs",
)  # fmt: skip
PAGES = (
    "jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/", "StreamingQuery/",
    "SQL/execution/?id=0", "SQL/execution/?id=1", "SQL/execution/?id=2", "jobs/job/?id=0",
    "stages/stage/?id=0&attempt=0", "executors/threadDump/?executorId=driver",
)  # fmt: skip


def main(folder: Path, options: dict[str, str], task_secret: str) -> None:
    (folder / "events").mkdir()
    conf = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.eventLog.enabled": "true"}
    conf |= {"spark.eventLog.dir": (folder / "events").as_uri(), "spark.eventLog.compress": "false"}
    conf |= {"spark.hadoop.fs.s3a.secret.key": S3_SECRET, "spark.driver.memory": "700m"}
    spark = local_session("secrets", master="local[2]", log_file=folder / "spark.log", conf=conf)
    spark.sparkContext.setLogLevel("INFO")
    try:
        check_settings(spark, folder / "spark.log")
        work(spark, folder, options)
        ingest(spark, folder, options, task_secret)
        show(spark, folder)
    finally:
        close_session(spark)


def check_settings(spark: SparkSession, log: Path) -> None:
    """They arrive, and whoever is on the machine, and sees the arguments of all processes, does
    not see them."""
    context: Any = spark.sparkContext
    heap = context._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    assert 600 < heap <= 700
    assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == S3_SECRET
    assert spark.conf.get("spark.of.defaults") == "yes"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    if sys.platform == "linux":
        process = f"/proc/{context._gateway.proc.pid}/cmdline"
        assert b"hidden" not in Path(process).read_bytes()


def work(spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
    shown = []
    reader = spark.read.format("jetstream").options(**options)
    rows = reader.load()
    shown.append(str(rows._jdf.queryExecution().toString()))
    rows.createOrReplaceTempView("rows")
    spark.sql("SELECT count(*) FROM rows").collect()
    rows.select("data").write.format("jetstream").options(**options, subject="s.copy").mode(
        "append"
    ).save()
    changes = spark.readStream.format("jetstream").options(**options, startingOffsets="earliest")
    writer = changes.load().drop("subject").writeStream.format("jetstream")
    writer = writer.options(**options, subject="s.copy", guarantee="exactly-once")
    writer = writer.options(prepareStream="true", checkpointLocation=str(folder / "checkpoint"))
    query = start_query(writer.trigger(availableNow=True).start)
    query.awaitTermination(300)
    shown.append(str([report.json for report in query.recentProgress]))
    wrong = options | {"stream": "NOPE"}
    for attempt in (
        lambda: spark.read.format("jetstream").options(**wrong).load().count(),
        lambda: spark.range(1).selectExpr("'x' data").write.format("jetstream")
        .options(**wrong, subject="x").mode("append").save(),
        lambda: spark.range(1).selectExpr("'x' data").write.format("jetstream")
        .options(**options, subject="not.there").mode("append").save(),
    ):  # fmt: skip
        try:
            attempt()
            raise AssertionError("that should have failed")
        except PySparkException as error:
            shown.append(str(error))
    (folder / "shown.txt").write_text("\n".join(shown), "utf-8")


def ingest(spark: SparkSession, folder: Path, options: dict[str, str], secret: str) -> None:
    """Into a table, whose tasks seal what they report with this secret."""
    vars(task_writes)["make_secret"] = lambda: secret
    options = options | {"startingOffsets": "earliest"}
    job = ingest_job(options=options, to=str(folder.parent / "table"))
    query = job.start(spark)
    query.awaitTermination(300)
    assert query.lastProgress is not None


def show(spark: SparkSession, folder: Path) -> None:
    """Everything that the UI has to say."""
    url = spark.sparkContext.uiWebUrl
    assert url is not None
    url = re.sub(r"//[^:/]+:", "//127.0.0.1:", url)
    api = f"{url}/api/v1/applications/{spark.sparkContext.applicationId}"
    addresses = [f"{api}/{name}" for name in ENDPOINTS] + [f"{url}/{page}" for page in PAGES]
    pages = []
    for address in addresses:
        try:
            with urlopen(address, timeout=60) as answer:
                pages.append(f"{address}\n{answer.read().decode()}")
        except OSError:
            continue  # not every number is there
    assert len(pages) >= len(ENDPOINTS) + 5
    (folder / "ui.txt").write_text("\n".join(pages), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
