"""Drivers that die while they write tables: `python -m tests.chaos.table_kills --format delta`.

Each round has one driver with a streaming query for each of its tables. It is killed (kill -9 of
the program and its JVM) at a random time, or when one of the tables comes to a named moment of a
batch: a file is open, the files are written, before the commit, after it and before Spark's own
log. It is started again, on more messages, and now and then a table is compacted while the query
writes. After the last start, which nobody kills, each table holds every message once, as read by
DuckDB, Polars and, of Iceberg, PyIceberg.

A table counts as one run, with all kills that met its driver before its query was done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.java import small_jvms
from tests.support.table_readers import column

from jetspark.blocking import JetStream, connect
from jetspark.errors import CommitConflict
from jetspark.lakehouse.formats import Format, find_table
from jetspark.lakehouse.table import TableName
from jetspark.server import NatsServer
from jetspark.spark.failures import NO_WORKER

ROOT = Path(__file__).parents[2]
MOMENTS = ("file open", "files written", "before commit", "after commit")
BATCHES = 2
"""Of new messages between two starts; a batch has `PER_BATCH`."""
PER_BATCH = 50
_LONGEST = 900.0  # seconds
_STARTS = 5


@dataclass
class Figures:
    """What happened."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    compacted: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {moment}" for moment, count in sorted(self.kills.items()))
        return (
            f"{self.runs} runs, {self.rows:,} rows, killed: {kills}; {self.compacted} compactions; "
            f"{len(self.wrong)} wrong"
        )


@dataclass
class Kill:
    """When a driver dies."""

    moment: str
    table: int
    """Whose batch comes to the moment."""
    batch: int
    """Counted from the start."""
    seconds: float
    """After the first commit, when the moment is a random time."""


class Round:
    """One driver's tables."""

    def __init__(self, folder: Path, server: NatsServer, format_: str, tables: int, seed: str):
        self.folder = folder
        self.random = random.Random(seed)
        self._server = server
        self._format = format_
        self._tables = tables
        self._stored = 0

    def run(self, figures: Figures, kills: int) -> None:
        with connect(self._server.url) as nc:
            js = nc.jetstream()
            for number in range(self._tables):
                js.create_stream(name=f"T{number}", subjects=[f"t{number}"])
            try:
                for _ in range(kills):
                    self._publish(js)
                    self._killed(figures)
                self._publish(js)
                self._finished(figures)
            finally:
                for number in range(self._tables):
                    js.delete_stream(f"T{number}")
        self._check(figures)

    def _publish(self, js: JetStream) -> None:
        with js.publisher() as publisher:
            for _ in range(BATCHES * PER_BATCH):
                self._stored += 1
                for number in range(self._tables):
                    publisher.send(f"t{number}", str(self._stored).encode())

    def _killed(self, figures: Figures) -> None:
        kill = Kill(
            self.random.choice((*MOMENTS, "random time", "random time")),
            self.random.randrange(self._tables),
            self.random.randrange(BATCHES),
            self.random.uniform(0, 8),
        )
        process = self._start(kill)
        deadline = time.monotonic() + _LONGEST
        compacting = self._compacting(figures)
        try:
            if kill.moment == "random time":
                while process.poll() is None and not (self.folder / "committed").exists():
                    time.sleep(0.05)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill.seconds)
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(deadline - time.monotonic())
            code = process.poll()
            self._end(process)
        finally:
            compacting()
        if code in (None, -signal.SIGKILL):
            figures.kills[kill.moment] += 1
        elif code == 0:
            figures.kills["done before"] += 1
        elif NO_WORKER not in self._log():
            figures.wrong.append(f"{self.folder.name}: exit {code}: {self._log()}")

    def _finished(self, figures: Figures) -> None:
        """A driver that nobody kills; another one when the machine was too busy for a query."""
        for _ in range(_STARTS):
            process = self._start(None)
            try:
                code = process.wait(_LONGEST)
            finally:
                self._end(process)
            if code == 0:
                return
            if NO_WORKER not in self._log():
                break
        figures.wrong.append(f"{self.folder.name}: exit {code}: {self._log()}")

    def _start(self, kill: Kill | None) -> subprocess.Popen[bytes]:
        for name in ("pids", "committed"):
            (self.folder / name).unlink(missing_ok=True)
        settings = {
            "folder": str(self.folder),
            "server": self._server.url,
            "format": self._format,
            "tables": self._tables,
            "per_batch": PER_BATCH,
            "moment": None if kill is None else kill.moment,
            "table": None if kill is None else f"table{kill.table}",
            "batch": None if kill is None else kill.batch,
        }
        text = json.dumps(settings)
        paths = [str(ROOT / "tests" / "chaos" / "table_kills_hook"), str(ROOT)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.table_kills_driver", text],
            stdout=(self.folder / "driver.log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "TABLE_KILLS": text},
        )

    def _compacting(self, figures: Figures) -> Callable[[], None]:
        """Compacts a table again and again, in two starts of three; to be called at the end."""
        over = threading.Event()

        def work() -> None:
            place = self.folder / f"table{number}"
            while not over.wait(1.0):
                try:
                    table = find_table(Format(self._format), TableName(path=str(place)))
                    if table is not None:
                        figures.compacted += bool(table.compact(2**27).removed)
                except CommitConflict:
                    pass  # the claim of a driver's overwrite, or of one before
                except Exception as error:
                    figures.wrong.append(f"{self.folder.name}: compaction: {error!r}")

        number = self.random.randrange(self._tables)
        if self.random.random() > 2 / 3:
            return lambda: None
        thread = threading.Thread(target=work)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        return end

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9 of the program and its JVM; Python workers are left to find out themselves."""
        pids = [process.pid]
        with suppress(FileNotFoundError):
            pids += json.loads((self.folder / "pids").read_text())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def _check(self, figures: Figures) -> None:
        for number in range(self._tables):
            figures.runs += 1
            place = self.folder / f"table{number}"
            try:
                found = column(self._format, place, "data")
            except Exception as error:
                figures.wrong.append(f"{place}: {error!r}")
                continue
            ids = Counter(int(data) for data in found.elements())
            missing = set(range(1, self._stored + 1)) - set(ids)
            repeated = [one for one, count in ids.items() if count > 1]
            figures.rows += ids.total()
            if missing or repeated or ids.total() != self._stored:
                figures.wrong.append(
                    f"{place}: {len(missing)} missing, {len(repeated)} repeated, "
                    f"{ids.total()} of {self._stored}"
                )

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text("utf-8", "replace")[-3000:]


def campaign(format_: str, runs: int, tables: int, seed: int, most_kills: int) -> Figures:
    """So many tables, a driver for some of them at once."""
    figures = Figures()
    folder = Path(tempfile.mkdtemp(prefix="table-kills-"))
    try:
        for number in range((runs + tables - 1) // tables):
            one = folder / f"round-{number}"
            one.mkdir()
            with NatsServer(store_dir=one / "nats") as server:
                round_ = Round(one, server, format_, tables, f"{seed}:{number}")
                round_.run(figures, round_.random.randint(1, most_kills))
            print(figures, file=sys.stderr, flush=True)
            if figures.wrong:
                print(*figures.wrong, sep="\n", file=sys.stderr, flush=True)
                break
            shutil.rmtree(one)
    finally:
        if not figures.wrong:
            shutil.rmtree(folder, ignore_errors=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.table_kills", description=__doc__)
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tables", type=int, default=10, help="of one driver")
    parser.add_argument("--kills", type=int, default=3, help="of one driver, at most")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    small_jvms()
    figures = campaign(options.format, options.runs, options.tables, options.seed, options.kills)
    print(figures)
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
