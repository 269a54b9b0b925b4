"""A stream becomes a table: from an empty process to the finished files, imports included.

The messages are the flights of the demo, as JSON, over and over. jetspark's command is beside what
else a Python user would take: a loop on nats-py with PyArrow, and Pathway, from a Python of its own
(`--pathway-python`). CPU and memory are those of all processes of a contestant. With `--kill` each
one is killed in the middle and started again, and what the table has then is counted. With
`--decode` the same flights come in Avro and Protobuf, too, for jetspark and for a pandas UDF.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.flights import AVRO, PROTOBUF, SCHEMA, flights
from benchmarks.measure import STREAM, Job, Measure, Stopwatch, session_cpu, session_pids
from benchmarks.raw import RawLink
from benchmarks.report import Section
from benchmarks.stage import empty_stage
from benchmarks.turns import Contestant, say, take_turns

SUBJECT = "flights"
_PROGRAMS = Path(__file__).parent.parent / "table_programs"
_LABELS = {
    "jetspark_delta": "jetspark ingest → Delta",
    "nats_py_parquet": "loop on nats-py, PyArrow → Parquet",
    "pathway_csv": "Pathway → CSV",
}
_BASE = "nats_py_parquet"
_DECODED = {
    "jetspark_delta": "jetspark ingest → Delta, of JSON",
    "jetspark_avro": "of Avro",
    "jetspark_protobuf": "of Protobuf",
    "pandas_udf_avro": "pandas UDF in Spark → Delta, of Avro",
    "pandas_udf_protobuf": "pandas UDF, of Protobuf",
}
_KILLED_AFTER = 0.6
"""Of the time that the contestant took undisturbed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(messages=336_776, rounds=5, timeout=1200)
    every = _LABELS | _DECODED
    parser.add_argument("--only", nargs="+", choices=every, default=list(every))
    parser.add_argument("--decode", action="store_true", help="payloads in other formats, too")
    parser.add_argument(
        "--pathway-python",
        default=sys.executable,
        metavar="PYTHON",
        help="an interpreter that has pathway",
    )
    parser.add_argument("--kill", action="store_true", help="kill each one in the middle")


def run(options: argparse.Namespace) -> Iterator[Section]:
    with empty_stage(options) as job:
        _fill(job, decode=options.decode)
        every, base = (_DECODED, "jetspark_delta") if options.decode else (_LABELS, _BASE)
        labels = {name: label for name, label in every.items() if name in options.only}
        bases = (every[base],) if base in labels else ()
        what = f"A table of {options.messages:,} flights in JSON"
        results = take_turns(
            [_contestant(options, name, job, 0, label) for name, label in labels.items()],
            options.rounds,
            options.timeout,
        )
        yield Section(f"{what}, medians of {options.rounds} rounds", results, bases)
        if options.kill:
            halfway = {
                name: round(_KILLED_AFTER * 1000 * results.measures[label][-1].seconds)
                for name, label in labels.items()
                if label in results.measures
            }
            killed = [
                _contestant(options, name, job, after, labels[name])
                for name, after in halfway.items()
            ]
            yield Section(
                f"{what}, killed at {_KILLED_AFTER:.0%} of its time and started again",
                take_turns(killed, options.rounds, options.timeout),
                bases,
            )


def _contestant(
    options: argparse.Namespace, name: str, job: Job, kill_after: int, label: str
) -> Contestant:
    return Contestant(
        label=label,
        suite=__name__,
        function=name,
        job=replace(job, settings={"kill_after_ms": kill_after}),
        python=options.pathway_python if name.startswith("pathway") else sys.executable,
    )


def _fill(job: Job, *, decode: bool) -> None:
    from jetspark.blocking import connect

    lines = list(flights())
    with connect(job.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=[f"{SUBJECT}.*"])
        with js.publisher(window=10_000) as publisher:
            for number in range(job.messages):
                line = b'{"n":%d,' % number + lines[number % len(lines)][1:]
                publisher.publish(f"{SUBJECT}.json", line)
            for name, encode in _encoders().items() if decode else ():
                for number in range(job.messages):
                    flight = json.loads(lines[number % len(lines)])
                    publisher.publish(f"{SUBJECT}.{name}", encode({"n": number, **flight}))
    say(f"  filled {job.messages:,} messages")


def _encoders() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    import fastavro
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from jetspark.payloads.protobuf_schema import message_of
    from jetspark.payloads.schema import PayloadSchema

    schema = fastavro.parse_schema(AVRO)
    found = message_of(PayloadSchema("protobuf", PROTOBUF))
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(found.text))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(found.name))

    def avro(flight: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, flight)
        return out.getvalue()

    def protobuf(flight: dict[str, Any]) -> bytes:
        there = {name: value for name, value in flight.items() if value is not None}
        return bytes(message(**there).SerializeToString())

    return {"avro": avro, "protobuf": protobuf}


# -- contestants ---------------------------------------------------------------------------------


def jetspark_delta(job: Job) -> Measure:
    return _raced(job, _ingest(job), _in_delta)


def jetspark_avro(job: Job) -> Measure:
    return _raced(job, _ingest(job, "avro", json.dumps(AVRO)), _in_delta)


def jetspark_protobuf(job: Job) -> Measure:
    return _raced(job, _ingest(job, "protobuf", PROTOBUF), _in_delta)


def pandas_udf_avro(job: Job) -> Measure:
    return _raced(job, [*_program("pandas_udf", job), "avro"], _in_delta)


def pandas_udf_protobuf(job: Job) -> Measure:
    return _raced(job, [*_program("pandas_udf", job), "protobuf"], _in_delta)


def nats_py_parquet(job: Job) -> Measure:
    import nats
    import pyarrow

    del nats, pyarrow  # or it is skipped
    return _raced(job, _program("nats_py_parquet", job), _in_parquet)


def pathway_csv(job: Job) -> Measure:
    return _raced(job, _program("pathway_csv", job), _in_csv)


def _ingest(job: Job, decode: str = "json", schema: str = "") -> list[str]:
    how = (
        ("--decode", decode, "--schema", schema)
        if schema
        else ("--json-schema", f"n LONG, {SCHEMA}")
    )
    return [
        *(sys.executable, "-m", "jetspark", "ingest", STREAM, "--to", "table", "--server", job.url),
        *("--subjects", f"{SUBJECT}.{decode}", *how, "--quiet"),
    ]


def _program(name: str, job: Job) -> list[str]:
    program = str(_PROGRAMS / f"{name}.py")
    return [sys.executable, program, job.url, STREAM, SUBJECT, "table", str(job.messages)]


# -- running and counting --------------------------------------------------------------------------


def _raced(job: Job, command: list[str], numbers: Callable[[Path], Iterator[int]]) -> Measure:
    """`numbers`: the column n of a table."""
    for left in Path().iterdir():
        raise AssertionError(f"{left} is in the way")
    _forget_readers(job)
    peak = Peak()
    with Stopwatch(session_cpu, peak.stop) as watch:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if after := job.settings["kill_after_ms"]:
            try:
                process.wait(after / 1000)
            except subprocess.TimeoutExpired:
                _kill()
                process.wait()
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        if process.wait() != 0:
            raise RuntimeError(f"{command[1:4]} ended with {process.returncode}")
    found = list(numbers(Path("table")))
    missing, repeated = job.messages - len(set(found)), len(found) - len(set(found))
    outcome = f"  {len(found):,} rows: {missing:,} missing, {repeated:,} repeated"
    if job.settings["kill_after_ms"]:
        print(outcome)
    elif missing or repeated:
        raise RuntimeError(outcome)
    return watch.measure(job.messages)


def _forget_readers(job: Job) -> None:
    """Each table begins with the stream's first message; after a kill the reader goes on."""
    with RawLink(job.url) as link:
        for name in link.api(f"CONSUMER.NAMES.{STREAM}").get("consumers") or []:
            link.api(f"CONSUMER.DELETE.{STREAM}.{name}")


def _kill() -> None:
    """The program and all that it has started."""
    for pid in session_pids(os.getsid(0)):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)


class Peak:
    """The most memory that this session's processes had together: each one's share of it (PSS)."""

    def __init__(self) -> None:
        self._most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(2.0):
            self._most = max(self._most, sum(map(_share, session_pids(os.getsid(0)))))

    def stop(self) -> int | None:
        self._ended.set()
        self._thread.join()
        return self._most or None


def _share(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _in_delta(folder: Path) -> Iterator[int]:
    from deltalake import DeltaTable

    yield from DeltaTable(str(folder)).to_pyarrow_table(columns=["n"])["n"].to_pylist()


def _in_parquet(folder: Path) -> Iterator[int]:
    import pyarrow.parquet as pq

    for file in sorted(folder.glob("*.parquet")):
        yield from pq.read_table(file, columns=["n"])["n"].to_pylist()


def _in_csv(folder: Path) -> Iterator[int]:
    with (folder / "rows.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            yield int(row["n"])
