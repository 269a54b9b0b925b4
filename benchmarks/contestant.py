"""One contestant, one round: `python -m benchmarks.contestant SUITE FUNCTION JOB`.

Started by `turns`. The last line of its standard output is one JSON document, {"measure": …,
"versions": …}, or {"skipped": why} when a package is missing. It ends with whoever started it:
standard input is a pipe of which nothing ever comes but its end.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks import nats_go
from benchmarks.measure import Job

_PACKAGES = {
    "jetspark": "jetspark",
    "nats.aio": "nats-py",
    "nats.client": "nats-core",
    "nats.jetstream": "nats-jetstream",
    "natsrpy": "natsrpy",
    "natsio": "natsio",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
}


def main() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    suite, function, job = sys.argv[1:]
    contestant = getattr(import_module(suite), function)
    answer: dict[str, Any]
    try:
        measure = contestant(Job(**json.loads(job)))
        answer = {"measure": asdict(measure), "versions": _versions()}
    except ImportError as error:
        answer = {"skipped": str(error)}
    print(json.dumps(answer), flush=True)


def _versions() -> str:
    """Of this Python and of what was imported."""
    used = [
        f"{name} {version(name)}" for module, name in _PACKAGES.items() if module in sys.modules
    ]
    return ", ".join([f"Python {platform.python_version()}", *used, *nats_go.VERSIONS])


def _end_with_parent() -> None:
    # Not sys.stdin: a thread that waits in it makes the interpreter's own end fail.
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
