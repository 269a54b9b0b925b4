"""A large stream backed up and restored.

One server has the stream, another gets it. A process of its own makes the backup, one the restore,
and each tells its peak memory, which has to stay below `PEAK_MEGABYTES`. Then both streams are
read whole and every message compared: sequence, time, subject, headers and payload. Some messages
are deleted before, so that there are gaps, and a consumer has acknowledged some.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support import campaign

from jetspark import blocking
from jetspark.connection.options import make_options
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.server import NatsServer

PEAK_MEGABYTES = 200
STREAM = "LARGE"

_CHILD = """
import json, re, sys, time
from pathlib import Path
from jetspark import blocking
what, url, folder, seconds = *sys.argv[1:], time.perf_counter()
steps = 0
def count(step):
    global steps
    steps += 1
with blocking.connect(url) as nc:
    js = nc.jetstream()
    if what == "backup":
        js.backup_stream("LARGE", folder, progress=count)
    else:
        js.restore_stream(folder, progress=count)
# ru_maxrss would be that of whoever forked us, handed on through exec; VmHWM is our own.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(json.dumps({
    "seconds": time.perf_counter() - seconds,
    "peak_megabytes": int(peak[1]) / 1024,
    "steps": steps,
}))
"""


@dataclass
class Transfer:
    """One of the two, as its process tells it."""

    seconds: float
    peak_megabytes: float
    steps: int

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, at most {self.peak_megabytes:.0f} MB"


@dataclass
class Figures(campaign.Figures):
    """What happened; all messages are equal."""

    messages: int = 0
    megabytes: float = 0.0
    archive_megabytes: float = 0.0
    backup: Transfer | None = None
    """The last one."""
    restore: Transfer | None = None


def fill(url: str, size: int, seed: int) -> None:
    """Messages of 0 to 16 KB, half of them as good as random, until there are so many bytes."""
    rng = random.Random(seed)
    noise = rng.randbytes(1 << 20)
    with blocking.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=STREAM, subjects=[f"{STREAM}.>"])
        done = 0
        with js.publisher(window=500) as publisher:
            while done < size:
                at, length = rng.randrange(1 << 19), rng.randrange(16_000)
                payload = noise[at : at + length] if at & 1 else b"%d " % at * (length // 7)
                headers = {"N": str(at)} if at % 5 == 0 else None
                publisher.publish(f"{STREAM}.{at % 50}", payload, headers=headers)
                done += len(payload) + 1
        for seq in range(3, 300, 7):
            js.stream(STREAM).delete_msg(seq)
        worker = js.stream(STREAM).create_consumer(durable_name="worker")
        for message in worker.fetch(100, timeout=5):
            message.ack_sync()


def transfer(what: str, url: str, folder: Path) -> Transfer:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, what, url, str(folder)], stdout=subprocess.PIPE, check=True
    )
    return Transfer(**json.loads(done.stdout))


def digest(url: str) -> tuple[int, str]:
    """The number of messages, and a hash of all that they say."""
    with blocking.connect(url) as nc:
        info = nc.jetstream().api_request(f"STREAM.INFO.{STREAM}")
    wanted = SequenceRange(
        STREAM, info["state"]["first_seq"], info["state"]["last_seq"] + 1, info["created"]
    )
    count, hashed = 0, hashlib.sha256()
    for batch in read_range(make_options(url), wanted):
        columns = (
            batch[name].to_pylist() for name in ("seq", "timestamp", "subject", "headers", "data")
        )
        for *facts, data in zip(*columns, strict=True):
            hashed.update(repr(facts).encode())
            hashed.update(data)
        count += len(batch)
    return count, hashed.hexdigest()


def run(runs: int = 1, seed: int = 0, gigabytes: float = 2.0) -> Figures:
    """A run is there and back. Raises AssertionError."""
    figures = Figures()
    for number in range(seed, seed + runs):
        _there_and_back(figures, int(gigabytes * 1e9), number)
        figures.count_run()
    return figures


def _there_and_back(figures: Figures, size: int, seed: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="soak-backup-") as temporary,
        NatsServer() as one,
        NatsServer() as other,
    ):
        folder = Path(temporary, "backup")
        fill(one.url, size, seed)
        there = transfer("backup", one.url, folder)
        back = transfer("restore", other.url, folder)
        expected, found = digest(one.url), digest(other.url)
        assert found == expected
        for transferred in (there, back):
            assert transferred.peak_megabytes < PEAK_MEGABYTES, transferred
            assert transferred.steps
        with blocking.connect(one.url) as first, blocking.connect(other.url) as second:
            workers = [
                nc.jetstream().stream(STREAM).consumer("worker").cached_info
                for nc in (first, second)
            ]
            stored = first.jetstream().stream(STREAM).info().state.bytes
        assert workers[0].ack_floor.stream_seq == workers[1].ack_floor.stream_seq >= 100
        figures.messages += expected[0]
        figures.megabytes += stored / 1e6
        figures.archive_megabytes += os.path.getsize(folder / "stream.tar.s2") / 1e6
        figures.backup, figures.restore = there, back
