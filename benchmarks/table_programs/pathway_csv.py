"""A stream into a CSV file with Pathway: `URL STREAM SUBJECT FOLDER MESSAGES`.

It keeps its state, as a program has to that may be killed. Pathway's streams have no end, so it
ends itself when its output has all messages.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pathway as pw

_TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
_COLUMNS = (
    *("n", "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest"),
    *("air_time", "distance", "hour", "minute", "time_hour"),
)


def main() -> None:
    url, stream, subject, folder, messages = sys.argv[1:]
    types = {name: (str if name in _TEXTS else int) | None for name in _COLUMNS}
    rows = pw.io.nats.read(
        url,
        f"{subject}.*",
        schema=pw.schema_from_types(**types),
        format="json",
        jetstream_stream_name=stream,
        name="flights",
    )
    Path(folder).mkdir(exist_ok=True)
    pw.io.csv.write(rows, f"{folder}/rows.csv")
    threading.Thread(
        target=_end, args=(Path(folder, "rows.csv"), int(messages)), daemon=True
    ).start()
    backend = pw.persistence.Backend.filesystem(f"{folder}-state")
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=1000),
    )


def _end(file: Path, messages: int) -> None:
    """End the program when the file has so many rows."""
    rows, at = -1, 0
    while rows < messages:
        time.sleep(0.1)
        if file.exists():
            with file.open("rb") as opened:
                opened.seek(at)
                while part := opened.read(1 << 20):
                    rows += part.count(b"\n")
                    at += len(part)
    os._exit(0)


if __name__ == "__main__":
    main()
