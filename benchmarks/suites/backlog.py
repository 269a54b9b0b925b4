"""A long backlog becomes a Delta table: `jetspark ingest` from the return key to the prompt.

`--payload bytes` has opaque payloads; `flights` are the demo's as JSON, `flat` and `nested` seven
values of an event as JSON, whose fields become columns. The command is beside what bounds it: a raw
drain of a pull consumer, one process that reads, decodes and writes Parquet with the same parts,
and Spark writing the same rows from its own memory into Parquet. `start` is the command on a stream
of one message: what is not the backlog's. CPU and memory are those of all processes of a
contestant.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.events import FLAT, NESTED, events
from benchmarks.flights import SCHEMA, RepeatedPayloads, flights
from benchmarks.measure import Job, Measure, Stopwatch, session_cpu
from benchmarks.race import chosen, contestant_options, race
from benchmarks.report import Section
from benchmarks.stage import stage
from benchmarks.suites import read, spark
from benchmarks.suites.table import Peak

_LABELS = {
    "raw_drain": "raw drain",
    "one_process": "one process → Parquet",
    "memory_parquet": "Spark, rows from memory → Parquet",
    "jetspark_ingest": "jetspark ingest → Delta",
    "jetspark_snapshot": "jetspark ingest through a snapshot → Delta",
    "jetspark_start": "jetspark ingest of one message",
}
_ROW_GROUP = 500_000
_SCHEMAS = {"bytes": None, "flights": SCHEMA, "flat": FLAT, "nested": NESTED}
_DIFFERENT = 100_000
"""Events, over and over."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=10_000_000, rounds=3, warm_up=1, timeout=1200)
    parser.add_argument("--payload", choices=_SCHEMAS, default="bytes")
    contestant_options(parser, _LABELS)


def run(options: argparse.Namespace) -> Iterator[Section]:
    payloads = _payloads(options.payload)
    if payloads is not None:
        options.size = payloads.size
    number = list(_SCHEMAS).index(options.payload)
    with stage(options, payloads, partitions=os.cpu_count() or 1, payload=number) as job:
        title = f"{options.messages:,} messages of {options.size:,} bytes into a table"
        yield race(options, __name__, chosen(options, _LABELS), job, title, *list(_LABELS)[:2])


def _payloads(name: str) -> RepeatedPayloads | None:
    if name == "bytes":
        return None
    if name == "flights":
        return RepeatedPayloads(flights())
    return RepeatedPayloads(events(_DIFFERENT, nested=name == "nested"))


def _schema(job: Job) -> str | None:
    return list(_SCHEMAS.values())[job.settings["payload"]]


# -- contestants -------------------------------------------------------------------------------


def raw_drain(job: Job) -> Measure:
    return read.raw_drain(job)


def one_process(job: Job) -> Measure:
    """Without Spark, tables and partitions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from jetspark.payloads.decoding import Decoding

    schema = _schema(job)
    decoder = None if schema is None else Decoding.make("json", schema=schema).decoder()
    writer, rows, buffered = None, 0, list[pa.RecordBatch]()
    with Stopwatch() as watch:
        for batch in read.arrow_batches(job, job.stream, job.messages):
            buffered.append(batch if decoder is None else decoder.decode_batch(batch))
            rows += batch.num_rows
            if rows % job.messages and sum(one.num_rows for one in buffered) < _ROW_GROUP:
                continue
            table = pa.Table.from_batches(buffered)
            writer = writer or pq.ParquetWriter("rows.parquet", table.schema)
            writer.write_table(table)
            buffered = []
        assert writer is not None
        writer.close()
    return watch.measure(rows)


def memory_parquet(job: Job) -> Measure:
    return spark.memory_parquet(job)


def jetspark_ingest(job: Job) -> Measure:
    return _ingest(job)


def jetspark_snapshot(job: Job) -> Measure:
    return _ingest(job, "--backfill", "snapshot-blocking-deletes")


def jetspark_start(job: Job) -> Measure:
    return _ingest(replace(job, stream=job.warm_stream, messages=job.warm_messages))


def _ingest(job: Job, *further: str) -> Measure:
    from deltalake import DeltaTable

    schema = _schema(job)
    columns = () if schema is None else ("--json-schema", schema)
    command = (sys.executable, "-m", "jetspark", "ingest", job.stream, "--to", "table")
    peak = Peak()
    with Stopwatch(_cpu_of_command, peak.stop) as watch:
        subprocess.run(
            [*command, "--server", job.url, *columns, *further, "--quiet"],
            stdout=subprocess.DEVNULL,
            check=True,
        )
    rows = DeltaTable(str(Path("table"))).to_pyarrow_dataset().count_rows()
    if rows != job.messages:
        raise RuntimeError(f"{rows:,} rows of {job.messages:,} messages")
    return watch.measure(job.messages)


def _cpu_of_command() -> float | None:
    """Without this process, whose look at the memory of the others takes a fifth of a processor."""
    total = session_cpu()
    return None if total is None else total - sum(os.times()[:2])
