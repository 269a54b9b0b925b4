"""One stream becomes many tables: time, and memory by process, as the number of tables grows.

`jetspark ingest` of the same messages, by the direct way, into one table and, by a template, into
others (`--tables`). Each message names its table in a field for each of these numbers, in turn, so
that every batch has rows of all tables. Afterwards the rows of all tables are counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import STREAM, Job, Measure, Stopwatch, session_cpu, session_pids
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.turns import Contestant, say, take_turns

SUBJECT = "rows"
_LOOK_EVERY = 0.1  # seconds


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=1_000_000, rounds=3, timeout=1800)
    parser.add_argument(
        "--tables",
        type=int,
        nargs="+",
        default=[1, 50, 200, 500, 5000],
        metavar="N",
        help="into so many tables; 1: without a template",
    )


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:
        _fill(job, options.tables)
        contestants = [
            Contestant(
                label=f"{count:,} table{'s' if count > 1 else ''}",
                suite=__name__,
                function=ingest.__name__,
                job=replace(
                    job,
                    settings={f"t{number}": number for number in options.tables}
                    | {"tables": count},
                ),
            )
            for count in options.tables
        ]
        yield Section(
            f"{options.messages:,} messages of about {options.size:,} bytes into tables, "
            f"medians of {options.rounds} rounds",
            take_turns(contestants, options.rounds, options.timeout),
            (),
        )


def _fill(job: Job, tables: list[int]) -> None:
    from jetspark.blocking import connect

    with connect(job.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=[SUBJECT])
        with js.publisher(window=10_000) as publisher:
            for number in range(job.messages):
                names = "".join(f',"t{count}":"{number % count}"' for count in tables)
                start = f'{{"n":{number}{names},"text":"'
                pad = "." * max(0, job.size - len(start) - 2)
                publisher.publish(SUBJECT, f'{start}{pad}"}}'.encode())
    say(f"  filled {job.messages:,} messages")


def ingest(job: Job) -> Measure:
    """Of one number of tables."""
    count = job.settings["tables"]
    fields = [name for name in job.settings if name != "tables"]
    schema = ", ".join(["n LONG", *(f"{name} STRING" for name in fields), "text STRING"])
    to = "lake/table" if count == 1 else f"lake/{{t{count}}}"
    command = [sys.executable, "-m", "jetspark", "ingest", STREAM, "--to", to, "--server", job.url]
    command += ["--json-schema", schema, "--checkpoint", "progress", "--quiet"]
    if count > 1:
        command += ["--max-new-tables", f"{count}"]
    peaks = _Peaks()
    with Stopwatch(session_cpu) as watch:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if process.wait() != 0:
            raise RuntimeError(f"{' '.join(command[3:5])} ended with {process.returncode}")
    found = peaks.stop(process.pid)
    rows = sum(map(_rows, Path("lake").iterdir()))
    if rows != job.messages or len(list(Path("lake").iterdir())) != count:
        raise RuntimeError(f"{rows:,} rows in {len(list(Path('lake').iterdir())):,} tables")
    measure = watch.measure(job.messages)
    return replace(
        measure,
        peak_bytes=sum(found.values()),
        figures={"s": measure.seconds}
        | {f"{who}, MB": most / 1e6 for who, most in sorted(found.items())},
    )


def _rows(table: Path) -> int:
    from deltalake import DeltaTable

    return DeltaTable(str(table)).count()


class _Peaks:
    """The most memory of the command, of the JVM, and of the largest Python worker."""

    def __init__(self) -> None:
        self._most: dict[int, tuple[str, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_EVERY):
            for pid in session_pids(os.getsid(0)):
                self._most[pid] = _status(pid) or self._most.get(pid, ("", 0))

    def stop(self, command: int) -> dict[str, int]:
        self._ended.set()
        self._thread.join()
        found = {"command": 0, "JVM": 0, "worker": 0}
        for pid, (name, most) in self._most.items():
            if pid != os.getpid():
                who = "command" if pid == command else "JVM" if name == "java" else "worker"
                found[who] = max(found[who], most)
        return found


def _status(pid: int) -> tuple[str, int] | None:
    """The name of a process and the most memory that was resident."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "VmHWM" not in fields:
        return None
    return fields["Name"].strip(), int(fields["VmHWM"].split()[0]) * 1024
