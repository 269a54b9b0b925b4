"""What a faulted run writes: small JSON files, in micro-batches that come out the same each time.

A row's id is "<file>-<number>"; the target's payload begins with it. A file is one partition, so
the rows of a file have an order to keep.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.chaos.writing_steps import FORMAT, ChaosDataSource

from jetspark.spark.failures import explain

EXACTLY, EFFECTIVELY, AT_LEAST = "exactly-once", "effectively-once", "at-least-once"
LONGEST_QUERY = 240.0  # seconds


@dataclass(frozen=True)
class Job:
    """One query, or one batch write, from the files to the stream. Plain values: it travels."""

    folder: str
    """Of this run: input, checkpoint, gate."""
    servers: str
    stream: str
    guarantee: str = EXACTLY
    files_per_batch: int = 2
    payload: int = 200
    """Bytes of a payload."""
    partitions: int = 0
    """Partitions to write from, by a shuffle; 0: one for a file."""
    transaction: str = ""
    """A name makes it a batch write."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def input(self) -> Path:
        return Path(self.folder, "input")

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder, "checkpoint")

    @property
    def gate(self) -> Path:
        return Path(self.folder, "gate")


def write_file(job: Job, number: int, rows: int, *, large: int | None = None) -> list[str]:
    """An input file; the ids of its rows. `large`: one row in the middle has so many bytes more."""
    ids = [f"f{number:02d}-{row:05d}" for row in range(rows)]
    lines = [
        json.dumps({"id": one, "more": large if large and row == rows // 2 else 0})
        for row, one in enumerate(ids)
    ]
    job.input.mkdir(parents=True, exist_ok=True)
    new = job.input.parent / f"new-{number}"
    new.write_text("\n".join(lines) + "\n")
    os.utime(new, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes older ones first
    new.rename(job.input / f"{number:02d}.json")
    return ids


def _rows(spark: SparkSession, job: Job) -> DataFrame:
    schema = "id string, more int"
    if job.transaction:
        rows = spark.read.schema(schema).json(str(job.input))
    else:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", job.files_per_batch)
        rows = reader.json(str(job.input))
    if job.partitions:
        rows = rows.repartition(job.partitions, "id")
    columns = [
        f"concat('{job.stream}.', substr(id, 1, 3)) subject",
        f"rpad(concat(id, ' '), {job.payload} + more, '.') data",
    ]
    if job.guarantee == EFFECTIVELY:
        columns.append("id msg_id")
    return rows.selectExpr(*columns)


def _options(job: Job) -> dict[str, str]:
    options = {
        "servers": job.servers,
        "stream": job.stream,
        "guarantee": job.guarantee,
        "publishTimeout": "15",
        "chaosFolder": str(job.gate),
        **job.options,
    }
    if job.guarantee == EXACTLY:
        options["lanes"] = "2"
        if job.transaction:
            options["transactionId"] = job.transaction
    return options


class Attempt:
    """A job under way in a thread of its own. `error`: the sentence that it failed with."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self.error: str | None = None
        self._spark = spark
        self._job = job
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, timeout: float = LONGEST_QUERY) -> str | None:
        """The error, None when all was written. Raises TimeoutError."""
        self._thread.join(timeout)
        if not self.done:
            raise TimeoutError(f"a query was not done after {timeout:g} s")
        return self.error

    def _run(self) -> None:
        try:
            self._write()
        except (PySparkException, Py4JError) as error:
            self.error = str(explain(error))
        except BaseException as error:  # whatever it is, the campaign has to show it
            self.error = f"{type(error).__name__}: {error}"

    def _write(self) -> None:
        job, spark = self._job, self._spark
        # A thread of ours has no active session, and only that knows what is registered.
        SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
        spark.dataSource.register(ChaosDataSource)
        rows = _rows(spark, job)
        if job.transaction:
            rows.write.format(FORMAT).options(**_options(job)).mode("append").save()
            return
        query = (
            rows.writeStream.format(FORMAT)
            .options(**_options(job))
            .option("checkpointLocation", str(job.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
