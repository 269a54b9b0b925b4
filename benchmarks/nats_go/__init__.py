"""nats.go beside the Python clients: main.go does a contestant's work in a process of its own.

The variable JETSPARK_BENCH_NATS_GO names the program, where it is built already. Otherwise the `go`
on the path builds it, and loads nats.go the first time; without it, or where nats.go cannot be had,
the contestant is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Job, Measure, Tally

VERSIONS: list[str] = []
"""Of Go's modules that ran, for the report."""


def measured(job: Job, work: str, **settings: Any) -> Measure:
    """`work`: one of main.go's; `settings`: what it needs besides the job. A reader, which has
    `consumers`, must see the whole stream."""
    with _program() as program:
        task = [program, work, json.dumps(asdict(job) | settings)]
        done = subprocess.run(task, stdout=subprocess.PIPE, check=True)
    answer = json.loads(done.stdout)
    VERSIONS.append(answer["version"])
    if "consumers" in settings:
        Tally(**answer["tally"]).check(job.messages, job.size)
    return Measure(job.messages, answer["seconds"], answer["cpu_seconds"], answer["peak_bytes"])


@contextmanager
def _program() -> Iterator[str]:
    if program := os.environ.get("JETSPARK_BENCH_NATS_GO"):
        yield program
        return
    if shutil.which("go") is None:
        raise ImportError("there is no go on the path, and JETSPARK_BENCH_NATS_GO is not set")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "nats_go"))
        command = ["go", "build", "-o", program, "."]
        built = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
        if built.returncode:
            raise ImportError(f"nats.go cannot be built: {built.stderr.strip()}")
        yield program
