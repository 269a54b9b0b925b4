"""nats.go beside the Python clients: main.go does a contestant's work in a process of its own.

It is built with the `go` on the path, which loads nats.go the first time; without it, or where
nats.go cannot be had, the contestant is left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Job, Measure, Tally

VERSIONS: list[str] = []
"""Of Go's modules that ran, for the report."""


def measured(job: Job, work: str, **settings: Any) -> Measure:
    """`work`: one of main.go's; `settings`: what it needs besides the job. A reader, which has
    `consumers`, must see the whole stream."""
    if shutil.which("go") is None:
        raise ImportError("there is no go on the path")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "nats_go")
        command = ["go", "build", "-o", str(program), "."]
        built = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
        if built.returncode:
            raise ImportError(f"nats.go cannot be built: {built.stderr.strip()}")
        task = [str(program), work, json.dumps(asdict(job) | settings)]
        done = subprocess.run(task, stdout=subprocess.PIPE, check=True)
    answer = json.loads(done.stdout)
    VERSIONS.append(answer["version"])
    if "consumers" in settings:
        Tally(**answer["tally"]).check(job.messages, job.size)
    return Measure(job.messages, answer["seconds"], answer["cpu_seconds"], answer["peak_bytes"])
