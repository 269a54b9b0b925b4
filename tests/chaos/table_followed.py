"""A table that is followed, compacted and looked at: `python -m tests.chaos.table_followed`.

`jetspark ingest --follow` writes a table while messages come at a steady rate and `jetspark table
compact` puts its files together now and then. Other readers look at it all the time. A look is
right when the table holds messages 1 to n, each once, and not fewer than the look before. At the
end the query is stopped, and after one more compaction the table may have as many files as its data
fill, and one.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import polars
from tests.support.java import small_jvms
from tests.support.table_readers import by_duckdb, by_polars

from jetspark.blocking import connect
from jetspark.lakehouse.formats import format_of
from jetspark.server import NatsServer

_TARGET = 128 * 1024 * 1024
_COMMAND = (sys.executable, "-m", "jetspark")
Look = tuple[int, int, int, int]
"""Rows, different messages, the smallest number, the greatest."""


def look_with_duckdb(format_: str, table: Path) -> Look:
    sql = "SELECT count(*), count(DISTINCT seq), min(seq), max(seq) FROM t"
    ((rows, different, least, most),) = by_duckdb(format_, table, sql)
    return rows, different, least, most


def look_with_polars(format_: str, table: Path) -> Look:
    seq = polars.col("seq")
    found = by_polars(format_, table).select(
        seq.count().alias("rows"), seq.n_unique().alias("different"),
        seq.min().alias("least"), seq.max().alias("most"),
    )  # fmt: skip
    rows, different, least, most = found.collect().row(0)
    return rows, different, least, most


class Followed:
    """What happens at the same time."""

    def __init__(self, format_: str, url: str, folder: Path, rate: int) -> None:
        self._format = format_
        self._url = url
        self._rate = rate
        self._over = threading.Event()
        self.table = folder / "table"
        self.published = 0
        self.compactions = 0
        self.removed = 0
        self.wrong: list[str] = []

    def publish(self) -> None:
        """A hundredth of a second's messages at a time."""
        with connect(self._url) as nc, nc.jetstream().publisher() as publisher:
            began = time.monotonic()
            while not self._over.wait(0.01):
                wanted = int((time.monotonic() - began) * self._rate)
                for _ in range(wanted - self.published):
                    publisher.send("followed", b'{"reading": 21.5, "unit": "C"}')
                self.published = wanted

    def compact(self, every: float) -> None:
        """Through the command line, as a user's timer would."""
        while not self._over.wait(every):
            command = (*_COMMAND, "table", "compact", str(self.table), "--json")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                self.wrong.append(f"compaction: {done.stderr[-1000:]}")
                continue
            self.compactions += 1
            self.removed += int(json.loads(done.stdout)["removed"])

    def info(self) -> dict[str, int]:
        command = (*_COMMAND, "table", "info", str(self.table), "--json")
        told: dict[str, int] = json.loads(subprocess.check_output(command))
        return told

    def look(self, looks: int, seconds: float) -> int:
        """Evenly over the time, in turn with each reader; how often rows had come meanwhile."""
        readers: tuple[Callable[[str, Path], Look], ...] = (look_with_duckdb, look_with_polars)
        began, before, grown = time.monotonic(), 0, 0
        for number in range(looks):
            while time.monotonic() < began + number * seconds / looks:
                time.sleep(0.05)
            reader = readers[number % 2]
            try:
                rows, different, least, most = reader(self._format, self.table)
            except Exception as error:
                self.wrong.append(f"look {number}, {reader.__name__}: {error!r}")
                continue
            if not rows == different == most - least + 1 or least != 1 or rows < before:
                self.wrong.append(
                    f"look {number}, {reader.__name__}: {rows} rows, {different} different, "
                    f"{least} to {most}, {before} before"
                )
            grown += rows > before
            before = rows
        return grown

    def end(self) -> None:
        self._over.set()


def follow(format_: str, minutes: float, rate: int, looks: int, compact_every: float) -> list[str]:
    """What was wrong; figures are printed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="followed-")))
        server = stack.enter_context(NatsServer(store_dir=folder / "nats"))
        with connect(server.url) as nc:
            nc.jetstream().create_stream(name="FOLLOWED", subjects=["followed"])
        one = Followed(format_, server.url, folder, rate)
        log = stack.enter_context((folder / "ingest.log").open("wb"))
        followed = ("ingest", "FOLLOWED", "--server", server.url, "--to", str(one.table))
        ingest = subprocess.Popen(
            [*_COMMAND, *followed, "--format", format_, "--follow", "--interval", "2"],
            stdout=subprocess.PIPE,
            stderr=log,
        )
        stack.callback(ingest.kill)
        threads = [threading.Thread(target=one.publish)]
        threads.append(threading.Thread(target=one.compact, args=(compact_every,)))
        threads[0].start()
        try:
            while not _has_rows(format_, one.table):
                time.sleep(0.2)
                assert ingest.poll() is None, (folder / "ingest.log").read_text()
            threads[1].start()
            grown = one.look(looks, minutes * 60)
            if ingest.poll() is not None:
                one.wrong.append(f"ingest ended: {(folder / 'ingest.log').read_text()[-2000:]}")
        finally:
            one.end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        ingest.send_signal(signal.SIGINT)
        ingest.communicate(timeout=300)
        subprocess.check_call([*_COMMAND, *followed, "-q"])
        before = one.info()
        subprocess.check_call([*_COMMAND, "table", "compact", str(one.table)])
        after = one.info()
        for reader in (look_with_duckdb, look_with_polars):
            if reader(format_, one.table) != (one.published, one.published, 1, one.published):
                one.wrong.append(f"at the end, {reader.__name__}: not {one.published:,} rows")
        if after["files"] > after["bytes"] // _TARGET + 1:
            one.wrong.append(f"{after['files']} files of {after['bytes']:,} bytes")
        print(
            f"{format_}: {minutes:g} minutes, {one.published:,} messages, {looks} looks of which "
            f"{grown} saw more rows than the one before, {one.compactions} compactions took "
            f"{one.removed:,} files away; files at the end {before['files']}, compacted "
            f"{after['files']} ({after['bytes']:,} bytes); {len(one.wrong)} wrong"
        )
        return one.wrong


def _has_rows(format_: str, table: Path) -> bool:
    return format_of(table) == format_ and look_with_duckdb(format_, table)[0] > 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.table_followed", description=__doc__
    )
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=5_000, help="messages a second")
    parser.add_argument("--looks", type=int, default=1_000)
    parser.add_argument("--compact-every", type=float, default=180, metavar="SECONDS")
    options = parser.parse_args()
    small_jvms()
    wrong = follow(
        options.format, options.minutes, options.rate, options.looks, options.compact_every
    )
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
